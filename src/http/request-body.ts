/**
 * Request bodies as Node delivers them: whether one is still coming, the memory of its chunks,
 * dropping the rest, and turns of the event loop for parsing them.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "../errors.ts";
import { FairQueue } from "../fair-queue.ts";

/** Limits of dropping a body: the sender has this time and these bytes to read its answer. */
const dropMs = 5_000;
const dropBytesMax = 16 * 1024 * 1024;
/** Cost of reading a chunk, in addition to its bytes. */
const dropBytesPerChunk = 4096;
/**
 * Bytes between two pauses. Limits the rate to some MB a second, so that an attack cannot keep the
 * thread busy.
 */
const dropStepBytes = 64 * 1024;
const dropPauseMs = 10;

/** Smaller chunks are left to the garbage collector, because freeing one takes a microsecond. */
const chunkFreedBytes = 4096;

/** Returns whether the request has a body of which a part is still to come. */
export function isUploading({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/**
 * Frees a chunk of a body. Node gives each chunk its own memory, which only garbage collections
 * free otherwise: tens of megabytes wait for them, and the allocator returns little of that to the
 * system. Shared memory is left alone.
 */
export function freeChunk(chunk: Buffer): void {
  const { buffer } = chunk;
  if (chunk.length < chunkFreedBytes) return;
  if (buffer instanceof ArrayBuffer && buffer.byteLength === chunk.length && !buffer.detached)
    buffer.transfer(0);
}

/**
 * Reads and drops the rest of a body. Calls `close` at its end or at the first limit, and stops
 * reading.
 */
export function dropBody(request: IncomingMessage, close: () => void): void {
  let left = dropBytesMax;
  let stepLeft = dropStepBytes;
  let pause: NodeJS.Timeout | undefined;
  const stop = () => {
    clearTimeout(timer);
    clearTimeout(pause);
    request.off("data", drop);
    // Node would go on reading and parsing until the connection is closed.
    request.socket.pause();
    close();
  };
  const drop = (chunk: Buffer) => {
    left -= chunk.length + dropBytesPerChunk;
    stepLeft -= chunk.length;
    freeChunk(chunk);
    if (left < 0) {
      stop();
    } else if (stepLeft <= 0) {
      stepLeft = dropStepBytes;
      request.pause();
      pause = setTimeout(() => request.resume(), dropPauseMs);
    }
  };
  const timer = setTimeout(stop, dropMs);
  request.on("data", drop);
  request.once("end", stop);
  request.once("close", stop);
  request.resume();
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
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const job = () => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    };
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
