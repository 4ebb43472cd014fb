/**
 * The port to the database. Credits change only through `commit` and `putAccount`, and the kernel
 * decides about both. All other methods read, or write rows without credits: plans, sessions, the
 * clock, sums of usage, stopped requests and the last audit.
 */

import { OperatorError } from "../errors.ts";
import type { AccountSnapshot } from "../ledger/balance.ts";
import type { ClockState } from "../ledger/clock.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { LedgerStore } from "../ledger/ledger.ts";
import type { PlanCatalog, Plans, PlanVersion } from "../ledger/plan.ts";
import type { PlanChanges } from "../ledger/plan-section.ts";
import {
  type AccountState,
  type ChargeRow,
  type HoldRow,
  type JournalRow,
  journalKinds,
  type KeyRow,
} from "../ledger/rows.ts";
import type { Times } from "../ledger/snapshot.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import type { AuditRecord, AuditReport } from "./audit-report.ts";
import type { ChangeLog } from "./change-log.ts";
import type { AccountDraft, AccountInOrder, Contact, DraftOptions, DraftOutcome } from "./contacts.ts";
import type { EventStore } from "./events.ts";
import type { InvitationStore } from "./invitations.ts";
import type { LinkStore } from "./links.ts";
import type { OperatorKeyStore } from "./operator-keys.ts";
import type { PaymentPeriod, PaymentPeriodQuery } from "./payment-report.ts";
import type { PeopleStore } from "./people.ts";
import type { AccountsOnPlans, PlansOptions } from "./plans.ts";
import type { SessionStore } from "./sessions.ts";
import type { UsageHour, UsageHoursQuery } from "./usage-hours.ts";
import type { UsageSums, UsageSumsQuery } from "./usage-sums.ts";

/** The most rows of a page of any list. */
export const pageRowsMax = 1000;

/**
 * The time limit of a statement of a list. The time in which it waits for other lists does not
 * count.
 */
export const listLimitMs = 10_000;

/** A key, the state of its account, and the newest version of the account's plan. */
export interface FoundKey {
  key: KeyRow;
  /** Closed from `endsMs` on, whatever its state, and if its row is missing or cannot be read. */
  account: { state: AccountState; endsMs: EpochMs | null };
  /** Null if the database has no version of it, or no account. */
  plan: PlanVersion | null;
  /** Why there is no plan. Null: there is one. */
  problem: string | null;
}

/** `additional` and `remaining` are credits, `remaining` those of all buckets. */
export const accountOrders = ["id", "created", "plan", "additional", "remaining"] as const;
export type AccountOrder = (typeof accountOrders)[number];

