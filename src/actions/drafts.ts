/**
 * Drafts of plans and prices: the lines to paste into inkwell.yaml, whom they concern, and what
 * they change. Nothing is written anywhere. Pages bundle this file.
 */
import { allOf } from "../accounts/plan-limits.ts";
import * as rules from "../accounts/value-rules.ts";
import type { Alignment } from "../ledger/windows.ts";
import { exactCredits, grouped } from "../units.ts";
import type { Action } from "./action.ts";
import { planCapText } from "./cap-text.ts";
import {
  choice,
  type Field,
  type Fields,
  group,
  nullable,
  number,
  optional,
  optionally,
  text,
} from "./field.ts";
import { capParts, capPeriods, caps, hasCalendarPeriod, limitFields, models, period } from "./fields.ts";

const alignments = ["opening", "calendar"] as const;
const aligned = {
  rule: '"opening" or "calendar"',
  titles: ["from its start on", "by the calendar"],
};

const every = {
  kind: "text",
  check: "refill period",
  rule: period,
  presets: capPeriods,
} as const;

function bucket(name: string) {
  const flag = name.toLowerCase();
  return group(
    {
      credits: optionally.number(rules.cap, "whole credits", {
        label: `${name} credits`,
        option: `--${flag}-credits <credits>`,
        about: `${flag} credits of each period`,
      }),
      every: optional<Field<string>>({
        ...every,
        label: `${name} credits refill every`,
        option: `--${flag}-every <period>`,
        about: "their period, ISO 8601: PT5H, P1D, P1M",
      }),
      align: optional<Field<Alignment>>(
        choice(alignments, {
          ...aligned,
          label: `Refill of ${flag} credits`,
          option: `--${flag}-align <alignment>`,
          about: "their windows: from the first one on (opening), or days, weeks or months (calendar)",
        }),
      ),
    },
    { label: name },
  );
}

const cap = {
  credits: number({ ...rules.cap, min: 1 }, "whole credits", { label: "Credits" }),
  every: { ...every, label: "In each" } as Field<string>,
  align: optional<Field<Alignment>>(
    choice(alignments, { ...aligned, label: "Refill", isShown: hasCalendarPeriod }),
  ),
  ...capParts,
};

/** What people read of a draft. */
interface DraftJson {
  accounts: number;
  /** Null: the draft changes no price. */
  week: { requests: number; before_micro: number; after_micro: number } | null;
}

/** An action that changes nothing, with a form that shows what it makes. */
function draft<const F extends Fields>(parts: Omit<Action<F, DraftJson>, "role" | "refuses" | "done">) {
  const done = () => "Nothing has changed: paste the lines into inkwell.yaml, and reload.";
  return { role: "viewer", refuses: ["configuration_invalid"], done, ...parts } satisfies Action<
    F,
    DraftJson
  >;
}

export const draftPlan = draft({
  id: "draftPlan",
  title: "Write the lines of a changed plan for inkwell.yaml",
  help: "Absent fields stay as they are in the newest version of the plan. `spending_caps` replaces all caps. The lines are checked as those of a file are. Nothing changes.",
  http: "POST /admin/plans/{plan}/draft",
  cli: "plans draft <plan>",
  examples: [
    "plans draft student --base-credits 1500",
    'plans draft student --caps "300/PT5H, 1000/P1W" --no-concurrent',
  ],
  input: {
    plan: text(rules.name, { about: "as plans list shows it" }),
    base: optional(bucket("Base")),
    overage: optional(bucket("Overage")),
    spending_caps: optional(caps(cap, planCapText)),
    ...allOf(limitFields, ({ about: _, ...field }) => optional(nullable(field))),
    models: optional<Field<readonly string[]>>({
      ...models,
      hint: "Without a tick: all models. Prices: credits for a million tokens of prompts / of answers.",
      about: "models of the plan, comma-separated; * for all",
    }),
  },
  form: { title: "Change the plan {name}", submit: "Write the draft" },
});

function price(name: string, about: string) {
  return number(rules.price, "whole credits per million tokens", { label: name, about });
}

export const draftModel = draft({
  id: "draftModel",
  title: "Write the lines of changed prices for inkwell.yaml",
  help: "Absent fields stay as they are. `week` has the requests of the last seven days, and their cost at the present prices and at those of the draft. Nothing changes.",
  http: "POST /admin/models/{model}/draft",
  cli: "models draft <model>",
  examples: ["models draft smollm2-135m-instruct --prompt 25000 --completion 120000"],
  input: {
    model: text(rules.note, { rule: "the id of a model", about: "as in the configuration" }),
    prompt: optional(price("Prompt", "credits for a million prompt tokens")),
    cached_prompt: optional(
      nullable(price("Cached prompt", "credits for a million cached prompt tokens (default: as prompt)")),
    ),
    completion: optional(price("Answer", "credits for a million tokens of answers")),
  },
  form: {
    title: "Change the prices of {name}",
    intro: "Prices are credits for a million tokens.",
    submit: "Write the draft",
  },
});

/** Returns whom a draft concerns, and what it costs them, in sentences. */
export function draftSentence({ accounts, week }: DraftJson): string {
  const who = `${grouped(accounts)} account${accounts === 1 ? "" : "s"}`;
  if (week === null)
    return `${who} on the plan. Limits, models and caps count from their next request on, credits from their next refresh.`;
  const { requests, before_micro: before, after_micro: after } = week;
  const percent = before === 0 ? 0 : Math.round((after / before - 1) * 100);
  const change = percent === 0 ? "" : ` (${percent > 0 ? "+" : "−"}${Math.abs(percent)} %)`;
  const sent = `${grouped(requests)} request${requests === 1 ? "" : "s"} of ${who} in the last 7 days`;
  return `${sent}: ${exactCredits(before)} credits at the present prices, ${exactCredits(after)} at the new ones${change}. Running requests keep their price.`;
}
