/**
 * Sums charges on SQLite, on the connection that writes (../usage-sums.ts).
 *
 * Guarantees that each step is one transaction, so that a crash loses or repeats no charge, and
 * that a step is short, because commits wait for it.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EpochMs } from "../../units.ts";
import { addSums, isSummingDue, lastEndedDay, readUsageState, usageStateOf } from "../usage-sums.ts";
import { sqliteError } from "./file.ts";
import { Statements } from "./query.ts";

/** Parameters: the last summed charge, the last final day, the last accepted clock. */
const addClose =
  "insert into usage_close (number, through, day, accepts) select count(*) + 1, ?, ?, ? from usage_close";

/** Charges of one step: 10 ms. */
const chargesMax = 1000;

export class SqliteUsageSums {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #statements: Statements;
  readonly #add: StatementSync;
  readonly #setThrough: StatementSync;
  readonly #close: StatementSync;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#statements = new Statements(db);
    this.#add = db.prepare(addSums((n) => `?${n}`));
    this.#setThrough = db.prepare("update usage_summed set through = ?");
    this.#close = db.prepare(addClose);
  }

  /** Sums the next charges, and makes days final. Returns whether there is more to do. */
  step(): boolean {
    try {
      this.#db.exec("begin immediate");
      const hasMore = this.#step(this.#now());
      this.#db.exec("commit");
      return hasMore;
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec("rollback");
      throw sqliteError(error);
    }
  }

  #step(nowMs: EpochMs): boolean {
    const state = usageStateOf(this.#row(readUsageState));
    const last = Number(this.#row("select coalesce(max(rowid), 0) from charge")?.[0]);
    if (!isSummingDue(state, last, nowMs)) return false;
    const { finalDay, accepts } = state;
    const through = Math.min(last, state.through + chargesMax);
    if (state.isReopened) this.#close.run(state.through, finalDay, accepts);
    if (through > state.through) {
      this.#add.run(state.through, through, finalDay);
      this.#setThrough.run(through);
    }
    if (through < last) return true;
    const endedDay = lastEndedDay(nowMs);
    if (endedDay > finalDay) this.#close.run(through, endedDay, accepts);
    return false;
  }

  #row(text: string) {
    return this.#statements.rows({ name: text, text, values: [] })[0];
  }
}
