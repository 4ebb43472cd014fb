/**
 * What an upstream says of the tokens it used, as far as that can be true.
 *
 * Pure. Numbers that cannot be are never charged: negative ones would credit the account (lingyuins/octopus#243),
 * zeros under a visible answer would make it free (BerriAI/litellm#37992).
 */
import type { TokenCounts } from "../../ledger/rows.ts";

export interface UsageBounds {
  /** Most prompt tokens that fit the model. */
  contextWindow: number;
  /** What the upstream was asked to make at most. */
  completionTokensMax: number;
  /** Events with text or thinking: where there are any, there are tokens. */
  events: number;
  /** Of their text. */
  characters: number;
}

/** No answer has so many for each of its tokens, once it is longer than some of the longest tokens there are (128 blanks). */
const charactersPerTokenMax = 32;
const fewCharacters = 256;

/** Null where the numbers cannot be true. */
export function saneUsage(given: unknown, bounds: UsageBounds): TokenCounts | null {
  const promptTokens = wholeIn(given, "prompt_tokens");
  const completionTokens = wholeIn(given, "completion_tokens");
  if (promptTokens === null || promptTokens < 1 || promptTokens > bounds.contextWindow) return null;
  if (completionTokens === null || completionTokens > bounds.completionTokensMax) return null;
  // Fewer tokens than events are no lie: some servers stream by the letter.
  if (completionTokens === 0 && bounds.events > 0) return null;
  // Such as the tokens of the last event alone, or 1 each time.
  if (bounds.characters > fewCharacters + charactersPerTokenMax * completionTokens) return null;
  const cached = wholeIn(fieldOf(given, "prompt_tokens_details"), "cached_tokens") ?? 0;
  const reasoning =
    wholeIn(fieldOf(given, "completion_tokens_details"), "reasoning_tokens") ??
    // SGLang has it here.
    wholeIn(given, "reasoning_tokens") ??
    0;
  return {
    promptTokens,
    cachedTokens: cached <= promptTokens ? cached : 0,
    completionTokens,
    reasoningTokens: reasoning <= completionTokens ? reasoning : 0,
  };
}

/**
 * llama-server's `timings` of an event, in the shape of a usage; null where they are missing. Older servers leave out what
 * was cached, which is nearly all of a prompt at times: what is left then is no count of the prompt.
 */
export function usageOfTimings(timings: unknown): object | null {
  const cached = wholeIn(timings, "cache_n");
  const evaluated = wholeIn(timings, "prompt_n");
  const predicted = wholeIn(timings, "predicted_n");
  if (cached === null || evaluated === null || predicted === null) return null;
  return {
    prompt_tokens: cached + evaluated,
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens: predicted,
  };
}

function wholeIn(object: unknown, name: string): number | null {
  const value = fieldOf(object, name);
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

/** Returns the value of a field, or undefined. No name of `Object.prototype` is looked for. */
export function fieldOf(object: unknown, name: string): unknown {
  return isRecord(object) ? object[name] : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
