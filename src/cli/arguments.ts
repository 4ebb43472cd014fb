/** Reads the arguments and options of commands. What cannot be read is wrong usage: exit code 2. */
import { InvalidArgumentError } from "commander";
import { namePattern, nameRule } from "../config/kinds.ts";
import { creditsMax } from "../units.ts";

export function accountName(text: string): string {
  if (namePattern.test(text)) return text;
  throw new InvalidArgumentError(`The name of an account is ${nameRule}.`);
}

/** More than nothing: additional credits are bought, or moved by hand in either direction. */
export function creditsToAdd(text: string): number {
  return wholeNumber(text, 1, creditsMax, "Credits are a whole number");
}

export function creditsToAdjust(text: string): number {
  const credits = wholeNumber(
    text,
    -creditsMax,
    creditsMax,
    "Credits are a whole number, below zero to take away,",
  );
  if (credits === 0) throw new InvalidArgumentError("An adjustment by 0 credits changes nothing.");
  return credits;
}

export function limit(text: string): number {
  return wholeNumber(text, 1, 1_000_000_000, "A limit is a whole number");
}

/** Payment ids, operation ids and reasons: they stand in the journal for ever. */
export function note(text: string): string {
  if (isPlainText(text, 200)) return text;
  throw new InvalidArgumentError("It is a text of 1 to 200 characters on one line.");
}

export function label(text: string): string {
  if (isPlainText(text, 64)) return text;
  throw new InvalidArgumentError("A name is a text of 1 to 64 characters on one line.");
}

export function modelIds(text: string): string[] {
  const ids = text.split(",").map((id) => id.trim());
  if (ids.every((id) => id !== "")) return [...new Set(ids)];
  throw new InvalidArgumentError("It is a list of model ids with commas between them.");
}

/** A date (its beginning, in UTC) or a moment with its zone; milliseconds since the epoch. */
export function moment(text: string): number {
  const parts = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/.exec(text);
  const ms = parts === null ? Number.NaN : Date.parse(text);
  // The parser carries 31 February over into March.
  const isDay = parts?.[1] !== undefined && isoDay(Date.parse(parts[1])) === parts[1];
  if (!Number.isNaN(ms) && isDay) return ms;
  throw new InvalidArgumentError("A time is ISO 8601 with its zone: 2027-01-31, or 2027-01-31T18:00:00Z.");
}

function isoDay(ms: number): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString().slice(0, 10);
}

function wholeNumber(text: string, min: number, max: number, what: string): number {
  const number = /^[+-]?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= min && number <= max) return number;
  throw new InvalidArgumentError(`${what} from ${min} to ${max}.`);
}

function isPlainText(text: string, charactersMax: number): boolean {
  return text.trim() !== "" && text.length <= charactersMax && !/\p{Cc}/u.test(text);
}
