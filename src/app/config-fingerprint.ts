/** The settings that must be equal on all nodes of one database, because they affect credits. */
import type { Config } from "../config/load.ts";
import type { Plan } from "../ledger/plan.ts";
import type { ConfigFingerprint } from "../store/nodes.ts";

/**
 * A model and its price have separate entries, so that a missing model and another price differ.
 */
export function fingerprintOf({ plans, models }: Pick<Config, "plans" | "models">): ConfigFingerprint {
  return Object.fromEntries([
    ...[...plans.values()].map((plan) => [`plan ${plan.id}`, planText(plan)]),
    ...models.flatMap(({ id, price }) => [
      [`model ${id}`, "offered"],
      [`price of ${id}`, `${price.prompt}/${price.completion}/${price.cachedPrompt ?? price.prompt}`],
    ]),
  ]);
}

function planText({ base, overage, limits, models }: Plan): string {
  const { requestsPerMinute, tokensPerMinute, concurrent } = limits;
  const limitTexts = [requestsPerMinute, tokensPerMinute, concurrent].map((limit) => limit ?? "none");
  return [
    `${base.credits} every ${base.every}`,
    `${overage.credits} every ${overage.every}`,
    limitTexts.join("/"),
    models.join(","),
  ].join("; ");
}
