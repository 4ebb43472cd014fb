/**
 * The common part of the actions of operators: the store, the ledger, who acts, keys
 * (key-actions.ts), and reads of accounts, receipts, plans and times. Changes of accounts
 * and credits are in src/actions, beside its descriptions.
 */

import { setImmediate } from "node:timers/promises";
import { type Actor, hasRole, type OperatorRole, type Role } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { type AccountSnapshot, type BalanceView, balanceOf, readBalance } from "../ledger/balance.ts";
import type { TellAccess } from "../ledger/events.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { PlanCatalog, Plans } from "../ledger/plan.ts";
import { type PlanChanges, planChanges } from "../ledger/plan-section.ts";
import { refusalOf } from "../ledger/refusals.ts";
import type { AccountRow, HoldRow } from "../ledger/rows.ts";
import { type AccountInOrder, type ListedAccount, noContact } from "../store/contacts.ts";
import type { WantedEvents } from "../store/events.ts";
import type { InvitationState } from "../store/invitations.ts";
import type { PersonRow } from "../store/people.ts";
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
import type { Hour, UsageHour, UsageHoursQuery } from "../store/usage-hours.ts";
import { usagePages } from "../store/usage-pages.ts";
import type { UsageSumsQuery } from "../store/usage-sums.ts";
import { type Credits, type EpochMs, hourMs, type MicroCredits, microOf } from "../units.ts";
import { type InvitationSettings, Invitations, noInvitations } from "./invitations.ts";
import { KeyActions } from "./key-actions.ts";
import { LinkActions } from "./link-actions.ts";
import type { Currency } from "./money.ts";
import { OperatorKeyActions } from "./operator-key-actions.ts";
import { type PaymentReport, paymentReport } from "./payment-report.ts";
import type { PlanState } from "./plan-objects.ts";
import { type StoppedRequest, stopElsewhere } from "./request-stops.ts";
import type { PersonRoles } from "./signed-in-people.ts";
import { type UsageReport, usageReport } from "./usage-sums.ts";

interface ActionDependencies {
  store: Store;
  ledger: Ledger;
  /** Models that keys may name. */
  modelIds(): readonly string[];
  actor: Actor;
  /** The zone of the configuration, for local days. */
  timezone(): string;
  /** The price of credits, for reports. Default: reports have no money. */
  currency?(): Currency | null;
  /** The operator token. */
  token(): Promise<string>;
  /** Whole credits that support may give in a day. Default: none. */
  supportCredits?(): Credits;
  /** The receivers of events in the configuration. Default: none. */
  endpoints?(): readonly WantedEvents[];
  /** How invitations are given out. Default: not at all. */
  invitations?(): InvitationSettings;
  /** The role that the configuration gives to a person now. Default: none. */
  roleNow?: PersonRoles["roleNow"];
  /** Default: nobody hears of a new operator key. */
  tell?: TellAccess | undefined;
}

/** `invited` and `lapsed`: nobody has used the link. A lapsed one has ended, or its account. */
export const invitationStates = ["invited", "lapsed", "joined", "used"] as const;

/** An account of a list. The balance is null if it cannot be read, for this reason. */
export interface AccountOfList extends AccountInOrder {
  balance: BalanceView | null;
  balanceProblem: string | null;
  /** Null: nobody was invited. */
  invitation: (typeof invitationStates)[number] | null;
}

export class OperatorActions {
  readonly keys: KeyActions;
  readonly operatorKeys: OperatorKeyActions;
  readonly invitations: Invitations;
  readonly links: LinkActions;
  readonly store: Store;
  readonly ledger: Ledger;
  /** The journal names this actor. */
  readonly by: string;
  readonly role: Role;
  readonly actor: Actor;
  readonly #deps: ActionDependencies;

  constructor(dependencies: ActionDependencies) {
    const { by, role } = dependencies.actor;
    this.keys = new KeyActions({ ...dependencies, by });
    this.operatorKeys = new OperatorKeyActions(dependencies);
    const { invitations: settings = () => noInvitations } = dependencies;
    this.invitations = new Invitations({ ...dependencies, settings });
    this.links = new LinkActions({ ...dependencies, settings });
    this.actor = dependencies.actor;
    this.store = dependencies.store;
    this.ledger = dependencies.ledger;
    this.by = by;
    this.role = role;
    this.#deps = dependencies;
  }

