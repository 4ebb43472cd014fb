/**
 * The embedded engine: llama.cpp in a child process, kept alive.
 *
 * Guarantees:
 * - the `parallel` places are shared among accounts: an account with more than its fair share gives places up within a few
 *   tokens, and the answers that had them are paused (places.ts); the waiting room is bounded (fair-queue.ts);
 * - readers that are behind hold nobody up: while generations wait for a place, those that have one are decoded on, and
 *   what is made waits here, beyond a window of each up to `aheadItemsMax` for all of them; while nobody waits they rest;
 * - when the child ends (killed, crashed, out of memory) the generations that it had begun, paused ones included, fail as
 *   "failed", with the usage received so far; those that wait go on waiting, and the child is started again with back-off.
 *   After `restartWaitMs` without a child, waiting and new ones fail as "unavailable";
 * - a child that hangs is noticed by the steps of its decode loop, which it reports one by one: where one is due and does
 *   not come for `stallMs`, the child is given up at once, and killed;
 * - no child outlives its parent, and no request is ever left without an end.
 * What is decoded and how is the child's business (decoder.ts).
 */
import { availableParallelism } from "node:os";
import {
  type Engine,
  EngineError,
  type EngineLoad,
  type EngineState,
  type GenerateOptions,
  type PreparedPrompt,
  type Prompt,
} from "../../../chat/engine.ts";
import { invariant, OperatorError } from "../../../errors.ts";
import { checkModel } from "../../../model-files/gguf.ts";
import type { EngineLog } from "../../engine-log.ts";
import type { ThinkTags } from "../../text/thinking.ts";
import type {
  FromChild,
  Gpu,
  JobProgress,
  LoadedModel,
  LoadOptions,
  PromptPlan,
  ToChild,
} from "../protocol.ts";
import { EngineProcess } from "./engine-process.ts";
import { LlamaGeneration } from "./generation.ts";
import { LoadWatch, weightsMsOf } from "./load-watch.ts";
import { Places, type PlacesLimits } from "./places.ts";
import { ProgressWatch } from "./progress-watch.ts";
import { PromptQueue } from "./prompt-queue.ts";

export interface LlamaOptions {
  modelPath: string;
  /** Most tokens of prompt and completion together; lowered to what the model was trained for. */
  contextWindow: number;
  /** Generations decoded together; each has a whole context window of memory. */
  parallel: number;
  /**
   * Memory for the states of paused generations. A generation that finds no room there has its text evaluated again when it
   * goes on. Default 1 GiB.
   */
  pausedBytesMax?: number;
  /** Generations that may wait; as many again from accounts that have none waiting. */
  queueMax: number;
  /** Runs and pauses of generations that share places. For tests. */
  placesLimits?: PlacesLimits;
  /** Absent: all cores while they are free, one less while something else wants one. More than there are is lowered to that. */
  threads?: number;
  /** Default "auto". */
  gpu?: Gpu;
  /** `tags` null: the model does not think. Absent: found in its chat template. */
  reasoning?: { tags: ThinkTags | null };
  /** Most time to read the weights; a child that takes longer is killed. Default: `weightsMsOf` the file. */
  loadMs?: number;
  /** How long requests wait for a child that is being started again. Default 15 s. */
  restartWaitMs?: number;
  /** A child that has something to do and gets nothing done for so long is killed. Default: `stallMsOf` its model. */
  stallMs?: number;
  /**
   * Texts of tokens, and their log-probabilities (each alternative is one more), that wait for readers that are behind, while
   * others wait for their places. Where so many do, the next such reader keeps its place until some are read. Default 524,288.
   */
  aheadItemsMax?: number;
  /** Called for each decode with the number of answers in it. Must be cheap and must not throw. */
  onDecode?: (answers: number) => void;
  /** The whole environment of the child process. */
  environment: Readonly<Record<string, string | undefined>>;
  log: EngineLog;
}

/** How long requests wait for a child that is being started again, unless an option says otherwise. */
const defaultRestartWaitMs = 15_000;
const restartDelayMinMs = 100;
const restartDelayMaxMs = 30_000;
/** A child that lived this long has earned a quick restart. */
const healthyAfterMs = 60_000;
/** A prompt's tokens take some seconds at most, so longer than this is taken for a hung process. */
const stallMinMs = 60_000;
const gibibyte = 2 ** 30;
/** A text takes 150 bytes, a log-probability 200 to 300: 80 MB for 64 unread answers of 8192 tokens, 160 MB at most. */
const defaultAheadItemsMax = 2 ** 19;
const defaultPausedBytesMax = gibibyte;
/** Time between two looks at the places while somebody waits for one. */
const lookMs = 100;
const retryAfterSeconds = 5;

