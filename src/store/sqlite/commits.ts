/**
 * One commit of the ledger on SQLite: lock, read the rows of the operations, let the kernel
 * decide, write.
 *
 * Guarantees that a batch is written completely or not at all, and that the clock is read under
 * the lock. The lock is `begin immediate`. It covers the whole file, so other processes (the
 * command line, even a second server) wait and the ledger stays exact. Only the kernel decides
 * about credits.
 */

import type { DatabaseSync } from "node:sqlite";
import { invariant, withNothingDone } from "../../errors.ts";
import type { EventSettings } from "../../ledger/events.ts";
import { decide } from "../../ledger/kernel.ts";
import { LaterNeeded } from "../../ledger/open-grants.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { Decision } from "../../ledger/outcomes.ts";
import type { PlanCatalog, Plans } from "../../ledger/plan.ts";
import type { PlanChanges } from "../../ledger/plan-section.ts";
import type { AccountRow, AdditionalGrant, HoldRow, JournalRow, KeyRow } from "../../ledger/rows.ts";
import {
  type Changes,
  type EndedRequest,
  overdueMax,
  type PaymentFact,
  readsOf,
  rowKey,
  type Snapshot,
  type Times,
} from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import type { AccountDraft, DraftOptions, DraftOutcome } from "../contacts.ts";
import { operationsOf, planDraft } from "../contacts.ts";
import { eventRow } from "../events.ts";
import { paymentOf, selectPayments } from "../journal.ts";
import { laterChanges } from "../later-grants.ts";
import { foundSeatOf, seatReads, seatStatements } from "../link-queries.ts";
import type { PlansOptions } from "../plans.ts";
import type { SqlStatement } from "../sql.ts";
import {
  accountTable,
  chargeTable,
  eventTable,
  grantTable,
  holdTable,
  journalTable,
  keyStateTable,
  keyTable,
  laterGrantTable,
} from "../tables.ts";
import { readContacts, writeContact } from "./contacts.ts";
import { sqliteWords } from "./dialect.ts";
import { inTransaction, sqliteError } from "./file.ts";
import { applyPlans, readCatalog } from "./plans.ts";
import { insertInto, Query, update } from "./query.ts";
import { RowCache } from "./row-cache.ts";
import { findAccount, Statements } from "./statements.ts";

/**
 * The columns of the indexes of accounts, and of their conditions. SQLite writes an index anew if
 * one of its columns is set, even to its own value, and requests change none of them.
 */
const indexed = {
  plan: ({ plan }) => plan,
  next_plan: ({ nextPlan }) => nextPlan,
  state: ({ state }) => state,
  ends_ms: ({ endsMs }) => endsMs,
  created_ms: ({ createdMs }) => createdMs,
  base_until_ms: ({ base }) => base?.untilMs,
} satisfies Record<string, (account: AccountRow) => unknown>;
export const indexedColumns = Object.keys(indexed);
const indexedCells = Object.values(indexed);

/** The statements of a commit. */
function statementsOf(db: DatabaseSync) {
  return {
    hold: new Query(db, holdTable, "where account = ? and id = ?"),
    later: new Query(db, laterGrantTable, "where account = ?"),
    isOverdue: db.prepare("select 1 from hold where expires_ms <= ? limit 1"),
    overdue: db.prepare(
      "select id, expires_ms from hold where account = ? and expires_ms <= ? order by expires_ms, id limit ?",
    ),
    entry: new Query(db, journalTable, "where op = ?"),
    charges: new Query(db, chargeTable, "where id = ? and account = ? order by late"),
    others: new Statements(db),
    key: new Query(db, keyTable, "where id = ?"),
    memos: db.prepare(
      "select coalesce(sum(amount), 0) as memos from credit_grant where request_id = ? and account = ?",
    ),
    keysOf: db.prepare("select id from api_key where account = ?"),
    insertAccount: insertInto(db, accountTable),
    updateAccount: update(db, accountTable, ["id"]),
    updateCounts: update(db, accountTable, ["id"], indexedColumns),
    insertLater: insertInto(db, laterGrantTable),
    updateLater: update(db, laterGrantTable, ["account", "seq"]),
    deleteLater: db.prepare("delete from later_grant where account = ? and seq = ?"),
    insertHold: insertInto(db, holdTable),
    updateHold: update(db, holdTable, ["account", "id"]),
    deleteHold: db.prepare("delete from hold where account = ? and id = ?"),
    insertEntry: insertInto(db, journalTable),
    insertGrant: insertInto(db, grantTable),
    insertCharge: insertInto(db, chargeTable),
    updateKey: update(db, keyStateTable, ["account", "id"]),
    setKey: update(db, keyTable, ["account", "id"]),
    insertKey: insertInto(db, keyTable),
    insertEvent: insertInto(db, eventTable),
  };
}

