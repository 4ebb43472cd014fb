/**
 * Downloads one file into a folder. The caller holds the file's lock.
 *
 * An interrupted download is resumed, even by a later process, if the server still has the same
 * content. Otherwise it starts over. The file gets its final name only when it is complete, on
 * disk, and verified by SHA-256 if one is known. Timeouts, broken connections and temporary
 * refusals are retried a few times.
 *
 * No maintained library does all of this. @huggingface/hub 2.17 neither resumes nor verifies.
 * ipull 3.9, which node-llama-cpp uses, keeps its state inside the unfinished file and verifies
 * no SHA-256.
 */
import { createHash } from "node:crypto";
import { open, readFile, stat, writeFile } from "node:fs/promises";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import {
  adoptPart,
  discardPart,
  diskError,
  hashInto,
  type PartFile,
  partFileOf,
  requireRoom,
} from "./part-file.ts";
import { megabytes } from "./progress.ts";
import { type FetchTools, fetchWithRetries } from "./retry.ts";
import { discard, type HttpResponse, TransportFailure, transportFailureOf } from "./transport.ts";
import type { Credential } from "./url-credentials.ts";

export interface Wanted {
  url: URL;
  credentials: readonly Credential[];
  folder: string;
  fileName: string;
  /** In hex, if it is known beforehand. */
  sha256?: string | undefined;
  /** If it is known beforehand. */
  sizeBytes?: number | undefined;
  /** Upper bound if the exact size is unknown. Default: the free space of the disk. */
  sizeBytesMax?: number;
  /** An `etag` that looks like a SHA-256 is one. */
  isOnHub?: true;
  /** Checks the complete file before it gets its name. */
  check?: (path: string) => Promise<unknown>;
}

/** State of an unfinished download, stored beside the part. */
interface PartState {
  url: string;
  /** `etag` or `last-modified`, for `if-range`. */
  validator: string | null;
  /** SHA-256 that the hub names for the content. */
  contentSha256: string | null;
}

/** Returns the file's path. Throws a `TransportFailure`, or an `OperatorError` about the disk. */
export async function download(wanted: Wanted, tools: FetchTools): Promise<string> {
  const part = partFileOf(wanted.folder, wanted.fileName);
  let isVerified = false;
  await fetchWithRetries(
    tools,
    () => sizeOf(part.partPath),
    async () => {
      isVerified = await attempt(wanted, part, tools);
    },
  );
  try {
    await wanted.check?.(part.partPath);
  } catch (error) {
    await discardPart(part);
    if (!(error instanceof OperatorError)) throw error;
    throw new TransportFailure(`${wanted.url.host} sent something else: ${error.message}`, false, {
      cause: error,
    });
  }
  await adoptPart(part, wanted.folder, isVerified);
  return part.path;
}

/** Downloads the missing bytes. Returns whether something named the SHA-256 of the file. */
async function attempt(wanted: Wanted, part: PartFile, tools: FetchTools): Promise<boolean> {
  const earlier = await readState(wanted, part);
  const answer = await tools.transport.get(
    wanted.url,
    rangeHeaders(earlier),
    wanted.credentials,
    tools.signal,
  );
  let finished = false;
  try {
    const state = stateOf(wanted, answer);
    const receivedBytes = await resumePoint(earlier, state, answer, part);
    const totalBytes = totalOf(answer, receivedBytes) ?? wanted.sizeBytes;
    if (wanted.sizeBytes !== undefined && totalBytes !== wanted.sizeBytes) {
      throw new TransportFailure(
        `${wanted.url.host} offers ${totalBytes} bytes where ${wanted.sizeBytes} are expected`,
        false,
      );
    }
    requireExpectedSize(wanted, totalBytes ?? 0);
    if (totalBytes !== undefined) await requireRoom(wanted.folder, totalBytes - receivedBytes);
    const sha256 = await receive(wanted, part, tools, answer, state, receivedBytes, totalBytes);
    finished = true;
    return await verify(wanted, part, state, sha256, receivedBytes > 0);
  } finally {
    // An unread body would keep its connection.
    if (!finished) discard(answer.body);
  }
}

interface Resumable extends PartState {
  sizeBytes: number;
}

/** Returns the state of an earlier attempt if this download can resume it. */
async function readState(wanted: Wanted, part: PartFile): Promise<Resumable | undefined> {
  const sizeBytes = await sizeOf(part.partPath);
  const state = parseState(await readFile(part.statePath, "utf8").catch(() => ""));
  if (sizeBytes === 0 || state === undefined || state.url !== plainUrlOf(wanted)) return undefined;
  // Without any of these, two halves of different files would not be noticed.
  const known = wanted.sha256 !== undefined || state.validator !== null || state.contentSha256 !== null;
  return known ? { ...state, sizeBytes } : undefined;
}

function parseState(text: string): PartState | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Missing, or incompletely written: start over.
    return undefined;
  }
  const { url, validator, contentSha256 }: Record<string, unknown> =
    typeof value === "object" && value !== null ? { ...value } : {};
  if (typeof url !== "string") return undefined;
  return {
    url,
    validator: typeof validator === "string" ? validator : null,
    contentSha256: typeof contentSha256 === "string" ? contentSha256 : null,
  };
}

function rangeHeaders(earlier: Resumable | undefined): Record<string, string> {
  if (earlier === undefined) return {};
  const range = { range: `bytes=${earlier.sizeBytes}-` };
  return earlier.validator === null ? range : { ...range, "if-range": earlier.validator };
}