/**
 * The longest that one step of the decode loop may take: a minute, and one more for each GiB of weights. A step reads all
 * of them, the first time from the disk, and evaluates up to 64 tokens of a prompt (512 on a GPU), which takes 4 s for each
 * GiB on one core of an ordinary server; so this is never too short for a machine that is many times slower.
 */
export function stallMsOf({ sizeBytes }: Pick<LoadedModel, "sizeBytes">): number {
  return stallMinMs * (1 + sizeBytes / gibibyte);
}

/**
 * Resolves when the model is loaded. Rejects with an `OperatorError` where the file or the machine does not allow it,
 * and with the signal's reason when that aborts the load; either way no process is left behind.
 */
export async function startLlamaEngine(options: LlamaOptions, signal?: AbortSignal): Promise<LlamaEngine> {
  const { sizeBytes } = await checkModel(options.modelPath);
  signal?.throwIfAborted();
  const engine = new LlamaEngine({ ...options, loadMs: options.loadMs ?? weightsMsOf(sizeBytes) });
  const abort = () => void engine.close();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    await engine.open();
  } finally {
    signal?.removeEventListener("abort", abort);
    signal?.throwIfAborted();
  }
  return engine;
}

export class LlamaEngine implements Engine {
  readonly #options: LlamaOptions & { loadMs: number };
  readonly #log: EngineLog;
  readonly #places: Places<LlamaGeneration>;
  readonly #restartWaitMs: number;
  readonly #promptQueue: PromptQueue;
  #state: EngineState = "starting";
  #process: EngineProcess | undefined;
  #model: LoadedModel | undefined;
  /** Of the child that is there. */
  #watch: ProgressWatch | undefined;
  #lastId = 0;
  #aheadItemsLeft: number;
  #restartDelayMs = restartDelayMinMs;
  #lookTimer: NodeJS.Timeout | undefined;
  #restartTimer: NodeJS.Timeout | undefined;
  #unavailableTimer: NodeJS.Timeout | undefined;