  /**
   * Gives promotional credits: support at most so many in a day. They are counted first, so that
   * a failure in between leaves too few to give, and never too many. `give` returns whether they
   * were given before.
   */
  async giveWithinAllowance(
    { amountMicro, op }: { amountMicro: MicroCredits; op: string },
    give: () => Promise<boolean>,
  ): Promise<boolean> {
    const { store, actor, supportCredits = () => 0 } = this.#deps;
    if (hasRole(this.role, "operator")) return await give();
    const most = supportCredits();
    const { atMs } = store.times();
    const maker = `support ${actor.maker ?? actor.by}`;
    const limit = { most: microOf(most), atMs };
    if (!(await store.dailyCounts.count(maker, amountMicro, limit))) {
      if (await store.dailyCounts.isDone(op)) return await give();
      throw new Refusal(
        "allowance_exceeded",
        `Support may give ${most} credits a day (operator.support_credits), and this would be more. Nothing has changed.`,
        { param: "credits" },
      );
    }
    const uncount = async () => await store.dailyCounts.uncount(maker, amountMicro, atMs);
    try {
      const isRepeated = await give();
      if (isRepeated) await uncount();
      return isRepeated;
    } catch (error) {
      // A refusal has given nothing. After another failure, the credits may be given.
      if (error instanceof Refusal) await uncount();
      throw error;
    }
  }

  roleNow(person: PersonRow): OperatorRole | null {
    return this.#deps.roleNow?.(person) ?? null;
  }

  endpoints(): readonly WantedEvents[] {
    return this.#deps.endpoints?.() ?? [];
  }

