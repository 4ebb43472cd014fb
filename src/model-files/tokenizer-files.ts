/**
 * Turns a model's `tokenizer` in the configuration into files on this disk, downloaded from a hub
 * if necessary.
 *
 * A downloaded tokenizer is complete or missing: its `tokenizer.json` is downloaded last. A
 * network failure is returned, so that the caller can continue without the tokenizer. A fault of
 * this machine or of the configuration throws an `OperatorError`.
 */
import { open, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { download } from "./download.ts";
import { lockFile } from "./folder-lock.ts";
import type { ModelFileOptions } from "./model-files.ts";
import { prepareFolder } from "./part-file.ts";
import { proxiesOf } from "./proxies.ts";
import type { FetchTools } from "./retry.ts";
import { parseTokenizerSource, type TokenizerSource, withoutLogin } from "./source.ts";
import { Transport, TransportFailure } from "./transport.ts";

/** Absolute paths. */
export interface TokenizerFiles {
  /** `tokenizer.json` of Hugging Face. */
  tokenizer: string;
  /** `tokenizer_config.json`, or null. */
  config: string | null;
  /** `chat_template.jinja`, or null. */
  template: string | null;
}

const names = {
  tokenizer: "tokenizer.json",
  config: "tokenizer_config.json",
  template: "chat_template.jinja",
};
const sizeBytesMax = 256 * 1024 * 1024;

export type ObtainedTokenizer = { found: true; files: TokenizerFiles } | { found: false; reason: string };

type TokenizerOptions = Pick<
  ModelFileOptions,
  "modelsDir" | "progress" | "signal" | "hubEndpoint" | "hubToken" | "environment" | "timeouts" | "backoffMs"
>;

/** Finds or downloads the files. Throws an `OperatorError`, or the signal's reason. */
export async function obtainTokenizerFiles(
  source: string,
  options: TokenizerOptions,
): Promise<ObtainedTokenizer> {
  const { modelsDir, progress, signal } = options;
  const present = await findTokenizerFiles(source, modelsDir);
  const parsed = parseTokenizerSource(source);
  if (present !== null || parsed.kind === "path")
    return { found: true, files: requireFound(present, source) };
  const folder = join(modelsDir, parsed.folder);
  await prepareFolder(folder);
  const onWait = () => progress.note(`another process is downloading ${source}; waiting for it`);
  const transport = new Transport(proxiesOf(options.environment), options.timeouts);
  try {
    const lock = await lockFile(folder, names.tokenizer, onWait, signal);
    try {
      const tools = { transport, progress, signal, backoffMs: options.backoffMs ?? 500 };
      await fetchAll(parsed, folder, options, tools);
      return { found: true, files: requireFound(await filesIn(folder), source) };
    } finally {
      lock.release();
    }
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof TransportFailure)) throw error;
    return { found: false, reason: error.message };
  } finally {
    await transport.close();
  }
}

/**
 * Returns the files if they are on this disk, or null if they must be downloaded. Throws an
 * `OperatorError` if a path does not exist.
 */
export async function findTokenizerFiles(source: string, modelsDir: string): Promise<TokenizerFiles | null> {
  const parsed = parseTokenizerSource(source);
  if (parsed.kind === "hub") return await filesIn(join(modelsDir, parsed.folder));
  const path = resolve(parsed.path);
  const isFolder = await stat(path).then(
    (found) => found.isDirectory(),
    (error: unknown) => {
      throw new OperatorError(`tokenizer ${path} cannot be read: ${messageOf(error)}`, error);
    },
  );
  const files = await filesIn(isFolder ? path : dirname(path));
  if (!isFolder) return { config: null, template: null, ...files, tokenizer: path };
  return requireFound(files, path);
}

function requireFound(files: TokenizerFiles | null, source: string): TokenizerFiles {
  if (files === null) throw new OperatorError(`tokenizer ${source}: the folder has no ${names.tokenizer}`);
  return files;
}

async function filesIn(folder: string): Promise<TokenizerFiles | null> {
  const [tokenizer, config, template] = await Promise.all(
    [names.tokenizer, names.config, names.template].map((name) => fileIn(folder, name)),
  );
  if (tokenizer === undefined || tokenizer === null) return null;
  return { tokenizer, config: config ?? null, template: template ?? null };
}

async function fileIn(folder: string, name: string): Promise<string | null> {
  const path = join(folder, name);
  const found = await stat(path).catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return null;
    throw new OperatorError(`tokenizer ${path} cannot be read: ${messageOf(error)}`, error);
  });
  return found?.isFile() === true ? path : null;
}

/** Repositories may lack the configuration and the template. */
async function fetchAll(
  { repository, revision }: Extract<TokenizerSource, { kind: "hub" }>,
  folder: string,
  { hubEndpoint, hubToken }: TokenizerOptions,
  tools: FetchTools,
): Promise<void> {
  const endpoint = hubEndpoint.replace(/\/+$/, "");
  if (!URL.canParse(endpoint)) throw new OperatorError(`HF_ENDPOINT ${withoutLogin(endpoint)} is not a URL`);
  for (const fileName of [names.template, names.config, names.tokenizer]) {
    const url = new URL(`${endpoint}/${repository}/resolve/${encodeURIComponent(revision)}/${fileName}`);
    const credentials =
      hubToken === undefined ? [] : [{ origin: url.origin, authorization: `Bearer ${hubToken}` }];
    const check = fileName === names.template ? {} : { check: requireJson };
    try {
      await download({ url, credentials, folder, fileName, sizeBytesMax, ...check }, tools);
    } catch (error) {
      const isMissing = error instanceof TransportFailure && error.isMissing;
      if (!isMissing || fileName === names.tokenizer) throw error;
    }
  }
}

/** Bytes at each end of a file that are looked at. */
const endBytes = 1024;

/**
 * Refuses pages and other files in the place of a JSON object. The whole file is parsed in the
 * thread of the tokenizer: here, a large one would block the event loop for a second.
 */
async function requireJson(path: string): Promise<void> {
  await using file = await open(path);
  const { size } = await file.stat();
  const textAt = async (position: number) => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(endBytes), 0, endBytes, position);
    return buffer.toString("latin1", 0, bytesRead);
  };
  const begins = /^(?:\u00ef\u00bb\u00bf)?\s*\{/.test(await textAt(0));
  const ends = /\}\s*$/.test(await textAt(Math.max(0, size - endBytes)));
  if (!begins || !ends) throw new OperatorError("it is not JSON");
}
