/** What is read of the ledger outside its commits, on SQLite: snapshots for balances, and lists by the page. */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import type { AccountSnapshot } from "../credits/balance.ts";
import type { AccountRow, HoldRow, JournalRow, UsageRow } from "../credits/rows.ts";
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { accountOf, holdOf, journalOf, usageOf } from "./sqlite-rows.ts";
import { type AccountsQuery, type JournalQuery, pageRowsMax, type UsageQuery } from "./store.ts";

export class SqliteSnapshots {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #account: StatementSync;
  readonly #overdue: StatementSync;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#account = db.prepare("select * from account where id = ?");
    // The plus keeps SQLite from walking all of the account's holds: few of any account's are overdue.
    this.#overdue = db.prepare("select * from hold where expires_ms <= ? and +account = ?");
  }

  /** Both reads see the same state; the clock is read after that state is fixed. */
  of(account: string): AccountSnapshot | null {
    this.#db.exec("begin");
    try {
      const row = this.#account.get(account);
      if (row === undefined) return null;
      const nowMs = this.#now();
      return { account: accountOf(row), overdue: this.#overdue.all(nowMs, account).map(holdOf), nowMs };
    } finally {
      this.#db.exec("commit");
    }
  }
}

export class SqliteLists {
  readonly #db: DatabaseSync;
  readonly #accounts: StatementSync;
  readonly #journal: StatementSync;
  readonly #overdue: StatementSync;

  constructor(db: DatabaseSync) {
    this.#db = db;
    this.#accounts = db.prepare("select * from account where id > ? order by id limit ?");
    this.#journal = db.prepare("select * from journal where account = ? and seq > ? order by seq limit ?");
    this.#overdue = db.prepare(
      "select * from hold where expires_ms <= ? order by expires_ms, account, id limit ?",
    );
  }

  accounts({ after, limit }: AccountsQuery): AccountRow[] {
    assertLimit(limit);
    return this.#accounts.all(after ?? "", limit).map(accountOf);
  }

  journal(account: string, { afterSeq, limit }: JournalQuery): JournalRow[] {
    assertLimit(limit);
    return this.#journal.all(account, afterSeq ?? 0, limit).map(journalOf);
  }

  usage(query: UsageQuery): UsageRow[] {
    assertLimit(query.limit);
    const conditions: string[] = [];
    const values: SQLInputValue[] = [];
    const where = (condition: string, ...operands: SQLInputValue[]) => {
      conditions.push(condition);
      values.push(...operands);
    };
    if (query.account !== undefined) where("account = ?", query.account);
    if (query.id !== undefined) where("id = ?", query.id);
    if (query.fromMs !== undefined) where("at_ms >= ?", query.fromMs);
    if (query.toMs !== undefined) where("at_ms < ?", query.toMs);
    if (query.after !== undefined) where("(account, seq) > (?, ?)", query.after.account, query.after.seq);
    const filter = conditions.length === 0 ? "" : ` where ${conditions.join(" and ")}`;
    const rows = this.#db.prepare(`select * from usage${filter} order by account, seq limit ?`);
    return rows.all(...values, query.limit).map(usageOf);
  }

  overdueHolds(atMs: EpochMs, limit: number): HoldRow[] {
    assertLimit(limit);
    return this.#overdue.all(atMs, limit).map(holdOf);
  }
}

function assertLimit(limit: number): void {
  invariant(
    Number.isInteger(limit) && limit >= 1 && limit <= pageRowsMax,
    `a page has 1 to ${pageRowsMax} rows`,
  );
}
