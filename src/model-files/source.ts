/**
 * What an operator may write as a model's `source`, parsed: `default`, a path, `hf:owner/repo/file.gguf`, or an
 * address. Parsing only; nothing here touches the disk or the network.
 */
import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { OperatorError } from "../errors.ts";
import { tryDecode } from "./try-decode.ts";

export interface HubFile {
  /** `owner/name` */
  repository: string;
  /** Branch, tag or commit. */
  revision: string;
  /** Within the repository, with `/`. */
  path: string;
}

export type Source =
  | { kind: "default" }
  | { kind: "path"; path: string }
  | { kind: "hub"; file: HubFile; fileName: string }
  | { kind: "url"; url: URL; fileName: string };

const hubShape = "hf:owner/repository/file.gguf, or hf:owner/repository@revision/file.gguf";

/** Nobody calls a folder so; taken for a path, it would be told of with the password that may be in it. */
const almostAddress = /^\s*(?:https?(?::|\/\/)|[a-z][a-z0-9+.-]+:\/\/)/i;

/** Throws an `OperatorError` that says what would be right, and nothing of what may be a name and password. */
export function parseSource(text: string): Source {
  if (text === "default") return { kind: "default" };
  if (text.startsWith("hf:")) return parseHub(text);
  if (/^https?:\/\//i.test(text)) return parseAddress(text);
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw new OperatorError(`model source ${withoutLogin(text)}: only https:// addresses can be fetched`);
  }
  if (!text.toLowerCase().endsWith(".gguf") || almostAddress.test(text)) {
    throw new OperatorError(
      `model source ${withoutLogin(text)} is not understood: write default, the path of a .gguf file, ${hubShape}, or https://...`,
    );
  }
  return { kind: "path", path: text };
}

function parseHub(text: string): Source {
  const match = /^hf:([\w.-]+)\/([\w.-]+)(?:@([\w.-]+))?\/(.+\.gguf)$/i.exec(text);
  const [, owner, name, revision = "main", path = ""] = match ?? [];
  const parts = path.split("/");
  if (owner === undefined || name === undefined || parts.some((part) => /^\.{0,2}$/.test(part))) {
    throw new OperatorError(`model source ${withoutLogin(text)} is not understood: write ${hubShape}`);
  }
  refuseParts(text, path);
  const file = { repository: `${owner}/${name}`, revision, path };
  return { kind: "hub", file, fileName: hubFileName(file) };
}

const commit = /^[0-9a-f]{40}$/;

/** One name for each file of the hub: what is on this disk under it is used without another look at where it came from. */
function hubFileName({ repository, revision, path }: HubFile): string {
  const place = [...repository.split("/"), ...path.split("/")];
  const pinned = commit.test(revision);
  const shown = place.toSpliced(2, 0, ...(revision === "main" ? [] : [revision])).map(plain);
  const joined = shown.join("--");
  // A branch or a tag may be called as a folder is; nobody calls a folder as a commit.
  const isPlain =
    (revision === "main" || pinned) &&
    !place.some((part) => part !== plain(part) || commit.test(part)) &&
    isDeepStrictEqual(joined.split("--"), shown);
  return isPlain ? joined : marked(joined, `${repository}@${revision}/${path}`);
}

function parseAddress(text: string): Source {
  if (!URL.canParse(text))
    throw new OperatorError(`model source ${withoutLogin(text)} is not a complete address`);
  const url = new URL(text);
  const place = `${url.origin}${url.pathname}`;
  const last = tryDecode(url.pathname.split("/").at(-1) ?? "");
  if (last === undefined || tryDecode(url.username) === undefined || tryDecode(url.password) === undefined) {
    throw new OperatorError(
      `model source ${withoutLogin(place)} has a % that begins no %XX: for a % itself write %25`,
    );
  }
  if (!last.toLowerCase().endsWith(".gguf")) {
    throw new OperatorError(`model source ${withoutLogin(place)} does not end in .gguf`);
  }
  refuseParts(place, last);
  // Two addresses may end in the same name; what follows the path may be a signature that changes.
  return { kind: "url", url, fileName: marked(plain(last), place) };
}

/**
 * What was written, an address or not quite one, without what may be a name and password: all up to the last `@`. A
 * password with a `/` in it leaves no telling where the host begins, even where an address can be read from it.
 */
export function withoutLogin(text: string): string {
  // Behind the owner of a repository of the hub it is the revision that an @ begins.
  if (/^hf:[^/@:]+\/[^:]*$/.test(text)) return text;
  return text.replace(/^(\s*(?:[a-z][a-z0-9+.-]*:\/\/|https?[:/\\]+|hf:)|).*@/is, "$1...@");
}

/** Tells files of one name apart by where they come from. */
function marked(fileName: string, origin: string): string {
  const mark = createHash("sha256").update(origin).digest("hex").slice(0, 8);
  return `${fileName.slice(0, -".gguf".length)}-${mark}.gguf`;
}

/** Only what every file system takes in a name. */
function plain(text: string): string {
  return text.replace(/[^\w.-]/g, "_");
}

function refuseParts(text: string, path: string): void {
  if (/-\d{5}-of-\d{5}\.gguf$/i.test(path)) {
    throw new OperatorError(
      `model source ${withoutLogin(text)} is one part of a split model: fetch all its parts into one folder and give the path of the first`,
    );
  }
}
