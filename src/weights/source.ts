/**
 * What an operator may write as a model's `source`, parsed: `default`, a path, `hf:owner/repo/file.gguf`, or an
 * address. Parsing only; nothing here touches the disk or the network.
 */
import { createHash } from "node:crypto";
import { OperatorError } from "../errors.ts";

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

/** Throws an `OperatorError` that says what would be right. */
export function parseSource(text: string): Source {
  if (text === "default") return { kind: "default" };
  if (text.startsWith("hf:")) return parseHub(text);
  if (/^https?:\/\//i.test(text)) return parseAddress(text);
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw new OperatorError(`model source ${text}: only https:// addresses can be fetched`);
  }
  if (!text.toLowerCase().endsWith(".gguf")) {
    throw new OperatorError(
      `model source ${text} is not understood: write default, the path of a .gguf file, ${hubShape}, or https://...`,
    );
  }
  return { kind: "path", path: text };
}

function parseHub(text: string): Source {
  const match = /^hf:([\w.-]+)\/([\w.-]+)(?:@([\w.-]+))?\/(.+\.gguf)$/i.exec(text);
  const [, owner, name, revision = "main", path = ""] = match ?? [];
  const parts = path.split("/");
  if (owner === undefined || name === undefined || parts.some((part) => /^\.{0,2}$/.test(part))) {
    throw new OperatorError(`model source ${text} is not understood: write ${hubShape}`);
  }
  refuseParts(text, path);
  const place = [owner, name, ...(revision === "main" ? [] : [revision]), ...parts].map(plain).join("--");
  return { kind: "hub", file: { repository: `${owner}/${name}`, revision, path }, fileName: place };
}

function parseAddress(text: string): Source {
  if (!URL.canParse(text)) throw new OperatorError(`model source ${text} is not a complete address`);
  const url = new URL(text);
  const last = decodeURIComponent(url.pathname.split("/").at(-1) ?? "");
  if (!last.toLowerCase().endsWith(".gguf")) {
    throw new OperatorError(`model source ${url.origin}${url.pathname} does not end in .gguf`);
  }
  refuseParts(text, last);
  // Two addresses may end in the same name; what follows the path may be a signature that changes.
  const mark = createHash("sha256").update(`${url.origin}${url.pathname}`).digest("hex").slice(0, 8);
  const fileName = `${plain(last.slice(0, -".gguf".length))}-${mark}.gguf`;
  return { kind: "url", url, fileName };
}

/** Only what every file system takes in a name. */
function plain(text: string): string {
  return text.replace(/[^\w.-]/g, "_");
}

function refuseParts(text: string, path: string): void {
  if (/-\d{5}-of-\d{5}\.gguf$/i.test(path)) {
    throw new OperatorError(
      `model source ${text} is one part of a split model: fetch all its parts into one folder and give the path of the first`,
    );
  }
}
