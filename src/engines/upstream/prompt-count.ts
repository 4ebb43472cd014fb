/**
 * Counts the tokens of a prompt, before anything is held or sent. The upstream's tokenizer counts
 * if the server has one. Otherwise the count is estimated from the bytes.
 *
 * Guarantees: counting never fails, and takes at most `askMs` for one prompt.
 */

import type { Message } from "../../chat/engine.ts";
import { messageOf } from "../../errors.ts";
import type { EngineLog } from "../engine-log.ts";
import { ConversationForms } from "../text/message-normalisation.ts";
import { fieldOf } from "./chunk.ts";
import type { Dialect, Fields } from "./dialects.ts";
import type { Body, UpstreamServer } from "./server.ts";
import type { ServerPool } from "./server-pool.ts";

export interface CountedPrompt {
  /** The conversation in the first form that the chat template accepts, as far as is known. */
  forms: ConversationForms;
  estimate: PromptEstimate;
}

interface PromptCounterOptions {
  pool: ServerPool;
  kind: Dialect["tokenizer"];
  /** Name of the model at the upstream. */
  model: string;
  log: EngineLog;
}

export class PromptCounter {
  readonly #options: PromptCounterOptions;
  readonly #tokenizer: UpstreamTokenizer;
  readonly #estimator = new PromptEstimator();

  constructor(options: PromptCounterOptions) {
    this.#options = options;
    this.#tokenizer = new UpstreamTokenizer((upstream, reason) => {
      options.log.warn(
        { upstream, reason },
        "the upstream's tokenizer does not count; prompts are estimated for a while",
      );
    });
  }

  /** `template`: fields of the chat request that change the template's output. */
  async count(messages: readonly Message[], template: Fields, signal: AbortSignal): Promise<CountedPrompt> {
    const { pool, kind, model } = this.#options;
    const server = kind === null ? null : pool.toAsk((each) => !this.#tokenizer.isPaused(each));
    if (kind !== null && server !== null) {
      const forms = new ConversationForms(messages);
      const count = await this.#tokenizer.count(server, { kind, model, forms, template }, signal);
      signal.throwIfAborted();
      if (count !== null) return { forms, estimate: { atMost: count, likely: count } };
    }
    // If the tokenizer accepts no form, the model may still accept one.
    const forms = new ConversationForms(messages);
    return { forms, estimate: this.#estimator.estimate(sizeOf(forms.current)) };
  }

  /** Records the actual tokens of a prompt in the form that was sent. */
  learn(forms: ConversationForms, tokens: number): void {
    this.#estimator.learn(sizeOf(forms.current), tokens);
  }
}

interface CountRequest {
  kind: "vllm" | "llama-server";
  /** Name of the model at the upstream. */
  model: string;
  /** Normalised further until the chat template accepts them. */
  forms: ConversationForms;
  /** Fields of the chat request that change the template's output. */
  template: Fields;
}

/** "refused": the chat template does not accept the messages in this form. */
type Count = number | "refused";

const askMs = 2000;
const pauseMs = 30_000;
const refusals: ReadonlySet<number> = new Set([400, 422, 500]);

/**
 * Asks the upstream's tokenizer: vLLM's `/tokenize`, or llama-server's `/apply-template` and
 * `/tokenize`. A server that does not answer is not asked for a while.
 */
class UpstreamTokenizer {
  readonly #pausedUntilMs = new WeakMap<UpstreamServer, number>();
  readonly #warn: (upstream: string, reason: string) => void;

  constructor(warn: (upstream: string, reason: string) => void) {
    this.#warn = warn;
  }

  /** Returns whether a server is not asked now, because it recently failed to count. */
  isPaused(server: UpstreamServer): boolean {
    return performance.now() < (this.#pausedUntilMs.get(server) ?? 0);
  }

  /** Returns the number of tokens, or null if the server did not count. */
  async count(server: UpstreamServer, request: CountRequest, signal: AbortSignal): Promise<number | null> {
    if (this.isPaused(server)) return null;
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(askMs)]);
    try {
      do {
        const count =
          request.kind === "vllm"
            ? await countAtVllm(server, request, bounded)
            : await countAtLlamaServer(server, request, bounded);
        if (count !== "refused") return count;
      } while (request.forms.normaliseFurther());
      return null;
    } catch (error) {
      if (signal.aborted) return null;
      this.#pausedUntilMs.set(server, performance.now() + pauseMs);
      this.#warn(server.name, messageOf(error));
      return null;
    }
  }
}

async function countAtVllm(
  server: UpstreamServer,
  { model, forms, template }: CountRequest,
  signal: AbortSignal,
): Promise<Count> {
  const body = () => ({
    ...template,
    model,
    messages: plain(forms.current),
    add_generation_prompt: true,
  });
  const answer = await server.ask("/tokenize", bodyOf(forms.characters, body), signal);
  if (refusals.has(answer.status)) return "refused";
  const count = fieldOf(jsonOf(answer), "count");
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 1) throw notUnderstood();
  return count;
}

async function countAtLlamaServer(
  server: UpstreamServer,
  { forms, template }: CountRequest,
  signal: AbortSignal,
): Promise<Count> {
  const body = () => ({ ...template, messages: plain(forms.current) });
  const filled = await server.ask("/apply-template", bodyOf(forms.characters, body), signal);
  if (refusals.has(filled.status)) return "refused";
  const prompt = fieldOf(jsonOf(filled), "prompt");
  if (typeof prompt !== "string") throw notUnderstood();
  const text = () => ({ content: prompt, add_special: true, parse_special: true });
  const answer = await server.ask("/tokenize", bodyOf(prompt.length, text), signal);
  const tokens = fieldOf(jsonOf(answer), "tokens");
  if (!Array.isArray(tokens) || tokens.length === 0) throw notUnderstood();
  return tokens.length;
}

function bodyOf(characters: number, fields: () => object): Body {
  return { characters, text: () => JSON.stringify(fields()) };
}

function plain(messages: readonly Message[]): Message[] {
  return messages.map(({ role, content }) => ({ role, content }));
}

function jsonOf({ status, text }: { status: number; text: string }): unknown {
  if (status !== 200) throw new Error(`it answered ${status}`);
  try {
    return JSON.parse(text);
  } catch {
    throw notUnderstood();
  }
}

function notUnderstood(): Error {
  return new Error("its answer was not understood");
}

interface PromptSize {
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

/** Initial rates: at most one token per two bytes, and likely one per four bytes. */
const firstRate = 0.5;
const firstShare = 0.5;
const firstExtraTokens = 32;
/** Tokens that a template adds to each message: markers, the role and line ends. */
const messageTokens = 8;
const samplesMax = 64;
/** Tokens of shorter prompts come mostly from the template. */
const rateBytesMin = 512;
/** Allowance for a text that is denser than all before it. */
const margin = 1.1;

/**
 * Estimates the tokens of a prompt from its bytes, for upstreams without a tokenizer API.
 *
 * Pure. Learns from the usage of the last answers. The highest rate of tokens per byte is used for
 * all prompts, and the largest remainder (for example a system prompt of the template) is added.
 * The upper estimate is therefore at least as high as each of these prompts, and the hold covers
 * the prompt. The likely estimate is charged if the upstream reports no usage.
 */
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
