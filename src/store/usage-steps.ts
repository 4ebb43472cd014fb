/**
 * Sums charges in the table `usage_sum`: by day for reports, and by hour for graphs.
 *
 * Charges have numbers in the order in which they are written. Each step adds the next charges to
 * the sums. A charge counts on the day of its date, or on the first day that is not final if its
 * own is. Days become final five minutes after their end, once all charges before that moment are
 * summed. A record of final days has the time zone in which later charges are dated, so another
 * zone of the configuration counts from the next day on. Hours are in UTC, and are deleted when no
 * graph shows them any more.
 *
 * Guarantees that every charge counts once, and that a final day never changes.
 */
import { invariant } from "../errors.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import { isTimezone } from "../ledger/windows.ts";
import type { EpochMs } from "../units.ts";
import type { FaultyRow } from "./audit-report.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import { tableOf } from "./table.ts";
import { type Day, dayExpression, dayOf, lastEndedDay } from "./usage-days.ts";
import { firstKeptHour, type Hour, hourOfCharge, spareHours } from "./usage-hours.ts";
import { measured, measures } from "./usage-measures.ts";

/** They are summed when there are this many. A report reads as many in less than 0.2 s. */
const unsummedMax = 100_000;

/** Later days than today need no offset yet. */
const daysAhead = 2;

/** The zone until anything is summed. */
export const firstZone = "UTC";

/** Cells: see `UsageState`. */
export const readUsageState = `
  select s.through, coalesce(c.day, -1) as final_day, c.timezone from usage_summed s
  left join usage_close c on c.number = (select max(number) from usage_close)`;

const stateColumns = {
  /** Number of the last summed charge. */
  through: "integer",
  /** Days up to this one are final. -1 if none is. */
  finalDay: "integer",
  /** The zone of later days. Null: nothing was summed yet. */
  timezone: "text?",
} as const satisfies Columns;
export interface UsageState extends RowOf<typeof stateColumns> {}
const stateTable = tableOf("usage_summed", stateColumns);

export function usageStateOf(cells: readonly unknown[] | undefined): UsageState {
  invariant(cells !== undefined, "the table usage_summed has its row");
  return stateTable.rowOf(cells);
}

/** Whether there is anything to sum or to record. `last` is the number of the newest charge. */
export function isSummingDue({ through, finalDay, timezone }: UsageState, last: number, nowMs: EpochMs) {
  if (timezone === null || last - through >= unsummedMax) return true;
  return lastEndedDay(nowMs, timezone) > finalDay;
}

interface Step {
  /** The newest charge to sum. */
  last: number;
  nowMs: EpochMs;
  /** The zone of the configuration. */
  timezone: string;
  chargesMax: number;
}

/** Returns the statements of a step, which run in one transaction, and whether it is the last. */
export function summingStep(
  state: UsageState,
  { last, nowMs, timezone, chargesMax }: Step,
  p: SqlDialect["parameter"],
): { statements: SqlStatement[]; isLast: boolean } {
  const through = Math.max(state.through, Math.min(last, state.through + chargesMax));
  const zone = state.timezone ?? timezone;
  const statements: SqlStatement[] = [];
  const close = (after: number, day: Day) =>
    statements.push({
      text: `insert into usage_close (number, through, day, timezone)
        select count(*) + 1, ${p(1)}, ${p(2)}, ${p(3)} from usage_close`,
      values: [after, day, timezone],
    });
  if (state.timezone === null) close(0, state.finalDay);
  if (through > state.through) {
    const day = countedDay({ ...state, timezone: zone }, nowMs);
    const range = [state.through, through];
    const firstHour = firstKeptHour(nowMs);
    for (const kind of kinds) {
      const hours = { unit: "hour", period: hourOfCharge, ...kind, from: firstHour } as const;
      statements.push({ text: addSums({ unit: "day", period: day, ...kind }, p), values: range });
      statements.push({ text: addSums(hours, p), values: range });
    }
    statements.push({ text: `update usage_summed set through = ${p(1)}`, values: [through] });
  }
  const isLast = through >= last;
  const endedDay = lastEndedDay(nowMs, zone);
  if (isLast && endedDay > state.finalDay) close(through, endedDay);
  return { statements, isLast };
}

/** An expression: the day on which an unsummed charge `c` counts. */
export function countedDay({ finalDay, timezone }: UsageState, nowMs: EpochMs): string {
  const zone = timezone ?? firstZone;
  const day = dayExpression("c.at_ms", zone, {
    from: finalDay,
    to: lastEndedDay(nowMs, zone) + daysAhead,
  });
  return `case when ${day} > ${finalDay} then ${day} else ${finalDay} + 1 end`;
}

/** Sums of a key, of an account and of all accounts are read from as few rows. */
const kinds = [
  { account: "c.account", key: "c.key" },
  { account: "c.account", key: "''" },
  { account: "''", key: "''" },
];

interface Sums {
  unit: "day" | "hour";
  /** Expressions of a charge `c`. */
  period: string;
  account: string;
  key: string;
  /** Charges of earlier periods are left out. */
  from?: number;
}

