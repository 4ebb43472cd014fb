/** The cost of tokens. Pure, in whole micro-credits, and nothing is rounded. */
import { invariant } from "../errors.ts";
import type { MicroCredits } from "../units.ts";
import type { RowPrice, TokenCounts } from "./rows.ts";

/** Credits per million tokens, which is micro-credits per token. Whole numbers. */
export interface Price {
  prompt: number;
  completion: number;
  /** Price of cached prompt tokens. Default: `prompt`. */
  cachedPrompt?: number;
}

export function costOf(price: Price, tokens: Omit<TokenCounts, "reasoningTokens">): MicroCredits {
  const { promptTokens, cachedTokens, completionTokens } = tokens;
  const costMicro =
    (promptTokens - cachedTokens) * price.prompt +
    cachedTokens * (price.cachedPrompt ?? price.prompt) +
    completionTokens * price.completion;
  invariant(
    Number.isSafeInteger(costMicro) && costMicro >= 0,
    () => `cost of ${JSON.stringify(tokens)} is a whole amount`,
  );
  return costMicro;
}

/**
 * Returns the maximum cost of a prompt and a number of completion tokens, for any number of cached
 * tokens.
 */
export function costAtMost(price: Price, promptTokens: number, completionTokens: number): MicroCredits {
  const dearest = Math.max(price.prompt, price.cachedPrompt ?? price.prompt);
  return promptTokens * dearest + completionTokens * price.completion;
}

/**
 * Returns the number of completion tokens that an amount buys after the prompt, or `Infinity` if
 * they are free.
 */
export function completionTokensFor(price: Price, promptTokens: number, heldMicro: MicroCredits): number {
  const restMicro = heldMicro - costAtMost(price, promptTokens, 0);
  if (restMicro < 0) return 0;
  return price.completion === 0 ? Number.POSITIVE_INFINITY : Math.floor(restMicro / price.completion);
}

/** Throws an `InvariantError` for counts that no request can have. */
export function assertTokens(usage: TokenCounts): void {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  for (const count of [promptTokens, cachedTokens, completionTokens, reasoningTokens]) {
    invariant(
      Number.isSafeInteger(count) && count >= 0,
      () => `token counts are whole: ${JSON.stringify(usage)}`,
    );
  }
  invariant(cachedTokens <= promptTokens, "cached tokens are part of the prompt's");
  invariant(reasoningTokens <= completionTokens, "reasoning tokens are part of the completion's");
}

/** Returns the prices of a hold or a charge. */
export function priceOf(row: RowPrice): Price {
  return { prompt: row.pricePrompt, completion: row.priceCompletion, cachedPrompt: row.priceCachedPrompt };
}
