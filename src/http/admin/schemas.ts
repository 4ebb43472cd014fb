/**
 * Schemas of the fields in requests of the operator API. A field's `description` completes the
 * sentence "<field> must be ..." in error messages (openai-format/explain.ts), and explains the
 * field in the OpenAPI document.
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

/** Upper bound of the limits of keys, as of those of plans. */
const limitMax = 1_000_000_000;

/** Returns the schema of an object with exactly these fields. */
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

export const accountName = Type.String({ pattern: namePattern.source, description: nameRule });
export const planName = Type.String({ minLength: 1, description: "the name of a plan of the configuration" });
export const note = Type.String({ pattern: notePattern.source, description: noteRule });
/** For filters. The pattern excludes NUL, which PostgreSQL refuses in a query. */
export function noteThatIs(what: string) {
  return Type.String({ pattern: notePattern.source, description: `${what}, ${noteRule}` });
}
export const label = Type.String({ pattern: labelPattern.source, description: labelRule });
export const operationId = Type.String({
  pattern: notePattern.source,
  description: `an id of your own for this change, ${noteRule}; a repetition changes nothing`,
});
export const moment = Type.String({ description: momentRule });
export const limit = wholeNumber(1, limitMax, "a whole number");
export const credits = wholeNumber(1, creditsMax, "whole credits");
export const signedCredits = wholeNumber(
  -creditsMax,
  creditsMax,
  "whole credits",
  ", negative to take away, not 0",
);

function wholeNumber(minimum: number, maximum: number, kind: string, note = "") {
  return Type.Integer({ minimum, maximum, description: `${kind} from ${minimum} to ${maximum}${note}` });
}

export const modelIds = Type.Array(
  Type.String({ pattern: notePattern.source, description: "the id of a model, or *" }),
  {
    minItems: 1,
    maxItems: 100,
    description: "a list of 1 to 100 model ids, or of *",
  },
);

const listRowsMax = 500;
export const listRowsDefault = 100;
/** For every list. `after` is the `next` of the page before. */
export const pageQuery = {
  limit: Type.Optional(wholeNumber(1, listRowsMax, "a whole number", ` (default ${listRowsDefault})`)),
  after: Type.Optional(
    Type.String({ pattern: "^[^\\p{Cc}\\p{Cs}]{1,300}$", description: "the `next` of the page before" }),
  ),
};

export function pageOf<S extends TSchema>(item: S) {
  return closed({ data: Type.Array(item), next: orNull(Type.String({ description: "a cursor" })) });
}

/** Returns the query and the response of a list without filters. */
export function listOf<S extends TSchema>(item: S) {
  return { querystring: closed(pageQuery), response: { 200: pageOf(item) } };
}
