/**
 * Computes the windows in which buckets and caps refill.
 *
 * A window follows a rule. With the alignment `opening`, windows form the grid `anchor + n *
 * period` in UTC, and the anchor is the start of the first one. Month steps start at the anchor,
 * so a grid that starts on the 31st returns to the 31st after February. With `calendar`, windows
 * begin at midnight in the time zone, on Monday, or on the 1st.
 *
 * Guarantees that windows that follow one another neither overlap nor leave a gap, and that each
 * has a length. Pure.
 */
import { invariant } from "../errors.ts";
import { dayMs, type EpochMs } from "../units.ts";

export const alignments = ["opening", "calendar"] as const;
export type Alignment = (typeof alignments)[number];

/** How windows follow one another. */
export interface WindowRule {
  /** ISO 8601 period. */
  every: string;
  align: Alignment;
  /** IANA name, for `calendar`. Windows of `opening` count in UTC. */
  timezone: string;
}

export interface Window {
  fromMs: EpochMs;
  /** The first moment after it. */
  untilMs: EpochMs;
  /** Start of the grid of `opening`. */
  anchorMs: EpochMs;
}

interface Period {
  /** Calendar months. All other units have a fixed length. */
  months: number;
  fixedMs: number;
}

/** Offsets of time zones are multiples of it. */
const quarterHourMs = 900_000;
const periodMsMax = 100 * 366 * dayMs;

/** Parsed periods by their text. Plans use only a few of them, and callers send any. */
const parsed = new Map<string, Period>();
const parsedMax = 1000;
const periodCharactersMax = 40;

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
  if (text.length > periodCharactersMax)
    throw new RangeError(`a period has at most ${periodCharactersMax} characters, such as PT5H`);
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
  if (parsed.size >= parsedMax) parsed.clear();
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
 * Reports whether a plan or a cap may have this period. It has either calendar units
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

/** Reports whether both rules make the same windows. */
export function isSameRule(one: WindowRule, other: WindowRule): boolean {
  return (
    one.align === other.align &&
    isSamePeriod(one.every, other.every) &&
    (one.align === "opening" || one.timezone === other.timezone)
  );
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
 * Returns the window of a grid that contains `atMs`, or its first window if `atMs` is before the
 * anchor.
 */
function gridWindow(anchorMs: EpochMs, every: string, atMs: EpochMs): Window {
  const period = parsePeriod(every);
  // No month is longer than 31 days, so the guess is never too late. Shorter months take a few
  // steps of the loop.
  const longestMs = period.months * 31 * dayMs + period.fixedMs;
  let n = Math.max(0, Math.floor((atMs - anchorMs) / longestMs));
  let fromMs = gridPoint(anchorMs, period, n);
  let untilMs = gridPoint(anchorMs, period, n + 1);
  while (untilMs <= atMs) {
    n += 1 + Math.max(0, Math.floor((atMs - untilMs) / longestMs));
    fromMs = gridPoint(anchorMs, period, n);
    untilMs = gridPoint(anchorMs, period, n + 1);
  }
  invariant(fromMs < untilMs, `a window of ${every} from ${anchorMs} has a length`);
  return { fromMs, untilMs, anchorMs };
}

/** The periods of calendar windows, and the first day of the window of a day. */
const calendarStarts: Readonly<Record<string, (day: Temporal.PlainDate) => Temporal.PlainDate>> = {
  P1D: (day) => day,
  P1W: (day) => day.subtract({ days: day.dayOfWeek - 1 }),
  P1M: (day) => day.with({ day: 1 }),
};

export const calendarPeriodRule = `one of ${Object.keys(calendarStarts).join(", ")} for windows of the calendar`;

/** Reports whether this is the name of a time zone, such as Europe/Berlin or UTC. */
export function isTimezone(name: string): boolean {
  // Offsets such as +01:00 have no rules, and are refused so that nobody waits for summer time.
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    return Temporal.Instant.fromEpochMilliseconds(0).toZonedDateTimeISO(name).timeZoneId !== "";
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return false;
  }
}

/** Reports whether windows of the calendar can have this period. */
export function isCalendarPeriod(every: string): boolean {
  return every in calendarStarts;
}

