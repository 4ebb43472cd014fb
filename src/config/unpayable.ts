/**
 * Models that a plan allows and can never pay for: its full credits are less than the smallest
 * request takes. Only purchased credits pay for them, so the operator is warned.
 */
import { allows } from "../chat/catalog.ts";
import { dialectOf } from "../engines/upstream/dialects.ts";
import { shortestBound } from "../engines/upstream/prompt-counter.ts";
import { shipped } from "../invocation.ts";
import type { Plan } from "../ledger/plan.ts";
import { costAtMost } from "../ledger/pricing.ts";
import { exactCredits, grouped, microOf } from "../units.ts";
import type { ModelConfig } from "./model.ts";

/**
 * A plan without credits is for purchased ones, and is left out. `smallest`: credits of the
 * shortest prompt and one token. `warning`: sentences for the operator.
 */
export function unpayableModels(plans: Iterable<Plan>, models: readonly ModelConfig[]) {
  const granting = [...plans]
    .map((plan) => ({ ...plan, credits: plan.base.credits + plan.overage.credits }))
    .filter(({ credits }) => credits > 0);
  return models.flatMap((model) => {
    const { smallestMicro, shortest, isCounted } = smallestRequest(model);
    const poor = granting.filter(
      (plan) => allows(plan.models, model.id) && microOf(plan.credits) < smallestMicro,
    );
    if (poor.length === 0) return [];
    const smallest = exactCredits(smallestMicro);
    const named = poor.map(({ id, credits }) => `${id} (${grouped(credits)})`).join(", ");
    const remedies = `Raise the credits of the plans, lower the price of the model, or leave it out of the models of the plans.`;
    const bound = isCounted
      ? ""
      : ` Its prompts are not counted, so the shortest is held for ${grouped(shortest)} tokens. A dialect that counts, or a smaller template_tokens, lowers that (${shipped("docs/upstreams.md")}).`;
    const warning = `The smallest request to ${model.id} takes ${smallest} credits. These plans never have that many: ${named}. ${remedies}${bound}`;
    return [{ model: model.id, smallest, plans: poor.map(({ id }) => id), warning }];
  });
}

/**
 * Returns the least that a request holds, and for how many tokens of a prompt. The embedded engine
 * and some servers count a prompt: at least one token.
 */
export function smallestRequest(model: ModelConfig) {
  const isCounted = model.engine === "llama" || dialectOf(model.dialect).tokenizer !== null;
  const shortest = isCounted ? 1 : shortestBound(model.templateTokens);
  return { smallestMicro: costAtMost(model.price, shortest, 1), shortest, isCounted };
}
