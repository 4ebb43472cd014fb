/**
 * The rules of the audit about sums of usage. They add up all charges that were summed: each on
 * the day on which it counts by the records of when days became final, and in the hour of its
 * time. Spans of receipts are checked, too.
 */
import type { EpochMs } from "../units.ts";
import type { FaultyRow } from "./audit-report.ts";
import { firstKeptHour, hoursAddedUp } from "./usage-hours.ts";
import { addedUp, dayMs, dayOfCharge } from "./usage-sums.ts";

/** An expression: the last day that was final when charge `c` was written. */
const finalBefore = `coalesce((
  select k.day from usage_close k where k.through < c.rowid order by k.through desc, k.number desc limit 1
), -1)`;

/** Finds receipts that are not in their span, for the audit. */
const receiptsOutsideSpans = `
  select c.account, c.key, c.model, c.at_ms / ${dayMs} as day, c.seq, s.first_seq, s.last_seq
  from charge c
  left join receipt_span s
    on s.account = c.account and s.key = c.key and s.model = c.model and s.day = c.at_ms / ${dayMs}
  where c.rowid <= (select through from usage_summed)
    and (s.day is null or c.seq < s.first_seq or c.seq > s.last_seq)`;

export const usageRules: Readonly<Record<string, string>> = {
  "final days are what their charges add up to": addedUp(
    dayOfCharge(finalBefore),
    "c.rowid <= (select through from usage_summed)",
  ),
  "hours are what their charges add up to": hoursAddedUp(),
  "receipts are in the spans of their days": receiptsOutsideSpans,
};

/** Cells: number, last charge that was summed before, day. */
export const readCloses = "select number, through, day from usage_close order by number";

/** Cells: last charge that was summed, first complete hour. Read it after the closes. */
export const readSummed = "select through, hours_from from usage_summed";

type Cells = readonly unknown[];

export const stateRules = {
  closes: "days become final in order, after their end",
  hours: "only old hours are left out of the sums by hour",
} as const;

/** Finds days that became final out of order, or before their end. */
export function closeFaults(
  closes: readonly Cells[],
  summed: Cells | undefined,
  nowMs: EpochMs,
): FaultyRow[] {
  const faults: FaultyRow[] = [];
  let before = { number: 0, through: 0, day: Number.NEGATIVE_INFINITY };
  for (const cells of closes) {
    const [number = 0, through = 0, day = 0] = cells.map(Number);
    const follows = number === before.number + 1 && through >= before.through && day > before.day;
    const isSummed = through <= Number(summed?.[0] ?? 0);
    if (!follows || !isSummed || (day + 1) * dayMs > nowMs) faults.push({ number, through, day });
    before = { number, through, day };
  }
  return faults;
}

/** An hour more, because the time of the audit is a little older than what it reads. */
export function hoursFaults(summed: Cells | undefined, nowMs: EpochMs): FaultyRow[] {
  const from = Number(summed?.[1] ?? 0);
  return from > firstKeptHour(nowMs) + 1 ? [{ hours_from: from }] : [];
}
