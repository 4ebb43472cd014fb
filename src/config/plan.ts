/**
 * The `plans` section: credits, limits and models of accounts. A plan may only name models that
 * exist.
 */
import { planLimitNames, planLimits } from "../accounts/plan-limits.ts";
import { type PersonKeys, personKeysDefault } from "../accounts/portal-viewer.ts";
import * as fields from "../accounts/value-rules.ts";
import type { BucketPlan, Limits, Plan } from "../ledger/plan.ts";
import { calendarPeriodRule, isCalendarPeriod } from "../ledger/windows.ts";
import { given } from "../objects.ts";
import { nearest } from "../spelling.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

interface PlanDefaults {
  modelIds: readonly string[];
  /** That of the configuration. */
  timezone: string;
}

interface ReadPlan {
  plan: Plan;
  /** The rights of people with an account on the plan. No version of the plan has it. */
  keys: PersonKeys;
}

/** Returns at least one plan, in the order of the configuration. */
export function readPlans(root: Section, defaults: PlanDefaults): ReadPlan[] {
  const rule = { what: "plan", pattern: fields.name.pattern, says: fields.name.rule };
  return root.entries("plans", rule, (id, section) => readPlan(id, section, defaults));
}

function readPlan(id: string, section: Section, { modelIds, timezone }: PlanDefaults): ReadPlan {
  const bucket = (key: string): BucketPlan =>
    section.section(key, (each) => {
      const credits = each.value("credits", kind.credits);
      const every = each.placed("every", kind.period);
      const align = each.value("align", kind.alignment, { or: "opening" });
      if (align === "calendar" && !isCalendarPeriod(every.value)) {
        each.problem(every.where, `${each.path}.every: found ${every.value}, expected ${calendarPeriodRule}`);
      }
      return { credits, every: every.value, align };
    });
  const plan: Plan = {
    id,
    base: bucket("base"),
    overage: bucket("overage"),
    timezone: section.value("timezone", kind.timezone, { or: timezone }),
    limits: section.section("limits", readPlanLimits),
    models: [],
  };
  const keys = section.section("keys", (each) => ({
    most: each.value("most", kind.whole(0, fields.accountKeysMax), { or: personKeysDefault.most }),
    life: each.optional("life", kind.lifePeriod),
  }));
  const name = kind.text('a model\'s id, or "*"', (value) => value !== "", { standIn: "*" });
  const models = section.list("models", name, 'a list of model ids, or ["*"] for all', { or: ["*"] });
  for (const model of models.items) {
    // A configuration without any models is reported elsewhere.
    if (modelIds.length === 0) break;
    if (model.value === "*" || modelIds.includes(model.value)) continue;
    const near = nearest(model.value, modelIds);
    const help = near === undefined ? `the models are ${modelIds.join(", ")}` : `did you mean ${near}?`;
    section.problem(
      model.where,
      `${section.path}.models: there is no model ${JSON.stringify(model.value)}; ${help}`,
    );
  }
  return { plan: { ...plan, models: models.values }, keys };
}

function readPlanLimits(section: Section): Limits {
  const count = kind.whole(fields.limit.min, fields.limit.max);
  const values = planLimitNames.map((name) => [planLimits[name].row, section.optional(name, count)]);
  return given(Object.fromEntries(values));
}
