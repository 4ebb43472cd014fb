/**
 * Fetches one file into a folder. Guarantees: resumed where it was cut, also by a later process, as long as the
 * server still has the same content; started over where it has not, or knows no ranges; under its final name only
 * when whole, checked by SHA-256 (where one is known) and on disk. Silence, breaks and passing refusals are tried
 * again a few times. The caller holds the file's lock.
 *
 * Our own, because none of the kept ones does all of it: @huggingface/hub 2.17 streams a file but neither resumes
 * nor checks it; ipull 3.9 (which node-llama-cpp's downloader uses) resumes, with its state inside the unfinished
 * file, and does not check a SHA-256.
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
import { type Answer, type Credential, failureOf, TransportFailure } from "./transport.ts";

export interface Wanted {
  url: URL;
  credentials: readonly Credential[];
  folder: string;
  fileName: string;
  /** Hex; absent if it is not known beforehand. */
  sha256: string | undefined;
  sizeBytes: number | undefined;
  /** Most bytes to accept if the size is not known beforehand; absent: as many as the disk has room for. */
  sizeBytesMax?: number;
  /** A last look at the whole file before it gets its name. */
  check?: (path: string) => Promise<unknown>;
}

/** What the part beside it was cut from. */
interface Begun {
  url: string;
  /** `etag` or `last-modified`, for `if-range`. */
  validator: string | null;
  /** SHA-256 by which the hub names the content. */
  contentSha256: string | null;
}

