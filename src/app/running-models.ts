/**
 * The models of a running service with their engines: loaded at the start, replaced by a reload,
 * closed at the end.
 *
 * A reload has two steps. `prepare` starts the engines of new and changed models, and closes them
 * again if one of them cannot start. `replace` cannot fail: it gives new requests the new models
 * in one turn of the event loop. The engine of a removed or changed model is closed when its last
 * request has ended.
 */
import { Catalog } from "../chat/catalog.ts";
import type { Engine } from "../chat/engine.ts";
import { EngineSlot } from "../chat/engine-slot.ts";
import { keepsEngine } from "../config/changes.ts";
import type { ModelConfig } from "../config/model.ts";
import { invariant } from "../errors.ts";
import { catalogued, type EngineOptions, startEngine } from "./models.ts";

interface StartedModel {
  id: string;
  onMiniature: boolean;
}

/** The engines that `prepare` has started, by the ids of their models. */
type PreparedEngines = ReadonlyMap<string, Engine>;

type Options = Omit<EngineOptions, "signal" | "orMiniature">;

export class RunningModels {
  readonly catalog: Catalog;
  readonly #options: Options;
  #running: ReadonlyMap<string, { model: ModelConfig; engine: Engine }>;
  /** Engines of earlier models that still answer requests. */
  readonly #retired = new Set<Engine>();
  /** Filled by `start`. */
  readonly #slots: ReadonlyMap<string, EngineSlot>;

  constructor(models: readonly ModelConfig[], options: Options) {
    this.#options = options;
    this.#slots = new Map(models.map(({ id, contextWindow }) => [id, new EngineSlot(contextWindow)]));
    this.#running = new Map(models.map((model) => [model.id, { model, engine: this.#slotOf(model.id) }]));
    this.catalog = new Catalog(this.#models());
  }

  /** Loads the models one after another, because each uses the whole machine. */
  async start(signal: AbortSignal): Promise<StartedModel[]> {
    const models = [...this.#running.values()].map(({ model }) => model);
    const started = new Map<string, StartedModel>();
    const start = async (model: ModelConfig) => {
      const { engine, onMiniature } = await startEngine(model, {
        ...this.#options,
        orMiniature: true,
        signal,
      });
      await this.#slotOf(model.id).fill(engine);
      started.set(model.id, { id: model.id, onMiniature });
      signal.throwIfAborted();
    };
    // Upstreams have nothing to load, so they answer while other models are downloaded.
    for (const model of models) if (model.engine === "upstream") await start(model);
    for (const model of models) if (model.engine === "llama") await start(model);
    return models.flatMap(({ id }) => started.get(id) ?? []);
  }

  /** Starts the engines that the next models need. If one of them cannot start, none is left. */
  async prepare(next: readonly ModelConfig[], signal: AbortSignal): Promise<PreparedEngines> {
    const engines = new Map<string, Engine>();
    return await this.orClose(engines, async () => {
      for (const model of next) {
        const before = this.#running.get(model.id);
        if (before !== undefined && keepsEngine(before.model, model)) continue;
        const { engine } = await startEngine(model, { ...this.#options, orMiniature: false, signal });
        engines.set(model.id, engine);
        signal.throwIfAborted();
      }
      return engines;
    });
  }

  /** Closes prepared engines if the next step of a reload fails. */
  async orClose<T>(engines: PreparedEngines, step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (error) {
      await Promise.all([...engines.values()].map((engine) => engine.close()));
      throw error;
    }
  }

  /** Offers the next models. Engines that no model uses any more are closed when they are idle. */
  replace(next: readonly ModelConfig[], engines: PreparedEngines): void {
    const before = this.#running;
    this.#running = new Map(
      next.map((model) => {
        const engine = engines.get(model.id) ?? before.get(model.id)?.engine;
        invariant(engine !== undefined, "a model has a new engine or its earlier one");
        return [model.id, { model, engine }];
      }),
    );
    this.catalog.replace(this.#models());
    for (const { engine } of this.#running.values()) engine.reloaded?.();
    for (const { model, engine } of before.values()) {
      if (this.#running.get(model.id)?.engine !== engine) this.#retire(model, engine);
    }
  }

  /** Closes all engines at once. */
  async close(): Promise<void> {
    const engines = [...this.#running.values()].map(({ engine }) => engine);
    await Promise.all([...engines, ...this.#retired].map((engine) => engine.close()));
  }

  #retire({ id: model }: ModelConfig, engine: Engine): void {
    const { logger } = this.#options;
    this.#retired.add(engine);
    void this.catalog
      .unused(engine)
      .then(() => engine.close())
      .then(() =>
        logger.info({ model }, "the earlier engine of the model has no requests any more and is closed"),
      )
      .catch((err: unknown) =>
        logger.error({ model, err }, "the earlier engine of the model could not be closed"),
      )
      .finally(() => this.#retired.delete(engine));
  }

  #models() {
    return [...this.#running.values()].map(({ model, engine }) => catalogued(model, engine));
  }

  #slotOf(id: string): EngineSlot {
    const slot = this.#slots.get(id);
    invariant(slot !== undefined, "each model of the start has a slot");
    return slot;
  }
}
