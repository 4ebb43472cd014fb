/**
 * Parsers of arguments and options that no action describes. A value that cannot be parsed is
 * wrong usage: exit code 2.
 */
import { InvalidArgumentError } from "commander";
import * as rules from "../accounts/value-rules.ts";
import { journalKinds as kindsRule } from "../actions/views.ts";
import { httpUrl } from "../config/kinds.ts";
import { graphHoursMax } from "../store/usage-hours.ts";
import { momentOf, momentRule } from "../units.ts";

export const accountName = textOf(rules.name);
/** For reasons, and for ids to look for. */
export const note = textOf(rules.note);
export const contactText = textOf(rules.contact);
export const journalKinds = textOf(kindsRule);

export const limit = wholeNumber(rules.limit, "A limit is a whole number");
export const tokenLimit = wholeNumber({ min: 1, max: 1_000_000_000 }, "It is a whole number of tokens");
export const graphHours = wholeNumber({ min: 1, max: graphHoursMax }, "It is a whole number of hours");

/** Parses the URL of the service. The `/v1` of its API is removed. */
export function serviceUrl(value: string): string {
  if (httpUrl.read(value, true) !== undefined) return value.replace(/(\/v1)?\/*$/, "");
  throw new InvalidArgumentError("It is a URL such as http://127.0.0.1:8080.");
}

/** Checks a day or a moment, and leaves it as it is: what a day means depends on its use. */
export function dayOrMoment(value: string): string {
  if (momentOf(value) !== null) return value;
  throw new InvalidArgumentError(`A time is ${momentRule}.`);
}

function textOf({ pattern, rule }: rules.TextField): (value: string) => string {
  return (value) => {
    if (pattern.test(value)) return value;
    throw new InvalidArgumentError(`It is ${rule}.`);
  };
}

function wholeNumber({ min, max }: rules.NumberField, kind: string): (value: string) => number {
  return (value) => {
    const number = /^[+-]?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`${kind} from ${min} to ${max}.`);
  };
}
