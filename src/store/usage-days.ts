/**
 * Days of reports: dates in the time zone of the configuration, as numbers since 1970-01-01.
 *
 * The zone in force is recorded with the final days (usage-steps.ts). Pure.
 */
import { dayMs, type EpochMs } from "../units.ts";

/** A date, as the number of days since 1970-01-01. */
export type Day = number;

/** Days have smaller numbers than the hours since 1970 of any ledger. */
export const dayMax: Day = 99_999;

/** Time after the end of a day at which it becomes final. A commit takes seconds at most. */
const finalAfterMs = 300_000;

/** No zone is further from UTC. */
const offsetMsMax = 26 * 3_600_000;

/** The difference of a zone to UTC from a time on. */
interface Offset {
  fromMs: EpochMs;
  offsetMs: number;
}

function zoned(ms: EpochMs, timezone: string): Temporal.ZonedDateTime {
  return Temporal.Instant.fromEpochMilliseconds(ms).toZonedDateTimeISO(timezone);
}

function offsetOf(time: Temporal.ZonedDateTime): number {
  return time.offsetNanoseconds / 1e6;
}

/** Returns the date of a time. */
export function dayOf(ms: EpochMs, timezone: string): Day {
  return Math.floor((ms + offsetOf(zoned(ms, timezone))) / dayMs);
}

/** Returns the last day that ended five minutes ago. */
export function lastEndedDay(nowMs: EpochMs, timezone: string): Day {
  return dayOf(nowMs - finalAfterMs, timezone) - 1;
}

/** Returns the offsets of a zone between two days, the last one first. */
function offsetsOf(timezone: string, from: Day, to: Day): Offset[] {
  const untilMs = to * dayMs + offsetMsMax;
  let time = zoned(from * dayMs - offsetMsMax, timezone);
  const offsets: Offset[] = [];
  while (time.epochMilliseconds <= untilMs) {
    offsets.unshift({ fromMs: time.epochMilliseconds, offsetMs: offsetOf(time) });
    const next = time.getTimeZoneTransition("next");
    if (next === null) break;
    time = next;
  }
  return offsets;
}

/**
 * Returns an expression: the date of the time `ms`, which is on one of these days. Earlier times
 * have an earlier date.
 */
export function dayExpression(ms: string, timezone: string, { from, to }: { from: Day; to: Day }): string {
  const offsets = offsetsOf(timezone, from, to);
  const [first] = offsets.splice(-1);
  const later = offsets.map(({ fromMs, offsetMs }) => ` when ${ms} >= ${fromMs} then ${offsetMs}`);
  const otherwise = first?.offsetMs ?? 0;
  const offset = later.length === 0 ? `${otherwise}` : `case${later.join("")} else ${otherwise} end`;
  return `((${ms} + ${offset}) / ${dayMs})`;
}
