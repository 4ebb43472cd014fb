/**
 * Finds the URL and the checksum of a wheel on a Python package index. Does not download it.
 *
 * Understands both forms of the simple repository API: JSON (PEP 691), and HTML (PEP 503), which
 * is all that many mirrors have.
 */
import { OperatorError } from "../errors.ts";
import { exceededSize, foreignKeysMax } from "../json-size.ts";
import { fieldOf } from "../objects.ts";
import { tryDecode } from "../percent-encoding.ts";
import { type FetchTools, fetchWithRetries } from "./retry.ts";
import { TransportFailure } from "./transport.ts";
import { type Credential, takeCredentials } from "./url-credentials.ts";

/** A project with 2,000 files has a page of this size. It takes up to 60 ms to parse. */
const pageBytesMax = 1024 * 1024;

interface Wheel {
  url: URL;
  sha256: string | undefined;
  credentials: readonly Credential[];
}

/** Throws an `OperatorError` if the index URL is invalid. */
export function requireIndex(indexUrl: string): void {
  indexPage(indexUrl, "any");
}

function indexPage(indexUrl: string, project: string): { url: URL; credentials: Credential[] } {
  const url = URL.parse(`${indexUrl.replace(/\/+$/, "")}/${project}/`);
  const page = url === null ? undefined : takeCredentials(url);
  if (page !== undefined) return page;
  // The message does not repeat the URL, which may contain a password.
  throw new OperatorError(
    "the package index (PIP_INDEX_URL, or index-url in pip's configuration) is not a URL: write https://host/simple, " +
      "or https://user:password@host/simple, with %25 for a % in them",
  );
}

/** Throws a `TransportFailure` if the index cannot be reached or does not have the wheel. */
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
        page: await tools.transport.bytes(answer, pageBytesMax),
        json: answer.headers.get("content-type")?.includes("json") === true,
        base: answer.url.href,
      };
    },
  );
  const link = json ? linkInJson(page, wheelName) : linkInHtml(page.toString("utf8"), wheelName);
  const address = link === undefined ? null : URL.parse(link.href, base);
  const found = address === null ? undefined : takeCredentials(address);
  if (link === undefined || found === undefined) {
    throw new TransportFailure(`${url.host} has no ${wheelName}`, false);
  }
  return { url: found.url, sha256: link.sha256, credentials: [...found.credentials, ...credentials] };
}

interface Link {
  href: string;
  sha256: string | undefined;
}

function linkInJson(page: Buffer, wheelName: string): Link | undefined {
  const files = fieldOf(parsed(page), "files");
  for (const file of Array.isArray(files) ? files : []) {
    const url = fieldOf(file, "url");
    if (fieldOf(file, "filename") !== wheelName || typeof url !== "string") continue;
    const sha256 = fieldOf(fieldOf(file, "hashes"), "sha256");
    return { href: url, sha256: typeof sha256 === "string" ? sha256.toLowerCase() : undefined };
  }
  return undefined;
}

function parsed(page: Buffer): unknown {
  const exceeded = exceededSize(page, foreignKeysMax);
  if (exceeded !== null)
    throw new TransportFailure(`the package index sent a page with too many ${exceeded}`, false);
  try {
    return JSON.parse(page.toString("utf8"));
  } catch (error) {
    throw new TransportFailure("the package index sent a page that is not JSON", false, { cause: error });
  }
}

function linkInHtml(page: string, wheelName: string): Link | undefined {
  for (const written of hrefsIn(page)) {
    const href = written.replaceAll("&amp;", "&");
    const [address = "", fragment = ""] = href.split("#");
    // One invalid link does not affect the others.
    const name = tryDecode(address.split("?")[0]?.split("/").at(-1) ?? "");
    if (name !== wheelName) continue;
    return { href: address, sha256: /(?:^|&)sha256=([0-9a-f]{64})/i.exec(fragment)?.[1]?.toLowerCase() };
  }
  return undefined;
}

/**
 * Yields the `href` of each `<a>`, in time linear in the page: each expression starts at the end
 * of the last match.
 */
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