  /** Returns the same actions for somebody else. */
  as(actor: Actor): OperatorActions {
    return new OperatorActions({ ...this.#deps, actor });
  }

  /** Returns the account as it is now, even if nothing has been written since a window ended. */
  async account(id: string): Promise<ListedAccount> {
    const account = withStanding(await this.snapshot(id));
    return { ...account, contact: (await this.store.contact(id)) ?? noContact };
  }

  /** Lists accounts with their balances, without what overdue holds will cost. */
  async accounts(query: AccountsQuery): Promise<AccountOfList[]> {
    const { store } = this.#deps;
    const rows = await store.accounts(query);
    const times = store.times();
    const now = { plans: await store.plans(), times, overdue: [], later: [] };
    const invited = await store.invitations.states(rows.map(({ id }) => id));
    const states = new Map(invited.map((each) => [each.account, invitationState(each, times.nowMs)]));
    const whole = new Map<string, AccountSnapshot | null>();
    const hasEnded = ({ untilMs }: { untilMs: EpochMs | null }) => untilMs !== null && untilMs <= times.atMs;
    for (const { id, additional, later } of rows) {
      // Grants beside the row follow those in it that have ended.
      if (later.count === 0 || ![...additional, later].some(hasEnded)) continue;
      // One by one, because requests read snapshots too.
      await setImmediate();
      whole.set(id, await store.accountSnapshot(id));
    }
    return rows.map((row) => {
      const read = readBalance({
        ...now,
        account: row,
        problem: row.problem,
        ...whole.get(row.id),
        overdue: [],
      });
      const { state = row.state } = "problem" in read ? {} : read;
      const found = states.get(row.id) ?? null;
      // The link of a closed account leads nowhere.
      const invitation = found === "invited" && state === "closed" ? "lapsed" : found;
      if ("problem" in read) return { ...row, balance: null, balanceProblem: read.problem, invitation };
      const { plan, nextPlan } = read;
      return { ...row, plan, nextPlan, state, balance: read, balanceProblem: null, invitation };
    });
  }

  async balance(account: string): Promise<BalanceView> {
    return balanceOf(await this.snapshot(account));
  }

  async journal(account: string, query: JournalQuery): Promise<ListedEntry[]> {
    await this.#requireAccount(account);
    return await this.store.journal(account, query);
  }

  /** Lists the payments of an account with what was spent and refunded of them, newest first. */
  async payments(account: string, query: PaymentsQuery): Promise<ListedPayment[]> {
    await this.#requireAccount(account);
    return await this.store.payments(account, query);
  }

  /** Returns what happened to each payment in a month of the configured zone. */
  async paymentReport(month: string): Promise<PaymentReport> {
    return await paymentReport(this.store, { month, timezone: this.timezone });
  }

  async usage(query: UsageQuery): Promise<Receipt[]> {
    await this.#requireAccount(query.account);
    return await this.store.usage(query);
  }

  async usagePages(query: Omit<UsageQuery, "limit">): Promise<AsyncIterable<readonly Receipt[]>> {
    await this.#requireAccount(query.account);
    return usagePages(this.store, query);
  }

  /** The zone of the configuration, for local days. */
  get timezone(): string {
    return this.#deps.timezone();
  }

  async usageReport(query: UsageSumsQuery): Promise<UsageReport> {
    await this.#requireAccount(query.account);
    const currency = this.#deps.currency?.() ?? null;
    return await usageReport(this.store, query, { timezone: this.timezone, currency });
  }

  /** Sums usage by hour, for the last hours up to now. */
  async usageHours(
    query: Omit<UsageHoursQuery, "from" | "to">,
    hours: number,
  ): Promise<{ from: Hour; to: Hour; rows: UsageHour[] }> {
    await this.#requireAccount(query.account);
    const to = Math.floor(this.store.times().atMs / hourMs) + 1;
    const from = to - hours;
    return { from, to, rows: await this.store.usageHours({ ...query, from, to }) };
  }

  async holds(query: HoldsQuery): Promise<HoldRow[]> {
    await this.#requireAccount(query.account);
    return await this.store.holds(query);
  }

  /** Stops a request that a service on this database answers, and waits for its end. */
  async stopRequest(requestId: string): Promise<StoppedRequest> {
    return await stopElsewhere(this.#deps, { id: requestId, by: this.by });
  }

  /** Returns the plans of the current section in its order, then retired plans by name. */
  async plans(): Promise<PlanState[]> {
    const { offered, versions } = await this.store.plans();
    const accounts = await this.store.accountsOnPlans();
    const retired = [...versions.keys()].filter((id) => !offered.includes(id)).sort();
    return [...offered, ...retired].map((id) => ({
      id,
      isOffered: offered.includes(id),
      accounts: accounts.get(id) ?? 0,
      versions: versions.get(id)?.toReversed() ?? [],
    }));
  }

  /** Returns the plans of the database, and what `applyPlans` would change now. */
  async previewPlans(section: Plans): Promise<{ catalog: PlanCatalog; changes: PlanChanges }> {
    const { store } = this.#deps;
    const catalog = await store.plans();
    return { catalog, changes: planChanges(catalog, section, { force: true, nowMs: store.times().atMs }) };
  }

  /** The time of windows, ends and dates. */
  ledgerMs(): EpochMs {
    return this.store.times().atMs;
  }

  async #requireAccount(id: string | undefined): Promise<void> {
    if (id !== undefined) await this.snapshot(id);
  }

  async snapshot(id: string) {
    const snapshot = await this.store.accountSnapshot(id);
    if (snapshot === null) throw refusalOf({ kind: "account_not_found", account: id });
    return snapshot;
  }
}

/** Returns the row with plan and state as of now, if its plan can be read. */
function withStanding(snapshot: AccountSnapshot): AccountRow {
  const read = readBalance(snapshot);
  if ("problem" in read) return snapshot.account;
  const { plan, nextPlan, state } = read;
  return { ...snapshot.account, plan, nextPlan, state };
}

function invitationState(
  { hasCome, hasUsed, endsMs }: InvitationState,
  nowMs: EpochMs,
): AccountOfList["invitation"] {
  if (hasCome) return hasUsed ? "used" : "joined";
  return endsMs > nowMs ? "invited" : "lapsed";
}
