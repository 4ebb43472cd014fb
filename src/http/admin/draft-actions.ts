/** How this process drafts plans and prices. It reads, and changes nothing. */
import Type, { type Static } from "typebox";
import { closed, count, micro, objectFor, orNull } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { planChangesBetween } from "../../accounts/plan-objects.ts";
import { personKeysDefault } from "../../accounts/portal-viewer.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { type SettingChange, settingChangeObject, settingChanges } from "../../accounts/setting-changes.ts";
import { bindFor } from "../../actions/bind.ts";
import { draftModel, draftPlan } from "../../actions/drafts.ts";
import type { InputOf } from "../../actions/field.ts";
import { planLines, priceLines, readPlanLines } from "../../config/drafts.ts";
import { OperatorError, Refusal } from "../../errors.ts";
import type { Plan } from "../../ledger/plan.ts";
import { costOf, type Price } from "../../ledger/pricing.ts";
import { defined, given } from "../../objects.ts";
import { unknownName } from "../../spelling.ts";
import { dayOf } from "../../store/usage-days.ts";
import type { MicroCredits } from "../../units.ts";
import type { ServiceContext } from "./service-actions.ts";

interface Draft {
  yaml: string;
  changes: SettingChange[];
  accounts: number;
  week: { requests: number; beforeMicro: MicroCredits; afterMicro: MicroCredits } | null;
}

export const draftObject = objectFor<Draft>("Draft")({
  yaml: [
    Type.String({ description: "lines for inkwell.yaml, as far to the right as they stand there" }),
    ({ yaml }) => yaml,
  ],
  changes: [Type.Array(settingChangeObject.schema), ({ changes }) => changes.map(settingChangeObject.of)],
  accounts: [
    Type.Integer({
      minimum: 0,
      description: "accounts on the plan, or with requests to the model in the last seven days",
    }),
    ({ accounts }) => accounts,
  ],
  week: [
    orNull(closed({ requests: count, before_micro: micro, after_micro: micro })),
    ({ week }) =>
      week && { requests: week.requests, before_micro: week.beforeMicro, after_micro: week.afterMicro },
  ],
});

export type DraftJson = Static<typeof draftObject.schema>;

/** More accounts of a model in a week are counted as this many. */
const accountsMax = 100_000;
const bind = bindFor<ServiceContext>();

export const draftActions = {
  draftPlan: bind(draftPlan, draftObject.schema, async ({ actions, here, timezone }, input) => {
    const plans = await actions.plans();
    const found = plans.find(({ id }) => id === input.plan);
    const [current] = found?.versions ?? [];
    if (found === undefined || current === undefined) {
      const ids = plans.map(({ id }) => id);
      throw invalidValue("plan", unknownName("plan", input.plan, ids));
    }
    const keys = here.configured().personKeys.get(current.id) ?? personKeysDefault;
    const yaml = planLines(changedPlan(current, input), keys, timezone);
    const drafted = checked(() => readPlanLines(yaml, { modelIds: here.modelIds(), timezone }));
    const changes = planChangesBetween(current, drafted);
    return draftObject.of({ yaml, changes, accounts: found.accounts, week: null });
  }),
  draftModel: bind(draftModel, draftObject.schema, async ({ actions, here }, { model: id, ...input }) => {
    const { models } = here.configured();
    const model = models.find((each) => each.id === id);
    if (model === undefined) {
      const ids = models.map((each) => each.id);
      throw invalidValue("model", unknownName("model", id, ids));
    }
    const { cachedPrompt = model.price.cachedPrompt, ...prices } = defined(input);
    const price: Price = { ...model.price, ...prices, ...given({ cachedPrompt }) };
    if (cachedPrompt === null) delete price.cachedPrompt;
    const { accounts, ...week } = await weekOf(actions, id, [model.price, price]);
    const changes = settingChanges(shownPrice(model.price), shownPrice(price), `models.${id}.price`);
    return draftObject.of({ yaml: priceLines(price), changes, accounts, week });
  }),
};

/** Absent values stay. */
function changedPlan(plan: Plan, input: InputOf<typeof draftPlan.input>): Plan {
  const { base = {}, overage = {}, spendingCaps, models = plan.models, plan: _, ...limits } = input;
  const caps = spendingCaps?.map(({ align = "opening", name, models: ofCap = ["*"], ...cap }) => {
    return { ...cap, align, name: name ?? cap.every, models: ofCap };
  });
  return {
    ...plan,
    base: { ...plan.base, ...defined(base) },
    overage: { ...plan.overage, ...defined(overage) },
    caps: caps ?? plan.caps,
    limits: given({ ...plan.limits, ...defined(limits) }),
    models,
  };
}

function shownPrice({ prompt, cachedPrompt, completion }: Price) {
  return { prompt, cached_prompt: cachedPrompt, completion };
}

function checked(read: () => Plan | undefined): Plan {
  try {
    const plan = read();
    if (plan !== undefined) return plan;
    throw new OperatorError("The draft has no plan.");
  } catch (error) {
    throw error instanceof OperatorError ? new Refusal("configuration_invalid", error.message) : error;
  }
}

/** Returns the requests to a model in the last seven days, and their cost at two prices. */
async function weekOf(actions: OperatorActions, model: string, [before, after]: readonly [Price, Price]) {
  const today = dayOf(actions.ledgerMs(), actions.timezone);
  const query = { by: "account", model, from: today - 6, to: today + 1, order: "name" } as const;
  const { rows, total } = await actions.usageReport({ ...query, limit: accountsMax });
  // Late corrections can be more than what was counted.
  const tokens = {
    promptTokens: Math.max(0, total.promptTokens),
    cachedTokens: Math.min(Math.max(0, total.cachedTokens), Math.max(0, total.promptTokens)),
    completionTokens: Math.max(0, total.completionTokens),
  };
  return {
    accounts: rows.length,
    requests: total.requests,
    beforeMicro: costOf(before, tokens),
    afterMicro: costOf(after, tokens),
  };
}
