/**
 * Reads request bodies from their connections, within limits: bytes in flight of a key, of an account and in total,
 * concurrent uploads of a key and an account, a minimum rate, and a total time.
 *
 * A body with a content-length reserves its bytes before the first one is read. A body without one reserves as it grows.
 * A reservation lasts until the request is accepted, refused, or left by its client. The memory of the body is then free
 * at once, without a garbage collection.
 */
import type { IncomingMessage } from "node:http";
import type { Caller } from "../../accounts/authentication.ts";
import { invariant, Refusal } from "../../errors.ts";
import { freeChunk } from "../request-body.ts";

export interface UploadLimits {
  /** Largest body. */
  bodyBytesMax: number;
  /** Bytes of all bodies in flight. */
  uploadBytesMax: number;
  /** Longest time that one body may take. */
  uploadMs: number;
}

export interface UploadTimes {
  /** A body may be slow for this long. */
  graceMs: number;
  /** After that, it must have come at this rate on average. */
  bytesPerSecondMin: number;
}

export const uploadTimes: UploadTimes = { graceMs: 10_000, bytesPerSecondMin: 16 * 1024 };

/** Parts of `uploadBytesMax` that one key and one account may have, if a body of the largest size fits. */
const keyShare = 1 / 4;
const accountShare = 1 / 2;

/** Uploads beyond the limit of running requests: the next requests may arrive while the last ones are being answered. */
export const spareUploads = 4;

/** First piece of memory for a body that does not announce its length. */
const firstPieceBytes = 64 * 1024;

/**
 * Each chunk costs Node as much time as a kilobyte: a body of 4 MiB in chunks of one byte is work for seconds. Encoders
 * that write JSON piece by piece send some thousand small chunks.
 */
const chunksFree = 16_384;
const bytesPerChunkMin = 64;

const retryAfterSeconds = 2;

/** Uploads of one key, of one account, or of all. */
interface Usage {
  uploads: number;
  bytes: number;
}

export class Uploads {
  readonly #limits: UploadLimits;
  readonly #times: UploadTimes;
  readonly #keys = new Map<string, Usage>();
  readonly #accounts = new Map<string, Usage>();
  readonly #total: Usage = { uploads: 0, bytes: 0 };

  constructor(limits: UploadLimits, times: UploadTimes = uploadTimes) {
    this.#limits = limits;
    this.#times = times;
  }

  get count(): number {
    return this.#total.uploads;
  }

  get bytes(): number {
    return this.#total.bytes;
  }

