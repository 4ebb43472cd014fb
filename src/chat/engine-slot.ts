/**
 * Placeholder for an engine that starts later, while its model file is fetched or loaded and the
 * service already listens. It refuses requests with "unavailable" until it is filled, and then
 * forwards them.
 */
import {
  type Engine,
  EngineError,
  type EngineLoad,
  type EngineServer,
  type EngineState,
  type PreparedPrompt,
  type Prompt,
} from "./engine.ts";

/** Fetching a model file takes minutes, loading it takes seconds. */
const retryAfterSeconds = 5;

export class EngineSlot implements Engine {
  readonly #contextWindow: number;
  #engine: Engine | null = null;
  #state: "starting" | "closed" = "starting";

  /** `contextWindow` is the configured value. The engine's own value replaces it. */
  constructor(contextWindow: number) {
    this.#contextWindow = contextWindow;
  }

  get contextWindow(): number {
    return this.#engine?.contextWindow ?? this.#contextWindow;
  }

  get reportsUsageLate(): boolean {
    return this.#engine?.reportsUsageLate ?? false;
  }

  get state(): EngineState {
    return this.#engine?.state ?? this.#state;
  }

  get warnings(): readonly string[] {
    return this.#engine?.warnings ?? [];
  }

  /** Fills the slot. An engine that arrives after `close` is closed. */
  async fill(engine: Engine): Promise<void> {
    if (this.#state === "closed") await engine.close();
    else this.#engine = engine;
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    if (this.#engine !== null) return this.#engine.prepare(prompt, signal);
    throw new EngineError("unavailable", `the engine is ${this.#state}`, { retryAfterSeconds });
  }

  load(): EngineLoad | null {
    return this.#engine?.load?.() ?? null;
  }

  servers(): EngineServer[] | null {
    return this.#engine?.servers?.() ?? null;
  }

  reloaded(): void {
    this.#engine?.reloaded?.();
  }

  async close(): Promise<void> {
    this.#state = "closed";
    await this.#engine?.close();
  }
}
