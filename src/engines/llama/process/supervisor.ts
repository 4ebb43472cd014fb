/**
 * Keeps the engine's child process alive.
 *
 * Guarantees: a child that ends is started again with back-off. After `restartWaitMs` without a
 * child the state is "unavailable" until one is ready. `onLost` is called once for each child that
 * was ready and is not any more. A child that hangs is lost at once: its end is not awaited,
 * because a process that hangs in a driver may take long to end.
 */
import type { EngineState } from "../../../chat/engine.ts";
import type { LoadedModel, ToChild } from "../protocol.ts";
import { EngineProcess, type EngineProcessOptions } from "./engine-process.ts";

interface SupervisorOptions extends Omit<EngineProcessOptions, "onLoaded" | "onEnd"> {
  restartWaitMs: number;
  /** Fields of log lines about a lost child. */
  status: () => object;
  onReady: (model: LoadedModel) => void;
  onLost: (reason: string) => void;
  /** Called when the state becomes "unavailable". */
  onUnavailable: () => void;
}

const restartDelayMinMs = 100;
const restartDelayMaxMs = 30_000;
/** After this lifetime of a child, the next one starts without a long delay. */
const healthyAfterMs = 60_000;

export class Supervisor {
  readonly #options: SupervisorOptions;
  #state: EngineState = "starting";
  #process: EngineProcess | undefined;
  #restartDelayMs = restartDelayMinMs;
  #restartTimer: NodeJS.Timeout | undefined;
  #unavailableTimer: NodeJS.Timeout | undefined;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  get state(): EngineState {
    return this.#state;
  }

  /** Process number of the child, if there is one. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Rejects also if Node throws, without memory or files for a process. */
  async launch(): Promise<LoadedModel> {
    const launchedMs = performance.now();
    const child = new EngineProcess({
      ...this.#options,
      onLoaded: (model) => {
        if (this.#state === "closed") return;
        clearTimeout(this.#unavailableTimer);
        this.#state = "ready";
        this.#options.onReady(model);
      },
      onEnd: (reason, wasLoaded) => {
        if (this.#process === child) this.#process = undefined;
        if (!wasLoaded || this.#state === "closed") return;
        this.#options.log.error({ reason, ...this.#options.status() }, "the engine's process has ended");
        this.#lose(reason);
        if (performance.now() - launchedMs >= healthyAfterMs) this.#restartDelayMs = restartDelayMinMs;
        this.#restartLater();
      },
    });
    this.#process = child;
    return await child.loaded;
  }

  send(message: ToChild): void {
    this.#process?.send(message);
  }

  /** `how` completes "the engine's process ... for too long". */
  killHung(how: string): void {
    const fields = { engine: this.pid, ...this.#options.status() };
    this.#options.log.error(fields, `the engine's process ${how} for too long and is killed`);
    this.#lose("it hung");
    void this.#process?.kill();
  }

  /** Kills the child. Resolves when it has ended. */
  async close(): Promise<void> {
    this.#state = "closed";
    clearTimeout(this.#restartTimer);
    clearTimeout(this.#unavailableTimer);
    await this.#process?.kill();
  }

  #lose(reason: string): void {
    if (this.#state !== "ready") return;
    this.#state = "starting";
    this.#options.onLost(reason);
    this.#unavailableTimer = setTimeout(() => {
      this.#state = "unavailable";
      this.#options.onUnavailable();
    }, this.#options.restartWaitMs);
  }

  #restartLater(): void {
    const { log } = this.#options;
    this.#restartTimer = setTimeout(() => {
      this.launch().then(
        () => log.info({ engine: this.pid }, "the engine's process has been started again"),
        (error: unknown) => {
          log.error({ error: String(error) }, "the engine's process could not be started again");
          if (this.#state !== "closed") this.#restartLater();
        },
      );
    }, this.#restartDelayMs);
    this.#restartDelayMs = Math.min(2 * this.#restartDelayMs, restartDelayMaxMs);
  }
}