function stateOf(wanted: Wanted, answer: HttpResponse): PartState {
  const etag = answer.headers.get("etag");
  // A weak etag is not allowed in if-range (RFC 9110, 13.1.5).
  const strong = etag?.startsWith('"') === true ? etag : undefined;
  // The hub's `x-linked-etag` is the SHA-256 of the content. A mirror may pass it on as `etag`.
  const named = answer.firstHeaders.get("x-linked-etag") ?? (wanted.isOnHub ? etag : undefined);
  const linked = /^"?([0-9a-f]{64})"?$/i.exec(named ?? "")?.[1];
  return {
    url: plainUrlOf(wanted),
    validator: strong ?? answer.headers.get("last-modified") ?? null,
    contentSha256: linked?.toLowerCase() ?? null,
  };
}

/** Returns how many bytes of the part precede the body of this answer. */
async function resumePoint(
  earlier: Resumable | undefined,
  state: PartState,
  answer: HttpResponse,
  part: PartFile,
): Promise<number> {
  if (answer.status === 200) return 0;
  // Some servers ignore if-range.
  const isOther = (one: string | null, other: string | null) =>
    one !== null && other !== null && one !== other;
  const same =
    earlier !== undefined &&
    earlier.contentSha256 === state.contentSha256 &&
    // Nodes of a mirror may name the same content differently.
    (state.contentSha256 !== null || !isOther(earlier.validator, state.validator));
  const range = answer.headers.get("content-range") ?? "";
  const start = Number(/^bytes (\d+)-/.exec(range)?.[1]);
  const total = Number(/\/(\d+)$/.exec(range)?.[1]);
  if (same && answer.status === 206 && start === earlier.sizeBytes) return start;
  // The earlier attempt broke after the last byte: nothing is missing.
  if (same && answer.status === 416 && total === earlier.sizeBytes) return total;
  await discardPart(part);
  throw new TransportFailure(`${answer.url.host} has other content than before`, true, { retryAfterMs: 0 });
}

function totalOf(answer: HttpResponse, receivedBytes: number): number | undefined {
  const range = /\/(\d+)$/.exec(answer.headers.get("content-range") ?? "")?.[1];
  if (range !== undefined) return Number(range);
  const length = answer.headers.get("content-length");
  if (length !== undefined) return receivedBytes + Number(length);
  const linked = answer.firstHeaders.get("x-linked-size");
  return linked === undefined ? undefined : Number(linked);
}

/** Appends the body to the part and returns the SHA-256 of the complete file. */
async function receive(
  wanted: Wanted,
  part: PartFile,
  tools: FetchTools,
  answer: HttpResponse,
  state: PartState,
  startBytes: number,
  totalBytes: number | undefined,
): Promise<string> {
  const hash = createHash("sha256");
  if (startBytes > 0) await hashInto(hash, part.partPath);
  let receivedBytes = startBytes;
  const report = (): void =>
    tools.progress.received({ fileName: wanted.fileName, receivedBytes, totalBytes });
  try {
    await using file = await open(part.partPath, startBytes > 0 ? "a" : "w");
    await writeFile(part.statePath, JSON.stringify(state));
    report();
    // The part is complete, and the body describes the error.
    if (answer.status === 416) discard(answer.body);
    else {
      for await (const chunk of piecesOf(answer)) {
        receivedBytes += chunk.length;
        requireExpectedSize(wanted, receivedBytes);
        await file.writeFile(chunk);
        hash.update(chunk);
        report();
      }
    }
  } catch (error) {
    tools.signal.throwIfAborted();
    if (error instanceof TransportFailure) {
      if (receivedBytes > (wanted.sizeBytesMax ?? Number.POSITIVE_INFINITY)) await discardPart(part);
      throw error;
    }
    // A full disk affects everything on this machine: free the space.
    const needed = totalBytes === undefined ? `more than ${megabytes(receivedBytes)}` : megabytes(totalBytes);
    const failure = diskError(error, wanted.folder, needed);
    await discardPart(part);
    throw failure;
  }
  if (totalBytes !== undefined && receivedBytes !== totalBytes) {
    if (receivedBytes > totalBytes) await discardPart(part);
    throw new TransportFailure(`${answer.url.host} sent ${receivedBytes} of ${totalBytes} bytes`, true);
  }
  return hash.digest("hex");
}

function requireExpectedSize({ url, sizeBytesMax }: Wanted, bytes: number): void {
  if (sizeBytesMax === undefined || bytes <= sizeBytesMax) return;
  throw new TransportFailure(
    `${url.host} offers more than the ${sizeBytesMax} bytes that are expected`,
    false,
  );
}

/**
 * Yields the pieces of the body. Its errors become a `TransportFailure`, which distinguishes them
 * from the disk's.
 */
async function* piecesOf(answer: HttpResponse): AsyncGenerator<Buffer> {
  try {
    yield* answer.body;
  } catch (error) {
    throw transportFailureOf(answer.url, error);
  }
}

async function verify(
  wanted: Wanted,
  part: PartFile,
  state: PartState,
  sha256: string,
  resumed: boolean,
): Promise<boolean> {
  const expected = wanted.sha256 ?? state.contentSha256;
  if (expected === null || expected === sha256) return expected !== null;
  await discardPart(part);
  // After a resume the part on this disk may be at fault, so one more attempt starts over.
  throw new TransportFailure(
    `${wanted.url.host} sent a file with SHA-256 ${sha256} where ${expected} is expected; it was deleted`,
    resumed,
    { retryAfterMs: 0 },
  );
}

/** URL without query and credentials: they may change, or must not be stored. */
function plainUrlOf(wanted: Wanted): string {
  return `${wanted.url.origin}${wanted.url.pathname}`;
}

async function sizeOf(path: string): Promise<number> {
  const found = await stat(path).catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return undefined;
    throw new OperatorError(`${path} cannot be read: ${messageOf(error)}`, error);
  });
  return found?.size ?? 0;
}