  /**
   * Admits the body of a request and reserves the bytes that its headers announce.
   * Throws `concurrency_limit_exceeded` or `overloaded`.
   */
  admit(caller: Caller, headers: IncomingMessage["headers"]): Upload {
    const { bodyBytesMax } = this.#limits;
    const declaredBytes =
      headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : null;
    const key = usageOf(this.#keys, caller.keyId);
    const account = usageOf(this.#accounts, caller.accountId);
    requireRoom("This key", key, caller.concurrent);
    requireRoom("This account", account, caller.plan.limits.concurrent ?? null);
    // A larger body is refused for its size.
    const reservedBytes = Math.min(declaredBytes ?? 0, bodyBytesMax);
    this.#require(key, account, reservedBytes);

    this.#keys.set(caller.keyId, key);
    this.#accounts.set(caller.accountId, account);
    const all = [key, account, this.#total];
    const reserve = (bytes: number) => {
      for (const usage of all) usage.bytes += bytes;
    };
    for (const usage of all) usage.uploads += 1;
    reserve(reservedBytes);
    return new Upload(this.#limits, this.#times, {
      declaredBytes,
      reservedBytes,
      grow: (bytes) => {
        this.#require(key, account, bytes);
        reserve(bytes);
      },
      release: (bytes) => {
        reserve(-bytes);
        for (const usage of all) usage.uploads -= 1;
        if (key.uploads === 0) this.#keys.delete(caller.keyId);
        if (account.uploads === 0) this.#accounts.delete(caller.accountId);
      },
    });
  }

  #require(key: Usage, account: Usage, moreBytes: number): void {
    const { uploadBytesMax, bodyBytesMax } = this.#limits;
    const shareOf = (part: number) => Math.max(bodyBytesMax, Math.floor(uploadBytesMax * part));
    const scopes = [
      { usage: key, bytesMax: shareOf(keyShare), whose: "this key" },
      { usage: account, bytesMax: shareOf(accountShare), whose: "this account" },
      { usage: this.#total, bytesMax: uploadBytesMax, whose: "all callers" },
    ];
    for (const { usage, bytesMax, whose } of scopes) {
      if (usage.bytes + moreBytes <= bytesMax) continue;
      throw new Refusal(
        "overloaded",
        `The request bodies of ${whose} that are being received or checked may have ${bytesMax} bytes together. Send the request again in ${retryAfterSeconds} s.`,
        { retryAfterSeconds },
      );
    }
  }
}

function usageOf(usages: ReadonlyMap<string, Usage>, id: string): Usage {
  return usages.get(id) ?? { uploads: 0, bytes: 0 };
}

function requireRoom(whose: string, { uploads }: Usage, concurrent: number | null): void {
  if (concurrent === null || uploads < concurrent + spareUploads) return;
  throw new Refusal(
    "concurrency_limit_exceeded",
    `${whose} may have ${concurrent} requests running at once, and already has ${uploads} that are being received or checked. Try again when one has ended.`,
    { retryAfterSeconds: 1 },
  );
}

/** Memory of one body and its place in the limits. */
interface Reservation {
  /** Null: the body comes in chunks without a length. */
  declaredBytes: number | null;
  reservedBytes: number;
  grow(bytes: number): void;
  release(bytes: number): void;
}

export class Upload {
  readonly #limits: UploadLimits;
  readonly #times: UploadTimes;
  readonly #reservation: Reservation;
  #reservedBytes: number;
  #bytes: Buffer<ArrayBuffer> | null = null;
  #receivedBytes = 0;
  #chunks = 0;
  #isReleased = false;
  #stopReading: (() => void) | null = null;

  constructor(limits: UploadLimits, times: UploadTimes, reservation: Reservation) {
    this.#limits = limits;
    this.#times = times;
    this.#reservation = reservation;
    this.#reservedBytes = reservation.reservedBytes;
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /**
   * Resolves with the whole body. Throws `request_too_large`, `request_timeout`, or `overloaded` if a body without a
   * length grows beyond what is free. Stays pending if the client leaves; `release` ends the reading.
   */
  async read(request: IncomingMessage): Promise<Uint8Array> {
    invariant(!this.#isReleased && this.#bytes === null, "a body is read once, before it is released");
    if (request.complete) {
      // The common case: the body came with its headers, and Node has all of it.
      const whole: Buffer | null = request.read();
      if (whole !== null) this.#add(whole);
      return this.#whole();
    }
    const startMs = performance.now();
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
    const stop = () => {
      clearTimeout(timer);
      request.off("data", onData);
      request.off("end", onEnd);
      this.#stopReading = null;
    };
    const fail = (reason: unknown) => {
      stop();
      // Node goes on reading for up to 2 MB in this turn, and would parse all of that for nothing.
      request.pause();
      request.socket.pause();
      reject(reason);
    };
    const onData = (chunk: Buffer) => {
      try {
        this.#add(chunk);
      } catch (error) {
        fail(error);
      }
    };
    const onEnd = () => {
      stop();
      resolve(this.#whole());
    };
    const check = () => {
      const leftMs = this.#allowedMs() - (performance.now() - startMs);
      if (leftMs <= 0) fail(this.#tooSlow());
      else timer = setTimeout(check, Math.ceil(leftMs));
    };
    let timer = setTimeout(check, Math.min(this.#times.graceMs, this.#limits.uploadMs));
    this.#stopReading = stop;
    request.on("data", onData);
    request.on("end", onEnd);
    return await promise;
  }

  /** Frees the memory of the body and its place in the limits. What `read` returned is empty from then on. Idempotent. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#stopReading?.();
    if (this.#bytes !== null) free(this.#bytes);
    this.#bytes = null;
    this.#reservation.release(this.#reservedBytes);
  }

  /** How long the body may take, as far as it has come. */
  #allowedMs(): number {
    const { graceMs, bytesPerSecondMin } = this.#times;
    return Math.min(this.#limits.uploadMs, graceMs + (this.#receivedBytes * 1000) / bytesPerSecondMin);
  }

  #tooSlow(): Refusal {
    const { bytesPerSecondMin } = this.#times;
    return new Refusal(
      "request_timeout",
      `The body came too slowly: ${this.#receivedBytes} bytes until now. Send at least ${bytesPerSecondMin} bytes a second, and the whole body within ${this.#limits.uploadMs / 1000} s.`,
    );
  }

  #add(chunk: Buffer): void {
    const { bodyBytesMax } = this.#limits;
    const length = this.#receivedBytes + chunk.length;
    if (length > bodyBytesMax) throw tooLarge(bodyBytesMax);
    this.#chunks += 1;
    if (this.#chunks > chunksFree + length / bytesPerChunkMin) throw inTooManyChunks();
    const { declaredBytes } = this.#reservation;
    if (this.#bytes === null || this.#bytes.length < length) {
      const capacity =
        declaredBytes ?? Math.min(bodyBytesMax, Math.max(length, firstPieceBytes, 2 * this.#receivedBytes));
      if (capacity > this.#reservedBytes) {
        this.#reservation.grow(capacity - this.#reservedBytes);
        this.#reservedBytes = capacity;
      }
      // Memory of its own, never a part of Node's shared pool.
      const larger = Buffer.allocUnsafeSlow(capacity);
      if (this.#bytes !== null) {
        this.#bytes.copy(larger, 0, 0, this.#receivedBytes);
        free(this.#bytes);
      }
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.#receivedBytes);
    this.#receivedBytes = length;
    freeChunk(chunk);
  }

  #whole(): Uint8Array {
    return this.#bytes?.subarray(0, this.#receivedBytes) ?? new Uint8Array();
  }
}

/** Frees memory now: left to the garbage collector, bodies outlive their reservations by far. */
function free({ buffer }: Buffer<ArrayBuffer>): void {
  // A worker may have taken it over.
  if (!buffer.detached) buffer.transfer(0);
}

function inTooManyChunks(): Refusal {
  return new Refusal(
    "request_too_large",
    `The body comes in too many small chunks: more than ${chunksFree}, and one for each ${bytesPerChunkMin} bytes. Send larger chunks, or the body with a content-length.`,
  );
}

export function tooLarge(bodyBytesMax: number): Refusal {
  return new Refusal(
    "request_too_large",
    `The body is larger than ${bodyBytesMax} bytes; send a shorter conversation.`,
  );
}
