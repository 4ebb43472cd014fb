/**
 * Engine that forwards requests to servers with an OpenAI-compatible API.
 *
 * Guarantees:
 * - callers never see an upstream's key. They see its messages only if it rejects their request
 *   and `passErrors` is set, cleaned like those of the log (failure.ts).
 * - each server gets at most `parallel` requests at once (server-pool.ts).
 * - no request of the service itself costs a token: a circuit breaker learns from real requests
 *   (server.ts), and probes list the models (probe.ts).
 * - a request is sent to another server at most once, and only before its answer starts
 *   (generation.ts).
 *
 * If an upstream reports no usage, tokens are counted here (answer.ts, prompt-counter.ts).
 */
import type {
  Engine,
  EngineLoad,
  EngineServer,
  EngineState,
  GenerateOptions,
  Generation,
  PreparedPrompt,
  Prompt,
  Reasoning,
} from "../../chat/engine.ts";
import { given } from "../../objects.ts";
import { alternativesOf } from "../sampling-limits.ts";
import type { ThinkTags } from "../text/thinking-filter.ts";
import { addedFields } from "./added-fields.ts";
import { AnswerText } from "./answer-text.ts";
import {
  type Dialect,
  type DialectName,
  dialectOf,
  reasoningFields,
  templateTokensDefault,
} from "./dialects.ts";
import { type CompletedAnswer, UpstreamGeneration } from "./generation.ts";
import { bytesOf, type PreparedConversation, PromptCounter } from "./prompt-counter.ts";
import type { UpstreamServer } from "./server.ts";
import { ServerPool, type ServerPoolOptions } from "./server-pool.ts";

/** All servers of `urls` offer the same model. */
export interface UpstreamOptions extends ServerPoolOptions {
  /** Name of the model at the upstream. */
  model: string;
  dialect: DialectName;
  contextWindow: number;
  /** Null if the model does not think. Requests then have no fields for thinking. */
  reasoning: UpstreamReasoning | null;
  /** Most tokens that the chat template adds to a prompt as a whole. Default: 512. */
  templateTokens?: number;
  /** Send the stop sequences. Default: as the dialect requires. */
  sendStop?: boolean;
  /** For tests: time to wait for the usage after the end of an answer. Default: 5 s. */
  finishMs?: number;
}

interface UpstreamReasoning {
  /** Name of a field besides `reasoning_content` and `reasoning`. */
  field: string | null;
  /** Tags around the thinking, if it is part of the text. */
  tags: ThinkTags | null;
  /** The template opens the thinking, so answers start inside it. */
  opened: boolean;
  /** The upstream reports nothing of the thinking before the end. */
  hidden: boolean;
}

const knownReasoningFields = ["reasoning_content", "reasoning", "thinking"];
/**
 * Surplus tokens that count as hidden thinking. A smaller surplus may be a difference in counting,
 * such as the end-of-turn token.
 */
const surpriseMin = 32;

export class UpstreamEngine implements Engine {
  readonly contextWindow: number;
  readonly #options: UpstreamOptions;
  readonly #dialect: Dialect;
  readonly #pool: ServerPool;
  readonly #prompts: PromptCounter;
  readonly #reasoningFields: readonly string[];
  #reportsUsageLate: boolean;

  constructor(options: UpstreamOptions) {
    const { log, reasoning } = options;
    this.#options = options;
    this.contextWindow = options.contextWindow;
    this.#reportsUsageLate = reasoning?.hidden ?? false;
    this.#dialect = dialectOf(options.dialect);
    this.#pool = new ServerPool(options);
    const { model, contextWindow, templateTokens = templateTokensDefault } = options;
    this.#prompts = new PromptCounter({
      pool: this.#pool,
      kind: this.#dialect.tokenizer,
      model,
      contextWindow,
      templateTokens,
      log,
    });
    const named = reasoning?.field ?? null;
    this.#reasoningFields = named === null ? knownReasoningFields : [named, ...knownReasoningFields];
  }

  /** True if configured so, or if an answer showed it. */
  get reportsUsageLate(): boolean {
    return this.#reportsUsageLate;
  }

  get state(): EngineState {
    return this.#pool.state;
  }

  load(): EngineLoad {
    return this.#pool.load();
  }

  servers(): EngineServer[] {
    return this.#pool.servers();
  }

  reloaded(): void {
    this.#pool.reloaded();
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    this.#pool.assertReady(prompt.accountId);
    const template = reasoningFields(this.#dialect, this.#reasoningOf(prompt));
    const counted = await this.#prompts.count({ messages: prompt.messages, template }, signal);
    return {
      promptTokens: counted.tokens,
      ...given({ bound: counted.bound }),
      generate: (options) => this.#generate(prompt, counted, options),
    };
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  #generate(prompt: Prompt, counted: PreparedConversation, options: GenerateOptions): Generation {
    const { accountId } = prompt;
    this.#pool.assertReady(accountId);
    const { contextWindow, model, reasoning, sendStop = this.#dialect.sendsStop, finishMs } = this.#options;
    const { stop } = options.sampling;
    const generation = new UpstreamGeneration(
      {
        dialect: this.#dialect,
        request: {
          accountId,
          model,
          sampling: options.sampling,
          user: prompt.user ?? null,
          reasoning: this.#reasoningOf(prompt),
          sendStop,
        },
        added: addedFields(this.#dialect, {
          isLimited: options.isLimited ?? true,
          needsLimit: reasoning?.hidden ?? false,
        }),
        forms: counted.forms,
        prompt: {
          tokens: counted.tokens,
          isCounted: counted.bound === null,
          bytes: bytesOf(counted.forms.current),
          possibleTokens: Math.max(contextWindow, counted.bound?.tokens ?? 0),
        },
        options,
        rules: { reasoningFields: this.#reasoningFields, topLogprobs: alternativesOf(options.sampling) },
        text: new AnswerText({ stop, tags: reasoning?.tags ?? null, opened: reasoning?.opened ?? false }),
        contextWindow,
        finishMs,
        textMs: this.#options.times.headersMs,
        onCompleted: (server, answer) => this.#learn(server, counted, answer),
      },
      this.#pool,
    );
    this.#pool.join(generation);
    return generation;
  }

  /** Returns null for models that are not configured to think. */
  #reasoningOf({ reasoning }: Prompt): Reasoning | null {
    return this.#options.reasoning === null ? null : reasoning;
  }

  #learn(server: UpstreamServer, counted: PreparedConversation, answer: CompletedAnswer): void {
    const { usage, promptTokens, paidTokens } = answer;
    const surprise = usage.completionTokens - paidTokens;
    if (surprise >= surpriseMin && !this.#reportsUsageLate) {
      this.#reportsUsageLate = true;
      this.#options.log.warn(
        { upstream: server.name, tokens: surprise },
        "the upstream reported more tokens at the end than were paid for; answers are now held in full; set reasoning.hidden: true to do so from the start",
      );
    }
    if (promptTokens !== null) this.#prompts.compare(counted, promptTokens);
    if (usage.absurd === true) {
      this.#options.log.warn(
        { upstream: server.name },
        "an upstream reported an impossible usage; the request is charged by our own count",
      );
    }
  }
}
