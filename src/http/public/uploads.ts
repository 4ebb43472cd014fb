/**
 * Reads request bodies within limits: bytes in flight of a key, of an account and in total,
 * concurrent uploads of a key and an account, a minimum rate, and a total time.
 *
 * A body with a content-length reserves its bytes before the first byte is read. A body without a
 * content-length reserves bytes as it grows. The reservation ends when the request is accepted or
 * refused, or its client leaves. The memory of the body is then freed at once, without a garbage
 * collection. `BodyTurns` limits the time that parsing the bodies takes.
 */
import type { IncomingMessage } from "node:http";
import type { Caller } from "../../accounts/keys.ts";
import { FairQueue } from "../../collections.ts";
import { invariant, Refusal } from "../../errors.ts";
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

/**
 * Parts of `uploadBytesMax` that a key and an account may use. A body of the largest size always
 * fits.
 */
const keyShare = 1 / 4;
const accountShare = 1 / 2;

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
const chunksFree = 16_384;
const bytesPerChunkMin = 64;

const retryAfterSeconds = 2;

/** Uploads of one key, of one account, or in total. */
interface Scope {
  readonly whose: string;
  bytesMax: number;
  uploads: number;
  bytes: number;
}

export class Uploads {
  #limits: UploadLimits;
  readonly #times: UploadTimes;
  readonly #keys = new Map<string, Scope>();
  readonly #accounts = new Map<string, Scope>();
  readonly #total: Scope;

  constructor(limits: UploadLimits, times: UploadTimes = uploadTimes) {
    this.#limits = limits;
    this.#times = times;
    this.#total = { whose: "all callers", bytesMax: limits.uploadBytesMax, uploads: 0, bytes: 0 };
  }

  /** Changes the limits. Bodies that are being received keep their size and time limits. */
  configure(limits: UploadLimits): void {
    this.#limits = limits;
    this.#total.bytesMax = limits.uploadBytesMax;
    for (const key of this.#keys.values()) key.bytesMax = this.#shareOf(keyShare);
    for (const account of this.#accounts.values()) account.bytesMax = this.#shareOf(accountShare);
  }

  get count(): number {
    return this.#total.uploads;
  }

  get bytes(): number {
    return this.#total.bytes;
  }

  /**
   * Admits the body of a request and reserves the bytes of its content-length. Throws
   * `concurrency_limit_exceeded` or `overloaded`.
   */
  admit(caller: Caller, headers: IncomingMessage["headers"]): Upload {
    const declaredBytes =
      headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : null;
    const key = this.#keys.get(caller.keyId) ?? this.#newScope("this key", keyShare);
    const account = this.#accounts.get(caller.accountId) ?? this.#newScope("this account", accountShare);
    requireRoom("This key", key, caller.concurrent);
    requireRoom("This account", account, caller.plan.limits.concurrent ?? null);
    const reservation = new Reservation([key, account, this.#total], () => {
      if (key.uploads === 0) this.#keys.delete(caller.keyId);
      if (account.uploads === 0) this.#accounts.delete(caller.accountId);
    });
    // A larger body is refused later, for its size.
    reservation.growTo(Math.min(declaredBytes ?? 0, this.#limits.bodyBytesMax));
    reservation.open();
    this.#keys.set(caller.keyId, key);
    this.#accounts.set(caller.accountId, account);
    return new Upload(this.#limits, this.#times, declaredBytes, reservation);
  }

  #newScope(whose: string, share: number): Scope {
    return { whose, bytesMax: this.#shareOf(share), uploads: 0, bytes: 0 };
  }

  #shareOf(share: number): number {
    const { uploadBytesMax, bodyBytesMax } = this.#limits;
    return Math.max(bodyBytesMax, Math.floor(uploadBytesMax * share));
  }
}

function requireRoom(whose: string, { uploads }: Scope, concurrent: number | null): void {
  if (concurrent === null || uploads < concurrent + spareUploads) return;
  throw new Refusal(
    "concurrency_limit_exceeded",
    `${whose} may run ${concurrent} requests at the same time, and already has ${uploads} that are being received or checked. Try again when one has ended.`,
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

  /** Counts the upload. */
  open(): void {
    for (const scope of this.#scopes) scope.uploads += 1;
  }

  /** Reserves `bytes` in total. Throws `overloaded` if they are not free. */
  growTo(bytes: number): void {
    const moreBytes = bytes - this.#bytes;
    if (moreBytes <= 0) return;
    const full = this.#scopes.find((scope) => scope.bytes + moreBytes > scope.bytesMax);
    if (full !== undefined) {
      throw new Refusal(
        "overloaded",
        `Too many bytes of request bodies of ${full.whose} are being received or checked. The limit is ${full.bytesMax} bytes in total. Send the request again in ${retryAfterSeconds} s.`,
        { retryAfterSeconds },
      );
    }
    for (const scope of this.#scopes) scope.bytes += moreBytes;
    this.#bytes = bytes;
  }

  release(): void {
    for (const scope of this.#scopes) {
      scope.bytes -= this.#bytes;
      scope.uploads -= 1;
    }
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
  arrived(request: IncomingMessage): Uint8Array | null {
    invariant(!this.#isReleased && this.#bytes === null, "a body is read once, before it is released");
    if (!request.complete) return null;
    const whole: Buffer | null = request.read();
    if (whole !== null && hasOwnMemory(whole)) {
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
    const arrived = this.arrived(request);
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

/** False for a part of Node's shared pool, which must not be freed. */
function hasOwnMemory({ buffer, length }: Buffer): boolean {
  return buffer.byteLength === length;
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

/**
 * An ordinary body takes 0.01 to 0.1 ms, so hundreds of them never wait. A body of 4 MiB takes 5
 * to 30 ms.
 */
const turnMs = 10;
const waitingMax = 1024;

/**
 * Spreads the work on request bodies over turns of the event loop.
 *
 * One turn spends at most `turnMs` and the rest of one body on this work, however many bodies
 * arrive together. Accounts take turns with the bodies that wait. At most `waitingMax` bodies
 * wait, or twice as many if they are the first of their accounts.
 */
export class BodyTurns {
  readonly #waiting = new FairQueue<() => void>(waitingMax);
  #spentMs = 0;
  #isScheduled = false;

  /** True if a body can be processed in this turn. */
  get isFree(): boolean {
    return this.#waiting.size === 0 && this.#spentMs < turnMs;
  }

  /** Runs `work` now. */
  run<T>(work: () => T): T {
    const startedMs = performance.now();
    try {
      return work();
    } finally {
      this.#spentMs += performance.now() - startedMs;
      this.#schedule();
    }
  }

  /** Runs `work` in one of the next turns. Throws `overloaded` if too many bodies wait. */
  async wait<T>(accountId: string, work: () => T): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<T>();
    // An error of the work rejects the promise.
    const job = () => resolve((async () => work())());
    if (!this.#waiting.push(accountId, job)) {
      throw new Refusal(
        "overloaded",
        "Too many large requests have arrived at once. Send the request again in a moment.",
        { retryAfterSeconds: 1 },
      );
    }
    this.#schedule();
    return await promise;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#nextTurn());
  }

  #nextTurn(): void {
    this.#isScheduled = false;
    this.#spentMs = 0;
    while (this.#spentMs < turnMs) {
      const job = this.#waiting.shift();
      if (job === undefined) return;
      this.run(job);
    }
  }
}
