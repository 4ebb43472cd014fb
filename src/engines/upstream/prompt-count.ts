/**
 * Counts the tokens of a prompt before anything is held or sent: with the model's tokenizer if one
 * is configured, or by the server if it can, otherwise by arithmetic.
 *
 * Guarantees: counting never fails. A hold for `max` tokens covers the prompt. If an upstream
 * reports more than a count, later prompts are held for the arithmetic bound for a while.
 */
import type { Message } from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import { ConversationForms } from "../text/message-normalisation.ts";
import type { Dialect, Fields } from "./dialects.ts";
import type { TokenizedPrompt } from "./loaded-tokenizer.ts";
import { messageTokens, promptBound } from "./prompt-bound.ts";
import { PromptEstimator, sizeOf } from "./prompt-estimate.ts";
import type { ServerPool } from "./server-pool.ts";
import { ServerTokenizer } from "./server-tokenizer.ts";
import type { Tokenizer } from "./tokenizer.ts";

export interface CountedPrompt {
  /** The conversation in the first form that the chat template accepts, as far as is known. */
  forms: ConversationForms;
  tokens: PromptTokens;
}

interface PromptTokens {
  /** Most tokens that are charged. The hold pays for them. */
  max: number;
  /** Rarely too low. Compared with the context window and the limits per minute. */
  expected: number;
  /** Charged if the upstream reports no count. */
  likely: number;
  isCounted: boolean;
}

interface PromptCounterOptions {
  pool: ServerPool;
  kind: Dialect["tokenizer"];
  /** Name of the model at the upstream. */
  model: string;
  contextWindow: number;
  /** Most tokens that the chat template adds to a prompt, besides those around each message. */
  templateTokens: number;
  /** Counts in place of the server, or null. */
  tokenizer: Tokenizer | null;
  log: EngineLog;
}

interface PromptToCount {
  accountId: string;
  messages: readonly Message[];
  /** Fields of the chat request that change the template's output. */
  template: Fields;
}

/**
 * Tokens that a server's rendering may have more than ours: another date, or a second mark of the
 * beginning.
 */
const renderedMarginTokens = 16;
/** Usual marks around a message. */
const usualMessageTokens = 8;
/** Pause in which counts are not trusted. */
const distrustMs = 600_000;

export class PromptCounter {
  readonly #options: PromptCounterOptions;
  readonly #server: ServerTokenizer;
  readonly #estimator = new PromptEstimator();
  #distrustedUntilMs = 0;

  constructor(options: PromptCounterOptions) {
    this.#options = options;
    this.#server = new ServerTokenizer((upstream, reason) => {
      options.log.warn(
        { upstream, reason },
        "the upstream's tokenizer does not count; for a while, prompts are estimated and held for one token per byte",
      );
    });
  }

  async count(prompt: PromptToCount, signal: AbortSignal): Promise<CountedPrompt> {
    const { tokenizer } = this.#options;
    const counted =
      tokenizer === null
        ? await this.#countAtServer(prompt, signal)
        : await this.#countHere(tokenizer, prompt, signal);
    signal.throwIfAborted();
    if (counted !== null) return counted;
    const { messages } = prompt;
    // If no template accepted a form, the model may still accept one.
    const forms = new ConversationForms(messages);
    const { atMost, likely } = this.#estimator.estimate(sizeOf(forms.current));
    const max = this.#bound(messages);
    const tokens = { max, expected: atMost, likely: Math.min(max, likely), isCounted: false };
    return { forms, tokens };
  }

  /** Records the tokens of a prompt that the upstream reports. */
  learn({ forms, tokens }: CountedPrompt, promptTokens: number, upstream: string): void {
    this.#estimator.learn(sizeOf(forms.current), promptTokens);
    if (!tokens.isCounted || promptTokens <= tokens.max) return;
    if (performance.now() >= this.#distrustedUntilMs) {
      this.#options.log.warn(
        { upstream, countedTokens: tokens.likely, reportedTokens: promptTokens },
        "the upstream reported more prompt tokens than were counted; for ten minutes, prompts are held for one token per byte",
      );
    }
    this.#distrustedUntilMs = performance.now() + distrustMs;
  }

  async #countHere(
    tokenizer: Tokenizer,
    { accountId, messages, template }: PromptToCount,
    signal: AbortSignal,
  ): Promise<CountedPrompt | null> {
    const counted = await tokenizer.count({ accountId, messages, fields: template }, signal);
    if (counted === null) return null;
    const forms = new ConversationForms(messages);
    for (let step = 0; step < counted.steps; step += 1) forms.normaliseFurther();
    return { forms, tokens: this.#tokenized(counted, messages) };
  }

  #tokenized(
    { tokens, specialTokens, isRendered }: TokenizedPrompt,
    messages: readonly Message[],
  ): PromptTokens {
    if (isRendered) return this.#counted(tokens, tokens + specialTokens + renderedMarginTokens, messages);
    const around = messageTokens * messages.length + this.#options.templateTokens;
    const usual = tokens + usualMessageTokens * messages.length;
    return this.#counted(usual, tokens + specialTokens + around, messages);
  }

  async #countAtServer(
    { messages, template }: PromptToCount,
    signal: AbortSignal,
  ): Promise<CountedPrompt | null> {
    const { pool, kind, model } = this.#options;
    const server = kind === null ? null : pool.toAsk((each) => !this.#server.isPaused(each));
    if (kind === null || server === null) return null;
    const forms = new ConversationForms(messages);
    const count = await this.#server.count(server, { kind, model, forms, template }, signal);
    return count === null ? null : { forms, tokens: this.#counted(count, count, messages) };
  }

  #counted(count: number, countMax: number, messages: readonly Message[]): PromptTokens {
    const isTrusted = performance.now() >= this.#distrustedUntilMs;
    const max = isTrusted ? countMax : Math.max(countMax, this.#bound(messages));
    return { max, expected: count, likely: count, isCounted: true };
  }

  /** A report of more tokens than the window is impossible, and is not charged. */
  #bound(messages: readonly Message[]): number {
    const { contextWindow, templateTokens } = this.#options;
    return Math.min(contextWindow, promptBound(messages, templateTokens));
  }
}
