/**
 * The last chat requests of each account that ended with an error.
 *
 * Guarantees at most `perAccountMax` of an account, and at most `accountsMax` accounts: the
 * account whose last refusal is oldest is forgotten first. No text of a request is kept.
 */
import type { RefusedRequest } from "../accounts/refused-requests.ts";
import type { RequestObserver, RequestRecord } from "./request-record.ts";

/** Refusals of an account, and accounts with refusals. */
const kept = { perAccountMax: 50, accountsMax: 1000 };

export class RecentRefusals implements RequestObserver {
  /** Newest last. */
  readonly #accounts = new Map<string, RefusedRequest[]>();

  finished({ isChat, caller, code, requestId: id, model, isAccepted }: RequestRecord): void {
    if (!isChat || caller === null || code === null) return;
    const { accountId, key } = caller;
    const refusals = this.#accounts.get(accountId) ?? [];
    refusals.push({ id, atMs: Date.now(), code, model, key: key.id, isAccepted });
    if (refusals.length > kept.perAccountMax) refusals.shift();
    this.#accounts.delete(accountId);
    this.#accounts.set(accountId, refusals);
    if (this.#accounts.size <= kept.accountsMax) return;
    const [oldest] = this.#accounts.keys();
    if (oldest !== undefined) this.#accounts.delete(oldest);
  }

  /** Newest first. */
  of(account: string): RefusedRequest[] {
    return this.#accounts.get(account)?.toReversed() ?? [];
  }
}
