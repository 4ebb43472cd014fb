/** What tokens cost. Whole micro-credits, never rounded. */
import { invariant } from "../errors.ts";
import type { MicroCredits } from "../units.ts";

/** Credits per million tokens, which is micro-credits per token; whole numbers. */
export interface Price {
  prompt: number;
  completion: number;
  /** For prompt tokens that the engine had cached; absent: the price of any other prompt token. */
  cachedPrompt?: number;
}

export interface PricedTokens {
  promptTokens: number;
  /** Of the prompt tokens, those that the engine had cached. */
  cachedTokens: number;
  completionTokens: number;
}

export function costOf(price: Price, tokens: PricedTokens): MicroCredits {
  const { promptTokens, cachedTokens, completionTokens } = tokens;
  const cost =
    (promptTokens - cachedTokens) * price.prompt +
    cachedTokens * (price.cachedPrompt ?? price.prompt) +
    completionTokens * price.completion;
  invariant(
    Number.isSafeInteger(cost) && cost >= 0,
    () => `cost of ${JSON.stringify(tokens)} is a whole amount`,
  );
  return cost;
}

/** The most that a prompt and so many completion tokens can cost, whatever turns out to be cached. */
export function costAtMost(price: Price, promptTokens: number, completionTokens: number): MicroCredits {
  const dearest = Math.max(price.prompt, price.cachedPrompt ?? price.prompt);
  return promptTokens * dearest + completionTokens * price.completion;
}

/** How many completion tokens an amount buys after the prompt; `Infinity` where they are free. */
export function completionTokensFor(price: Price, promptTokens: number, held: MicroCredits): number {
  const rest = held - costAtMost(price, promptTokens, 0);
  if (rest < 0) return 0;
  return price.completion === 0 ? Number.POSITIVE_INFINITY : Math.floor(rest / price.completion);
}
