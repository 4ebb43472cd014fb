/**
 * The place of an engine that is not there yet: its model file is being fetched or loaded while the service already
 * listens. Refuses with "unavailable" until it is filled, then stands aside.
 */
import {
  type Engine,
  EngineError,
  type EngineLoad,
  type EngineState,
  type PreparedPrompt,
  type Prompt,
} from "./engine.ts";

/** A model file that is being fetched takes minutes, one that is being loaded seconds. */
const retryAfterSeconds = 5;

export class EngineSlot implements Engine {
  readonly #contextWindow: number;
  #engine: Engine | null = null;
  #state: "starting" | "closed" = "starting";

  /** `contextWindow` is the configured one; the engine's own counts once there is one. */
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

  /** An engine that arrives after `close` is closed. */
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

  async close(): Promise<void> {
    this.#state = "closed";
    await this.#engine?.close();
  }
}
