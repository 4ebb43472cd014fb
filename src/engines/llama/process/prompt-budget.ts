/**
 * Limits the time that each account's prompts take from the thread that drives the decoder, while
 * answers of other accounts are decoded.
 *
 * Each account has a token bucket of milliseconds. It fills at `share` up to `burstMs`, and each
 * prompt takes its work time out. Guarantees: over any time t, an account takes at most `share * t
 * + burstMs` plus one prompt. An account without recent prompts never waits. Pure: the caller
 * passes the time, and decides when the budget applies.
 */

/** Part of the time, and the most that other accounts lose of theirs. */
export const share = 0.1;
/** For comparison: a prompt of 8,000 tokens takes about 9 ms. */
export const burstMs = 200;
/** Limit of remembered accounts. Accounts with a full bucket are forgotten first. */
const accountsMax = 1024;

interface Bucket {
  /** Negative after a prompt that took more than was left. */
  ms: number;
  atMs: number;
}

export class PromptBudget {
  readonly #buckets = new Map<string, Bucket>();

  /** Returns the milliseconds until the account may continue, 0 if it may continue now. */
  waitMs(accountId: string, nowMs: number): number {
    const bucket = this.#buckets.get(accountId);
    if (bucket === undefined) return 0;
    const ms = levelOf(bucket, nowMs);
    return ms > 0 ? 0 : -ms / share + 1;
  }

  spend(accountId: string, workMs: number, nowMs: number): void {
    const bucket = this.#buckets.get(accountId) ?? { ms: burstMs, atMs: nowMs };
    this.#buckets.set(accountId, { ms: levelOf(bucket, nowMs) - workMs, atMs: nowMs });
    if (this.#buckets.size <= accountsMax) return;
    for (const [account, each] of this.#buckets)
      if (levelOf(each, nowMs) >= burstMs) this.#buckets.delete(account);
    // If all accounts are in debt, the oldest entry goes.
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size > accountsMax && oldest !== undefined) this.#buckets.delete(oldest);
  }
}

function levelOf({ ms, atMs }: Bucket, nowMs: number): number {
  return Math.min(burstMs, ms + share * (nowMs - atMs));
}
