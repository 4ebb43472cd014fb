/** Times as text: relative to now, exact in UTC, and as days in the zone of the configuration. */
import { dayMs, type EpochMs, hourMs } from "../../units.ts";

const second = 1000;
const minute = 60 * second;

/** Each unit counts from the value where a person changes to it. */
const units = [
  { name: "year", ms: 365 * dayMs, fromMs: 730 * dayMs },
  { name: "month", ms: 30 * dayMs, fromMs: 60 * dayMs },
  { name: "day", ms: dayMs, fromMs: 2 * dayMs },
  { name: "hour", ms: hourMs, fromMs: 2 * hourMs },
  { name: "minute", ms: minute, fromMs: 100 * second },
  { name: "second", ms: second, fromMs: 10 * second },
] as const;

/** Returns `3 hours ago`, `in 12 days` or `now`. Rounds towards now. */
export function relativeTime(ms: EpochMs, nowMs: EpochMs): string {
  const distance = ms - nowMs;
  const unit = units.find(({ fromMs }) => Math.abs(distance) >= fromMs);
  if (unit === undefined) return "now";
  return new Intl.RelativeTimeFormat("en", { numeric: "always" }).format(
    Math.trunc(distance / unit.ms),
    unit.name,
  );
}

/** Returns `2027-01-31 18:00:07 UTC`. */
export function exactTime(ms: EpochMs): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

let days = daysIn("UTC");

/** Dates of this form sort like texts: `2027-01-31`. */
function daysIn(timeZone: string): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat("en-CA", { timeZone, year: "numeric", month: "2-digit", day: "2-digit" });
}

/** Sets the zone of days. The session has it. */
export function setTimezone(timezone: string): void {
  days = daysIn(timezone);
}

export function timezone(): string {
  return days.resolvedOptions().timeZone;
}

/** Returns the day of a time, `2027-01-31`. */
export function dateOf(ms: EpochMs): string {
  return days.format(ms);
}

/** Returns the time of a day in the zone, `18:00`. */
export function clockTime(ms: EpochMs): string {
  return new Intl.DateTimeFormat("en-GB", { timeZone: timezone(), timeStyle: "short" }).format(ms);
}

/** Returns `on 1 January`, with the year if it is not near. */
export function dayInWords(ms: EpochMs, nowMs: EpochMs): string {
  const isFar = Math.abs(ms - nowMs) > 300 * dayMs;
  const words = new Intl.DateTimeFormat("en-GB", {
    timeZone: timezone(),
    day: "numeric",
    month: "long",
    ...(isFar ? { year: "numeric" } : {}),
  });
  return `on ${words.format(ms)}`;
}

/** Returns a day that is some days later. */
export function dayAfter(date: string, daysLater: number): string {
  return new Date(Date.parse(date) + daysLater * dayMs).toISOString().slice(0, 10);
}

/** Returns the present day, moved by some days. */
export function today(daysLater = 0): string {
  return dayAfter(dateOf(Date.now()), daysLater);
}

/** Returns the week before the present one, from Monday on; `to` is excluded. */
export function weekBefore(): { from: string; to: string } {
  const sinceMonday = (new Date(today()).getUTCDay() + 6) % 7;
  return { from: today(-sinceMonday - 7), to: today(-sinceMonday) };
}

/** Returns the calendar month before the present one; `to` is excluded. */
export function monthBefore(): { from: string; to: string } {
  const to = `${today().slice(0, 7)}-01`;
  return { from: `${dayAfter(to, -1).slice(0, 7)}-01`, to };
}

/** Returns the days from `from` to before `to`, at most 1,000 of them. */
export function daysBetween(from: string, to: string): string[] {
  const found: string[] = [];
  for (let date = from; date < to && found.length < 1000; date = dayAfter(date, 1)) found.push(date);
  return found;
}

/** Returns the hour of a time in UTC, `2027-01-31 18:00`. */
export function hourOf(ms: EpochMs): string {
  return `${new Date(ms).toISOString().slice(0, 13).replace("T", " ")}:00`;
}

/** Returns the last hours, the hour of `ms` being the last one. */
export function hoursUntil(ms: EpochMs, count: number): string[] {
  return Array.from({ length: count }, (_, index) => hourOf(ms - (count - 1 - index) * hourMs));
}

/** Returns how many hours of its day, in the zone, have begun at a time. */
export function hoursOfDay(ms: EpochMs): number {
  let count = 1;
  while (dateOf(ms - count * hourMs) === dateOf(ms)) count += 1;
  return count;
}

/** Returns the share of a window that has passed, from 0 to 1. */
export function passedShare(startMs: EpochMs, endMs: EpochMs, nowMs: EpochMs): number {
  if (endMs <= startMs) return 1;
  return Math.min(1, Math.max(0, (nowMs - startMs) / (endMs - startMs)));
}
