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

// What answers are made of

const time = Type.String({ format: "date-time", description: "a time" });
const count = Type.Integer({ minimum: 0 });
const micro = Type.Integer({ minimum: 0, description: "micro-credits" });
const microDelta = Type.Integer({ description: "micro-credits" });
const text = Type.String();
const pricing = closed({ prompt: count, completion: count, cached_prompt: count });

export const account = closed({ id: text, plan: text, created_at: time });

const keyFields = {
  id: text,
  account: text,
  name: orNull(text),
  last_four: text,
  models: Type.Array(text),
  limits: closed({
    requests_per_minute: orNull(count),
    tokens_per_minute: orNull(count),
    concurrent: orNull(count),
  }),
  created_at: time,
  expires_at: orNull(time),
  revoked_at: orNull(time),
  last_used_at: orNull(time),
};
export const key = closed(keyFields);
export const newKey = closed({
  key: orNull(Type.String({ description: "the key itself, this once" })),
  ...keyFields,
});

const bucket = closed({ credits: count, percent: Type.Number() });
const cap = closed({ credits: count });
const window = closed({ startedAt: time, refreshesAt: time });
/** As `GET /v1/balance` gives it. */
export const balance = closed({
  object: Type.Literal("balance"),
  available: Type.Boolean(),
  plan: text,
  balances: closed({ base: bucket, overage: bucket, additional: cap, total: bucket }),
  caps: closed({ base: cap, overage: cap, total: cap }),
  baseWindow: window,
  overageWindow: window,
});

export const topup = closed({
  account: text,
  payment_id: text,
  credits: count,
  again: Type.Boolean({ description: "whether it had been counted before" }),
  balance,
});
export const adjustment = closed({
  account: text,
  operation_id: text,
  credits: Type.Integer(),
  again: Type.Boolean({ description: "whether it had been made before" }),
  balance,
});

export const journalEntry = closed({
  seq: count,
  at: time,
  kind: text,
  operation: text,
  note: orNull(text),
  base_delta_micro: microDelta,
  overage_delta_micro: microDelta,
  additional_delta_micro: microDelta,
  base_after_micro: micro,
  overage_after_micro: micro,
  additional_after_micro: micro,
});

const tokens = {
  prompt_tokens: count,
  cached_tokens: count,
  completion_tokens: count,
  reasoning_tokens: count,
};
const prices = { price_prompt: count, price_cached_prompt: count, price_completion: count };

export const usageRecord = closed({
  request_id: text,
  account: text,
  key: text,
  model: text,
  finished_at: time,
  ending: text,
  estimated: Type.Boolean(),
  ...tokens,
  ...prices,
  cost_micro: micro,
  base_micro: micro,
  overage_micro: micro,
  additional_micro: micro,
  shortfall_micro: micro,
  journal_seq: count,
});

export const holdRecord = closed({
  request_id: text,
  account: text,
  key: text,
  model: text,
  created_at: time,
  expires_at: time,
  held_micro: micro,
  ...tokens,
  ...prices,
});

export const auditReport = closed({
  sound: Type.Boolean(),
  checked_at: time,
  journal_entries: count,
  broken: Type.Array(
    closed({
      invariant: Type.String({ description: "what should hold and does not" }),
      rows: Type.Array(Type.Record(Type.String(), Type.Union([Type.String(), Type.Number(), Type.Null()]))),
    }),
    { description: "the invariants that do not hold, each with its first rows at fault" },
  ),
});

export const nodeRecord = closed({
  id: text,
  version: text,
  started_at: time,
  seen_at: time,
  self: Type.Boolean({ description: "the one that answers" }),
  differs: Type.Array(text, {
    description: "plans, models and prices of which its configuration says something else than this node's",
  }),
});

export const modelRecord = closed({
  id: text,
  state: text,
  context_window: count,
  max_output_tokens: count,
  pricing,
  load: orNull(closed({ running: count, waiting: count, paused: count })),
});
