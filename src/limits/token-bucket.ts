/**
 * An amount per time for each key: changes a minute, bytes of refused bodies a minute, a share of
 * the time. A burst may use the amount of the whole time at once.
 *
 * As in ledger/rates.ts, the state of a key is one time: when it will have its whole amount again.
 * The memory is bounded, and no key waits because of others. Keys that have their whole amount are
 * forgotten. If `keysMax` others remain, the half that has used least is forgotten too. So nobody
 * can remove a debt from the memory without a larger debt of each of thousands of keys.
 */
import type { Limit } from "./limits.ts";

/** Keys that are remembered, 150 bytes each. */
const keysMax = 50_000;
/** Keys at which unused ones are forgotten for the first time. */
const sweepFrom = 1_000;
/** Sums of times have rounding errors. The longest of them is far shorter. */
const slackMs = 0.001;

interface BucketOptions {
  /** Default: a minute. */
  perMs?: number;
  /** Longest wait, if a key may use more than it has: the rest of its debt is dropped. */
  waitMsMax?: number;
  /** Monotonic time. */
  nowMs?: (() => number) | undefined;
}

export class TokenBucket {
  #most: number;
  readonly #perMs: number;
  readonly #waitMsMax: number;
  readonly #nowMs: () => number;
  /** When each key has its whole amount again. */
  #fullMs = new Map<string, number>();
  #sweepAt = sweepFrom;

  constructor(limit: Limit, options: BucketOptions = {}) {
    this.#most = Number(limit.most);
    this.#perMs = options.perMs ?? 60_000;
    this.#waitMsMax = options.waitMsMax ?? Number.POSITIVE_INFINITY;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  /** Keys that are remembered. */
  get size(): number {
    return this.#fullMs.size;
  }

  get most(): number {
    return this.#most;
  }

  /** Changes the amount. Earlier use still counts. */
  set most(most: number) {
    const nowMs = this.#nowMs();
    const factor = this.#most / most;
    for (const [key, fullMs] of this.#fullMs) this.#fullMs.set(key, nowMs + (fullMs - nowMs) * factor);
    this.#most = most;
  }

  /**
   * Returns the time until the key may use `amount`, and 0 if it may now. Without an amount, which
   * may not be known before it is used: until the key has anything left.
   */
  waitMs(key: string, amount = 0): number {
    const usedMs = Math.max(0, (this.#fullMs.get(key) ?? 0) - this.#nowMs());
    const overMs = usedMs + this.#msOf(amount) - this.#perMs;
    const isOver = amount > 0 ? overMs > slackMs : overMs >= -slackMs;
    return isOver ? Math.max(1, Math.ceil(overMs - slackMs)) : 0;
  }

  /** Counts what the key has used, even if it is more than the key has left. */
  spend(key: string, amount: number): void {
    if (amount === 0) return;
    const nowMs = this.#nowMs();
    const fullMs = Math.max(nowMs, this.#fullMs.get(key) ?? 0) + this.#msOf(amount);
    this.#fullMs.set(key, Math.min(fullMs, nowMs + this.#perMs + this.#waitMsMax));
    if (this.#fullMs.size > this.#sweepAt) this.#sweep(nowMs);
  }

  /** Uses `amount` and returns 0. If the key has less left, uses nothing and returns the wait. */
  take(key: string, amount = 1): number {
    const waitMs = this.waitMs(key, amount);
    if (waitMs === 0) this.spend(key, amount);
    return waitMs;
  }

  /** Returns the time in which a key gets so much. */
  #msOf(amount: number): number {
    return (amount / this.#most) * this.#perMs;
  }

  /** Runs when the number of keys has doubled. */
  #sweep(nowMs: number): void {
    const used = [...this.#fullMs].filter(([, fullMs]) => fullMs > nowMs);
    this.#fullMs = new Map(used.sort(([, one], [, other]) => other - one).slice(0, keysMax / 2));
    this.#sweepAt = Math.max(sweepFrom, 2 * this.#fullMs.size);
  }
}
