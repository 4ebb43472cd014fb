/**
 * Counts the tokens of an answer, and checks the upstream's counts.
 *
 * Pure. If the upstream reports a count with each event, that count is used. Otherwise each event
 * with text counts as one token, or as many as it has log-probabilities, and at least as one per
 * eight characters of the answer. Our count is too high only if a server splits tokens.
 *
 * Impossible counts are never charged: negative counts would credit the account
 * (lingyuins/octopus#243), and zeros under a visible answer would make it free
 * (BerriAI/litellm#37992).
 */
import type { Usage } from "../../chat/engine.ts";
import type { TokenCounts } from "../../ledger/rows.ts";
import { type Chunk, fieldOf, wholeIn } from "./chunk.ts";

/** No tokenizer reaches this average over a whole answer. */
const charactersPerToken = 8;

/** Counts of the prompt in an event. */
interface RunningCount {
  promptTokens: number;
  cachedTokens: number;
}

export class TokenCount {
  readonly #promptTokens: number;
  readonly #contextWindow: number;
  /** Events with text or thinking, or their log-probabilities if there are more. */
  #events = 0;
  #characters = 0;
  #completionTokens = 0;
  /** Completion tokens that arrived in a field for thinking. */
  #thoughtTokens = 0;
  #reported: unknown = null;
  /** The upstream's counts in the last event, if it reports them with each. */
  #running: RunningCount | null = null;
  /** The same with the event that `after` was called with. */
  #nextEvents = 0;
  #nextTokens = 0;
  #nextRunning: RunningCount | null = null;

  /** `promptTokens` is the estimate. */
  constructor(promptTokens: number, contextWindow: number) {
    this.#promptTokens = promptTokens;
    this.#contextWindow = contextWindow;
  }

  get events(): number {
    return this.#events;
  }

  get completionTokens(): number {
    return this.#completionTokens;
  }

  /** Returns how many tokens there are with this event; `add` it or leave it. */
  after(chunk: Chunk, askedTokens: number): number {
    const events = this.#events + Math.max(1, chunk.logprobs?.length ?? 0);
    const characters = this.#characters + chunk.text.length;
    this.#nextEvents = events;
    const running =
      chunk.usage === null ? null : this.#runningOf(chunk.usage, { askedTokens, events, characters });
    this.#nextRunning = running ?? this.#running;
    const least = Math.min(askedTokens, Math.floor(characters / charactersPerToken));
    this.#nextTokens = running?.completionTokens ?? Math.max(this.#completionTokens, events, least);
    return this.#nextTokens;
  }

  /**
   * Counts the event that `after` was called with last. Returns how many tokens that makes more.
   */
  add(chunk: Chunk): number {
    const added = this.#nextTokens - this.#completionTokens;
    this.#events = this.#nextEvents;
    this.#characters += chunk.text.length;
    this.#completionTokens = this.#nextTokens;
    this.#running = this.#nextRunning;
    if (chunk.usage !== null) this.#reported = chunk.usage;
    if (chunk.thinks && chunk.text === "") this.#thoughtTokens += added;
    return added;
  }

  report(usage: unknown): void {
    this.#reported = usage;
  }

  /** `taggedTokens`: tokens of thinking between tags. */
  soFar(taggedTokens: number): Usage {
    const { promptTokens, cachedTokens } = this.#running ?? {
      promptTokens: this.#promptTokens,
      cachedTokens: 0,
    };
    const completionTokens = this.#completionTokens;
    const reasoningTokens = Math.min(completionTokens, this.#thoughtTokens + taggedTokens);
    const estimated = this.#running === null;
    return { promptTokens, cachedTokens, completionTokens, reasoningTokens, estimated };
  }

  /**
   * Returns the usage of a complete answer. `promptTokens` is null if the upstream's counts were
   * not used.
   */
  final(askedTokens: number, taggedTokens: number): { usage: Usage; promptTokens: number | null } {
    const own = this.soFar(taggedTokens);
    if (this.#reported === null) return { usage: own, promptTokens: null };
    const sane = saneUsage(this.#reported, {
      contextWindow: this.#contextWindow,
      completionTokensMax: askedTokens,
      events: this.#events,
      characters: this.#characters,
    });
    if (sane === null) return { usage: { ...own, estimated: true, absurd: true }, promptTokens: null };
    const reasoningTokens = Math.min(sane.completionTokens, sane.reasoningTokens || own.reasoningTokens);
    return { usage: { ...sane, reasoningTokens, estimated: false }, promptTokens: sane.promptTokens };
  }

  /**
   * Returns the upstream's counts in an event, or null if they are missing, impossible or lower
   * than before.
   */
  #runningOf(usage: unknown, { askedTokens, events, characters }: Counted): TokenCounts | null {
    const counts = saneUsage(usage, {
      contextWindow: this.#contextWindow,
      completionTokensMax: askedTokens,
      events,
      characters,
    });
    return counts !== null && counts.completionTokens >= this.#completionTokens ? counts : null;
  }
}

interface Counted {
  askedTokens: number;
  events: number;
  characters: number;
}

interface UsageBounds {
  /** Context window of the model, in tokens. */
  contextWindow: number;
  /** Limit of completion tokens in the request. */
  completionTokensMax: number;
  /** Events with text or thinking. Each has at least a part of a token. */
  events: number;
  /** Characters of these events. */
  characters: number;
}

/**
 * Characters per token above this are impossible in an answer that is longer than two of the
 * longest tokens (128 spaces).
 */
const charactersPerTokenMax = 32;
const fewCharacters = 256;

/** Returns the counts, or null if they are impossible. */
function saneUsage(given: unknown, bounds: UsageBounds): TokenCounts | null {
  const promptTokens = wholeIn(given, "prompt_tokens");
  const completionTokens = wholeIn(given, "completion_tokens");
  if (promptTokens === null || promptTokens < 1 || promptTokens > bounds.contextWindow) return null;
  if (completionTokens === null || completionTokens > bounds.completionTokensMax) return null;
  // Fewer tokens than events are possible: some servers stream letter by letter.
  if (completionTokens === 0 && bounds.events > 0) return null;
  // For example, some servers report the tokens of the last event only.
  if (bounds.characters > fewCharacters + charactersPerTokenMax * completionTokens) return null;
  const cached = wholeIn(fieldOf(given, "prompt_tokens_details"), "cached_tokens") ?? 0;
  const reasoning =
    wholeIn(fieldOf(given, "completion_tokens_details"), "reasoning_tokens") ??
    // SGLang's field.
    wholeIn(given, "reasoning_tokens") ??
    0;
  return {
    promptTokens,
    cachedTokens: cached <= promptTokens ? cached : 0,
    completionTokens,
    reasoningTokens: reasoning <= completionTokens ? reasoning : 0,
  };
}