/** Parameters: charges after 1, up to 2. */
function addSums({ unit, period, account, key, from }: Sums, p: SqlDialect["parameter"]): string {
  const sums = Object.values(measures).map((value) => `sum(${value})`);
  const edge = (which: "first" | "last", beyond: "<" | ">") =>
    `${which}_seq = case when excluded.${which}_seq ${beyond} usage_sum.${which}_seq
      then excluded.${which}_seq else usage_sum.${which}_seq end`;
  return `
    insert into usage_sum (unit, period, account, key, model, ${measured.join(", ")}, first_seq, last_seq)
    select '${unit}', ${period}, ${account}, ${key}, c.model, ${sums.join(", ")}, min(c.seq), max(c.seq)
    from charge c where c.rowid > ${p(1)} and c.rowid <= ${p(2)}
      ${from === undefined ? "" : `and ${period} >= ${from}`}
    group by 1, 2, 3, 4, 5
    on conflict (unit, period, account, key, model) do update set
      ${measured.map((name) => `${name} = usage_sum.${name} + excluded.${name}`).join(", ")},
      ${edge("first", "<")}, ${edge("last", ">")}`;
}

/** Rows of `usage_sum` and charges, added up: they differ if a sum is not 0. */
function addedUp(unit: Sums["unit"], sums: string, charges: string): string {
  const group = "period, account, key, model";
  const differing = measured.map((name) => `sum(${name}) <> 0`);
  return `
    select ${group}, ${measured.map((name) => `sum(${name}) as ${name}_too_many`).join(", ")},
      max(first_seq) as first_seq, max(last_seq) as last_seq, min(seq) as first_charge, max(seq) as last_charge
    from (
      select ${group}, ${measured.join(", ")}, first_seq, last_seq, null as seq
      from usage_sum where unit = '${unit}' ${sums}
      union all
      ${charges}
    ) t
    group by ${group}
    having ${differing.join(" or ")} or max(first_seq) <> min(seq) or max(last_seq) <> max(seq)`;
}

/** The summed charges of `from`, as rows of `addedUp`. */
function negativeSums(period: string, from: string): string {
  const negative = Object.entries(measures).map(([name, value]) => `0 - (${value}) as ${name}`);
  const all = kinds.map(
    ({ account, key }) => `
    select ${period} as period, ${account} as account, ${key} as key, c.model, ${negative.join(", ")},
    null as first_seq, null as last_seq, c.seq ${from}`,
  );
  return all.join(" union all ");
}

type Cells = readonly unknown[];

/** Cells: number, last charge that was summed before, day, zone of later days. */
export const readCloses = "select number, through, day, timezone from usage_close order by number";

/** Cells: the last charge that was summed, the first day of the sums. Read it after the closes. */
export const readSummed = `
  select through, (select min(period) from usage_sum where unit = 'day') from usage_summed`;

/** A rule of the audit. */
export const finalInOrder = "days become final in order, after their end";

/** Finds days that became final out of order, or before their end. The first record has no day. */
export function closeFaults(closes: readonly Cells[], [summed]: Cells, nowMs: EpochMs): FaultyRow[] {
  const faults: FaultyRow[] = [];
  let before = { number: 0, through: 0, day: Number.NEGATIVE_INFINITY, timezone: firstZone };
  for (const [n, cells] of closes.entries()) {
    const [number = 0, through = 0, day = 0] = cells.map(Number);
    const timezone = String(cells[3]);
    const follows = number === before.number + 1 && through >= before.through && day > before.day;
    const isSummed = through <= Number(summed);
    const hasEnded = n === 0 ? through === 0 && day === -1 : day < dayOf(nowMs, before.timezone);
    const isZone = isTimezone(timezone);
    if (!follows || !isSummed || !hasEnded || !isZone) faults.push({ number, through, day, timezone });
    before = { number, through, day, timezone: isZone ? timezone : firstZone };
  }
  return faults;
}

/**
 * The rules of the audit about sums of usage. They add up all charges that were summed: each on
 * the day on which it counts by the records of final days, and in the hour of its time. Only hours
 * of the last seven days: older ones can go meanwhile.
 */
export function usageRules(
  closes: readonly Cells[],
  [, firstDay]: Cells,
  nowMs: EpochMs,
): Record<string, string> {
  const zones = new Set(closes.map((cells) => String(cells[3])).filter(isTimezone));
  const range = { from: Number(firstDay ?? 0), to: lastEndedDay(nowMs, firstZone) + daysAhead };
  const dated = [...zones].map((zone) => `when '${zone}' then ${dayExpression("c.at_ms", zone, range)}`);
  const day = zones.size === 0 ? "0" : `case k.timezone ${dated.join(" ")} end`;
  const isSummed = "c.rowid <= (select through from usage_summed)";
  const fromDays = `from (
      select c.*, k.day as final_day, ${day} as date from charge c
      join usage_close k on k.number = (select max(number) from usage_close where through < c.rowid)
      where ${isSummed}
    ) c`;
  const counted = "case when c.date > c.final_day then c.date else c.final_day + 1 end";
  const firstHour: Hour = firstKeptHour(nowMs) + spareHours;
  const fromHours = `from charge c where ${isSummed} and ${hourOfCharge} >= ${firstHour}`;
  return {
    "final days are what their charges add up to": addedUp("day", "", negativeSums(counted, fromDays)),
    "hours are what their charges add up to": addedUp(
      "hour",
      `and period >= ${firstHour}`,
      negativeSums(hourOfCharge, fromHours),
    ),
  };
}
