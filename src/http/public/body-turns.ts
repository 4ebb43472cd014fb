/**
 * Spreads the work on request bodies over turns of the event loop.
 *
 * One turn spends at most `turnMs` and the rest of one body on this work, however many bodies
 * arrive together. Accounts take turns with the bodies that wait. At most `waitingMax` bodies
 * wait, or twice as many if they are the first of their accounts.
 */
import { FairQueue } from "../../engines/fair-queue.ts";
import { Refusal } from "../../errors.ts";

/**
 * An ordinary body takes 0.01 to 0.1 ms, so hundreds of them never wait. A body of 4 MiB takes 5
 * to 30 ms.
 */
const turnMs = 10;
const waitingMax = 1024;

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
