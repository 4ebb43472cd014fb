/**
 * Everything that operators do with accounts, keys and credits. The command line and the operator
 * API parse a request, call one of these actions and print its result.
 *
 * Actions that change accounts or credits are safe to repeat, as each operation id and payment id
 * takes effect once. A repetition with other values is refused and changes nothing. Only
 * `issueKey` issues another key with each call. Actions throw the errors of accounts/refusals.ts.
 */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { type BalanceView, balanceOf, readBalance } from "../ledger/balance.ts";
import type { Ledger } from "../ledger/batcher.ts";
import type { AcceptedClock, ClockState } from "../ledger/clock.ts";
import type { Plans } from "../ledger/plan.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../ledger/rows.ts";
import type { AccountsQuery, HoldsQuery, JournalQuery, Store, UsageQuery } from "../store/store.ts";
import { usagePages } from "../store/usage-pages.ts";
import { type Credits, type EpochMs, exactCredits, type MicroCredits, microOf } from "../units.ts";
import { type IssuedKey, issueKey, type KeyOptions, keyProperties } from "./keys.ts";
import {
  accountExists,
  accountNotFound,
  accountRefusal,
  keyNotFound,
  OperatorRefusal,
  requirePlan,
  requireUsableKey,
} from "./refusals.ts";

/** Accounts that `accountStates` reads at a time. */
const pageRows = 100;

interface ActionDependencies {
  store: Store;
  ledger: Ledger;
  plans: Plans;
  /** Models that keys may name. */
  modelIds(): readonly string[];
}

/** An account with its balance. If the balance cannot be read, `problem` is the reason. */
export type AccountState = { account: AccountRow; nowMs: EpochMs } & (
  | { balance: BalanceView; problem: null }
  | { balance: null; problem: string }
);

/** Result of a top-up or an adjustment. */
export interface CreditsChange {
  /** True if the id was known: the credits were counted before, and nothing has changed now. */
  replayed: boolean;
  /** Additional credits after the change. */
  additional: MicroCredits;
  balance: BalanceView;
}

export class OperatorActions {
  readonly #deps: ActionDependencies;

  constructor(dependencies: ActionDependencies) {
    this.#deps = dependencies;
  }

