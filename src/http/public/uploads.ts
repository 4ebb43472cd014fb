/**
 * Reads request bodies within limits: bytes in flight of an account and in total, concurrent
 * uploads of an account, a minimum rate, and a total time.
 *
 * A body with a content-length reserves its bytes before the first byte is read. A body without a
 * content-length reserves bytes as it grows. The reservation ends when the request is accepted or
 * refused, or its client leaves. The memory of the body is then freed at once, without a garbage
 * collection.
 */
import type { IncomingMessage } from "node:http";
import type { Caller } from "../../accounts/keys.ts";
import { invariant, Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { Slots } from "../../limits/slots.ts";
import { freeChunk } from "../error-response.ts";

export interface UploadLimits {
  /** Largest body. */
  bodyBytesMax: number;
  /** Most bytes of all bodies in flight. */
  uploadBytesMax: number;
  /** Longest time that one body may take. */
  uploadMs: number;
}

export interface UploadTimes {
  /** Time during which a body may be slow. */
  graceMs: number;
  /** Minimum average rate after that time. */
  bytesPerSecondMin: number;
}

const uploadTimes: UploadTimes = { graceMs: 10_000, bytesPerSecondMin: 16 * 1024 };

/** Part of `uploadBytesMax` that an account may use. A body of the largest size always fits. */
const accountShare = 1 / 4;

/**
 * Uploads beyond the limit of running requests, so that the next requests can arrive while others
 * are being answered.
 */
export const spareUploads = 4;

/** First memory for a body without a content-length. */
const firstBytes = 64 * 1024;

/**
 * Each chunk costs Node as much time as a kilobyte, so a body of 4 MiB in chunks of one byte would
 * take seconds. Encoders that stream JSON send some thousand small chunks.
 */
const chunksFree = limits.chunks.most;
const bytesPerChunkMin = 64;

const retryAfterSeconds = 2;

/** Bodies that share a limit: those of one account, or all. */
interface Scope {
  whose: string;
  key: string;
  bytes: Slots;
}

/** The one key of slots for all callers. */
const all = "all";

export class Uploads {
  #limits: UploadLimits;
  readonly #times: UploadTimes;
  readonly #accountBytes = new Slots(limits.accountUploadBytes);
  readonly #allBytes = new Slots(limits.uploadBytes);
  readonly #uploads = new Slots(limits.accountUploads);

  constructor(given: UploadLimits, times: UploadTimes = uploadTimes) {
    this.#limits = given;
    this.#times = times;
    this.configure(given);
  }

  /** Changes the limits. Bodies that are being received keep their size and time limits. */
  configure(given: UploadLimits): void {
    const { uploadBytesMax, bodyBytesMax } = given;
    this.#limits = given;
    this.#allBytes.max = uploadBytesMax;
    this.#accountBytes.max = Math.max(bodyBytesMax, Math.floor(uploadBytesMax * accountShare));
  }

  get count(): number {
    return this.#uploads.total;
  }

  get bytes(): number {
    return this.#allBytes.total;
  }

  /**
   * Admits the body of a request and reserves the bytes of its content-length. Throws
   * `concurrency_limit_exceeded` or `overloaded`.
   */
  admit({ accountId, plan }: Caller, headers: IncomingMessage["headers"]): Upload {
    const declaredBytes =
      headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : null;
    requireUploadSlot(this.#uploads, accountId, plan.limits.concurrent ?? null);
    const scopes = [
      { whose: "this account", key: accountId, bytes: this.#accountBytes },
      { whose: "all callers", key: all, bytes: this.#allBytes },
    ];
    const reservation = new Reservation(scopes, () => this.#uploads.release(accountId));
    // A larger body is refused later, for its size.
    reservation.growTo(Math.min(declaredBytes ?? 0, this.#limits.bodyBytesMax));
    this.#uploads.take(accountId);
    return new Upload(this.#limits, this.#times, declaredBytes, reservation);
  }
}

function requireUploadSlot(uploads: Slots, account: string, concurrent: number | null): void {
  if (concurrent === null || uploads.fits(account, 1, concurrent + spareUploads)) return;
  throw new Refusal(
    "concurrency_limit_exceeded",
    `This account may run ${concurrent} requests at the same time, and already has ${uploads.held(account)} that are being received or checked. Try again when one has ended.`,
    { retryAfterSeconds: 1 },
  );
}

/** The part of the limits that one body uses. */
class Reservation {
  readonly #scopes: readonly Scope[];
  readonly #onRelease: () => void;
  #bytes = 0;

  constructor(scopes: readonly Scope[], onRelease: () => void) {
    this.#scopes = scopes;
    this.#onRelease = onRelease;
  }

  /** Reserves `bytes` in total. Throws `overloaded` if they are not free. */
  growTo(bytes: number): void {
    const moreBytes = bytes - this.#bytes;
    if (moreBytes <= 0) return;
    const full = this.#scopes.find((scope) => !scope.bytes.fits(scope.key, moreBytes));
    if (full !== undefined) {
      throw new Refusal(
        "overloaded",
        `Too many bytes of request bodies of ${full.whose} are being received or checked. The limit is ${full.bytes.max} bytes in total. Send the request again in ${retryAfterSeconds} s.`,
        { retryAfterSeconds },
      );
    }
    for (const scope of this.#scopes) scope.bytes.take(scope.key, moreBytes);
    this.#bytes = bytes;
  }

  release(): void {
    for (const scope of this.#scopes) scope.bytes.release(scope.key, this.#bytes);
    this.#onRelease();
  }
}

export class Upload {
  readonly #limits: UploadLimits;
  readonly #times: UploadTimes;
  /** Content-length of the body, or null if it comes in chunks. */
  readonly #declaredBytes: number | null;
  readonly #reservation: Reservation;
  #bytes: Buffer | null = null;
  #receivedBytes = 0;
  #chunks = 0;
  #isReleased = false;
  #stopReading: (() => void) | null = null;

  constructor(
    limits: UploadLimits,
    times: UploadTimes,
    declaredBytes: number | null,
    reservation: Reservation,
  ) {
    this.#limits = limits;
    this.#times = times;
    this.#declaredBytes = declaredBytes;
    this.#reservation = reservation;
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /**
   * Returns the whole body if Node has received it with the headers, which is the common case;
   * otherwise null: `read` it. Throws like `read`.
   */
  takeArrived(request: IncomingMessage): Uint8Array | null {
    invariant(!this.#isReleased && this.#bytes === null, "a body is read once, before it is released");
    if (!request.complete) return null;
    const whole: Buffer | null = request.read();
    // A part of Node's shared pool must not be freed.
    if (whole !== null && whole.buffer.byteLength === whole.length) {
      this.#requireSize(whole.length);
      this.#reservation.growTo(whole.length);
      this.#bytes = whole;
      this.#receivedBytes = whole.length;
    } else if (whole !== null) this.#add(whole);
    return this.#whole();
  }

  /**
   * Resolves with the whole body. Throws `request_too_large`, `request_timeout`, or `overloaded`
   * if a body without a content-length outgrows the free bytes. Stays pending if the client
   * leaves; `release` ends the reading.
   */
  async read(request: IncomingMessage): Promise<Uint8Array> {
    const arrived = this.takeArrived(request);
    if (arrived !== null) return arrived;
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
      // Otherwise Node would read and parse up to 2 MB more in this turn.
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

  /**
   * Frees the memory of the body and its reservation. The result of `read` becomes empty.
   * Idempotent.
   */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#stopReading?.();
    if (this.#bytes !== null) free(this.#bytes);
    this.#bytes = null;
    this.#reservation.release();
  }

  /** Time that the body may take, given the bytes received so far. */
  #allowedMs(): number {
    const { graceMs, bytesPerSecondMin } = this.#times;
    return Math.min(this.#limits.uploadMs, graceMs + (this.#receivedBytes * 1000) / bytesPerSecondMin);
  }

  #tooSlow(): Refusal {
    const { bytesPerSecondMin } = this.#times;
    return new Refusal(
      "request_timeout",
      `The body arrived too slowly: ${this.#receivedBytes} bytes so far. Send at least ${bytesPerSecondMin} bytes per second, and the whole body within ${this.#limits.uploadMs / 1000} s.`,
    );
  }

  #requireSize(length: number): void {
    const { bodyBytesMax } = this.#limits;
    if (length > bodyBytesMax) throw tooLarge(bodyBytesMax);
  }

  #add(chunk: Buffer): void {
    const { bodyBytesMax } = this.#limits;
    const length = this.#receivedBytes + chunk.length;
    this.#requireSize(length);
    this.#chunks += 1;
    if (this.#chunks > chunksFree + length / bytesPerChunkMin) throw inTooManyChunks();
    if (this.#bytes === null || this.#bytes.length < length) {
      const capacity =
        this.#declaredBytes ?? Math.min(bodyBytesMax, Math.max(length, firstBytes, 2 * this.#receivedBytes));
      this.#reservation.growTo(capacity);
      // Separate memory, not a part of Node's shared pool.
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

/**
 * Frees memory now. With the garbage collector, bodies would outlive their reservations by far.
 */
function free({ buffer }: Buffer): void {
  // The memory may have been transferred to a worker.
  if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}

function inTooManyChunks(): Refusal {
  return new Refusal(
    "request_too_large",
    `The body has too many small chunks: more than ${chunksFree} plus one per ${bytesPerChunkMin} bytes. Send larger chunks, or send a content-length.`,
  );
}

export function tooLarge(bodyBytesMax: number): Refusal {
  return new Refusal(
    "request_too_large",
    `The body is larger than ${bodyBytesMax} bytes; send a shorter conversation.`,
  );
}
