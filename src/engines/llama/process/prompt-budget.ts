/**
 * Time that each account's prompts may take of the thread that drives the decoder, while answers of others are decoded.
 *
 * A bucket of milliseconds for each account: filled at `share`, up to `burstMs`, emptied by what a preparation has taken.
 * Guarantees: over any time t an account takes `share * t + burstMs` and one preparation at most; an account that has not
 * prepared for a while is never held up. Pure: it is handed times. Whether an account disturbs anybody is the caller's business.
 */

/** Part of the time. Templating and tokenizing stand in the way of the next token, so this is what others lose at most. */
export const share = 0.1;
/** A prompt of 8,000 tokens takes some 9 ms. */
export const burstMs = 200;
/** Accounts that are remembered; those whose bucket is full are forgotten first. */
const accountsMax = 1024;

interface Bucket {
  /** Negative after a preparation that took more than there was. */
  ms: number;
  atMs: number;
}

export class PromptBudget {
  readonly #buckets = new Map<string, Bucket>();

  /** Milliseconds until the account may prepare again; 0: now. */
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
    // Nothing but accounts in debt: the one that has been there longest goes.
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size > accountsMax && oldest !== undefined) this.#buckets.delete(oldest);
  }
}

function levelOf({ ms, atMs }: Bucket, nowMs: number): number {
  return Math.min(burstMs, ms + share * (nowMs - atMs));
}
