/**
 * Counts the tokens of a prompt before anything is held or sent: by the server's tokenizer if it
 * has one, otherwise by arithmetic.
 *
 * Guarantees: counting never fails. A hold for `max` tokens covers the prompt. If an upstream
 * reports more than a count, later prompts are held for the arithmetic bound for a while.
 */
import type { Message } from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import { ConversationForms } from "../text/message-normalisation.ts";
import type { Dialect, Fields } from "./dialects.ts";
import { promptBound } from "./prompt-bound.ts";
import { PromptEstimator, sizeOf } from "./prompt-estimate.ts";
import type { ServerPool } from "./server-pool.ts";
import { ServerTokenizer } from "./server-tokenizer.ts";

export interface CountedPrompt {
  /** The conversation in the first form that the chat template accepts, as far as is known. */
  forms: ConversationForms;
  tokens: PromptTokens;
}

/** Three equal numbers if the prompt was counted. */
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
  log: EngineLog;
}

/** Pause in which counts are not trusted. */
const distrustMs = 600_000;

export class PromptCounter {
  readonly #options: PromptCounterOptions;
  readonly #tokenizer: ServerTokenizer;
  readonly #estimator = new PromptEstimator();
  #distrustedUntilMs = 0;

  constructor(options: PromptCounterOptions) {
    this.#options = options;
    this.#tokenizer = new ServerTokenizer((upstream, reason) => {
      options.log.warn(
        { upstream, reason },
        "the upstream's tokenizer does not count; for a while, prompts are estimated and held for one token per byte",
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
      if (count !== null) return { forms, tokens: this.#counted(count, messages) };
    }
    // If the tokenizer accepts no form, the model may still accept one.
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

  #counted(count: number, messages: readonly Message[]): PromptTokens {
    const isTrusted = performance.now() >= this.#distrustedUntilMs;
    const max = isTrusted ? count : Math.max(count, this.#bound(messages));
    return { max, expected: count, likely: count, isCounted: true };
  }

  /** A report of more tokens than the window is impossible, and is not charged. */
  #bound(messages: readonly Message[]): number {
    const { contextWindow, templateTokens } = this.#options;
    return Math.min(contextWindow, promptBound(messages, templateTokens));
  }
}
