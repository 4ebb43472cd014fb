/**
 * Everything that operators do with accounts and credits, and with keys (key-actions.ts). The
 * command line and the operator API parse a request, call one of these actions and print its
 * result.
 *
 * Actions that change accounts or credits are safe to repeat, as each operation id and payment id
 * takes effect once. A repetition with other values is refused and changes nothing. Actions throw
 * the errors of accounts/refusals.ts.
 */

import { invariant } from "../errors.ts";
import { type AccountSnapshot, type BalanceView, balanceOf, readBalance } from "../ledger/balance.ts";
import type { Ledger } from "../ledger/batcher.ts";
import type { AcceptedClock, ClockState } from "../ledger/clock.ts";
import type {
  AdjustOperation,
  PlanOperation,
  PromoteOperation,
  RefundOperation,
  StateOperation,
  TopupOperation,
} from "../ledger/operations.ts";
import { type PlanChanges, type Plans, planChanges } from "../ledger/plan.ts";
import { type PlanPreview, previewPlan } from "../ledger/preview.ts";
import type { AccountRow, HoldRow } from "../ledger/rows.ts";
import { type AccountInOrder, type Contact, type ListedAccount, noContact } from "../store/contacts.ts";
import type {
  AccountsQuery,
  HoldsQuery,
  JournalQuery,
  ListedEntry,
  ListedPayment,
  PaymentsQuery,
  Receipt,
  Store,
  UsageQuery,
} from "../store/store.ts";
import { type Hour, hourMs, type UsageHour, type UsageHoursQuery } from "../store/usage-hours.ts";
import { usagePages } from "../store/usage-pages.ts";
import type { UsageSumsQuery } from "../store/usage-sums.ts";
import { type Credits, type EpochMs, type MicroCredits, microOf } from "../units.ts";
import { type ImportedAccount, type ImportOptions, importAccounts } from "./account-import.ts";
import { isoTime } from "./json-objects.ts";
import { KeyActions } from "./key-actions.ts";
import {
  adjustmentRefusal,
  planChangeRefusal,
  promotionRefusal,
  refundRefusal,
  stateRefusal,
  topupRefusal,
} from "./outcome-refusals.ts";
import { type PaymentReport, paymentReport } from "./payment-report.ts";
import type { PlanState } from "./plan-objects.ts";
import {
  accountExists,
  accountNotFound,
  accountRefusal,
  externalIdUsed,
  OperatorRefusal,
  planRefusal,
} from "./refusals.ts";
import { type StoppedRequest, stopElsewhere } from "./request-stops.ts";
import { type UsageReport, usageReport } from "./usage-sums.ts";

/** Accounts that `accountsWithBalance` reads at a time. */
const pageRows = 100;

interface ActionDependencies {
  store: Store;
  ledger: Ledger;
  /** Models that keys may name. */
  modelIds(): readonly string[];
  /** Who acts: an operator, the holder of a key, the command line. The journal names them. */
  by: string;
  /** The zone of the configuration, for local days. */
  timezone(): string;
}

/** An account with its balance. If the balance cannot be read, `problem` is the reason. */
export type AccountWithBalance = { account: ListedAccount; nowMs: EpochMs } & (
  | { balance: BalanceView; problem: null }
  | { balance: null; problem: string }
);

/** An account of a list. The balance is null if it cannot be read. */
export interface AccountOfList extends AccountInOrder {
  balance: BalanceView | null;
}

/** What a change of an account's plan would do. */
export type PlanPreviewOf = Extract<PlanPreview, { kind: "preview" }> & { account: string };

/** Result of a refund. */
export interface CreditsRefund extends CreditsChange {
  amount: MicroCredits;
  /** The part that running requests hold. It can be refunded when they have ended. */
  rest: MicroCredits;
}

/** Credits that are given, or promotional credits that are taken away. */
interface Adjustment {
  op: string;
  /** Negative: taken away. */
  credits: Credits;
  reason: string;
  /** Of credits that are given: the time at which they end. Absent: never. */
  expiresMs?: EpochMs | undefined;
  /** Of credits that are given: the request that they make up for. */
  request?: string | undefined;
  /** Of credits that are taken away: the number of their grant. Absent: the newest first. */
  grant?: number | undefined;
}

/** Result of a top-up or an adjustment. */
export interface CreditsChange {
  /** True if the id was known: the credits were counted before, and nothing has changed now. */
  replayed: boolean;
  /** Additional credits after the change. */
  additional: MicroCredits;
  balance: BalanceView;
}

export class OperatorActions {
  readonly keys: KeyActions;
  readonly #deps: ActionDependencies;

