/**
 * Computes the windows in which buckets refill: the grid `anchor + n * period` in UTC.
 *
 * Guarantees that exactly one window contains any moment. Month steps start at the anchor, so a
 * grid that starts on the 31st returns to the 31st after February. Pure.
 */
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";

interface Window {
  startsMs: EpochMs;
  endsMs: EpochMs;
}

interface Period {
  /** Calendar months. All other units have a fixed length. */
  months: number;
  fixedMs: number;
}

const dayMs = 86_400_000;
const periodMsMax = 100 * 366 * dayMs;

/** Parsed periods by their text. Plans use only a few of them. */
const parsed = new Map<string, Period>();

/**
 * Parses an ISO 8601 duration such as `PT5H`, `P1D`, `P1M`. Throws a RangeError if the text is
 * invalid, or if the duration is not positive, shorter than a second or longer than a hundred
 * years.
 */
export function parsePeriod(text: string): Period {
  const known = parsed.get(text);
  if (known !== undefined) return known;

  let duration: Temporal.Duration;
  try {
    duration = Temporal.Duration.from(text);
  } catch (cause) {
    throw new RangeError(`"${text}" is not an ISO 8601 period such as PT5H, P1D or P1M`, { cause });
  }
  const months = duration.years * 12 + duration.months;
  const days = duration.weeks * 7 + duration.days;
  const fixedMs =
    days * dayMs +
    duration.hours * 3_600_000 +
    duration.minutes * 60_000 +
    duration.seconds * 1000 +
    duration.milliseconds;
  if (duration.sign <= 0) throw new RangeError(`the period "${text}" is not positive`);
  if (months === 0 && fixedMs < 1000) throw new RangeError(`the period "${text}" is shorter than a second`);
  if (months * 31 * dayMs + fixedMs > periodMsMax) {
    throw new RangeError(`the period "${text}" is longer than a hundred years`);
  }
  const period = { months, fixedMs };
  parsed.set(text, period);
  return period;
}

/** Reports whether `parsePeriod` accepts the text. */
export function isPeriod(text: string): boolean {
  if (parsed.has(text)) return true;
  try {
    parsePeriod(text);
    return true;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return false;
  }
}

export const refillPeriodRule =
  "an ISO 8601 period of at most 10 years: whole years and months (P1M, P1Y), or whole weeks, days, hours " +
  "and minutes (P1W, P1D, PT5H), not both";

/**
 * Reports whether a plan or the budget of a key may have this period. It has either calendar units
 * or fixed units, because months are counted from an anchor. Fractions (`PT1.5H`) and lower case,
 * which Temporal accepts, are refused so that the text shows the exact window.
 */
export function isRefillPeriod(value: string): boolean {
  const calendar = /^P(?=\d)(?:\d{1,6}Y)?(?:\d{1,6}M)?$/;
  const fixed = /^P(?=\d|T\d)(?:\d{1,6}W)?(?:\d{1,6}D)?(?:T(?=\d)(?:\d{1,6}H)?(?:\d{1,6}M)?)?$/;
  if (!calendar.test(value) && !fixed.test(value)) return false;
  try {
    const duration = Temporal.Duration.from(value);
    const years = duration.total({ unit: "years", relativeTo: "2000-01-01" });
    return duration.sign === 1 && years <= 10;
  } catch {
    // The end is after the last day that Temporal supports, about 270,000 years from now.
    return false;
  }
}

/** Reports whether both texts are the same period: P1W is P7D, and P1M is not P30D. */
export function isSamePeriod(one: string, other: string): boolean {
  if (one === other) return true;
  const [a, b] = [parsePeriod(one), parsePeriod(other)];
  return a.months === b.months && a.fixedMs === b.fixedMs;
}

/**
 * Returns `anchor + n * period`. A missing day of the month becomes the last day of that month.
 */
function gridPoint(anchorMs: EpochMs, period: Period, n: number): EpochMs {
  const fixedMs = anchorMs + period.fixedMs * n;
  if (period.months === 0) return fixedMs;
  return Temporal.Instant.fromEpochMilliseconds(anchorMs)
    .toZonedDateTimeISO("UTC")
    .add({ months: period.months * n })
    .add({ milliseconds: period.fixedMs * n }).epochMilliseconds;
}

/**
 * Returns the window that contains `nowMs`, or the first window if `nowMs` is before the anchor.
 */
export function windowAt(anchorMs: EpochMs, every: string, nowMs: EpochMs): Window {
  const period = parsePeriod(every);
  // No month is longer than 31 days, so the guess is never too late. Shorter months take a few
  // steps of the loop.
  const longestMs = period.months * 31 * dayMs + period.fixedMs;
  let n = Math.max(0, Math.floor((nowMs - anchorMs) / longestMs));
  let startsMs = gridPoint(anchorMs, period, n);
  let endsMs = gridPoint(anchorMs, period, n + 1);
  while (endsMs <= nowMs) {
    const behind = Math.floor((nowMs - endsMs) / longestMs);
    n += 1 + Math.max(0, behind);
    startsMs = gridPoint(anchorMs, period, n);
    endsMs = gridPoint(anchorMs, period, n + 1);
  }
  invariant(startsMs < endsMs, `a window of ${every} from ${anchorMs} has a length`);
  return { startsMs, endsMs };
}
