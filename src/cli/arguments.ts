/** Parsers of arguments and options. A value that cannot be parsed is wrong usage: exit code 2. */
import { InvalidArgumentError } from "commander";
import * as fields from "../accounts/fields.ts";
import { httpUrl } from "../config/kinds.ts";
import {
  isRefillPeriod,
  isTimezone,
  parsePeriod,
  refillPeriodRule,
  timezoneRule,
} from "../ledger/windows.ts";
import { graphHoursMax } from "../store/usage-hours.ts";
import { type EpochMs, momentOf, momentRule } from "../units.ts";

export const accountName = text(fields.name, "The name of an account is");
/** For reasons, and for ids to look for. */
export const note = text(fields.note, "It is");
const idText = text(fields.id, "It is");
export const journalKinds = text(fields.kinds, "It is");
export const label = text(fields.label, "A name is");

export const limit = wholeNumber(fields.limit, "A limit is a whole number");
export const budgetCredits = wholeNumber(fields.budget, "Credits are a whole number");
export const tokenLimit = wholeNumber({ min: 1, max: 1_000_000_000 }, "It is a whole number of tokens");
export const graphHours = wholeNumber({ min: 1, max: graphHoursMax }, "It is a whole number of hours");
export const creditsToAdd = wholeNumber(fields.topup, "Credits are a whole number");
const signedCredits = wholeNumber(fields.adjustment, "Credits are a whole number, negative to take away,");

export function creditsToAdjust(value: string): number {
  const credits = signedCredits(value);
  if (credits === 0) throw new InvalidArgumentError("An adjustment by 0 credits changes nothing.");
  return credits;
}

/** Parses an id to store. */
export function id(value: string): string {
  const problem = fields.idProblem(idText(value));
  if (problem === null) return value;
  throw new InvalidArgumentError(`It ${problem}.`);
}

export function modelIds(value: string): string[] {
  const ids = value.split(",").map((id) => id.trim());
  if (ids.every((id) => id !== "")) return [...new Set(ids)];
  throw new InvalidArgumentError("It is a list of model ids with commas between them.");
}

/** Parses the URL of the service. The `/v1` of its API is removed. */
export function serviceUrl(value: string): string {
  if (httpUrl.read(value, true) !== undefined) return value.replace(/(\/v1)?\/*$/, "");
  throw new InvalidArgumentError("It is a URL such as http://127.0.0.1:8080.");
}

export function refillPeriod(value: string): string {
  if (isRefillPeriod(value)) return value;
  throw new InvalidArgumentError(`It is ${refillPeriodRule}.`);
}

export function timezone(value: string): string {
  if (isTimezone(value)) return value;
  throw new InvalidArgumentError(`It is ${timezoneRule}.`);
}

export function period(value: string): string {
  try {
    parsePeriod(value);
    return value;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new InvalidArgumentError(`${error.message}.`);
  }
}

export function moment(value: string): EpochMs {
  const ms = momentOf(value);
  if (ms !== null) return ms;
  throw new InvalidArgumentError(`A time is ${momentRule}.`);
}

/** Checks a day or a moment, and leaves it as it is: what a day means depends on its use. */
export function dayOrMoment(value: string): string {
  moment(value);
  return value;
}

function text({ pattern, rule }: fields.TextField, subject: string): (value: string) => string {
  return (value) => {
    if (pattern.test(value)) return value;
    throw new InvalidArgumentError(`${subject} ${rule}.`);
  };
}

function wholeNumber({ min, max }: fields.NumberField, kind: string): (value: string) => number {
  return (value) => {
    const number = /^[+-]?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`${kind} from ${min} to ${max}.`);
  };
}
