/**
 * Sums charges on SQLite, on the connection that writes (../usage-steps.ts).
 *
 * Guarantees that each step is one transaction, so that a crash loses or repeats no charge, and
 * that a step is short, because commits wait for it.
 */
import type { DatabaseSync } from "node:sqlite";
import type { EpochMs } from "../../units.ts";
import { firstKeptHour } from "../usage-hours.ts";
import { isSummingDue, readUsageState, summingStep, usageStateOf } from "../usage-steps.ts";
import { inTransaction } from "./file.ts";
import type { Statements } from "./statements.ts";

/** Charges of one step: 12 ms, with their sums by hour. */
const chargesMax = 500;

const row = "unit, period, account, key, model";
const deleteSome = `delete from usage_sum where (${row}) in (
  select ${row} from usage_sum where unit = 'hour' and period < ?1 limit 2000) returning 1`;

/** Sums the next charges, and makes days final. Returns whether there is more to do. */
export function sumOnSqlite(
  db: DatabaseSync,
  statements: Statements,
  { nowMs, timezone }: { nowMs: EpochMs; timezone: string },
): boolean {
  const rowOf = (text: string) => statements.rows({ name: text, text, values: [] })[0];
  return inTransaction(db, () => {
    const hours = { name: "delete hours", text: deleteSome, values: [firstKeptHour(nowMs)] };
    if (statements.rows(hours).length > 0) return true;
    const state = usageStateOf(rowOf(readUsageState));
    const last = Number(rowOf("select coalesce(max(rowid), 0) from charge")?.[0]);
    if (!isSummingDue(state, last, nowMs)) return false;
    const step = summingStep(state, { last, nowMs, timezone, chargesMax }, (n) => `?${n}`);
    for (const statement of step.statements) statements.rows(statement);
    return !step.isLast;
  });
}
