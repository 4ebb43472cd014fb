/**
 * Sums charges on SQLite, on the connection that writes (../usage-sums.ts).
 *
 * Guarantees that each step is one transaction, so that a crash loses or repeats no charge, and
 * that a step is short, because commits wait for it.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EpochMs } from "../../units.ts";
import { addSpans } from "../receipt-spans.ts";
import { addHours, firstKeptHour, raiseHoursFrom } from "../usage-hours.ts";
import { addSums, isSummingDue, lastEndedDay, readUsageState, usageStateOf } from "../usage-sums.ts";
import { inTransaction } from "./file.ts";
import { Statements } from "./query.ts";

/** Parameters: the last summed charge, the last final day. */
const addClose = "insert into usage_close (number, through, day) select count(*) + 1, ?, ? from usage_close";

/** Deletes hours before the first one, as many rows as fit into a step. */
const deleteHours = `delete from usage_hour where (account, key, hour, model) in (
  select account, key, hour, model from usage_hour indexed by usage_hour_by_hour where hour < ? limit 2000)`;

/** Charges of one step: 12 ms, with their sums by hour. */
const chargesMax = 500;

export class SqliteUsageSums {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #statements: Statements;
  readonly #add: StatementSync;
  readonly #setThrough: StatementSync;
  readonly #addSpans: StatementSync;
  readonly #addHours: readonly StatementSync[];
  readonly #deleteHours: StatementSync;
  readonly #raiseHoursFrom: StatementSync;
  readonly #close: StatementSync;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#statements = new Statements(db);
    this.#add = db.prepare(addSums((n) => `?${n}`));
    this.#setThrough = db.prepare("update usage_summed set through = ?");
    this.#addSpans = db.prepare(addSpans((n) => `?${n}`));
    this.#addHours = addHours((n) => `?${n}`).map((text) => db.prepare(text));
    this.#deleteHours = db.prepare(deleteHours);
    this.#raiseHoursFrom = db.prepare(raiseHoursFrom("?1"));
    this.#close = db.prepare(addClose);
  }

  /** Sums the next charges, and makes days final. Returns whether there is more to do. */
  step(): boolean {
    return inTransaction(this.#db, () => this.#step(this.#now()));
  }

  #step(nowMs: EpochMs): boolean {
    const firstHour = firstKeptHour(nowMs);
    if (this.#deleteHours.run(firstHour).changes > 0) {
      this.#raiseHoursFrom.run(firstHour);
      return true;
    }
    const state = usageStateOf(this.#row(readUsageState));
    const last = Number(this.#row("select coalesce(max(rowid), 0) from charge")?.[0]);
    if (!isSummingDue(state, last, nowMs)) return false;
    const { finalDay } = state;
    const through = Math.min(last, state.through + chargesMax);
    if (through > state.through) {
      this.#add.run(state.through, through, finalDay);
      this.#addSpans.run(state.through, through);
      for (const add of this.#addHours) add.run(state.through, through, firstHour);
      this.#raiseHoursFrom.run(firstHour);
      this.#setThrough.run(through);
    }
    if (through < last) return true;
    const endedDay = lastEndedDay(nowMs);
    if (endedDay > finalDay) this.#close.run(through, endedDay);
    return false;
  }

  #row(text: string) {
    return this.#statements.rows({ name: text, text, values: [] })[0];
  }
}