/** Undefined: no condition. */
export interface AccountsQuery {
  /** The account with this external id. */
  externalId?: string | undefined;
  /**
   * Accounts whose id begins with this text, or whose owner, e-mail and external id have words
   * that begin with its words.
   */
  search?: string | undefined;
  plan?: string | undefined;
  /** As it is now: an account whose end has passed is closed. */
  state?: AccountState | undefined;
  /**
   * Accounts with less than one credit, or with less than a tenth of the credits of both windows,
   * additional credits included. Closed accounts are not among them.
   */
  hasLowBalance?: true | undefined;
  /** Accounts with an invitation that nobody has used. */
  hasNotCome?: true | undefined;
  /** By default `id`. Equal accounts are in the order of their ids. */
  order?: AccountOrder | undefined;
  descending?: boolean | undefined;
  /** Accounts after this id, in the order. */
  after?: string | undefined;
  /** The `orderValue` of that account, unless the order is `id`. */
  afterValue?: string | number | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export const findingKinds = ["account", "person", "key", "payment", "request"] as const;

export const findingColumns = {
  kind: findingKinds,
  id: "text",
  /** Null: a person without an account. */
  account: "text?",
  /** Of the person or the key, otherwise the owner of the account. */
  name: "text?",
  email: "text?",
  /** The external id of an account, the end of a key's secret, the model of a request. */
  detail: "text?",
  /** Of a payment, and the cost of a request. */
  amountMicro: "micro?",
  /** When it began, or when the request ended. */
  atMs: "ms",
} as const satisfies Columns;
export interface Finding extends RowOf<typeof findingColumns> {}

export interface FindingsQuery {
  text: string;
  /** Of each kind: 1 to `pageRowsMax`. */
  limit: number;
}

/** A fact of an account, as journals list it. */
export interface ListedEntry extends Omit<JournalRow, "kind"> {
  kind: ListedKind;
}

/** Charges are in journals too: their note is the request id, and their amount what was paid. */
export const listedKinds = [...journalKinds, "charge"] as const;
export type ListedKind = (typeof listedKinds)[number];

export interface JournalQuery {
  /** Only entries of these kinds. Default: all. */
  kinds?: readonly ListedKind[] | undefined;
  newestFirst?: boolean | undefined;
  /** Entries after this number, in the order. */
  afterSeq?: number | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface PaymentsQuery {
  /** Payments after the one with this journal number, newest first. */
  afterSeq?: number | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

/** A payment, and what became of it. The rest is left, or held by running requests. */
export interface ListedPayment {
  id: string;
  account: string;
  amountMicro: MicroCredits;
  refundedMicro: MicroCredits;
  spentMicro: MicroCredits;
  /** Its journal number and time. */
  seq: number;
  atMs: EpochMs;
}

/** A charge, with the memos that name its request: credits that made up for it later. */
export interface Receipt extends ChargeRow {
  /** 0 for a late charge: its request has another receipt. */
  memoMicro: MicroCredits;
}

export interface UsageQuery {
  account?: string | undefined;
  /** The request id that the client saw. */
  id?: string | undefined;
  /** Id of the key. */
  key?: string | undefined;
  model?: string | undefined;
  /** Receipts from this time on. */
  fromMs?: EpochMs | undefined;
  /** Receipts before this time. */
  toMs?: EpochMs | undefined;
  /** In the order (account, seq), or in its reverse: the newest receipt of an account first. */
  newestFirst?: boolean | undefined;
  /** Rows after this one (its `account` and `seq`), in the order. */
  after?: { account: string; seq: number } | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface HoldsQuery {
  account?: string | undefined;
  /** Holds after this one, in the order (account, id). */
  after?: { account: string; id: string } | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

/** Over all accounts. */
export interface HoldTotals {
  holds: number;
  /** The credits that they hold, parts from past windows included. */
  heldMicro: MicroCredits;
}

/** A list was stopped at its time limit. The same request would be stopped again. */
export class ListTooSlowError extends OperatorError {
  constructor(limitMs: number, cause?: unknown) {
    super(
      `The list took longer than ${limitMs / 1000} s and was stopped. Request less: set account, set from and to closer together, or continue after the last row that you have (after).`,
      cause,
    );
  }
}

/** A request that an operator has stopped. */
export interface StopRequestRow {
  /** The request id. */
  id: string;
  /** Who stops it. Its receipt names them. */
  by: string;
}

/** Requests that operators have stopped, for the process that answers them. */
export interface StopRequests {
  /** Returns false if no open hold has this request id. */
  add(request: StopRequestRow, nowMs: EpochMs): Promise<boolean>;
  /** Lists those that were added since `sinceMs`. */
  since(sinceMs: EpochMs): Promise<StopRequestRow[]>;
  /** Returns the account of the open hold of a request, or null if the request has none. */
  holdOf(requestId: string): Promise<{ account: string; key: string } | null>;
}

/** Counts that have a limit for each day in UTC: of all keys, requests and nodes together. */
export interface DailyCounts {
  /** Adds to a count. Returns false, and adds nothing, if the day would have more than `most`. */
  count(name: string, amount: number, limit: { most: number; atMs: EpochMs }): Promise<boolean>;
  /** Takes back what was counted and did not happen. */
  uncount(name: string, amount: number, atMs: EpochMs): Promise<void>;
  /** Returns whether the journal has this operation: a repetition changes nothing. */
  isDone(op: string): Promise<boolean>;
}

export interface Store extends LedgerStore, SessionStore, PeopleStore, ChangeLog {
  /** Reads all plans of the database. */
  plans(): Promise<PlanCatalog>;
  /**
   * Makes a plans section of the configuration current, in one transaction. A section that was
   * superseded is applied only by `force`.
   */
  applyPlans(section: Plans, options: PlansOptions): Promise<PlanChanges>;
  accountsOnPlans(): Promise<AccountsOnPlans>;

  /** The present times, without a wait. */
  times(): Times;
  /** Reads the clock, and records the times from time to time. */
  clock(): Promise<ClockState>;

  /** Finds a key by the SHA-256 of its present or its old secret, in lower-case hex. */
  findKey(hash: string): Promise<FoundKey | null>;
  /** Finds keys by the SHA-256 of their present secrets, in any order. */
  findKeys(hashes: readonly string[]): Promise<FoundKey[]>;
  keyById(id: string): Promise<KeyRow | null>;
  /** Lists the names of all front ends that have or had a key. */
  frontEnds(): Promise<string[]>;
  /** Lists the keys of an account in the order of their creation. */
  keys(account: string): Promise<KeyRow[]>;
  /** The same after a key and at most so many, of an account or of all. */
  keysAfter(key: Pick<KeyRow, "id" | "createdMs"> | null, limit: number, account?: string): Promise<KeyRow[]>;

  /** Reads an account and its overdue holds in one state. Null if the account does not exist. */
  accountSnapshot(account: string): Promise<AccountSnapshot | null>;
  /**
   * Returns a text that is another one after each change of the account's credits, after each
   * checkpoint, and in each minute. Null if the account does not exist.
   */
  accountMark(account: string, atMs: EpochMs): Promise<string | null>;
  accounts(query: AccountsQuery): Promise<AccountInOrder[]>;
  /** Finds what begins with a text, by its kind. */
  find(query: FindingsQuery): Promise<Finding[]>;
  /** Null if the account does not exist. */
  contact(account: string): Promise<Contact | null>;
  /**
   * Opens an account with its contact and the seat that it takes, or sets the contact of one that
   * exists, in one transaction. If the draft is refused, nothing is written.
   */
  putAccount(draft: AccountDraft, options: DraftOptions): Promise<DraftOutcome>;
  usage(query: UsageQuery): Promise<Receipt[]>;
  /** Sums charges, including those that are not summed yet. */
  usageSums(query: UsageSumsQuery): Promise<UsageSums>;
  /** Sums charges by hour, in the order of the hours and models. */
  usageHours(query: UsageHoursQuery): Promise<UsageHour[]>;
  /**
   * Sums the next charges aside if they are many, and makes days final that have ended. Returns
   * whether there is more to do. The time zone is that of days which have not begun.
   */
  sumUsage(timezone: string): Promise<boolean>;
  journal(account: string, query: JournalQuery): Promise<ListedEntry[]>;
  /** Lists payments with what was refunded of them, newest first. */
  payments(account: string, query: PaymentsQuery): Promise<ListedPayment[]>;
  /** Lists what happened to payments of all accounts in a period, in the order of their ids. */
  paymentPeriods(query: PaymentPeriodQuery): Promise<PaymentPeriod[]>;
  /** Lists open holds, including overdue holds that have not ended yet. */
  holds(query: HoldsQuery): Promise<HoldRow[]>;
  holdTotals(): Promise<HoldTotals>;
  /** Lists holds that expire at this elapsed time or before, soonest first. */
  overdueHolds(nowMs: EpochMs, page: { after?: HoldRow | undefined; limit: number }): Promise<HoldRow[]>;
  /**
   * Lists the ids of accounts whose scheduled plan or end is due at this ledger time and was not
   * committed yet, in their order.
   */
  dueAccounts(atMs: EpochMs, page: { after?: string | undefined; limit: number }): Promise<string[]>;

  /** The audit that was recorded last, or null. */
  lastAudit(): Promise<AuditRecord | null>;
  /** Replaces it. An audit that found problems is an event, if the configuration has events. */
  recordAudit(report: AuditReport): Promise<void>;
  readonly stopRequests: StopRequests;
  readonly operatorKeys: OperatorKeyStore;
  readonly dailyCounts: DailyCounts;
  readonly events: EventStore;
  readonly invitations: InvitationStore;
  readonly links: LinkStore;

  /** Resolves when the last write is on disk. Idempotent. */
  close(): Promise<void>;
}
