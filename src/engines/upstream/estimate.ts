/**
 * How many tokens a prompt has, from its bytes, for upstreams that cannot be asked.
 *
 * Pure. Learns from the usage that the upstream reports: of the last answers, the dearest in tokens per byte gives the
 * rate, and whatever a prompt had beyond that (a system prompt of the template, say) is added to every one. So the
 * upper estimate is never below what any of these prompts had, and what is held for covers the prompt; the likely one
 * is what is charged where the upstream's own number never comes.
 */
import type { Message } from "../../chat/engine.ts";

export interface PromptSize {
  bytes: number;
  messages: number;
}

export interface PromptEstimate {
  atMost: number;
  likely: number;
}

interface Sample extends PromptSize {
  tokens: number;
}

/** Before anything is known: two bytes a token at most, and four are likely. */
const firstRate = 0.5;
const firstShare = 0.5;
const firstExtraTokens = 32;
/** What a template puts around a message: markers, a role, line ends. */
const messageTokens = 8;
const samplesMax = 64;
/** Shorter prompts say more about the template than about the text. */
const rateBytesMin = 512;
/** The next text may be a little denser than the densest yet. */
const margin = 1.1;

export class PromptEstimator {
  readonly #samples: Sample[] = [];
  #next = 0;
  #rate = firstRate;
  #extraTokens = firstExtraTokens;
  #share = firstShare;

  estimate(size: PromptSize): PromptEstimate {
    const atMost = this.#atMost(size);
    return { atMost, likely: Math.max(1, Math.min(atMost, Math.round(atMost * this.#share))) };
  }

  /** What a prompt turned out to have, in tokens: 1 or more. Every answer comes by here, so it makes no lists. */
  learn(size: PromptSize, tokens: number): void {
    this.#samples[this.#next] = { ...size, tokens };
    this.#next = (this.#next + 1) % samplesMax;
    let densest = 0;
    for (const sample of this.#samples) {
      if (sample.bytes >= rateBytesMin) densest = Math.max(densest, sample.tokens / sample.bytes);
    }
    // No tokenizer needs more than a token for a byte.
    this.#rate = densest === 0 ? firstRate : Math.min(1, margin * densest);
    this.#extraTokens = 0;
    let missing = 0;
    let made = 0;
    let estimated = 0;
    for (const sample of this.#samples) {
      const atMost = this.#atMost(sample);
      missing = Math.max(missing, sample.tokens - atMost);
      made += sample.tokens;
      estimated += atMost;
    }
    this.#extraTokens = missing;
    this.#share = made / (estimated + missing * this.#samples.length);
  }

  #atMost({ bytes, messages }: PromptSize): number {
    return Math.ceil(bytes * this.#rate) + messages * messageTokens + this.#extraTokens;
  }
}

export function sizeOf(messages: readonly Message[]): PromptSize {
  let bytes = 0;
  for (const { content } of messages) bytes += Buffer.byteLength(content);
  return { bytes, messages: messages.length };
}