  constructor(dependencies: ActionDependencies) {
    this.keys = new KeyActions(dependencies);
    this.#deps = dependencies;
  }

  /** Returns the same actions for somebody else. */
  as(by: string): OperatorActions {
    return new OperatorActions({ ...this.#deps, by });
  }

  /**
   * Opens an account with its contact. Returns the existing account, unchanged, if it was opened
   * on the same plan before.
   */
  async openAccount(
    id: string,
    plan: string,
    contact: Partial<Contact> = {},
  ): Promise<{ account: ListedAccount; isNew: boolean }> {
    const outcome = await this.#open(id, plan, contact);
    if (outcome.kind === "exists") {
      // The first journal entry has the plan that the account was opened on; its plan may have
      // changed since.
      const [opening] = await this.#deps.store.journal(id, { limit: 1 });
      if (opening?.note !== plan) throw accountExists(id, opening?.note ?? null);
    }
    return { account: await this.account(id), isNew: outcome.kind === "opened" };
  }

  async #open(
    id: string,
    plan: string,
    contact: Partial<Contact>,
  ): Promise<{ kind: "opened" } | { kind: "exists" }> {
    const { by } = this.#deps;
    // Only the ledger repeats an operation while the database is away.
    if (Object.keys(contact).length === 0) {
      const outcome = await this.#deps.ledger.apply({ kind: "open", account: id, plan, by });
      const { kind } = outcome;
      if (kind === "opened" || kind === "exists") return outcome;
      if (kind === "unknown_plan" || kind === "retired_plan") throw planRefusal(plan, outcome);
      invariant(kind !== "balances_refused", "nothing is brought along");
      throw accountRefusal(id, outcome);
    }
    const drafts = [{ id, plan, contact, key: null }];
    const options = { by, dryRun: false, updatesExisting: false };
    const [outcome] = await this.#deps.store.putAccounts(drafts, options);
    switch (outcome?.kind) {
      case "opened":
      case "exists":
        return outcome;
      case "unknown_plan":
      case "retired_plan":
        throw planRefusal(plan, outcome);
      case "external_id_used":
        throw externalIdUsed(contact.externalId ?? "", outcome.account);
    }
    throw accountNotFound(id);
  }

  /** Returns the account as it is now, even if nothing has been written since a window ended. */
  async account(id: string): Promise<ListedAccount> {
    return await this.#listed(await this.#snapshot(id));
  }

  /** Lists accounts with their balances, without what overdue holds will cost. */
  async accounts(query: AccountsQuery): Promise<AccountOfList[]> {
    const { store } = this.#deps;
    const rows = await store.accounts(query);
    const now = { plans: await store.plans(), times: store.times(), overdue: [], later: [] };
    return rows.map((row) => {
      const read = readBalance({ ...now, account: row, problem: row.problem });
      if ("problem" in read) return { ...row, balance: null };
      const { plan, nextPlan, state } = read;
      return { ...row, plan, nextPlan, state, balance: read };
    });
  }

  async accountWithBalance(id: string): Promise<AccountWithBalance> {
    const snapshot = await this.#snapshot(id);
    const { nowMs } = snapshot.times;
    const account = await this.#listed(snapshot);
    const read = readBalance(snapshot);
    if ("problem" in read) return { account, nowMs, balance: null, problem: read.problem };
    return { account, nowMs, balance: read, problem: null };
  }

  /** Lists the accounts that the query finds, in its order. */
  async accountsWithBalance(
    query: Omit<AccountsQuery, "after" | "limit"> = {},
    rowsMax = Number.POSITIVE_INFINITY,
  ): Promise<AccountWithBalance[]> {
    const accounts: AccountWithBalance[] = [];
    for (let last: AccountInOrder | undefined; ; ) {
      const place = { after: last?.id, afterValue: last?.orderValue };
      const limit = Math.min(pageRows, rowsMax - accounts.length);
      const page = await this.#deps.store.accounts({ ...query, ...place, limit });
      for (const { id } of page) accounts.push(await this.accountWithBalance(id));
      last = page.at(-1);
      if (page.length < pageRows || accounts.length >= rowsMax) return accounts;
    }
  }

  /** Sets the given fields of the contact. The others stay. */
  async setContact(id: string, contact: Partial<Contact>): Promise<ListedAccount> {
    const drafts = [{ id, plan: null, contact, key: null }];
    const options = { by: this.#deps.by, dryRun: false, updatesExisting: true };
    const [outcome] = await this.#deps.store.putAccounts(drafts, options);
    if (outcome?.kind === "no_account") throw accountNotFound(id);
    if (outcome?.kind === "external_id_used") {
      throw externalIdUsed(contact.externalId ?? "", outcome.account);
    }
    return await this.account(id);
  }

  /** Opens accounts and sets contacts. Existing accounts keep their plans and credits. */
  async importAccounts(
    accounts: readonly ImportedAccount[],
    options: Pick<ImportOptions, "dryRun" | "issueKeys">,
  ) {
    const { store, by, timezone } = this.#deps;
    return await importAccounts(store, accounts, { by, timezone: timezone(), ...options });
  }

  /** Changes the plan at the end of the base window, or now. */
  async changePlan(
    account: string,
    op: string,
    plan: string,
    at: PlanOperation["at"] = "refresh",
  ): Promise<ListedAccount> {
    const { ledger, by } = this.#deps;
    const outcome = await ledger.apply({ kind: "plan", account, op, plan, at, by });
    if (outcome.kind === "changed") return await this.account(account);
    throw planChangeRefusal({ account, op, plan }, outcome);
  }

  /** Returns what a change of the plan would do. Changes nothing. */
  async previewPlan(
    account: string,
    plan: string,
    at: PlanOperation["at"] = "refresh",
  ): Promise<PlanPreviewOf> {
    const preview = previewPlan(await this.#snapshot(account), { plan, at });
    if (preview.kind === "preview") return { ...preview, account };
    throw planChangeRefusal({ account, op: "preview", plan }, preview);
  }

  /** Suspends, resumes or closes the account, or sets the time at which it closes. */
  async changeState(account: string, op: string, to: StateOperation["to"]): Promise<ListedAccount> {
    const operation: StateOperation = { kind: "state", account, op, to, by: this.#deps.by };
    const outcome = await this.#deps.ledger.apply(operation);
    if (outcome.kind === "changed") return await this.account(account);
    throw stateRefusal(operation, outcome);
  }

  /** Adds credits that were paid for. */
  async addCredits(account: string, payment: string, credits: Credits): Promise<CreditsChange> {
    const { by } = this.#deps;
    const operation: TopupOperation = { kind: "topup", account, payment, amount: microOf(credits), by };
    const outcome = await this.#deps.ledger.apply(operation);
    if (outcome.kind === "added") return { ...outcome, balance: await this.balance(account) };
    throw topupRefusal(operation, outcome);
  }

  /** Gives promotional credits, or takes them away if the number is negative. */
  async adjustCredits(account: string, adjustment: Adjustment): Promise<CreditsChange> {
    const { ledger, by } = this.#deps;
    const { op, credits, reason, expiresMs: untilMs = null, request = null, grant = null } = adjustment;
    if (credits < 0) {
      const amount = microOf(0 - credits);
      const operation: AdjustOperation = { kind: "adjust", account, op, amount, grant, reason, by };
      const outcome = await ledger.apply(operation);
      if (outcome.kind === "adjusted") return { ...outcome, balance: await this.balance(account) };
      throw adjustmentRefusal(operation, outcome);
    }
    const amount = microOf(credits);
    const operation: PromoteOperation = {
      kind: "promote",
      account,
      op,
      amount,
      untilMs,
      reason,
      request,
      by,
    };
    const outcome = await ledger.apply(operation);
    if (outcome.kind === "added") return { ...outcome, balance: await this.balance(account) };
    throw promotionRefusal(operation, outcome);
  }

  /** Takes back what is neither spent nor held of a payment, up to the amount. */
  async refundCredits(
    account: string,
    { refund, payment, credits }: { refund: string; payment: string; credits: Credits },
  ): Promise<CreditsRefund> {
    const amount = microOf(credits);
    const { by } = this.#deps;
    const operation: RefundOperation = { kind: "refund", account, refund, payment, amount, by };
    const outcome = await this.#deps.ledger.apply(operation);
    if (outcome.kind === "refunded") return { ...outcome, balance: await this.balance(account) };
    throw refundRefusal(operation, outcome);
  }

  async balance(account: string): Promise<BalanceView> {
    return balanceOf(await this.#snapshot(account));
  }

  async journal(account: string, query: JournalQuery): Promise<ListedEntry[]> {
    await this.#requireAccount(account);
    return await this.#deps.store.journal(account, query);
  }

  /** Lists the payments of an account with what was spent and refunded of them, newest first. */
  async payments(account: string, query: PaymentsQuery): Promise<ListedPayment[]> {
    await this.#requireAccount(account);
    return await this.#deps.store.payments(account, query);
  }

  /** Returns what happened to each payment in a month of the configured zone. */
  async paymentReport(month: string): Promise<PaymentReport> {
    return await paymentReport(this.#deps.store, { month, timezone: this.timezone });
  }

  async usage(query: UsageQuery): Promise<Receipt[]> {
    await this.#requireAccount(query.account);
    return await this.#deps.store.usage(query);
  }

  async usagePages(query: Omit<UsageQuery, "limit">): Promise<AsyncIterable<readonly Receipt[]>> {
    await this.#requireAccount(query.account);
    return usagePages(this.#deps.store, query);
  }

  /** The zone of the configuration, for local days. */
  get timezone(): string {
    return this.#deps.timezone();
  }

  async usageReport(query: UsageSumsQuery): Promise<UsageReport> {
    await this.#requireAccount(query.account);
    return await usageReport(this.#deps.store, query, this.timezone);
  }

  /** Sums usage by hour, for the last hours up to now. */
  async usageHours(
    query: Omit<UsageHoursQuery, "from" | "to">,
    hours: number,
  ): Promise<{ from: Hour; to: Hour; rows: UsageHour[] }> {
    await this.#requireAccount(query.account);
    const to = Math.floor(this.#deps.store.times().atMs / hourMs) + 1;
    const from = to - hours;
    return { from, to, rows: await this.#deps.store.usageHours({ ...query, from, to }) };
  }

  async holds(query: HoldsQuery): Promise<HoldRow[]> {
    await this.#requireAccount(query.account);
    return await this.#deps.store.holds(query);
  }

  /** Stops a request that a service on this database answers, and waits for its end. */
  async stopRequest(requestId: string): Promise<StoppedRequest> {
    return await stopElsewhere({ ...this.#deps }, requestId);
  }

  /** Returns the plans of the current section in its order, then retired plans by name. */
  async plans(): Promise<PlanState[]> {
    const { offered, versions } = await this.#deps.store.plans();
    const accounts = await this.#deps.store.accountsOnPlans();
    const retired = [...versions.keys()].filter((id) => !offered.includes(id)).sort();
    return [...offered, ...retired].map((id) => ({
      id,
      isOffered: offered.includes(id),
      accounts: accounts.get(id) ?? 0,
      versions: versions.get(id)?.toReversed() ?? [],
    }));
  }

  /** Returns what `applyPlans` would change now. */
  async previewPlans(section: Plans): Promise<PlanChanges> {
    const { store } = this.#deps;
    return planChanges(await store.plans(), section, {
      fingerprints: [],
      force: true,
      nowMs: store.times().atMs,
    });
  }

  /** Makes a plans section current, even if a newer one replaced it before. */
  async applyPlans(section: Plans): Promise<PlanChanges> {
    return await this.#deps.store.applyPlans(section, true);
  }

  /** The time to which holds last. */
  elapsedMs(): EpochMs {
    return this.#deps.store.times().nowMs;
  }

  /** Reads the clock of the ledger. */
  async clock(): Promise<ClockState> {
    return await this.#deps.store.clock();
  }

  /**
   * Believes the present reading of the clock, if the operator knows the same time to within a
   * minute. `by` names the operator in the ledger.
   */
  async acceptClock(by: string, timeMs: EpochMs): Promise<AcceptedClock> {
    const acceptance = await this.#deps.store.acceptClock(by, timeMs);
    switch (acceptance.kind) {
      case "accepted":
        return acceptance.accepted;
      case "trusted":
        throw new OperatorRefusal("clock_trusted", "The clock is trusted already. Nothing has changed.");
      case "differs":
        throw new OperatorRefusal(
          "clock_differs",
          `The clock shows ${isoTime(acceptance.clockMs)}, which is more than a minute from ${isoTime(timeMs)}. Correct the clock, or give the true time. Nothing has changed.`,
          "time",
        );
    }
  }

  async #requireAccount(id: string | undefined): Promise<void> {
    if (id !== undefined) await this.#snapshot(id);
  }

  async #listed(snapshot: AccountSnapshot): Promise<ListedAccount> {
    const account = accountAt(snapshot);
    return { ...account, contact: (await this.#deps.store.contact(account.id)) ?? noContact };
  }

  async #snapshot(id: string) {
    const snapshot = await this.#deps.store.accountSnapshot(id);
    if (snapshot === null) throw accountNotFound(id);
    return snapshot;
  }
}

/** Returns the row with everything applied that is due, if its plan can be read. */
function accountAt(snapshot: AccountSnapshot): AccountRow {
  const read = readBalance(snapshot);
  if ("problem" in read) return snapshot.account;
  const { plan, nextPlan, state } = read;
  return { ...snapshot.account, plan, nextPlan, state };
}
