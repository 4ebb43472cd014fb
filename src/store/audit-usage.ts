/**
 * The rules of the audit about sums of usage. They add up all charges that were summed: each on
 * the day on which it counts by the records of when days became final, and in the hour of its
 * time. Spans of receipts are checked, too.
 */
import { hoursAddedUp } from "./usage-hours.ts";
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
