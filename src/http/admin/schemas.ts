/**
 * The vocabulary of the operator API: what its requests may say and what its answers are made of, once. A field's
 * `description` completes the sentence "<field> must be ..." (openai-format/explain.ts) and is its text in the document.
 *
 * Amounts whose name ends in `_micro` are whole micro-credits (1 credit = 1,000,000), prices credits per million
 * tokens, times ISO 8601 in UTC.
 */
import Type, { type TProperties, type TSchema } from "typebox";
import {
  labelPattern,
  labelRule,
  namePattern,
  nameRule,
  notePattern,
  noteRule,
} from "../../accounts/names.ts";
import { creditsMax, momentRule } from "../../units.ts";

/** The most that a plan's or a key's own limit can be. */
const limitMax = 1_000_000_000;

/** An object that has these fields and no others. */
export function closed<P extends TProperties>(properties: P) {
  const names = Object.keys(properties);
  return Type.Object(properties, {
    additionalProperties: false,
    description: names.length === 0 ? "without fields" : `an object with ${enumerated(names)} only`,
  });
}

function enumerated(names: readonly string[]): string {
  return names.length < 2 ? names.join() : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

export function orNull<S extends TSchema>(schema: S) {
  return Type.Union([schema, Type.Null()], { description: `${descriptionOf(schema)}, or null` });
}

function descriptionOf(schema: TSchema): string {
  return "description" in schema && typeof schema.description === "string" ? schema.description : "a value";
}

// What requests say

export const accountName = Type.String({ pattern: namePattern.source, description: nameRule });
export const planName = Type.String({ minLength: 1, description: "the name of a plan of the configuration" });
export const note = Type.String({ pattern: notePattern.source, description: noteRule });
/** A filter. PostgreSQL refuses a query that has a NUL in it. */
export function noteThatIs(what: string) {
  return Type.String({ pattern: notePattern.source, description: `${what}, ${noteRule}` });
}
export const label = Type.String({ pattern: labelPattern.source, description: labelRule });
export const operationId = Type.String({
  pattern: notePattern.source,
  description: `an id of your own for this change, ${noteRule}; sent again, it changes nothing`,
});
export const moment = Type.String({ description: momentRule });
export const limit = Type.Integer({
  minimum: 1,
  maximum: limitMax,
  description: `a whole number from 1 to ${limitMax}`,
});
export const credits = Type.Integer({
  minimum: 1,
  maximum: creditsMax,
  description: `whole credits from 1 to ${creditsMax}`,
});
export const signedCredits = Type.Integer({
  minimum: -creditsMax,
  maximum: creditsMax,
  description: `whole credits from -${creditsMax} to ${creditsMax}, below zero to take away, not 0`,
});
export const modelIds = Type.Array(
  Type.String({ pattern: notePattern.source, description: "the id of a model, or *" }),
  {
    minItems: 1,
    maxItems: 100,
    description: "a list of 1 to 100 model ids, or of *",
  },
);

export const listRowsMax = 500;
export const listRowsDefault = 100;
/** Of every list: `{ data, next }`; `next` is the `after` of the following page, null on the last. */
export const pageQuery = {
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: listRowsMax,
      description: `a whole number from 1 to ${listRowsMax} (default ${listRowsDefault})`,
    }),
  ),
  after: Type.Optional(
    Type.String({ pattern: "^[^\\p{Cc}\\p{Cs}]{1,300}$", description: "the `next` of the page before" }),
  ),
};

export function pageOf<S extends TSchema>(item: S) {
  return closed({ data: Type.Array(item), next: orNull(Type.String({ description: "a cursor" })) });
}
