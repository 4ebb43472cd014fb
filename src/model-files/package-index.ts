/**
 * Finds a wheel on a Python package index: its address and checksum. Speaks the simple repository API in both of
 * its forms, JSON (PEP 691) and HTML (PEP 503), since mirrors often have only the older one. Fetches no wheel.
 */
import { OperatorError } from "../errors.ts";
import { type FetchTools, fetchWithRetries } from "./retry.ts";
import { type Credential, TransportFailure } from "./transport.ts";
import { tryDecode } from "./try-decode.ts";

/** The page of a project with 10,000 files takes 4 MB. */
const pageBytesMax = 8 * 1024 * 1024;

export interface Wheel {
  url: URL;
  sha256: string | undefined;
  credentials: readonly Credential[];
}

/** Throws an `OperatorError` where the index's address will do for no project. */
export function requireIndex(indexUrl: string): void {
  indexPage(indexUrl, "any");
}

function indexPage(indexUrl: string, project: string): Addressed {
  const url = URL.parse(`${indexUrl.replace(/\/+$/, "")}/${project}/`);
  const page = url === null ? undefined : takeCredentials(url);
  if (page !== undefined) return page;
  // What it says is not repeated: there may be a password in it.
  throw new OperatorError(
    "the package index (PIP_INDEX_URL, or index-url in pip's configuration) is not an address: write https://host/simple, " +
      "or https://user:password@host/simple, with %25 for a % in them",
  );
}

/** Throws a `TransportFailure` where the index cannot be asked or does not have the wheel. */
export async function findWheel(
  indexUrl: string,
  project: string,
  wheelName: string,
  tools: FetchTools,
): Promise<Wheel> {
  const { url, credentials } = indexPage(indexUrl, project);
  const accept =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";
  const { page, json, base } = await fetchWithRetries(
    tools,
    async () => 0,
    async () => {
      const answer = await tools.transport.get(url, { accept }, credentials, tools.signal);
      return {
        page: await tools.transport.text(answer, pageBytesMax),
        json: answer.headers.get("content-type")?.includes("json") === true,
        base: answer.url.href,
      };
    },
  );
  const link = json ? linkInJson(page, wheelName) : linkInHtml(page, wheelName);
  const address = link === undefined ? null : URL.parse(link.href, base);
  const found = address === null ? undefined : takeCredentials(address);
  if (link === undefined || found === undefined) {
    throw new TransportFailure(`${url.host} has no ${wheelName}`, false);
  }
  return { url: found.url, sha256: link.sha256, credentials: [...found.credentials, ...credentials] };
}

interface Addressed {
  url: URL;
  credentials: Credential[];
}

/**
 * `https://user:secret@host/...` as an address that may be shown, and what to send to that host. Undefined where a `%`
 * in the user or the secret stands for nothing.
 */
export function takeCredentials(address: URL): Addressed | undefined {
  const url = new URL(address.href);
  if (url.username === "" && url.password === "") return { url, credentials: [] };
  const user = tryDecode(url.username);
  const secret = tryDecode(url.password);
  if (user === undefined || secret === undefined) return undefined;
  url.username = "";
  url.password = "";
  const authorization = `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`;
  return { url, credentials: [{ origin: url.origin, authorization }] };
}

interface Link {
  href: string;
  sha256: string | undefined;
}

function linkInJson(page: string, wheelName: string): Link | undefined {
  const files = recordOf(parsed(page)).files;
  for (const file of Array.isArray(files) ? files : []) {
    const { filename, url, hashes } = recordOf(file);
    if (filename !== wheelName || typeof url !== "string") continue;
    const { sha256 } = recordOf(hashes);
    return { href: url, sha256: typeof sha256 === "string" ? sha256.toLowerCase() : undefined };
  }
  return undefined;
}

function parsed(page: string): unknown {
  try {
    return JSON.parse(page);
  } catch (error) {
    throw new TransportFailure("the package index sent a page that is not JSON", false, { cause: error });
  }
}

/** The fields of what should be an object; none where it is not one. */
function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function linkInHtml(page: string, wheelName: string): Link | undefined {
  for (const written of hrefsIn(page)) {
    const href = written.replaceAll("&amp;", "&");
    const [address = "", fragment = ""] = href.split("#");
    // Undefined where it is no name that anybody could have given: one bad link says nothing of the others.
    const name = tryDecode(address.split("?")[0]?.split("/").at(-1) ?? "");
    if (name !== wheelName) continue;
    return { href: address, sha256: /(?:^|&)sha256=([0-9a-f]{64})/i.exec(fragment)?.[1]?.toLowerCase() };
  }
  return undefined;
}

/** The `href` of each `<a>`, in time linear in the page: every expression goes on where the last one ended. */
function* hrefsIn(page: string): Generator<string, void, undefined> {
  const tag = /<a(?=\s)/gi;
  const attribute = /\s*([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+)))?/y;
  while (tag.exec(page) !== null) {
    attribute.lastIndex = tag.lastIndex;
    for (let end = tag.lastIndex; ; end = attribute.lastIndex) {
      const found = attribute.exec(page);
      if (found === null) {
        tag.lastIndex = end;
        break;
      }
      const [, name = "", double, single, bare] = found;
      if (name.toLowerCase() === "href") yield double ?? single ?? bare ?? "";
    }
  }
}
