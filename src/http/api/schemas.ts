/**
 * Schemas of the fields in requests of the operator API. A field's `description` completes the
 * sentence "<field> must be ..." in error messages (openai-format/explain.ts), and explains the
 * field in the OpenAPI document.
 */
import Type, { type TSchema } from "typebox";
import * as fields from "../../accounts/fields.ts";
import { closed, orNull } from "../../accounts/json-objects.ts";
import type { OperatorCode } from "../../accounts/refusals.ts";
import type { ErrorCode } from "../../errors.ts";
import { portalRights } from "../../ledger/rows.ts";
import { alignments, timezoneRule } from "../../ledger/windows.ts";
import { momentRule } from "../../units.ts";

export const accountName = textOf(fields.name);
export const planName = Type.String({ minLength: 1, description: "the name of a plan of the configuration" });
export const note = textOf(fields.note);
/** For ids to store. The action names the character that an id cannot have. */
export const id = textOf(fields.id);
/** For filters. The pattern excludes NUL, which PostgreSQL refuses in a query. */
export function noteThatIs(what: string) {
  return textOf(fields.note, `${what}, ${fields.note.rule}`);
}

const accountPath = closed({ account: accountName });
const keyPath = closed({ key: note });

/** Returns what routes of an account share: its name in the path, and that it may be unknown. */
export function ofAccount(...refusals: (OperatorCode | ErrorCode)[]) {
  const all: (OperatorCode | ErrorCode)[] = ["account_not_found", ...refusals];
  return { params: accountPath, refusals: all };
}

/** Returns what routes of a key share: its id in the path, and that it may be unknown. */
export function ofKey(...refusals: OperatorCode[]) {
  const all: OperatorCode[] = ["key_not_found", ...refusals];
  return { params: keyPath, refusals: all };
}
export const journalKinds = textOf(fields.kinds);
export const label = textOf(fields.label);
export const contactText = textOf(fields.contact);
export const email = textOf(fields.email);
export const remark = textOf(fields.remark);
export const operationId = textOf(
  fields.id,
  `an id of your own for this change, ${fields.id.rule}; a repetition changes nothing`,
);
export const requestId = textOf(fields.id, `the id of a request, ${fields.id.rule}`);
export const moment = Type.String({ description: momentRule });
export const lastDay = Type.String({
  description: `the last day, in the time zone of the configuration, or a time: ${momentRule}`,
});
export const period = Type.String({ description: "an ISO 8601 period such as PT5H, P1D or P1M" });
export const alignment = Type.Enum([...alignments], {
  description: '"opening" (the default: windows begin when the first one began) or "calendar"',
});
export const timezone = Type.String({
  description: `${timezoneRule}, for windows of the calendar; by default that of the plan`,
});
export const budgetCredits = wholeNumber(fields.budget, "whole credits");
export const limit = wholeNumber(fields.limit, "a whole number");
export const credits = wholeNumber(fields.topup, "whole credits");
export const signedCredits = wholeNumber(
  fields.adjustment,
  "whole credits",
  ", negative to take away, not 0",
);

function textOf({ pattern, rule }: fields.TextField, description = rule) {
  return Type.String({ pattern: pattern.source, description });
}

function wholeNumber({ min: minimum, max: maximum }: fields.NumberField, kind: string, note = "") {
  return Type.Integer({ minimum, maximum, description: `${kind} from ${minimum} to ${maximum}${note}` });
}

export const modelIds = Type.Array(textOf(fields.note, "the id of a model, or *"), {
  minItems: 1,
  maxItems: 100,
  description: "a list of 1 to 100 model ids, or of *",
});

const listRowsMax = 500;
export const listRowsDefault = 100;
export const portal = Type.Enum([...portalRights], {
  description: '"own" or "account": what the key may do in the portal',
});

/** For every list. `after` is the `next` of the page before. */
export const pageQuery = {
  limit: Type.Optional(
    wholeNumber({ min: 1, max: listRowsMax }, "a whole number", ` (default ${listRowsDefault})`),
  ),
  after: Type.Optional(
    Type.String({ pattern: "^[^\\p{Cc}\\p{Cs}]{1,300}$", description: "the `next` of the page before" }),
  ),
};

export function pageOf<S extends TSchema>(item: S) {
  return closed({ data: Type.Array(item), next: orNull(Type.String({ description: "a cursor" })) });
}

/** Returns the query and the response of a list of all accounts, or of one. */
export function listByAccount<S extends TSchema>(item: S) {
  const query = closed({ ...pageQuery, account: Type.Optional(accountName) });
  return { querystring: query, response: { 200: pageOf(item) } };
}

/** Returns the query and the response of a list without filters. */
export function listOf<S extends TSchema>(item: S) {
  return { querystring: closed(pageQuery), response: { 200: pageOf(item) } };
}
