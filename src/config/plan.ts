/**
 * The `plans` section: credits, limits and models of accounts. A plan may only name models that
 * exist.
 */
import { planLimitNames, planLimits } from "../accounts/plan-limits.ts";
import { type PersonKeys, personKeysDefault } from "../accounts/portal-viewer.ts";
import * as fields from "../accounts/value-rules.ts";
import { isModelOf, isSameCap } from "../ledger/caps.ts";
import type { BucketPlan, Limits, Plan, PlanCap } from "../ledger/plan.ts";
import { calendarPeriodRule, isCalendarPeriod } from "../ledger/windows.ts";
import { given } from "../objects.ts";
import { nearest } from "../spelling.ts";
import { creditsMax } from "../units.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export interface PlanDefaults {
  modelIds: readonly string[];
  /** That of the configuration, which a plan has unless it names one. */
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
      return { credits: each.value("credits", kind.credits), ...readWindows(each) };
    });
  const plan: Plan = {
    id,
    base: bucket("base"),
    overage: bucket("overage"),
    caps: readCaps(section),
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
    if (model.value === "*" || modelIds.some((id) => isModelOf(model.value, id))) continue;
    const near = nearest(model.value, modelIds);
    const help = near === undefined ? `the models are ${modelIds.join(", ")}` : `did you mean ${near}?`;
    section.problem(
      model.where,
      `${section.path}.models: there is no model ${JSON.stringify(model.value)}; ${help}`,
    );
  }
  return { plan: { ...plan, models: models.values }, keys };
}

/** Up to four caps, of which no two count the same. */
function readCaps(section: Section): PlanCap[] {
  const credits = kind.whole(1, creditsMax, `whole credits from 1 to ${creditsMax}`);
  const name = kind.text(fields.capName.rule, (value) => fields.capName.pattern.test(value));
  const pattern = kind.text("a model's id, in which * stands for any characters", (value) => value !== "");
  const caps: PlanCap[] = [];
  section.sections("caps", "a list of caps, each with credits and every", (each) => {
    const cap = {
      credits: each.value("credits", credits),
      ...readWindows(each),
      name: each.optional("name", name),
      models: each.list("models", pattern, 'a list of model ids, such as ["big-*"]', { or: ["*"] }),
    };
    const read = { ...cap, name: cap.name ?? cap.every, models: cap.models.values };
    if (caps.some((one) => isSameCap({ ...one, timezone: "" }, { ...read, timezone: "" })))
      each.problem(
        each.where,
        `${each.path}: another cap has this name and period; give one of them another name`,
      );
    if (caps.length === fields.capsMax)
      each.problem(each.where, `${each.path}: found more than ${fields.capsMax} caps, the most of a plan`);
    caps.push(read);
  });
  return caps;
}

/** Reads how windows follow one another. */
function readWindows(section: Section): Pick<BucketPlan, "every" | "align"> {
  const every = section.placed("every", kind.period);
  const align = section.value("align", kind.alignment, { or: "opening" });
  if (align === "calendar" && !isCalendarPeriod(every.value)) {
    const { path } = section;
    section.problem(every.where, `${path}.every: found ${every.value}, expected ${calendarPeriodRule}`);
  }
  return { every: every.value, align };
}

function readPlanLimits(section: Section): Limits {
  const count = kind.whole(fields.limit.min, fields.limit.max);
  const values = planLimitNames.map((name) => [planLimits[name].row, section.optional(name, count)]);
  return given(Object.fromEntries(values));
}
