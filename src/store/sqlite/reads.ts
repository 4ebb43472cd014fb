/** What is read of the ledger outside its commits, on SQLite: snapshots for balances, and lists by the page. */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { AccountRow, HoldRow, JournalRow, UsageRow } from "../../ledger/rows.ts";
import { overdueMax } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import {
  type AccountsQuery,
  type HoldsQuery,
  type HoldTotals,
  type JournalQuery,
  pageRowsMax,
  type UsageQuery,
} from "../store.ts";
import { accountTable, holdTable, journalTable, usageTable } from "../tables.ts";
import { AccountQuery, cellsOf, prepare, Query } from "./query.ts";

export class SqliteSnapshots {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #account: AccountQuery;
  readonly #overdue: Query<HoldRow>;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#account = new AccountQuery(db);
    this.#overdue = new Query(
      db,
      holdTable,
      "where account = ? and expires_ms <= ? order by expires_ms, id limit ?",
    );
  }

  /** Both reads see the same state; the clock is read after that state is fixed. */
  of(account: string): AccountSnapshot | null {
    this.#db.exec("begin");
    try {
      const row = this.#account.get(account);
      if (row === undefined) return null;
      const nowMs = this.#now();
      return { account: row, overdue: this.#overdue.all(account, nowMs, overdueMax), nowMs };
    } finally {
      // A disk that fails ends it by itself.
      if (this.#db.isTransaction) this.#db.exec("commit");
    }
  }
}

export class SqliteLists {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #accounts: Query<AccountRow>;
  readonly #journal: Query<JournalRow>;
  readonly #overdue: Query<HoldRow>;
  readonly #holdTotals: StatementSync;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#accounts = new Query(db, accountTable, "where id > ? order by id limit ?");
    this.#journal = new Query(db, journalTable, "where account = ? and seq > ? order by seq limit ?");
    this.#overdue = new Query(
      db,
      holdTable,
      "where expires_ms <= ? order by expires_ms, account, id limit ?",
    );
    // total() is a float where sum() would refuse an integer beyond 53 bits.
    this.#holdTotals = prepare(
      db,
      "select count(*), total(base + overage + additional + base_past + overage_past) from hold",
    );
  }

  accounts({ after, limit }: AccountsQuery): AccountRow[] {
    assertLimit(limit);
    return this.#accounts.all(after ?? "", limit);
  }

  journal(account: string, { afterSeq, limit }: JournalQuery): JournalRow[] {
    assertLimit(limit);
    return this.#journal.all(account, afterSeq ?? 0, limit);
  }

  usage(query: UsageQuery): UsageRow[] {
    assertLimit(query.limit);
    const { account, id, after } = query;
    // By its id a receipt is found in its own table. Otherwise the journal's index leads to the first of them.
    const [rows, place] = id === undefined ? [receiptsInOrder, "j"] : ["usage as u", "u"];
    const filter = new Filter();
    if (account !== undefined) filter.where(`${place}.account = ?`, account);
    if (id !== undefined) filter.where("u.id = ?", id);
    if (query.key !== undefined) filter.where("u.key = ?", query.key);
    if (query.model !== undefined) filter.where("u.model = ?", query.model);
    if (query.fromMs !== undefined) filter.where("u.at_ms >= ?", query.fromMs);
    if (query.toMs !== undefined) filter.where("u.at_ms < ?", query.toMs);
    if (after !== undefined && after.account === account) filter.where(`${place}.seq > ?`, after.seq);
    else if (after !== undefined) {
      filter.where(`(${place}.account, ${place}.seq) > (?, ?)`, after.account, after.seq);
    }
    const sql = `select ${usageTable.list("u")} from ${rows}${filter.sql} order by ${place}.account, ${place}.seq limit ?`;
    return prepare(this.#db, sql)
      .all(...filter.values, query.limit)
      .map((row) => usageTable.rowOf(cellsOf(row)));
  }

  holds({ account, after, limit }: HoldsQuery): HoldRow[] {
    assertLimit(limit);
    const filter = new Filter();
    if (account !== undefined) filter.where("account = ?", account);
    if (after !== undefined) filter.where("(account, id) > (?, ?)", after.account, after.id);
    const rest = `${filter.sql} order by account, id limit ?`;
    return new Query(this.#db, holdTable, rest).all(...filter.values, limit);
  }

  holdTotals(): HoldTotals {
    const [holds, micro] = cellsOf(this.#holdTotals.get());
    return { holds: Number(holds), micro: Number(micro) };
  }

  overdueHolds(atMs: EpochMs | null, limit: number): HoldRow[] {
    assertLimit(limit);
    return this.#overdue.all(atMs ?? this.#now(), limit);
  }
}

/** A receipt has the number of the entry that ended it, `<id>/end` or `<id>/late`; the journal alone has them in order. */
const receiptsInOrder = `journal as j cross join usage as u
  on u.id = substr(j.op, 1, length(j.op) - case when substr(j.op, -5) = '/late' then 5 else 4 end)
    and u.account = j.account and u.seq = j.seq and j.kind in ('settle', 'void', 'expire')`;

/** The conditions of one query, joined by "and". */
class Filter {
  readonly values: SQLInputValue[] = [];
  readonly #conditions: string[] = [];

  where(condition: string, ...operands: SQLInputValue[]): void {
    this.#conditions.push(condition);
    this.values.push(...operands);
  }

  get sql(): string {
    return this.#conditions.length === 0 ? "" : ` where ${this.#conditions.join(" and ")}`;
  }
}

function assertLimit(limit: number): void {
  invariant(
    Number.isInteger(limit) && limit >= 1 && limit <= pageRowsMax,
    `a page has 1 to ${pageRowsMax} rows`,
  );
}