/** Resolves with the file's path. Throws a `TransportFailure`, or an `OperatorError` about the disk. */
export async function download(wanted: Wanted, tools: FetchTools): Promise<string> {
  const part = partFileOf(wanted.folder, wanted.fileName);
  await fetchWithRetries(
    tools,
    () => sizeOf(part.partPath),
    () => attempt(wanted, part, tools),
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
  await adoptPart(part, wanted.folder);
  return part.path;
}

/** Gets what is missing of the part, and checks the whole. */
async function attempt(wanted: Wanted, part: PartFile, tools: FetchTools): Promise<void> {
  const begun = await readBegun(wanted, part);
  const answer = await tools.transport.get(wanted.url, rangeHeaders(begun), wanted.credentials, tools.signal);
  let finished = false;
  try {
    const state = stateOf(wanted, answer);
    const receivedBytes = await resumePoint(begun, state, answer, part);
    const totalBytes = totalOf(answer, receivedBytes) ?? wanted.sizeBytes;
    if (wanted.sizeBytes !== undefined && totalBytes !== wanted.sizeBytes) {
      throw new TransportFailure(
        `${wanted.url.host} offers ${totalBytes} bytes where ${wanted.sizeBytes} are expected`,
        false,
      );
    }
    requireWithin(wanted, totalBytes ?? 0);
    if (totalBytes !== undefined) await requireRoom(wanted.folder, totalBytes - receivedBytes);
    const sha256 = await receive(wanted, part, tools, answer, state, receivedBytes, totalBytes);
    finished = true;
    await verify(wanted, part, state, sha256, receivedBytes > 0);
  } finally {
    // An unread body would hold its connection.
    if (!finished) answer.body.destroy();
  }
}

interface Resumable extends Begun {
  sizeBytes: number;
}

/** What an earlier attempt left, if it can be gone on from. */
async function readBegun(wanted: Wanted, part: PartFile): Promise<Resumable | undefined> {
  const sizeBytes = await sizeOf(part.partPath);
  const begun = parseBegun(await readFile(part.statePath, "utf8").catch(() => ""));
  if (sizeBytes === 0 || begun === undefined || begun.url !== addressOf(wanted)) return undefined;
  // With neither, nothing would tell that two halves are not of one file.
  const known = wanted.sha256 !== undefined || begun.validator !== null || begun.contentSha256 !== null;
  return known ? { ...begun, sizeBytes } : undefined;
}

function parseBegun(text: string): Begun | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // None there, or a torn one: start over.
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

function rangeHeaders(begun: Resumable | undefined): Record<string, string> {
  if (begun === undefined) return {};
  const range = { range: `bytes=${begun.sizeBytes}-` };
  return begun.validator === null ? range : { ...range, "if-range": begun.validator };
}

function stateOf(wanted: Wanted, answer: Answer): Begun {
  const etag = answer.headers.get("etag");
  // A weak etag may not be used in if-range (RFC 9110, 13.1.5).
  const strong = etag?.startsWith('"') === true ? etag : undefined;
  const linked = /^"?([0-9a-f]{64})"?$/i.exec(answer.firstHeaders.get("x-linked-etag") ?? "")?.[1];
  return {
    url: addressOf(wanted),
    validator: strong ?? answer.headers.get("last-modified") ?? null,
    contentSha256: linked?.toLowerCase() ?? null,
  };
}

/** How many bytes are here already and fit what the server sends now. */
async function resumePoint(
  begun: Resumable | undefined,
  state: Begun,
  answer: Answer,
  part: PartFile,
): Promise<number> {
  if (answer.status === 200) return 0;
  const same = begun !== undefined && begun.contentSha256 === state.contentSha256;
  const range = answer.headers.get("content-range") ?? "";
  const start = Number(/^bytes (\d+)-/.exec(range)?.[1]);
  const total = Number(/\/(\d+)$/.exec(range)?.[1]);
  if (same && answer.status === 206 && start === begun.sizeBytes) return start;
  // Nothing is missing: the cut came after the last byte.
  if (same && answer.status === 416 && total === begun.sizeBytes) return total;
  await discardPart(part);
  throw new TransportFailure(`${answer.url.host} has other content than before`, true, { retryAfterMs: 0 });
}

function totalOf(answer: Answer, receivedBytes: number): number | undefined {
  const range = /\/(\d+)$/.exec(answer.headers.get("content-range") ?? "")?.[1];
  if (range !== undefined) return Number(range);
  const length = answer.headers.get("content-length");
  if (length !== undefined) return receivedBytes + Number(length);
  const linked = answer.firstHeaders.get("x-linked-size");
  return linked === undefined ? undefined : Number(linked);
}

/** Writes the body behind what is here, and returns the SHA-256 of the whole. */
async function receive(
  wanted: Wanted,
  part: PartFile,
  tools: FetchTools,
  answer: Answer,
  state: Begun,
  startBytes: number,
  totalBytes: number | undefined,
): Promise<string> {
  const hash = createHash("sha256");
  if (startBytes > 0) await hashInto(hash, part.partPath);
  let receivedBytes = startBytes;
  const report = (): void =>
    tools.progress.received({ fileName: wanted.fileName, receivedBytes, totalBytes });
  try {
    const file = await open(part.partPath, startBytes > 0 ? "a" : "w");
    try {
      await writeFile(part.statePath, JSON.stringify(state));
      report();
      if (answer.status === 416) await answer.body.dump();
      else {
        for await (const chunk of piecesOf(answer)) {
          receivedBytes += chunk.length;
          requireWithin(wanted, receivedBytes);
          await file.writeFile(chunk);
          hash.update(chunk);
          report();
        }
      }
    } finally {
      await file.close();
    }
  } catch (error) {
    tools.signal.throwIfAborted();
    if (error instanceof TransportFailure) {
      if (receivedBytes > (wanted.sizeBytesMax ?? Number.POSITIVE_INFINITY)) await discardPart(part);
      throw error;
    }
    // A full disk hurts everything else on this machine too: give the room back.
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

function requireWithin({ url, sizeBytesMax }: Wanted, bytes: number): void {
  if (sizeBytesMax === undefined || bytes <= sizeBytesMax) return;
  throw new TransportFailure(
    `${url.host} offers more than the ${sizeBytesMax} bytes that are expected`,
    false,
  );
}

/** The body's pieces; what goes wrong with it is told from what goes wrong with the disk. */
async function* piecesOf(answer: Answer): AsyncGenerator<Buffer> {
  const pieces: AsyncIterator<Buffer> = answer.body[Symbol.asyncIterator]();
  for (;;) {
    const next = await pieces.next().catch((error: unknown) => {
      throw failureOf(answer.url, error);
    });
    if (next.done === true) return;
    yield next.value;
  }
}

async function verify(
  wanted: Wanted,
  part: PartFile,
  state: Begun,
  sha256: string,
  resumed: boolean,
): Promise<void> {
  const expected = wanted.sha256 ?? state.contentSha256;
  if (expected === null || expected === sha256) return;
  await discardPart(part);
  // What lay on this disk from before may be at fault; the second time it is the sender.
  throw new TransportFailure(
    `${wanted.url.host} sent a file with SHA-256 ${sha256} where ${expected} is expected; it was deleted`,
    resumed,
    { retryAfterMs: 0 },
  );
}

/** Without query and credentials: those may change, or must not be written down. */
function addressOf(wanted: Wanted): string {
  return `${wanted.url.origin}${wanted.url.pathname}`;
}

async function sizeOf(path: string): Promise<number> {
  const found = await stat(path).catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return undefined;
    throw new OperatorError(`${path} cannot be looked at: ${messageOf(error)}`, error);
  });
  return found?.size ?? 0;
}
