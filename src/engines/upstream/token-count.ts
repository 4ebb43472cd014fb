/**
 * Our own count of an answer's tokens, beside the upstream's.
 *
 * Pure. Where the upstream says with each event how many there are, that is the count, exact at any moment. Where it
 * does not, an event with text is a token, or as many as it has log-probabilities; and a server that sends many tokens in
 * one event has at least one for every eight characters. So the own count is more than what was made only where a server
 * cuts its tokens in parts.
 */
import type { Usage } from "../../chat/engine.ts";
import type { Chunk } from "./chunk.ts";
import { saneUsage } from "./usage.ts";

/** No tokenizer needs so few tokens for a whole answer. */
const charactersPerToken = 8;

/** The count with one more event. */
export interface CountAfter {
  tokens: number;
  events: number;
  running: RunningCount | null;
}

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

  /** How many there are with this event; `add` it or leave it. */
  after(chunk: Chunk, askedTokens: number): CountAfter {
    const events = this.#events + Math.max(1, chunk.logprobs?.length ?? 0);
    const characters = this.#characters + chunk.text.length;
    const running = saneUsage(chunk.usage, {
      contextWindow: this.#contextWindow,
      completionTokensMax: askedTokens,
      events,
      characters,
    });
    if (running !== null && running.completionTokens >= this.#completionTokens) {
      return { tokens: running.completionTokens, events, running };
    }
    const least = Math.min(askedTokens, Math.floor(characters / charactersPerToken));
    return { tokens: Math.max(this.#completionTokens, events, least), events, running: this.#running };
  }

  /** Counts the event, as `after` has it; how many tokens that makes more. */
  add(chunk: Chunk, { tokens, events, running }: CountAfter): number {
    const added = tokens - this.#completionTokens;
    this.#events = events;
    this.#characters += chunk.text.length;
    this.#completionTokens = tokens;
    this.#running = running;
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
}
