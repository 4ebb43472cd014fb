/**
 * The engine that generates nothing itself: it asks servers with an OpenAI-compatible interface.
 *
 * Guarantees:
 * - an upstream's words, names and keys go to the operator's log at most, cleaned (failure.ts), never to a caller;
 * - each server gets no more requests at once than `parallel`; others wait in a bounded line, and its last places are for
 *   accounts that run nothing (place-line.ts);
 * - of the servers that seem to be alive the least busy one is asked; one that fails again and again is left alone for
 *   a while (circuit.ts). No request is ever made on the service's own account;
 * - a request is sent to another server at most once, and only while nothing of its answer has come (generation.ts).
 * What is counted and charged where an upstream says nothing sensible: token-count.ts and estimate.ts.
 */
import type {
  Engine,
  EngineLoad,
  EngineState,
  GenerateOptions,
  Generation,
  PreparedPrompt,
  Prompt,
  Reasoning,
} from "../../chat/engine.ts";
import type { ThinkTags } from "../text/thinking.ts";
import { AnswerText } from "./answer-text.ts";
import { ConversationForms } from "./conversation-forms.ts";
import { type Dialect, type DialectName, dialectOf, reasoningFields } from "./dialects.ts";
import { type PromptEstimate, PromptEstimator, sizeOf } from "./estimate.ts";
import { type CompletedAnswer, UpstreamGeneration, type UpstreamJob } from "./generation.ts";
import type { UpstreamServer } from "./server.ts";
import { ServerPool, type ServerPoolOptions } from "./server-pool.ts";
import { UpstreamTokenizer } from "./tokenizer.ts";

/** All servers of `urls` offer the same model. */
export interface UpstreamOptions extends ServerPoolOptions {
  /** Its name at the upstream. */
  model: string;
  dialect: DialectName;
  contextWindow: number;
  /** Null: the model is not said to think, and is not asked how much it should. */
  reasoning: UpstreamReasoning | null;
  /** Stop sequences go along; absent: as suits the dialect. */
  sendStop?: boolean;
  /** How long to wait for the usage after the end of an answer; default 5 s. */
  finishMs?: number;
}

export interface UpstreamReasoning {
  /** Beside `reasoning_content` and `reasoning`, which are never taken for text. */
  field: string | null;
  /** Where the thinking is part of the text. */
  tags: ThinkTags | null;
  /** The template opens the thinking, so that answers begin inside. */
  opened: boolean;
  /** Nothing is told of the thinking before the end. */
  hidden: boolean;
}

const knownReasoningFields = ["reasoning_content", "reasoning"];
/** So many tokens beyond what was paid for are no slip in counting: a server counts the token that ends a turn, say. */
const surpriseMin = 32;

export class UpstreamEngine implements Engine {
  readonly contextWindow: number;
  readonly #options: UpstreamOptions;
  readonly #dialect: Dialect;
  readonly #pool: ServerPool;
  readonly #estimator = new PromptEstimator();
  readonly #tokenizer: UpstreamTokenizer;
  readonly #reasoningFields: readonly string[];
  #reportsUsageLate: boolean;

  constructor(options: UpstreamOptions) {
    const { log, reasoning } = options;
    this.#options = options;
    this.contextWindow = options.contextWindow;
    this.#reportsUsageLate = reasoning?.hidden ?? false;
    this.#dialect = dialectOf(options.dialect);
    this.#pool = new ServerPool(options);
    this.#tokenizer = new UpstreamTokenizer((upstream, reason) => {
      log.warn(
        { upstream, reason },
        "the upstream's tokenizer gives no counts; prompts are estimated for a while",
      );
    });
    const named = reasoning?.field ?? null;
    this.#reasoningFields = named === null ? knownReasoningFields : [named, ...knownReasoningFields];
  }

  /** As configured, or as it turned out. */
  get reportsUsageLate(): boolean {
    return this.#reportsUsageLate;
  }

  get state(): EngineState {
    return this.#pool.state;
  }

  load(): EngineLoad {
    return this.#pool.load();
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    this.#pool.assertReady();
    const { forms, estimate } = await this.#count(prompt, signal);
    return {
      promptTokens: estimate.atMost,
      generate: (options) => this.#generate(prompt, forms, estimate, options),
    };
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** With the conversation in the first form that the template takes, as far as that can be asked. */
  async #count(prompt: Prompt, signal: AbortSignal): Promise<CountedPrompt> {
    const { messages } = prompt;
    const kind = this.#dialect.tokenizer;
    const server = kind === null ? null : this.#pool.toAsk((each) => !this.#tokenizer.isPaused(each));
    if (kind !== null && server !== null) {
      const forms = new ConversationForms(messages);
      const template = reasoningFields(this.#dialect, this.#reasoningOf(prompt));
      const { model } = this.#options;
      const count = await this.#tokenizer.count(server, { kind, model, forms, template }, signal);
      signal.throwIfAborted();
      if (count !== null) return { forms, estimate: { atMost: count, likely: count } };
    }
    // A tokenizer that takes no form at all says nothing of what the model takes.
    const forms = new ConversationForms(messages);
    return { forms, estimate: this.#estimator.estimate(sizeOf(forms.current)) };
  }

  #generate(
    prompt: Prompt,
    forms: ConversationForms,
    estimate: PromptEstimate,
    options: GenerateOptions,
  ): Generation {
    this.#pool.assertReady();
    const { contextWindow, model, reasoning, sendStop = this.#dialect.sendsStop, finishMs } = this.#options;
    const { stop, topLogprobs } = options.sampling;
    const generation = new UpstreamGeneration(
      {
        accountId: prompt.accountId,
        dialect: this.#dialect,
        model,
        reasoning: this.#reasoningOf(prompt),
        sendStop,
        user: prompt.user ?? null,
        forms,
        prompt: estimate,
        options,
        rules: { reasoningFields: this.#reasoningFields, topLogprobs: topLogprobs ?? null },
        text: new AnswerText({ stop, tags: reasoning?.tags ?? null, opened: reasoning?.opened ?? false }),
        contextWindow,
        finishMs,
        onCompleted: (server, job, answer) => this.#learn(server, job, answer),
      },
      this.#pool,
    );
    this.#pool.join(generation);
    return generation;
  }

  /** A model that is not said to think is not asked how much it should. */
  #reasoningOf({ reasoning }: Prompt): Reasoning | null {
    return this.#options.reasoning === null ? null : reasoning;
  }

  #learn(server: UpstreamServer, { forms }: UpstreamJob, answer: CompletedAnswer): void {
    const { usage, promptTokens, paidTokens } = answer;
    const surprise = usage.completionTokens - paidTokens;
    if (surprise >= surpriseMin && !this.#reportsUsageLate) {
      this.#reportsUsageLate = true;
      this.#options.log.warn(
        { upstream: server.name, tokens: surprise },
        "an upstream made tokens that it told of only at the end, more than were paid for; from now on all that an answer may have is held for beforehand (for a model that thinks unseen, say so: reasoning: { hidden: true })",
      );
    }
    if (promptTokens !== null) this.#estimator.learn(sizeOf(forms.current), promptTokens);
    if (usage.absurd === true) {
      this.#options.log.warn(
        { upstream: server.name },
        "an upstream reported a usage that cannot be; the request is charged by our own count",
      );
    }
  }
}

interface CountedPrompt {
  forms: ConversationForms;
  estimate: PromptEstimate;
}
