/** The settings of keys in the bodies of both APIs, and the options that they are. */
import Type, { type Static } from "typebox";
import { closed, orNull } from "../../accounts/json-objects.ts";
import { defaultOverlap, noOverlap } from "../../accounts/key-actions.ts";
import { momentNamed } from "./paging.ts";
import * as schema from "./schemas.ts";

/** Settings of a new key. */
export const newSettings = {
  operation_id: schema.operationId,
  name: Type.Optional(schema.label),
  models: Type.Optional(schema.modelIds),
  expires_at: Type.Optional(schema.moment),
  requests_per_minute: Type.Optional(schema.limit),
  tokens_per_minute: Type.Optional(schema.limit),
  concurrent: Type.Optional(schema.limit),
  budget: Type.Optional(closed({ credits: schema.budgetCredits, every: schema.period })),
};

/** Settings that a change can have. */
export const changedSettings = {
  operation_id: schema.operationId,
  name: Type.Optional(orNull(schema.label)),
  models: Type.Optional(schema.modelIds),
  expires_at: Type.Optional(orNull(schema.moment)),
  requests_per_minute: Type.Optional(orNull(schema.limit)),
  tokens_per_minute: Type.Optional(orNull(schema.limit)),
  concurrent: Type.Optional(orNull(schema.limit)),
  budget: Type.Optional(
    orNull(closed({ credits: Type.Optional(schema.budgetCredits), every: Type.Optional(schema.period) })),
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

const newBody = closed(newSettings);
const changedBody = closed(changedSettings);

export function newSettingsIn(body: Static<typeof newBody>) {
  const { name, models, concurrent, budget } = body;
  return {
    ...{ name, concurrent, budget },
    models: models === undefined ? undefined : [...new Set(models)],
    expiresMs: momentNamed("expires_at", body.expires_at),
    requestsPerMinute: body.requests_per_minute,
    tokensPerMinute: body.tokens_per_minute,
  };
}

export function changedSettingsIn(body: Static<typeof changedBody>) {
  const { name, models, concurrent, budget, expires_at } = body;
  return {
    ...{ name, concurrent, budget },
    models: models === undefined ? undefined : [...new Set(models)],
    expiresMs: expires_at === null ? null : momentNamed("expires_at", expires_at),
    requestsPerMinute: body.requests_per_minute,
    tokensPerMinute: body.tokens_per_minute,
  };
}
