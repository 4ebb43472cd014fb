/** The models that this service offers: what they are called, which engine runs them, what they cost. */
import type { Price } from "../ledger/pricing.ts";
import type { Engine } from "./engine.ts";
import type { RequestDefaults } from "./request.ts";

export interface Model {
  /** The name that clients use. */
  id: string;
  engine: Engine;
  price: Price;
  /** Completion tokens of one answer at most, thinking included; null: as many as the window leaves. */
  outputTokensMax: number | null;
  /** For requests that leave these values out. Absent: none. */
  defaults?: RequestDefaults;
  /** Seconds since the epoch, 0 where nobody knows; shown in the model list. */
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

/** Completion tokens that an answer can have at most, by the model's own limit and by the window that is there. */
export function longestAnswer(contextWindow: number, outputTokensMax: number | null): number {
  return Math.min(contextWindow, outputTokensMax ?? contextWindow);
}

/** Whether a list of patterns from a plan or a key (`*`, or ids) names the model. */
export function allows(patterns: readonly string[], modelId: string): boolean {
  return patterns.includes("*") || patterns.includes(modelId);
}