  /** Opens an account. Returns the existing account if it was opened on the same plan before. */
  async openAccount(id: string, plan: string): Promise<{ account: AccountRow; isNew: boolean }> {
    requirePlan(this.#deps.plans, plan);
    const outcome = await this.#deps.ledger.apply({ kind: "open", account: id, plan });
    if (outcome.kind === "exists") {
      // The first journal entry has the plan that the account was opened on; its plan may have
      // changed since.
      const [opening] = await this.#deps.store.journal(id, { limit: 1 });
      if (opening?.note !== plan) throw accountExists(id, opening?.note ?? null);
    } else if (outcome.kind !== "opened") throw accountRefusal(id, outcome);
    return { account: await this.account(id), isNew: outcome.kind === "opened" };
  }

  async account(id: string): Promise<AccountRow> {
    return (await this.#snapshot(id)).account;
  }

  async accounts(query: AccountsQuery): Promise<AccountRow[]> {
    return await this.#deps.store.accounts(query);
  }

  async accountState(id: string): Promise<AccountState> {
    const snapshot = await this.#snapshot(id);
    const { account, nowMs } = snapshot;
    const read = readBalance(snapshot, this.#deps.plans);
    if ("problem" in read) return { account, nowMs, balance: null, problem: read.problem };
    return { account, nowMs, balance: read, problem: null };
  }

  async accountStates(): Promise<AccountState[]> {
    const states: AccountState[] = [];
    for (;;) {
      const page = await this.#deps.store.accounts({ after: states.at(-1)?.account.id, limit: pageRows });
      for (const { id } of page) states.push(await this.accountState(id));
      if (page.length < pageRows) return states;
    }
  }

  /** Changes the plan. A larger grant counts at once, a smaller one from the next refresh on. */
  async changePlan(account: string, operation: string, plan: string): Promise<AccountRow> {
    requirePlan(this.#deps.plans, plan);
    const outcome = await this.#deps.ledger.apply({ kind: "plan", account, op: operation, plan });
    if (outcome.kind === "conflict") {
      throw new OperatorRefusal(
        "operation_differs",
        `Operation "${operation}" put ${account} on the plan ${outcome.plan} before, not on ${plan}. ${newIdNeeded}`,
        "plan",
      );
    }
    if (outcome.kind !== "changed") throw accountRefusal(account, outcome);
    return await this.account(account);
  }

  /** Adds credits that were paid for. */
  async addCredits(account: string, payment: string, credits: Credits): Promise<CreditsChange> {
    const outcome = await this.#deps.ledger.apply({
      kind: "topup",
      account,
      payment,
      amount: microOf(credits),
    });
    switch (outcome.kind) {
      case "added":
        return { ...outcome, balance: await this.balance(account) };
      case "conflict":
        throw new OperatorRefusal(
          "payment_differs",
          `Payment "${payment}" was counted before, with ${exactCredits(outcome.amount)} credits instead of ${exactCredits(microOf(credits))}. ${newIdNeeded}`,
          "credits",
        );
      case "too_much":
        throw tooManyCredits(account);
      default:
        throw accountRefusal(account, outcome);
    }
  }

  /** Corrects the additional credits up or down. */
  async adjustCredits(
    account: string,
    operation: string,
    credits: Credits,
    reason: string,
  ): Promise<CreditsChange> {
    const amount = microOf(credits);
    const outcome = await this.#deps.ledger.apply({ kind: "adjust", account, op: operation, amount, reason });
    switch (outcome.kind) {
      case "adjusted":
        return { ...outcome, balance: await this.balance(account) };
      case "conflict":
        throw new OperatorRefusal(
          "operation_differs",
          `Adjustment "${operation}" was made before, with ${exactCredits(outcome.amount)} credits and the reason "${outcome.reason}" instead of ${exactCredits(amount)} and "${reason}". ${newIdNeeded}`,
          outcome.amount === amount ? "reason" : "credits",
        );
      case "too_little":
        throw new OperatorRefusal(
          "too_few_credits",
          `Account ${account} has ${exactCredits(outcome.additional)} additional credits. An adjustment cannot take away more. Nothing has changed.`,
          "credits",
        );
      case "too_much":
        throw tooManyCredits(account);
      default:
        throw accountRefusal(account, outcome);
    }
  }

  async balance(account: string): Promise<BalanceView> {
    return balanceOf(await this.#snapshot(account), this.#deps.plans);
  }

  /** Issues a key. Every call issues another key. */
  async issueKey(account: string, options: KeyOptions, nowMs = this.#deps.store.nowMs()): Promise<IssuedKey> {
    requireUsableKey(options, this.#deps.modelIds(), nowMs);
    const issued = await issueKey(this.#deps.store, account, options, nowMs);
    if (issued === null) throw accountNotFound(account);
    return issued;
  }

  /**
   * Issues one key for each operation id. A repetition returns the key's row without the secret:
   * `key` is null.
   */
  async issueKeyOnce(
    account: string,
    operation: string,
    options: KeyOptions,
  ): Promise<{ key: string | null; row: KeyRow }> {
    const id = keyIdOf(account, operation);
    let known = await this.#deps.store.keyById(id);
    if (known === null) {
      try {
        return await this.issueKey(account, { ...options, id });
      } catch (error) {
        // The key may exist all the same: issued by a request at the same time, or just before the
        // store failed.
        known = await this.#deps.store.keyById(id);
        if (known === null) throw error;
      }
    }
    const asked = keyProperties(account, options);
    if (isDeepStrictEqual(keyProperties(known.account, known), asked)) return { key: null, row: known };
    throw new OperatorRefusal(
      "operation_differs",
      `Operation "${operation}" issued the key ${id} of ${known.account} before, with other properties. ${newIdNeeded}`,
      "operation_id",
    );
  }

  async key(id: string): Promise<KeyRow> {
    const row = await this.#deps.store.keyById(id);
    if (row === null) throw keyNotFound(id);
    return row;
  }

  /** Returns the keys of one account, or of all accounts, in the order of their creation. */
  async keys(account?: string): Promise<KeyRow[]> {
    await this.#requireAccount(account);
    return await this.#deps.store.keys(account);
  }

  /** Revokes a key for good. */
  async revokeKey(id: string): Promise<{ row: KeyRow; revokedBefore: boolean }> {
    const atMs = this.#deps.store.nowMs();
    const row = await this.#deps.store.revokeKey(id, atMs);
    if (row === null) throw keyNotFound(id);
    return { row, revokedBefore: row.revokedMs !== null && row.revokedMs < atMs };
  }

  async journal(account: string, query: JournalQuery): Promise<JournalRow[]> {
    await this.#requireAccount(account);
    return await this.#deps.store.journal(account, query);
  }

  async usage(query: UsageQuery): Promise<UsageRow[]> {
    await this.#requireAccount(query.account);
    return await this.#deps.store.usage(query);
  }

  /** Returns all receipts that the query finds, a page at a time. */
  async usagePages(query: Omit<UsageQuery, "limit">): Promise<AsyncIterable<readonly UsageRow[]>> {
    await this.#requireAccount(query.account);
    return usagePages(this.#deps.store, query);
  }

  async holds(query: HoldsQuery): Promise<HoldRow[]> {
    await this.#requireAccount(query.account);
    return await this.#deps.store.holds(query);
  }

  /** Reads the clock of the ledger. */
  async clock(): Promise<ClockState> {
    return await this.#deps.store.clock();
  }

  /** Believes the present reading of the clock. `by` names the operator in the ledger. */
  async acceptClock(by: string): Promise<AcceptedClock> {
    const accepted = await this.#deps.store.acceptClock(by);
    if (accepted !== null) return accepted;
    throw new OperatorRefusal("clock_trusted", "The clock is trusted already. Nothing has changed.");
  }

  async #requireAccount(id: string | undefined): Promise<void> {
    if (id !== undefined) await this.#snapshot(id);
  }

  async #snapshot(id: string) {
    const snapshot = await this.#deps.store.snapshot(id);
    if (snapshot === null) throw accountNotFound(id);
    return snapshot;
  }
}

const newIdNeeded = "Nothing has changed. Use a new id for another change.";

function tooManyCredits(account: string): OperatorRefusal {
  return new OperatorRefusal(
    "too_many_credits",
    `Account ${account} cannot hold that many credits. Nothing has changed.`,
    "credits",
  );
}

/** Derives the key's id from the operation, so that a repetition finds the key. */
function keyIdOf(account: string, operation: string): string {
  return `key_${hash("sha256", `${account}\n${operation}`, "hex").slice(0, 16)}`;
}
