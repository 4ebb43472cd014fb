/** Reads an account with what a balance needs, in one state of an SQLite file. */
import type { DatabaseSync } from "node:sqlite";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { HoldRow, LaterGrantRow } from "../../ledger/rows.ts";
import { overdueMax, type Times } from "../../ledger/snapshot.ts";
import { readMark } from "../plans.ts";
import { holdTable, laterGrantTable } from "../tables.ts";
import { Query } from "./query.ts";
import { findAccount, Statements } from "./statements.ts";

export class SqliteSnapshots {
  readonly #db: DatabaseSync;
  readonly #times: () => Times;
  readonly #overdue: Query<HoldRow>;
  readonly #statements: Statements;
  readonly #later: Query<LaterGrantRow>;

  constructor(db: DatabaseSync, times: () => Times) {
    this.#db = db;
    this.#later = new Query(db, laterGrantTable, "where account = ?");
    this.#statements = new Statements(db);
    this.#times = times;
    this.#overdue = new Query(
      db,
      holdTable,
      "where account = ? and expires_ms <= ? order by expires_ms, id limit ?",
    );
  }

  /** Both reads see the same state. The clock is read after that state is fixed. */
  of(account: string): (Omit<AccountSnapshot, "plans"> & { mark: number }) | null {
    this.#db.exec("begin");
    try {
      const read = findAccount(this.#statements, account);
      if (read === undefined) return null;
      const times = this.#times();
      const later = read.row.later.count === 0 ? [] : this.#later.all(account);
      const [cells] = this.#statements.rows({ name: "mark", text: readMark, values: [] });
      const overdue = this.#overdue.all(account, times.nowMs, overdueMax);
      const { row, problem } = read;
      return { account: row, problem, overdue, later, times, mark: Number(cells?.[0]) };
    } finally {
      // A failing disk ends the transaction by itself.
      if (this.#db.isTransaction) this.#db.exec("commit");
    }
  }
}
