/**
 * Estimates the tokens of a prompt from its bytes, for upstreams that do not count prompts. An
 * estimate decides whether a prompt fits the window, and what is charged if the upstream reports
 * no usage. Credits are held for the bound instead.
 *
 * Learns from the usage of the last answers. The highest rate of tokens per byte is used for all
 * prompts, and the largest remainder (for example a system prompt of the template) is added. The
 * upper estimate is therefore at least as high as each of these prompts.
 */
import type { Message } from "../../chat/engine.ts";

/** Tokens that a template adds to each message: marks, role and line ends. Measured: 5 to 10. */
export const messageTokens = { usual: 8, max: 16 };

interface PromptSize {
  bytes: number;
  messages: number;
}

interface PromptEstimate {
  /** At least the tokens of each earlier prompt of this size. */
  atMost: number;
  /** Charged if the upstream reports no count. */
  likely: number;
}

interface Sample extends PromptSize {
  tokens: number;
}

/** Initial rates: at most one token per two bytes, and likely one per four bytes. */
const first = { rate: 0.5, share: 0.5, extraTokens: 32 };

const samplesMax = 64;

/** Tokens of shorter prompts come mostly from the template. */
const rateBytesMin = 512;

/** Allowance for a text that is denser than all before it. */
const margin = 1.1;

export class PromptEstimator {
  readonly #samples: Sample[] = [];
  #next = 0;
  #rate = first.rate;
  #extraTokens = first.extraTokens;
  #share = first.share;

  estimate(size: PromptSize): PromptEstimate {
    const atMost = this.#atMost(size);
    return { atMost, likely: Math.max(1, Math.min(atMost, Math.round(atMost * this.#share))) };
  }

  /**
   * Records the actual tokens of a prompt, at least 1. Runs for every answer, so it allocates no
   * lists.
   */
  learn(size: PromptSize, tokens: number): void {
    this.#samples[this.#next] = { ...size, tokens };
    this.#next = (this.#next + 1) % samplesMax;
    let densest = 0;
    for (const sample of this.#samples) {
      if (sample.bytes >= rateBytesMin) densest = Math.max(densest, sample.tokens / sample.bytes);
    }
    // No tokenizer needs more than a token for a byte.
    this.#rate = densest === 0 ? first.rate : Math.min(1, margin * densest);
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
    return Math.ceil(bytes * this.#rate) + messages * messageTokens.usual + this.#extraTokens;
  }
}

export function sizeOf(messages: readonly Message[]): PromptSize {
  let bytes = 0;
  for (const { content } of messages) bytes += Buffer.byteLength(content);
  return { bytes, messages: messages.length };
}