export class SqliteCommits {
  readonly #db: DatabaseSync;
  readonly #now: () => Times;
  readonly #overdueMax: number;
  readonly #cache: RowCache;
  readonly #sql: ReturnType<typeof statementsOf>;

  /** For tests: `overdueHoldsMax`. */
  constructor(db: DatabaseSync, now: () => Times, overdueHoldsMax = overdueMax) {
    this.#db = db;
    this.#now = now;
    this.#overdueMax = overdueHoldsMax;
    this.#cache = new RowCache(db);
    this.#sql = statementsOf(db);
  }

  commit(operations: readonly Operation[], events: EventSettings | null = null): Decision[] {
    let isCommitting = false;
    try {
      this.#db.exec("begin immediate");
      this.#cache.begin();
      const { snapshot, outcomes, changes } = this.#decide(operations, events);
      this.#write(snapshot, changes);
      isCommitting = true;
      this.#db.exec("commit");
      this.#cache.end(changes);
      return outcomes;
    } catch (error) {
      // Some errors, such as a full disk, have rolled back already.
      if (this.#db.isTransaction) this.#db.exec("rollback");
      // A commit that fails on the way to the disk may have been written.
      throw isCommitting ? sqliteError(error) : withNothingDone(sqliteError(error));
    }
  }

  /** Opens an account or sets its contact. */
  putAccount(draft: AccountDraft, options: DraftOptions, events: EventSettings | null = null): DraftOutcome {
    const { planned, changes } = inTransaction(this.#db, () => {
      this.#cache.begin();
      const { snapshot, outcomes, changes } = this.#decide(operationsOf(draft, options), events);
      const known = readContacts(this.#db, draft);
      const rows = (statement: SqlStatement) => this.#sql.others.rows(statement);
      const found =
        draft.seat === undefined ? null : foundSeatOf(seatReads(draft.seat, sqliteWords).map(rows));
      const read = { known, found };
      const planned = planDraft(draft, outcomes[0], read, { ...options, ...snapshot.times });
      if (planned.isWritten) {
        this.#write(snapshot, changes);
        writeContact(this.#db, planned);
        if (planned.seat !== null) seatStatements(planned.seat, sqliteWords, events).forEach(rows);
      }
      return { planned, changes };
    });
    if (planned.isWritten) this.#cache.end(changes);
    return planned.outcome;
  }

  /** Applies a plans section of the configuration. */
  applyPlans(section: Plans, options: PlansOptions): PlanChanges {
    return inTransaction(this.#db, () =>
      applyPlans(this.#db, section, { ...options, nowMs: this.#now().atMs }),
    );
  }

  /** Returns the plans of the database. They are kept as long as the rows of the cache. */
  #plans(): PlanCatalog {
    this.#cache.plans ??= readCatalog(this.#db);
    return this.#cache.plans;
  }

  /** Decides again with the later grants of an account if a decision needs them. */
  #decide(
    operations: readonly Operation[],
    events: EventSettings | null,
  ): ReturnType<typeof decide> & { snapshot: Snapshot } {
    const read = this.#read(operations);
    const later = new Map<string, readonly AdditionalGrant[]>();
    const snapshot = { ...read, later };
    for (;;) {
      try {
        return { snapshot, ...decide(snapshot, operations, events) };
      } catch (error) {
        if (!(error instanceof LaterNeeded) || later.has(error.account)) throw error;
        later.set(error.account, this.#sql.later.all(error.account));
      }
    }
  }

  /**
   * Reads row by row: a lookup by key takes 1 to 3 us, and lists passed as JSON were no faster.
   */
  #read(operations: readonly Operation[]): Omit<Snapshot, "later"> {
    const times = this.#now();
    const reads = readsOf(operations);
    const accounts = new Map<string, AccountRow>();
    const problems = new Map<string, string>();
    const holds = new Map<string, HoldRow>();
    const journal = new Map<string, JournalRow>();
    const ended = new Map<string, EndedRequest>();
    const paid = new Map<string, PaymentFact>();
    const keys = new Map<string, KeyRow>();

    const readKey = (account: string, id: string) => {
      if (keys.has(id)) return;
      const key = known(this.#cache.keys, id, () => this.#sql.key.get(id));
      const isUsable = key !== undefined && (key.account === account || key.actsFor !== null);
      if (isUsable) keys.set(id, key);
    };
    const readHold = (account: string, id: string) => {
      const name = rowKey(account, id);
      if (holds.has(name)) return;
      const hold = known(this.#cache.holds, name, () => this.#sql.hold.get(account, id));
      if (hold === undefined) return;
      holds.set(name, hold);
      readKey(account, hold.key);
    };

    for (const id of reads.accounts) {
      const kept = this.#cache.accounts.get(id);
      const { row = kept, problem = null } =
        kept === undefined ? (findAccount(this.#sql.others, id) ?? {}) : {};
      if (row === undefined) continue;
      accounts.set(id, row);
      if (problem === null) this.#cache.accounts.set(id, row);
      else problems.set(id, problem);
    }
    const overdue = this.#overdueOf(
      [...reads.overdueOf].flatMap((id) => accounts.get(id) ?? []),
      times.nowMs,
    );
    const ending = overdue.slice(0, this.#overdueMax);
    for (const { account, id } of ending) readHold(account, id);
    for (const { account, id } of reads.holds.values()) readHold(account, id);
    for (const [name, { account, id }] of reads.ended) {
      // An open hold has no charges.
      if (holds.has(name) || !accounts.has(account)) continue;
      const charges = this.#sql.charges.all(id, account);
      if (charges.length === 0) continue;
      ended.set(name, { charges, memosMicro: Number(this.#sql.memos.get(id, account)?.memos) });
      for (const { key } of charges) readKey(account, key);
    }
    for (const { account, id } of reads.keys.values()) readKey(account, id);
    for (const op of reads.ops) {
      const entry = this.#sql.entry.get(op);
      if (entry !== undefined) journal.set(op, entry);
    }
    for (const account of reads.keysOf) {
      for (const { id } of this.#sql.keysOf.all(account)) readKey(account, String(id));
    }
    for (const id of reads.payments) {
      const text = `${selectPayments} where p.payment = ?1`;
      const [cells] = this.#sql.others.rows({ name: "payment", text, values: [id] });
      if (cells !== undefined) paid.set(id, paymentOf(cells));
    }
    return {
      times,
      plans: this.#plans(),
      accounts,
      problems,
      holds,
      overdue: ending.map(({ account, id }) => rowKey(account, id)),
      moreOverdue: new Set(overdue.slice(this.#overdueMax).map(({ account }) => account)),
      journal,
      ended,
      keys,
      payments: paid,
    };
  }

  /**
   * Finds overdue holds in the order in which they end: for each account at most one more than a
   * commit ends.
   */
  #overdueOf(accounts: readonly AccountRow[], nowMs: EpochMs): Overdue[] {
    // Usually no hold is overdue.
    if (this.#sql.isOverdue.get(nowMs) === undefined) return [];
    const overdue: Overdue[] = [];
    for (const account of new Set(accounts.filter(({ holds }) => holds > 0).map(({ id }) => id))) {
      for (const row of this.#sql.overdue.all(account, nowMs, this.#overdueMax + 1)) {
        const { id, expires_ms: expiresMs } = row;
        invariant(typeof id === "string" && typeof expiresMs === "number", "a hold has an id and a time");
        overdue.push({ account, id, expiresMs });
      }
    }
    return overdue.sort(soonestFirst);
  }

  #write(snapshot: Snapshot, changes: Changes): void {
    const sql = this.#sql;
    for (const row of changes.accounts) {
      const read = snapshot.accounts.get(row.id);
      if (read === undefined) sql.insertAccount(row);
      else {
        const isKept = indexedCells.every((cellOf) => cellOf(row) === cellOf(read));
        requireWritten(isKept ? sql.updateCounts(row) : sql.updateAccount(row), "account");
      }
    }
    const { added, changed, removed } = laterChanges(snapshot, changes);
    for (const row of added) sql.insertLater(row);
    for (const row of changed) requireWritten(sql.updateLater(row), "later_grant");
    for (const { account, seq } of removed) sql.deleteLater.run(account, seq);
    for (const row of changes.holdsPut) {
      if (!snapshot.holds.has(rowKey(row.account, row.id))) sql.insertHold(row);
      else requireWritten(sql.updateHold(row), "hold");
    }
    for (const { account, id } of changes.holdsEnded) {
      requireWritten(sql.deleteHold.run(account, id).changes === 1, "hold");
    }
    for (const row of changes.journal) sql.insertEntry(row);
    for (const row of changes.grants) sql.insertGrant(row);
    for (const row of changes.charges) sql.insertCharge(row);
    for (const row of changes.keys) requireWritten(sql.updateKey(row), "api_key");
    for (const row of changes.keysSet) requireWritten(sql.setKey(row), "api_key");
    for (const row of changes.keysNew) sql.insertKey(row);
    for (const fact of changes.events) sql.insertEvent(eventRow(fact));
  }
}

/** Returns the kept row, or reads the row and keeps it. */
function known<R>(kept: Map<string, R>, name: string, read: () => R | undefined): R | undefined {
  const found = kept.get(name) ?? read();
  if (found !== undefined) kept.set(name, found);
  return found;
}

interface Overdue {
  account: string;
  id: string;
  expiresMs: EpochMs;
}

function soonestFirst(a: Overdue, b: Overdue): number {
  if (a.expiresMs !== b.expiresMs) return a.expiresMs - b.expiresMs;
  if (a.account !== b.account) return a.account < b.account ? -1 : 1;
  return a.id < b.id ? -1 : 1;
}

/** Throws unless the statement has written its row. */
function requireWritten(isWritten: boolean, table: string): void {
  invariant(isWritten, `a row of ${table} that was read under the lock can be written`);
}
