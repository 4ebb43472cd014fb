/** The settings of keys in the bodies of both APIs, and the options that they are. */
import Type, { type Static } from "typebox";
import { closed, orNull } from "../../accounts/json-objects.ts";
import { defaultOverlap, noOverlap } from "../../accounts/key-actions.ts";
import { momentNamed } from "../../accounts/refusals.ts";
import * as schema from "./schemas.ts";

const budgetFields = {
  credits: schema.budgetCredits,
  every: schema.period,
  align: Type.Optional(schema.alignment),
  timezone: Type.Optional(schema.timezone),
};

/** Settings of a new key. */
const newFields = {
  operation_id: schema.operationId,
  name: Type.Optional(schema.label),
  models: Type.Optional(schema.modelIds),
  expires_at: Type.Optional(schema.moment),
  requests_per_minute: Type.Optional(schema.limit),
  tokens_per_minute: Type.Optional(schema.limit),
  concurrent: Type.Optional(schema.limit),
  budget: Type.Optional(closed(budgetFields)),
};

/** Settings that a change can have. */
const changedFields = {
  operation_id: schema.operationId,
  name: Type.Optional(orNull(schema.label)),
  models: Type.Optional(schema.modelIds),
  expires_at: Type.Optional(orNull(schema.moment)),
  requests_per_minute: Type.Optional(orNull(schema.limit)),
  tokens_per_minute: Type.Optional(orNull(schema.limit)),
  concurrent: Type.Optional(orNull(schema.limit)),
  budget: Type.Optional(
    orNull(
      closed({
        ...budgetFields,
        credits: Type.Optional(schema.budgetCredits),
        every: Type.Optional(schema.period),
      }),
    ),
  ),
};

export const rotationBody = closed({
  operation_id: schema.operationId,
  overlap: Type.Optional(
    Type.String({
      description: `an ISO 8601 period of at most a year, or "${noOverlap}" (default ${defaultOverlap})`,
    }),
  ),
});

const newBody = closed(newFields);
const changedBody = closed(changedFields);

/** `of` returns the options of a body. */
export const newSettings = {
  fields: newFields,
  of(body: Static<typeof newBody>) {
    return { ...optionsIn(body), expiresMs: momentNamed("expires_at", body.expires_at) };
  },
};

export const changedSettings = {
  fields: changedFields,
  of(body: Static<typeof changedBody>) {
    const { expires_at: expiry } = body;
    return { ...optionsIn(body), expiresMs: expiry === null ? null : momentNamed("expires_at", expiry) };
  },
};

function optionsIn<Name, Limit, Budget>({
  name,
  models,
  concurrent,
  budget,
  requests_per_minute: requestsPerMinute,
  tokens_per_minute: tokensPerMinute,
}: {
  name?: Name;
  models?: readonly string[];
  concurrent?: Limit;
  budget?: Budget;
  requests_per_minute?: Limit;
  tokens_per_minute?: Limit;
}) {
  const distinct = models === undefined ? undefined : [...new Set(models)];
  return { name, concurrent, budget, models: distinct, requestsPerMinute, tokensPerMinute };
}
