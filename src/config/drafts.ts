/** Lines of a configuration for a plan or a price, and the plan that its reader makes of them. */
import { stringify } from "yaml";
import { limitsObject } from "../accounts/plan-limits.ts";
import { type PersonKeys, personKeysDefault } from "../accounts/portal-viewer.ts";
import type { BucketPlan, Plan } from "../ledger/plan.ts";
import type { Price } from "../ledger/pricing.ts";
import { given, isRecord } from "../objects.ts";
import { parseYaml } from "./document.ts";
import { configurationError } from "./load.ts";
import { type PlanDefaults, readPlans } from "./plan.ts";
import { Problems } from "./problems.ts";
import { Section } from "./section.ts";

/** Returns the lines of a plan in the section `plans`. What is usual is left out. */
export function planLines(plan: Plan, keys: PersonKeys, timezone: string): string {
  const limits = given(limitsObject(plan.limits));
  const { most, life } = keys;
  const settings = {
    base: windowsOf(plan.base),
    overage: windowsOf(plan.overage),
    ...(plan.caps.length > 0 && {
      caps: plan.caps.map(({ name, models, ...cap }) => ({
        ...(name !== cap.every && { name }),
        ...windowsOf(cap),
        ...(!isAll(models) && { models }),
      })),
    }),
    ...(plan.timezone !== timezone && { timezone: plan.timezone }),
    ...(Object.keys(limits).length > 0 && { limits }),
    models: plan.models,
    ...((most !== personKeysDefault.most || life !== personKeysDefault.life) && {
      keys: { most, ...(life !== null && { life }) },
    }),
  };
  return `  ${written(plan.id)}:\n${linesOf(settings, "    ")}`;
}

/** Returns the line of the price of a model. */
export function priceLines({ prompt, cachedPrompt, completion }: Price): string {
  const cached = cachedPrompt === undefined ? {} : { cached_prompt: cachedPrompt };
  return linesOf({ price: { prompt, ...cached, completion } }, "    ");
}

/** Reads the lines of a plan. Throws an `OperatorError` with all their faults. */
export function readPlanLines(lines: string, options: PlanDefaults): Plan | undefined {
  const problems = new Problems();
  const { value } = parseYaml(`plans:\n${lines}`, "draft", {}, problems);
  const folders = { file: "", variables: "" };
  const section = new Section(value, { names: [], where: "draft" }, { env: {}, problems, folders });
  const [read] = readPlans(section, options);
  if (problems.count > 0) throw configurationError(problems.lines());
  return read?.plan;
}

function windowsOf({ credits, every, align }: BucketPlan) {
  return { credits, every, ...(align === "opening" ? {} : { align }) };
}

function isAll(models: readonly string[]): boolean {
  return models.length === 1 && models[0] === "*";
}

/** Settings are a line each, as in the example, and so are the items of a list of maps. */
function linesOf(settings: object, indent: string): string {
  const lines = Object.entries(settings).flatMap(([name, value]) =>
    Array.isArray(value) && value.some(isRecord)
      ? [`${name}:`, ...value.map((item) => `  - ${written(item)}`)]
      : [`${name}: ${written(value)}`],
  );
  return lines.map((line) => `${indent}${line}\n`).join("");
}

/** A text with `${` would stand for a variable of the environment. */
function written(value: unknown): string {
  return stringify(value, { collectionStyle: "flow", lineWidth: 0 })
    .trimEnd()
    .replaceAll("${", () => "$${");
}
