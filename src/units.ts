/**
 * Types for numbers with a unit, and conversions between them.
 *
 * Amounts are whole micro-credits in safe integers: 1 credit = 1,000,000. A price in credits per
 * million tokens is then a whole number of micro-credits per token, so costs are never rounded.
 */
import { invariant } from "./errors.ts";

declare const unit: unique symbol;

/** Whole micro-credits as a safe integer, which limits a bucket to 9,007,199,254 credits. */
export type MicroCredits = number & { readonly [unit]?: "micro-credits" };
/** Whole credits, as displayed and bought. */
export type Credits = number & { readonly [unit]?: "credits" };
/** Milliseconds since 1970-01-01T00:00:00Z. */
export type EpochMs = number & { readonly [unit]?: "epoch-ms" };

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

export const microPerCredit = 1_000_000;

/**
 * Limit of credits in one plan, top-up or adjustment. A thousand of them fit a safe integer of
 * micro-credits.
 */
export const creditsMax: Credits = 9_000_000;

export function microOf(credits: Credits): MicroCredits {
  const micro = credits * microPerCredit;
  invariant(Number.isSafeInteger(micro), `${credits} credits are whole and fit 53 bits in micro-credits`);
  return micro;
}

/** Returns the whole credits of an amount, rounded down. */
export function creditsIn(micro: MicroCredits): Credits {
  return Math.floor(micro / microPerCredit);
}

/** Returns an amount as text with all its digits: 1,234.000567. */
export function exactCredits(micro: MicroCredits): string {
  const sign = micro < 0 ? "-" : "";
  const size = Math.abs(micro);
  const fraction = String(size % microPerCredit)
    .padStart(6, "0")
    .replace(/0+$/, "");
  const wholePart = grouped(Math.floor(size / microPerCredit));
  return `${sign}${wholePart}${fraction === "" ? "" : `.${fraction}`}`;
}

// `toLocaleString` makes a format each time.
const separated = new Intl.NumberFormat("en-US");

/** Returns a whole number with separators: 1,234,567. */
export function grouped(whole: number): string {
  return separated.format(whole);
}

/** Returns a time to the minute, for tables and sentences. */
export function shortTime(at: EpochMs | string | null): string {
  return at === null ? "-" : `${new Date(at).toISOString().slice(0, 16).replace("T", " ")}Z`;
}

export const timezoneRule = "the name of a time zone, such as Europe/Berlin or UTC";

export const momentRule = "ISO 8601 with its zone: 2027-01-31, or 2027-01-31T18:00:00Z";

/** Parses a date, as its start in UTC, or a time with a zone. Null if the text is neither. */
export function momentOf(text: string): EpochMs | null {
  const parts = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/.exec(text);
  const ms = parts === null ? Number.NaN : Date.parse(text);
  // Date.parse accepts 31 February and returns a day in March.
  const isDay = parts?.[1] !== undefined && isoDay(Date.parse(parts[1])) === parts[1];
  return Number.isNaN(ms) || !isDay ? null : ms;
}

/**
 * Parses a day, as its start in the time zone or that of a later day, or a time with a zone. Null
 * if the text is neither.
 */
export function localMomentOf(text: string, timezone: string, daysLater = 0): EpochMs | null {
  const ms = momentOf(text);
  if (ms === null || text.includes("T")) return ms;
  const day = Temporal.PlainDate.from(text).add({ days: daysLater });
  // Later years have more than four digits, which no answer and no request has.
  return day.year > 9999 ? null : day.toZonedDateTime(timezone).epochMilliseconds;
}

function isoDay(ms: EpochMs): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString().slice(0, 10);
}