/** Returns the day, week or month that contains `atMs`. */
function calendarWindow({ every, timezone }: WindowRule, atMs: EpochMs): Window {
  const firstDay = calendarStarts[every];
  invariant(firstDay !== undefined, () => `${every} is a period of the calendar`);
  const startMs = (day: Temporal.PlainDate) => day.toZonedDateTime(timezone).epochMilliseconds;
  const present = Temporal.Instant.fromEpochMilliseconds(atMs).toZonedDateTimeISO(timezone).toPlainDate();
  let fromDay = firstDay(present);
  let untilDay = fromDay.add(every);
  // A clock that is set back over midnight shows the last minutes of a day again, after the next
  // day has begun.
  while (startMs(untilDay) <= atMs) [fromDay, untilDay] = [untilDay, untilDay.add(every)];
  const [fromMs, untilMs] = [startMs(fromDay), startMs(untilDay)];
  return { fromMs, untilMs, anchorMs: fromMs };
}

/**
 * Returns the first window of a rule, which begins at `fromMs` and ends at the next boundary: that
 * of an opening, of `--new-window` and of a cap.
 */
export function windowFrom(rule: WindowRule, fromMs: EpochMs): Window {
  if (rule.align === "opening") return gridWindow(fromMs, rule.every, fromMs);
  const { untilMs } = calendarWindow(rule, fromMs);
  return { fromMs, untilMs, anchorMs: fromMs };
}

/**
 * Returns the window that follows one of another rule. If it begins in the second half of its
 * calendar window, it ends with the next one, so that a changed zone gives nothing twice.
 */
export function windowOfNewRule(rule: WindowRule, fromMs: EpochMs): Window {
  const first = windowFrom(rule, fromMs);
  if (rule.align === "opening") return first;
  const present = calendarWindow(rule, fromMs);
  const isLate = fromMs - present.fromMs >= present.untilMs - fromMs;
  if (!isLate || fromMs === present.fromMs) return first;
  return { ...first, untilMs: calendarWindow(rule, present.untilMs).untilMs };
}

/** Returns the window that contains `atMs`, which is not before the end of `last`. */
export function windowAfter(rule: WindowRule, last: Window, atMs: EpochMs): Window {
  if (rule.align === "opening") return gridWindow(last.anchorMs, rule.every, atMs);
  let next = windowFrom(rule, last.untilMs);
  if (next.untilMs <= atMs) next = calendarWindow(rule, atMs);
  return next;
}

/**
 * Reports whether a window that begins at the end of `last` is on its grid. In the calendar it is
 * not if the rules of the time zone have changed since `last` began.
 */
export function isOnGrid(rule: WindowRule, last: Window): boolean {
  const { fromMs } =
    rule.align === "calendar"
      ? calendarWindow(rule, last.untilMs)
      : gridWindow(last.anchorMs, rule.every, last.untilMs);
  return fromMs === last.untilMs;
}

/**
 * Reports whether two times can be the same boundary of a calendar, before and after a change of
 * the rules of its time zone. Windows keep the times that they were given.
 */
export function isSameBoundary(oneMs: EpochMs, otherMs: EpochMs): boolean {
  const distanceMs = Math.abs(oneMs - otherMs);
  return distanceMs < dayMs && distanceMs % quarterHourMs === 0;
}

/** Reports whether a window is one that the rule makes, wherever it begins. */
export function isOfRule(
  rule: WindowRule,
  { fromMs, untilMs, anchorMs }: Window,
  { isFirst }: { isFirst: boolean },
): boolean {
  if (fromMs >= untilMs) return false;
  if (rule.align === "calendar") {
    const present = calendarWindow(rule, fromMs);
    // If the rules of the zone have changed, its end may be the boundary that is now before it.
    const ends = [present.fromMs, present.untilMs];
    if (!isFirst) ends.push(windowOfNewRule(rule, fromMs).untilMs);
    return ends.some((each) => isSameBoundary(each, untilMs));
  }
  const onGrid = windowAfter(rule, { fromMs: anchorMs, untilMs: anchorMs, anchorMs }, fromMs);
  return onGrid.fromMs === fromMs && onGrid.untilMs === untilMs;
}

/** Returns the end of a period that begins at `fromMs`. */
export function endOf(every: string, fromMs: EpochMs): EpochMs {
  return gridWindow(fromMs, every, fromMs).untilMs;
}
