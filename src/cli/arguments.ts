/** Reads the arguments and options of commands. What cannot be read is wrong usage: exit code 2. */
import { InvalidArgumentError } from "commander";
import { labelPattern, labelRule, namePattern, nameRule, notePattern, noteRule } from "../accounts/names.ts";
import { httpUrl } from "../config/kinds.ts";
import { creditsMax, type EpochMs, momentOf, momentRule } from "../units.ts";

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

export function tokenLimit(text: string): number {
  return wholeNumber(text, 1, 1_000_000_000, "It is a whole number of tokens");
}

/** Payment ids, operation ids and reasons. */
export function note(text: string): string {
  if (notePattern.test(text)) return text;
  throw new InvalidArgumentError(`It is ${noteRule}.`);
}

export function label(text: string): string {
  if (labelPattern.test(text)) return text;
  throw new InvalidArgumentError(`A name is ${labelRule}.`);
}

export function modelIds(text: string): string[] {
  const ids = text.split(",").map((id) => id.trim());
  if (ids.every((id) => id !== "")) return [...new Set(ids)];
  throw new InvalidArgumentError("It is a list of model ids with commas between them.");
}

/** Of the service as a whole: its API's `/v1` may be named with it, and is taken off. */
export function serviceUrl(text: string): string {
  if (httpUrl.read(text, true) !== undefined) return text.replace(/(\/v1)?\/*$/, "");
  throw new InvalidArgumentError("It is an address such as http://127.0.0.1:8080.");
}

export function moment(text: string): EpochMs {
  const ms = momentOf(text);
  if (ms !== null) return ms;
  throw new InvalidArgumentError(`A time is ${momentRule}.`);
}

function wholeNumber(text: string, min: number, max: number, what: string): number {
  const number = /^[+-]?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= min && number <= max) return number;
  throw new InvalidArgumentError(`${what} from ${min} to ${max}.`);
}