  /** Use `startLlamaEngine`. */
  constructor(options: LlamaOptions & { loadMs: number }) {
    this.#options = options;
    this.#log = options.log;
    this.#places = new Places(options.parallel, options.queueMax, options.placesLimits);
    this.#restartWaitMs = options.restartWaitMs ?? defaultRestartWaitMs;
    this.#aheadItemsLeft = options.aheadItemsMax ?? defaultAheadItemsMax;
    this.#promptQueue = new PromptQueue({
      waitMs: this.#restartWaitMs,
      stallMs: options.stallMs ?? stallMinMs,
      send: (message) => this.#process?.send(message),
      stalled: () => this.#killHung("has not counted a prompt"),
      disturbs: (accountId) => this.#places.isAnyRunningBesides(accountId),
    });
  }

  get contextWindow(): number {
    return this.#loaded.contextWindow;
  }

  get state(): EngineState {
    return this.#state;
  }

  load(): EngineLoad {
    return this.#places.load(performance.now());
  }

  /** Of the child process, while there is one. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  get #loaded(): LoadedModel {
    invariant(this.#model !== undefined, "an engine is handed out after its model has been loaded");
    return this.#model;
  }

  async open(): Promise<void> {
    const { contextWindow, modelPath } = this.#options;
    const model = await this.#launch();
    if (model.contextWindow < contextWindow) {
      this.#log.warn(
        { contextWindow: model.contextWindow },
        `the context window is lowered from ${contextWindow} to the ${model.contextWindow} tokens that the model was trained for`,
      );
    }
    this.#log.info({ modelPath, engine: this.pid }, `model loaded: ${model.description}`);
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    if (this.#state === "closed" || this.#state === "unavailable") throw this.#unavailable();
    const { promptTokens, prompt: plan } = await this.#promptQueue.prepare(prompt, signal);
    return {
      promptTokens,
      generate: (options) => this.#generate(prompt.accountId, plan, promptTokens, options),
    };
  }

  async close(): Promise<void> {
    if (this.#state !== "closed") {
      this.#state = "closed";
      clearTimeout(this.#lookTimer);
      clearTimeout(this.#restartTimer);
      clearTimeout(this.#unavailableTimer);
      this.#watch?.stop();
      const closing = new EngineError("unavailable", "the engine has been closed");
      this.#promptQueue.failAll(closing);
      for (const generation of [...this.#places.takeBegun(performance.now()), ...this.#places.takeQueue()])
        generation.finish(closing);
    }
    await this.#process?.kill();
  }

  #generate(
    accountId: string,
    prompt: PromptPlan | null,
    promptTokens: number,
    { maxTokens, paidTokens, sampling, onTokens }: GenerateOptions,
  ): LlamaGeneration {
    if (this.#state === "closed" || this.#state === "unavailable") throw this.#unavailable();
    invariant(
      prompt !== null,
      `a prompt of ${promptTokens} tokens or more does not fit the window and is refused beforehand`,
    );
    const job = { id: ++this.#lastId, accountId, prompt, maxTokens, paidTokens, sampling };
    const owner = {
      grant: (id: number, events: number) => {
        this.#send({ type: "grant", id, events });
        if (this.#places.isPaused(id)) this.#pump();
      },
      pay: (id: number, paid: number, isLast: boolean) => {
        // One that waits still is handed over with what it has been paid by then.
        if (this.#places.find(id) === undefined) return;
        this.#send({ type: "pay", id, paidTokens: paid, isLast });
        if (this.#places.isPaused(id)) this.#pump();
      },
      cancel: (cancelled: LlamaGeneration) => this.#cancel(cancelled),
      reserve: (items: number) => this.#reserve(items),
    };
    const generation = new LlamaGeneration(job, owner, onTokens);
    if (!this.#places.enqueue(generation, performance.now())) {
      throw new EngineError("overloaded", `${this.load().waiting} generations are waiting already`, {
        retryAfterSeconds,
      });
    }
    this.#pump();
    return generation;
  }

  /** To be called whenever a place may be free, or wanted. */
  #pump(): void {
    clearTimeout(this.#lookTimer);
    if (this.#state !== "ready") return;
    for (const { type, job } of this.#places.moves(performance.now())) {
      if (type === "start") this.#send({ type, job: job.job });
      else this.#send({ type, id: job.job.id });
    }
    if (!this.#places.isAnyoneWaiting) return;
    for (const generation of this.#places.running()) generation.runAhead();
    this.#lookTimer = setTimeout(() => this.#pump(), lookMs).unref();
  }

  #reserve(items: number): boolean {
    if (items > this.#aheadItemsLeft) return false;
    this.#aheadItemsLeft -= items;
    // There may be room now for one that had none.
    if (items < 0) this.#pump();
    return true;
  }

  /** Something that may give the child something to do. */
  #send(message: ToChild): void {
    this.#process?.send(message);
    this.#watch?.look();
  }

  #cancel(generation: LlamaGeneration): void {
    const { id } = generation.job;
    if (this.#places.find(id) !== undefined) this.#send({ type: "stop", id });
    else if (this.#places.remove(generation)) generation.finish();
  }

  #isDue(): boolean {
    for (const generation of this.#places.begun())
      if (generation.stopping || (generation.isDue && !this.#places.isPaused(generation.job.id))) return true;
    return false;
  }

  /** It is not waited for: a process that hangs in a driver may take long to end, even so. */
  #killHung(how: string): void {
    this.#log.error(
      { engine: this.pid, ...this.load() },
      `the engine's process ${how} for too long and is killed`,
    );
    this.#abandon("it hung");
    void this.#process?.kill();
  }

  /** Starts a child and has it load the model. */
  #launch(): Promise<LoadedModel> {
    const { modelPath, contextWindow, parallel, pausedBytesMax, gpu, reasoning } = this.#options;
    const load: LoadOptions = {
      modelPath,
      contextWindow,
      parallel,
      pausedBytesMax: pausedBytesMax ?? defaultPausedBytesMax,
      ...this.#threads(),
      gpu: gpu ?? "auto",
      thinkTags: reasoning?.tags,
    };
    const { promise, resolve, reject } = Promise.withResolvers<LoadedModel>();
    const launchedMs = performance.now();
    let loaded = false;
    const child = new EngineProcess({
      modelPath,
      environment: this.#options.environment,
      log: this.#log,
      onMessage: (message) => {
        if (message.type === "up") child.send({ type: "load", options: load });
        else if (message.type === "loading") watch.enter(message.phase);
        else if (message.type === "loaded") {
          loaded = true;
          watch.stop();
          this.#becomeReady(message.model);
          resolve(message.model);
        } else if (message.type === "refused") {
          reject(new OperatorError(message.message));
          void child.kill();
        } else this.#receive(message);
      },
      onEnd: (reason) => {
        if (this.#process === child) this.#process = undefined;
        if (loaded) this.#lost(reason, performance.now() - launchedMs);
        else reject(watch.ended(reason));
      },
    });
    const watch = new LoadWatch({
      modelPath,
      engine: child.pid,
      weightsMs: this.#options.loadMs,
      log: this.#log,
      expired: (error) => {
        reject(error);
        void child.kill();
      },
    });
    this.#process = child;
    return promise;
  }

  /** Threads beyond the cores wait for one another in turns of the scheduler: a token then takes seconds, or minutes. */
  #threads(): Pick<LoadOptions, "threads" | "threadsMax"> {
    const cores = availableParallelism();
    const { threads } = this.#options;
    if (threads === undefined) return { threads: Math.max(1, cores - 1), threadsMax: cores };
    if (threads > cores)
      this.#log.warn({ cores }, `threads is lowered from ${threads} to the ${cores} cores there are`);
    return { threads: Math.min(threads, cores) };
  }

  #becomeReady(model: LoadedModel): void {
    if (this.#state === "closed") return;
    clearTimeout(this.#unavailableTimer);
    this.#model = model;
    this.#state = "ready";
    this.#watch = new ProgressWatch({
      boundMs: this.#options.stallMs ?? stallMsOf(model),
      isDue: () => this.#isDue(),
      stalled: () => this.#killHung("has made no progress"),
    });
    this.#promptQueue.resume();
    this.#pump();
  }

  #receive(message: FromChild): void {
    switch (message.type) {
      case "prepared":
      case "prepareFailed":
        this.#promptQueue.receive(message);
        return;
      case "progress":
        for (const answers of message.batches) this.#options.onDecode?.(answers);
        for (const job of message.jobs) this.#progress(job);
        this.#pump();
        this.#watch?.heard();
        return;
      case "placed":
        this.#places.placed(message.id, message.sequence, message.tookMs);
        this.#pump();
        return;
      case "log":
        this.#log[message.level]({ engine: this.pid }, message.message);
        return;
    }
  }

  #progress(progress: JobProgress): void {
    const generation = this.#places.find(progress.id);
    if (generation === undefined) return;
    if (progress.ending !== undefined) this.#places.ended(progress.id, performance.now());
    generation.receive(progress);
    if (progress.ending?.type === "failed")
      generation.finish(new EngineError("failed", progress.ending.message));
  }

  #lost(reason: string, livedMs: number): void {
    if (this.#state === "closed") return;
    this.#log.error({ reason, ...this.load() }, "the engine's process has ended");
    this.#abandon(reason);
    if (livedMs >= healthyAfterMs) this.#restartDelayMs = restartDelayMinMs;
    this.#restartLater();
  }

  /** Nothing more is expected of the child that is there, or was. */
  #abandon(reason: string): void {
    if (this.#state !== "ready") return;
    this.#state = "starting";
    this.#watch?.stop();
    this.#watch = undefined;
    this.#promptQueue.suspend();
    const failure = new EngineError("failed", `the engine's process ended (${reason})`);
    // Youngest first, so that those put back keep their order.
    for (const generation of this.#places.takeBegun(performance.now())) {
      if (generation.started) generation.finish(failure);
      else if (generation.stopping) generation.finish();
      else this.#places.putBack(generation, performance.now());
    }
    this.#unavailableTimer = setTimeout(() => this.#giveUpWaiting(), this.#restartWaitMs);
  }

  #restartLater(): void {
    this.#restartTimer = setTimeout(() => {
      this.#launch().then(
        () => this.#log.info({ engine: this.pid }, "the engine's process has been started again"),
        (error: unknown) => {
          this.#log.error({ error: String(error) }, "the engine's process could not be started again");
          if (this.#state !== "closed") this.#restartLater();
        },
      );
    }, this.#restartDelayMs);
    this.#restartDelayMs = Math.min(2 * this.#restartDelayMs, restartDelayMaxMs);
  }

  #giveUpWaiting(): void {
    this.#state = "unavailable";
    const failure = this.#unavailable();
    this.#promptQueue.failAll(failure);
    for (const generation of this.#places.takeQueue()) generation.finish(failure);
  }

  #unavailable(): EngineError {
    const why =
      this.#state === "closed" ? "the engine has been closed" : "the engine's process is not running";
    return new EngineError("unavailable", why, { retryAfterSeconds });
  }
}
