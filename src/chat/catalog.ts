/**
 * The models of this service: their names, engines and prices, and the chat requests that they
 * take. The slot of a model stands for an engine that starts later.
 */

import { covers } from "../ledger/caps.ts";
import type { Price } from "../ledger/pricing.ts";
import { given } from "../objects.ts";
import type { Engine, Message, Reasoning, Sampling } from "./engine.ts";

export interface Model {
  /** The name that clients use. */
  id: string;
  engine: Engine;
  price: Price;
  /** Limit of completion tokens, thinking included. Null: as many as the window leaves. */
  outputTokensMax: number | null;
  /** Values for requests that do not set them. */
  defaults?: RequestDefaults;
  /** The operator's system message for requests without one. Callers do not see it. */
  systemPrompt?: string | null;
  /** Seconds since the epoch, or 0 if unknown. Shown in the list of models. */
  created: number;
}

/** A model that a request uses until it is disposed. */
interface ModelUse extends Disposable {
  readonly model: Model;
}

export class Catalog {
  #models: ReadonlyMap<string, Model>;
  /** Number of requests that use each engine. No number is zero. */
  readonly #users = new Map<Engine, number>();
  /** Engines whose last request is awaited. */
  readonly #unused = new Map<Engine, PromiseWithResolvers<void>>();

  constructor(models: readonly Model[]) {
    this.#models = new Map(models.map((model) => [model.id, model]));
  }

  /** Replaces all models. A request keeps the model, price and engine with which it began. */
  replace(models: readonly Model[]): void {
    this.#models = new Map(models.map((model) => [model.id, model]));
  }

  /** Returns a model for one request. Its engine is in use until the result is disposed. */
  use(id: string): ModelUse | undefined {
    const model = this.#models.get(id);
    if (model === undefined) return undefined;
    const { engine } = model;
    this.#users.set(engine, (this.#users.get(engine) ?? 0) + 1);
    return { model, [Symbol.dispose]: () => this.#release(engine) };
  }

  /** Resolves when no request uses the engine. For engines that no model has any more. */
  unused(engine: Engine): Promise<void> {
    if (!this.#users.has(engine)) return Promise.resolve();
    return this.#unused.getOrInsertComputed(engine, () => Promise.withResolvers<void>()).promise;
  }

  #release(engine: Engine): void {
    const left = (this.#users.get(engine) ?? 1) - 1;
    if (left > 0) {
      this.#users.set(engine, left);
      return;
    }
    this.#users.delete(engine);
    this.#unused.get(engine)?.resolve();
    this.#unused.delete(engine);
  }

  /** In the order of the configuration. */
  all(): Model[] {
    return [...this.#models.values()];
  }

  ids(): string[] {
    return this.all().map(({ id }) => id);
  }

  /** Returns the models that a key and its plan allow. */
  usable(key: { models: readonly string[] }, plan: { models: readonly string[] }): Model[] {
    return this.all().filter(({ id }) => allows(key.models, id) && allows(plan.models, id));
  }
}

/** Returns the limit of completion tokens, from the model's own limit and its context window. */
export function longestAnswer(contextWindow: number, outputTokensMax: number | null): number {
  return Math.min(contextWindow, outputTokensMax ?? contextWindow);
}

/** Whether a list of patterns from a plan or a key (`*`, or ids) names the model. */
export function allows(patterns: readonly string[], modelId: string): boolean {
  return covers({ models: patterns }, modelId);
}

/** A chat request after parsing and validation. */
export interface ChatRequest {
  model: string;
  messages: readonly Message[];
  /**
   * The smaller of `max_tokens` and `max_completion_tokens`. Absent: the model's default, or as
   * many as the window leaves.
   */
  maxTokens?: number;
  sampling: Sampling;
  reasoning: Reasoning;
  user?: string;
  /** The answer is delivered while it is generated. Otherwise it is delivered at its end. */
  stream: boolean;
}

/** Values for requests that do not set them. */
export interface RequestDefaults {
  temperature?: number;
  topP?: number;
  topK?: number;
  frequencyPenalty?: number;
  maxTokens?: number;
}

/**
 * Returns the request with the model's defaults and system prompt filled in. The request's own
 * values and system messages always win.
 */
export function withDefaults(
  request: ChatRequest,
  { defaults = {}, systemPrompt = null }: Pick<Model, "defaults" | "systemPrompt">,
): ChatRequest {
  const { maxTokens, ...sampling } = defaults;
  const isInstructed = request.messages.some(({ role }) => role === "system" || role === "developer");
  const added: Message[] =
    systemPrompt === null || isInstructed ? [] : [{ role: "system", content: systemPrompt }];
  return {
    ...given({ maxTokens }),
    ...request,
    messages: [...added, ...request.messages],
    sampling: { ...sampling, ...request.sampling },
  };
}
