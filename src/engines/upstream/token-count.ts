/**
 * Our own count of an answer's tokens, beside the upstream's.
 *
 * Pure. Where the upstream says with each event how many there are, that is the count, exact at any moment. Where it
 * does not, an event with text is a token, or as many as it has log-probabilities; and a server that sends many tokens in
 * one event has at least one for every eight characters. So the own count is more than what was made only where a server
 * cuts its tokens in parts.
 */
import type { Usage } from "../../chat/engine.ts";
import type { TokenCounts } from "../../ledger/rows.ts";
import { type Chunk, saneUsage } from "./chunk.ts";

/** No tokenizer needs so few tokens for a whole answer. */
const charactersPerToken = 8;

/** Of the prompt, as it comes with an event. */
interface RunningCount {
  promptTokens: number;
  cachedTokens: number;
}

export class TokenCount {
  readonly #promptTokens: number;
  readonly #contextWindow: number;
  /** Events that had text, thinking included; more where log-probabilities say so. */
  #events = 0;
  #characters = 0;
  #completionTokens = 0;
  /** Of these, those that came as thinking in a field of its own. */
  #thoughtTokens = 0;
  #reported: unknown = null;
  /** The upstream's count at the last event, where it gives one with each. */
  #running: RunningCount | null = null;
  /** The same with the event that `after` was called with. */
  #nextEvents = 0;
  #nextTokens = 0;
  #nextRunning: RunningCount | null = null;

  /** `promptTokens`: what the prompt is thought to have. */
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
    const running = this.#runningOf(chunk.usage, { askedTokens, events, characters });
    this.#nextRunning = running ?? this.#running;
    const least = Math.min(askedTokens, Math.floor(characters / charactersPerToken));
    this.#nextTokens = running?.completionTokens ?? Math.max(this.#completionTokens, events, least);
    return this.#nextTokens;
  }

  /** Counts the event that `after` was called with last. Returns how many tokens that makes more. */
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

  /** `taggedTokens`: of thinking between tags. */
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

  /** Of an answer that came to its end; `promptTokens` null where the upstream's numbers were not used. */
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

  /** Returns the upstream's count at an event; null if it gives none, or an impossible or a smaller one. */
  #runningOf(usage: unknown, { askedTokens, events, characters }: Counted): TokenCounts | null {
    if (usage === null) return null;
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
