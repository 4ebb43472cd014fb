/** The `plans` section: what accounts are granted. At least one plan, each naming only models that exist. */
import { namePattern, nameRule } from "../accounts/names.ts";
import { given } from "../given.ts";
import type { BucketPlan, Limits, Plan } from "../ledger/plan.ts";
import { nearest } from "../spelling.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

/** In the order of the configuration. */
export function readPlans(root: Section, modelIds: readonly string[]): Plan[] {
  const rule = { what: "plan", pattern: namePattern, says: nameRule };
  return root.entries("plans", rule, (id, section) => readPlan(id, section, modelIds));
}

function readPlan(id: string, section: Section, modelIds: readonly string[]): Plan {
  const bucket = (key: string): BucketPlan =>
    section.section(key, (each) => ({
      credits: each.value("credits", kind.credits),
      every: each.value("every", kind.period),
    }));
  const plan: Plan = {
    id,
    base: bucket("base"),
    overage: bucket("overage"),
    limits: section.section("limits", readPlanLimits),
    models: [],
  };
  const name = kind.text('a model\'s id, or "*"', (value) => value !== "", { standIn: "*" });
  const models = section.list("models", name, {
    or: ["*"],
    expects: 'a list of model ids, or ["*"] for all',
  });
  for (const model of models.value) {
    // Where the configuration has no models at all, that is told already.
    if (modelIds.length === 0) break;
    if (model.value === "*" || modelIds.includes(model.value)) continue;
    const near = nearest(model.value, modelIds);
    const help = near === undefined ? `the models are ${modelIds.join(", ")}` : `did you mean ${near}?`;
    section.problem(
      model.where,
      `${section.path}.models: there is no model ${JSON.stringify(model.value)}; ${help}`,
    );
  }
  return { ...plan, models: models.value.map((model) => model.value) };
}

function readPlanLimits(section: Section): Limits {
  const count = kind.whole(1, 1_000_000_000);
  return given({
    requestsPerMinute: section.optional("requests_per_minute", count),
    tokensPerMinute: section.optional("tokens_per_minute", count),
    concurrent: section.optional("concurrent", count),
  });
}
