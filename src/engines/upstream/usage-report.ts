/**
 * Reads the counts that an upstream reports of an answer, wherever it puts them.
 *
 * Pure. Guarantees: impossible counts are never charged. Counts are never more than the tokens
 * that were asked for.
 */
import type { TokenCounts } from "../../ledger/rows.ts";
import { fieldOf } from "../../objects.ts";

/** Returns the upstream's own object in an event, or null if the event has none. */
export function usageIn(event: unknown, choice: unknown): unknown {
  return (
    fieldOf(event, "usage") ??
    // Moonshot; Groq before `include_usage`.
    fieldOf(choice, "usage") ??
    fieldOf(fieldOf(event, "x_groq"), "usage") ??
    usageOfTimings(fieldOf(event, "timings"))
  );
}

/**
 * Converts llama-server's `timings` to a usage. Returns null if a field is missing. Older servers
 * leave out the cached tokens, which may be nearly the whole prompt.
 */
function usageOfTimings(timings: unknown): object | null {
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

/** Limits that the counts of a usage are compared with. */
export interface UsageBounds {
  /** The context window, or the bound of a prompt that is not counted if that is larger. */
  promptTokensMax: number;
  /** Limit of completion tokens in the request. */
  completionTokensMax: number;
  /** Events with text or thinking. Each has at least a part of a token. */
  events: number;
  /** Characters of these events. */
  characters: number;
}

export interface ReportedCounts extends TokenCounts {
  /** The sum that the upstream gives, if its own counts do not explain it. It is ignored. */
  oddTotal: number | null;
}

/**
 * Characters per token above this are impossible in an answer that is longer than two of the
 * longest tokens (128 spaces).
 */
const charactersPerTokenMax = 128;
const fewCharacters = 256;

/**
 * Returns the counts of an upstream's usage, or null if they are impossible. Impossible counts are
 * never charged: negative counts would credit the account (lingyuins/octopus#243), and zeros under
 * a visible answer would make it free (BerriAI/litellm#37992).
 */
export function saneUsage(given: unknown, bounds: UsageBounds): ReportedCounts | null {
  const promptTokens = wholeIn(given, "prompt_tokens");
  const visibleTokens = wholeIn(given, "completion_tokens");
  if (promptTokens === null || promptTokens < 1 || promptTokens > bounds.promptTokensMax) return null;
  if (visibleTokens === null || visibleTokens > bounds.completionTokensMax) return null;
  const cached = cachedIn(given) ?? 0;
  const reasoning = reasoningIn(given);
  const { besideTokens, oddTotal } = besideIn(given, promptTokens + visibleTokens, reasoning);
  const completionTokens = Math.min(visibleTokens + besideTokens, bounds.completionTokensMax);
  // Fewer tokens than events are possible: some servers stream letter by letter.
  if (completionTokens === 0 && bounds.events > 0) return null;
  // For example, some servers report the tokens of the last event only.
  if (bounds.characters > fewCharacters + charactersPerTokenMax * completionTokens) return null;
  const reasoningTokens = besideTokens > 0 ? completionTokens - visibleTokens : (reasoning ?? 0);
  return {
    promptTokens,
    cachedTokens: cached <= promptTokens ? cached : 0,
    completionTokens,
    reasoningTokens: reasoningTokens <= completionTokens ? reasoningTokens : 0,
    oddTotal,
  };
}

function cachedIn(given: unknown): number | null {
  return (
    wholeIn(fieldOf(given, "prompt_tokens_details"), "cached_tokens") ??
    // Moonshot, Together; DeepSeek.
    wholeIn(given, "cached_tokens") ??
    wholeIn(given, "prompt_cache_hit_tokens")
  );
}

function reasoningIn(given: unknown): number | null {
  return (
    wholeIn(fieldOf(given, "completion_tokens_details"), "reasoning_tokens") ??
    // SGLang.
    wholeIn(given, "reasoning_tokens")
  );
}

/**
 * Returns the thinking that the completion tokens do not contain. The total decides: xAI counts
 * its thinking beside them, and Gemini reports it by the total alone.
 */
function besideIn(
  given: unknown,
  sum: number,
  reasoning: number | null,
): { besideTokens: number; oddTotal: number | null } {
  const total = wholeIn(given, "total_tokens");
  if (total === null || total === sum) return { besideTokens: 0, oddTotal: null };
  const isExplained =
    reasoning === null ? total > sum && !isOfCache(given, total - sum) : total === sum + reasoning;
  return isExplained ? { besideTokens: total - sum, oddTotal: null } : { besideTokens: 0, oddTotal: total };
}

/** Bedrock's prompt tokens are those beside the cache, and its total counts all. */
function isOfCache(given: unknown, tokens: number): boolean {
  const written = wholeIn(given, "cache_creation_input_tokens") ?? 0;
  const read = wholeIn(given, "cache_read_input_tokens") ?? cachedIn(given) ?? 0;
  return tokens === written || tokens === read || tokens === written + read;
}

/** Returns the value of a field that is a whole number, or null. */
function wholeIn(object: unknown, name: string): number | null {
  const value = fieldOf(object, name);
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
