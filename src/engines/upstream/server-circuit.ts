/**
 * The circuit breakers of one upstream server: one for all accounts, and one for each account
 * whose requests fail.
 *
 * Pure: callers pass the time. Guarantees: a missing answer counts for all. An answer that fails
 * counts for its account, because the request may be the cause. An account whose own circuit is
 * open cannot prolong the pause of the others (docs/decisions/0085-failures-count-per-account.md).
 */
import { type Attempt, Circuit } from "./circuit.ts";

/** Paused accounts that open the circuit of all, unless an answer was whole meanwhile. */
const pausedAccountsMax = 2;

/** Time for which an account does not count whose failures were about itself. */
const refutedMs = 600_000;

/** Accounts with failures that are remembered. */
const accountsMax = 10_000;

/** One request of an account, in both circuits. */
export interface AccountAttempt {
  readonly accountId: string;
  readonly ofAll: Attempt;
  readonly own: Attempt;
}

export class ServerCircuit {
  #ofAll = new Circuit();
  /** Accounts with a failure that no whole answer has followed. */
  readonly #accounts = new Map<string, Circuit>();
  /** Accounts that were paused since the last whole answer. */
  readonly #accusers = new Set<string>();
  /** Until when accounts do not count that were paused while others had answers. */
  readonly #refutedUntilMs = new Map<string, number>();

  /** Whether nobody's requests are sent. */
  isOpen(nowMs: number): boolean {
    return this.#ofAll.isOpen(nowMs);
  }

  /** Time from which the circuit of all admits a trial, or null if it is closed. */
  get openUntilMs(): number | null {
    return this.#ofAll.openUntilMs;
  }

  /** The same for the requests of one account. */
  openUntilMsFor(accountId: string): number | null {
    const ownMs = this.#accounts.get(accountId)?.openUntilMs ?? null;
    return ownMs === null ? this.openUntilMs : Math.max(ownMs, this.openUntilMs ?? 0);
  }

  get pausedAccounts(): number {
    return [...this.#accounts.values()].filter(({ openUntilMs }) => openUntilMs !== null).length;
  }

  /** A paused account tries for itself, and leaves the trial of the others to them. */
  admits(accountId: string, nowMs: number): boolean {
    const own = this.#pausedOf(accountId);
    return own === null ? this.#ofAll.admits(nowMs) : !this.isOpen(nowMs) && own.admits(nowMs);
  }

  begin(accountId: string, nowMs: number, insteadOf: AccountAttempt | null): AccountAttempt {
    const own = this.#accounts.get(accountId);
    const isPaused = this.#pausedOf(accountId) !== null;
    return {
      accountId,
      ofAll: isPaused ? this.#ofAll.beginBeside() : this.#ofAll.begin(nowMs, insteadOf?.ofAll ?? null),
      own: own?.begin(nowMs, insteadOf?.own ?? null) ?? { openings: 0 },
    };
  }

  /** Records the first token of an answer. Returns true if this closes the circuit of all. */
  answered(accountId: string, nowMs: number): boolean {
    this.#accounts.get(accountId)?.answered();
    const isClosed = this.#ofAll.answered();
    if (isClosed) this.#refute(accountId, nowMs);
    return isClosed;
  }

  /** Records an answer that arrived as far as it was wanted. */
  completed(accountId: string, nowMs: number): void {
    this.#ofAll.completed();
    this.#accounts.delete(accountId);
    this.#refute(accountId, nowMs);
  }

  /** The server works for this account, so the pauses of the others were about them. */
  #refute(accountId: string, nowMs: number): void {
    for (const accuser of this.#accusers) {
      if (accuser !== accountId) this.#refutedUntilMs.set(accuser, nowMs + refutedMs);
    }
    this.#accusers.clear();
    forgetOldest(this.#refutedUntilMs);
  }

  ended({ accountId, ofAll, own }: AccountAttempt): void {
    this.#ofAll.ended(ofAll);
    this.#accounts.get(accountId)?.ended(own);
  }

  /**
   * Records a failure. `isOfAll`: the answer is missing. `inAnswer`: part of it had arrived.
   * Returns whose circuit this opens, or null.
   */
  failed(
    nowMs: number,
    attempt: AccountAttempt,
    { isOfAll, inAnswer }: { isOfAll: boolean; inAnswer: boolean },
  ): "all" | "account" | null {
    const { accountId, ofAll } = attempt;
    if (isOfAll) return this.#ofAll.failed(nowMs, ofAll, inAnswer) ? "all" : null;
    const isPaused = this.#circuitOf(accountId).failed(nowMs, attempt.own, inAnswer);
    const isRefuted = nowMs < (this.#refutedUntilMs.get(accountId) ?? nowMs);
    if (isPaused && !isRefuted) this.#accusers.add(accountId);
    // While the circuit of all is open, its trial decides.
    if (this.openUntilMs !== null) {
      if (this.#ofAll.failed(nowMs, ofAll, inAnswer)) return "all";
    } else if (isPaused && this.#accusers.size >= pausedAccountsMax) {
      this.#ofAll.open(nowMs);
      return "all";
    }
    return isPaused ? "account" : null;
  }

  /** Opens the circuit of all for a time that does not double. */
  openFor(nowMs: number, forMs: number): void {
    this.#ofAll.open(nowMs, forMs);
  }

  /** Forgets all failures. */
  reset(): void {
    this.#ofAll = new Circuit();
    this.#accounts.clear();
    this.#accusers.clear();
    this.#refutedUntilMs.clear();
  }

  /** False if every request of every account is admitted. */
  get hasFailures(): boolean {
    return this.openUntilMs !== null || this.#accounts.size > 0;
  }

  #pausedOf(accountId: string): Circuit | null {
    const own = this.#accounts.get(accountId);
    return own === undefined || own.openUntilMs === null ? null : own;
  }

  #circuitOf(accountId: string): Circuit {
    const own = this.#accounts.getOrInsertComputed(accountId, () => new Circuit());
    forgetOldest(this.#accounts);
    return own;
  }
}

function forgetOldest(accounts: Map<string, unknown>): void {
  for (const accountId of accounts.keys()) {
    if (accounts.size <= accountsMax) return;
    accounts.delete(accountId);
  }
}
