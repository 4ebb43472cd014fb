/**
 * Work that would block the event loop, spread over its turns: one turn spends at most `turnMs`
 * and the rest of one piece of work on it, however much arrives together. Keys take turns.
 *
 * At most `waitingMax` pieces wait, or twice as many if they are the first of their keys, so one
 * key's flood leaves room for others.
 */
import { FairQueue } from "../collections.ts";
import type { Limit } from "./limits.ts";

interface TurnOptions {
  /** Default: that of the limit. At 0 each piece of work has a turn of its own. */
  turnMs?: number;
  waiting?: Limit;
}

export class Turns {
  readonly #turnMs: number;
  readonly #waiting: FairQueue<() => void>;
  #spentMs = 0;
  #isScheduled = false;

  /** `waiting`: most pieces that wait. Without it, callers limit their number. */
  constructor(limit: Limit, { turnMs = Number(limit.most), waiting }: TurnOptions = {}) {
    this.#turnMs = turnMs;
    this.#waiting = new FairQueue(Number(waiting?.most ?? Number.POSITIVE_INFINITY));
  }

  /** True if work can be done in this turn. */
  get isFree(): boolean {
    return this.#waiting.size === 0 && this.#spentMs < this.#turnMs;
  }

  /** Does `work` now. */
  run<T>(work: () => T): T {
    const startedMs = performance.now();
    try {
      return work();
    } finally {
      this.#spentMs += performance.now() - startedMs;
      this.#schedule();
    }
  }

  /** Does `work` in one of the next turns. Returns null if too much waits. */
  wait<T>(key: string, work: () => T): Promise<T> | null {
    const { promise, resolve } = Promise.withResolvers<T>();
    // An error of the work rejects the promise.
    const job = () => resolve((async () => work())());
    if (!this.#waiting.push(key, job)) return null;
    this.#schedule();
    return promise;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#nextTurn());
  }

  #nextTurn(): void {
    this.#isScheduled = false;
    this.#spentMs = 0;
    do {
      const job = this.#waiting.shift();
      if (job === undefined) return;
      this.run(job);
    } while (this.#spentMs < this.#turnMs);
  }
}
