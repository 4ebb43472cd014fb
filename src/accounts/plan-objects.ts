/** The JSON object of a plan, for the operator API and the command line. */
import Type from "typebox";
import type { PlanVersion } from "../ledger/plan.ts";
import { closed, component, count, isoTime, objectFor, orNull, text, time } from "./json-objects.ts";

/** A plan of the database. */
export interface PlanState {
  id: string;
  isOffered: boolean;
  /** Accounts on the plan, without closed accounts. */
  accounts: number;
  /** Newest first. */
  versions: readonly PlanVersion[];
}

const bucket = closed({ credits: count, every: text });

const version = component("PlanVersion", {
  version: count,
  created_at: time,
  base: bucket,
  overage: bucket,
  limits: closed({
    requests_per_minute: orNull(count),
    tokens_per_minute: orNull(count),
    concurrent: orNull(count),
  }),
  models: Type.Array(text),
});

export const planObject = objectFor<PlanState>("Plan")({
  id: [text, (plan) => plan.id],
  offered: [
    Type.Boolean({ description: "whether accounts can be put on it; otherwise it is retired" }),
    (plan) => plan.isOffered,
  ],
  accounts: [count, (plan) => plan.accounts],
  versions: [
    Type.Array(version, { description: "newest first" }),
    (plan) => plan.versions.map(versionFields),
  ],
});

function versionFields({ version, createdMs, base, overage, limits, models }: PlanVersion) {
  return {
    version,
    created_at: isoTime(createdMs),
    base,
    overage,
    limits: {
      requests_per_minute: limits.requestsPerMinute ?? null,
      tokens_per_minute: limits.tokensPerMinute ?? null,
      concurrent: limits.concurrent ?? null,
    },
    models: [...models],
  };
}
