/**
 * Parses a model's `source`: `default`, a path, `hf:owner/repo/file.gguf` or a URL. Uses neither
 * disk nor network.
 *
 * No message repeats a user or password that may be in the text.
 */
import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { OperatorError } from "../errors.ts";
import { tryDecode } from "../percent-encoding.ts";
import { takeCredentials } from "./url-credentials.ts";

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

/**
 * Looks like a mistyped URL. Treated as a path, it would appear in messages with the password
 * that it may contain.
 */
const almostUrl = /^\s*(?:https?(?::|\/\/)|[a-z][a-z0-9+.-]+:\/\/)/i;

/** Throws an `OperatorError` that names the valid forms. */
export function parseSource(text: string): Source {
  if (text === "default") return { kind: "default" };
  if (text.startsWith("hf:")) return parseHub(text);
  if (/^https?:\/\//i.test(text)) return parseUrl(text);
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw new OperatorError(`model source ${withoutLogin(text)}: only https:// URLs can be downloaded`);
  }
  if (!text.toLowerCase().endsWith(".gguf") || almostUrl.test(text)) {
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

/**
 * Returns a unique name for each file of the hub, because a file of that name on this disk is
 * used without asking the hub.
 */
function hubFileName({ repository, revision, path }: HubFile): string {
  const place = [...repository.split("/"), ...path.split("/")];
  const pinned = commit.test(revision);
  const shown = place.toSpliced(2, 0, ...(revision === "main" ? [] : [revision])).map(plain);
  const joined = shown.join("--");
  // A branch or a tag may have the name of a folder. A commit is recognised by its form.
  const isPlain =
    (revision === "main" || pinned) &&
    !place.some((part) => part !== plain(part) || commit.test(part)) &&
    isDeepStrictEqual(joined.split("--"), shown);
  return isPlain ? joined : marked(joined, `${repository}@${revision}/${path}`);
}

function parseUrl(text: string): Source {
  if (!URL.canParse(text))
    throw new OperatorError(`model source ${withoutLogin(text)} is not a complete URL`);
  const url = new URL(text);
  const place = `${url.origin}${url.pathname}`;
  const last = tryDecode(url.pathname.split("/").at(-1) ?? "");
  if (last === undefined || takeCredentials(url) === undefined) {
    throw new OperatorError(
      `model source ${withoutLogin(place)} has a % that begins no valid escape: write %25 for a %`,
    );
  }
  if (!last.toLowerCase().endsWith(".gguf")) {
    throw new OperatorError(`model source ${withoutLogin(place)} does not end in .gguf`);
  }
  refuseParts(place, last);
  // Two URLs may end with the same name. The query may be a signature that changes, so it is not
  // part of the mark.
  return { kind: "url", url, fileName: marked(plain(last), place) };
}

/**
 * Returns the text without anything that may be a user and password: it drops everything before
 * the last `@`. A password may contain a `/`, so the start of the host cannot be determined.
 */
export function withoutLogin(text: string): string {
  // After the repository of a hub file, an @ begins the revision.
  if (/^hf:[^/@:]+\/[^:]*$/.test(text)) return text;
  return text.replace(/^(\s*(?:[a-z][a-z0-9+.-]*:\/\/|https?[:/\\]+|hf:)|).*@/is, "$1...@");
}

/** Makes the name unique by a hash of the origin. */
function marked(fileName: string, origin: string): string {
  const mark = createHash("sha256").update(origin).digest("hex").slice(0, 8);
  return `${fileName.slice(0, -".gguf".length)}-${mark}.gguf`;
}

/** Replaces characters that some file systems do not allow in names. */
function plain(text: string): string {
  return text.replace(/[^\w.-]/g, "_");
}

function refuseParts(text: string, path: string): void {
  if (/-\d{5}-of-\d{5}\.gguf$/i.test(path)) {
    throw new OperatorError(
      `model source ${withoutLogin(text)} is one part of a split model: download all its parts into one folder and set source to the path of the first`,
    );
  }
}
