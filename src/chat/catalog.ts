/** The models of this service: their names, engines and prices. */
import type { Price } from "../ledger/pricing.ts";
import type { Engine } from "./engine.ts";
import type { RequestDefaults } from "./request.ts";

export interface Model {
  /** The name that clients use. */
  id: string;
  engine: Engine;
  price: Price;
  /** Limit of completion tokens, thinking included. Null: as many as the window leaves. */
  outputTokensMax: number | null;
  /** Values for requests that do not set them. */
  defaults?: RequestDefaults;
  /** Seconds since the epoch, or 0 if unknown. Shown in the list of models. */
  created: number;
  ownedBy: string;
}

export class Catalog {
  readonly #models: ReadonlyMap<string, Model>;

  constructor(models: readonly Model[]) {
    this.#models = new Map(models.map((model) => [model.id, model]));
  }

  find(id: string): Model | undefined {
    return this.#models.get(id);
  }

  /** In the order of the configuration. */
  all(): Model[] {
    return [...this.#models.values()];
  }
}

/** Returns the limit of completion tokens, from the model's own limit and its context window. */
export function longestAnswer(contextWindow: number, outputTokensMax: number | null): number {
  return Math.min(contextWindow, outputTokensMax ?? contextWindow);
}

/** Whether a list of patterns from a plan or a key (`*`, or ids) names the model. */
export function allows(patterns: readonly string[], modelId: string): boolean {
  return patterns.includes("*") || patterns.includes(modelId);
}
