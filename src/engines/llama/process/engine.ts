/**
 * The embedded engine: llama.cpp in a child process that is kept alive (supervisor.ts).
 *
 * Guarantees:
 * - Accounts share the `parallel` slots. An account above its fair share gives slots up within a
 *   few tokens, and its answers there are paused (decode-slots.ts). The queue is bounded
 *   (collections.ts).
 * - A slow reader delays no other answer. While answers wait for a slot, the running ones are
 *   decoded ahead of their readers, up to `aheadItemsMax` for all of them. While none waits, they
 *   stop a window ahead of their readers.
 * - When the child ends, the answers it had started fail as "failed" with the usage received so
 *   far, paused ones included. The others keep waiting. While the engine is unavailable, waiting
 *   and new answers fail.
 * - The child reports each step of its decode loop. If a step is due and none is reported for
 *   `stallMs`, the child is given up and killed.
 * - No child outlives its parent, and every request ends.
 * The child decides what each step decodes (decode/decoder.ts).
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
import type { QueueMax } from "../../../collections.ts";
import { invariant } from "../../../errors.ts";
import { checkModel } from "../../../model-files/gguf.ts";
import type { EngineLog } from "../../engine-log.ts";
import type { ThinkTags } from "../../text/thinking-filter.ts";
import type { Gpu, JobProgress, LoadedModel, LoadOptions, PromptPlan, ToChild } from "../protocol.ts";
import { DecodeSlots, type SlotsLimits } from "./decode-slots.ts";
import type { EngineMessage } from "./engine-process.ts";
import { type GenerationOwner, LlamaGeneration } from "./generation.ts";
import { gibibyte, weightsMsOf } from "./load-watch.ts";
import { ProgressWatch } from "./progress-watch.ts";
import { PromptQueue } from "./prompt-queue.ts";
import { Supervisor } from "./supervisor.ts";

export interface LlamaOptions {
  modelPath: string;
  /** Maximum tokens of prompt and completion, lowered to the length of the model's training. */
  contextWindow: number;
  /** Answers decoded together. Each has memory for a whole context window. */
  parallel: number;
  /** Memory limit for states of paused answers (decode/saved-states.ts). Default 1 GiB. */
  pausedBytesMax?: number;
  /** Answers that may wait. As many again may wait from accounts that have none waiting. */
  queueMax: QueueMax;
  /** For tests: when an answer loses its slot. */
  slotsLimits?: SlotsLimits;
  /**
   * Default: all cores while they are free, one less while another program needs one. Lowered to
   * the number of cores.
   */
  threads?: number;
  /** Default "auto". */
  gpu?: Gpu;
  /** `tags` null: the model does not think. Default: found in its chat template. */
  reasoning?: { tags: ThinkTags | null };
  /** Time limit for reading the weights. Default: `weightsMsOf` the file. */
  loadMs?: number;
  /** Time that requests wait for a child that is being started again. Default 15 s. */
  restartWaitMs?: number;
  /** Time limit of rendering a conversation with the chat template. Default 5 s. */
  renderMs?: number;
  /** Time limit of one step of the decode loop. Default: `stallMsOf` the model. */
  stallMs?: number;
  /**
   * For tests: limit of tokens that wait for slow readers while other answers wait for their
   * slots. Log-probabilities count too: each alternative is one more. At the limit, a slow reader
   * keeps its slot until some are read. Default 524,288.
   */
  aheadItemsMax?: number;
  /** Called for each decode with the number of answers in it. Must be cheap and must not throw. */
  onDecode?: (answers: number) => void;
  /** Whole environment of the child process. */
  environment: Readonly<Record<string, string | undefined>>;
  log: EngineLog;
  /** Default: none. */
  warnings?: readonly string[];
}

const defaultRestartWaitMs = 15_000;
/** A prompt takes seconds at most, so a child that takes longer hangs. */
const stallMinMs = 60_000;
/** A text takes 150 bytes, a log-probability 200 to 300, so this is at most 160 MB. */
const defaultAheadItemsMax = 2 ** 19;
const defaultPausedBytesMax = gibibyte;
/** Interval of checks while an answer waits for a slot. */
const lookMs = 100;
const retryAfterSeconds = 5;

/**
 * Returns the time limit of one step of the decode loop: a minute, plus one for each GiB of
 * weights.
 *
 * A step reads all weights, the first time from disk, and evaluates up to 64 tokens of a prompt
 * (512 on a GPU). That takes 4 s for each GiB on one core of an ordinary server, so the limit
 * suits machines that are many times slower.
 */
export function stallMsOf({ sizeBytes }: Pick<LoadedModel, "sizeBytes">): number {
  return stallMinMs * (1 + sizeBytes / gibibyte);
}

/**
 * Resolves when the model is loaded. Rejects with an `OperatorError` if the file or the machine
 * does not allow that, and with the signal's reason if the signal aborts. No process remains after
 * a rejection.
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
  readonly warnings: readonly string[];
  readonly #options: LlamaOptions;
  readonly #supervisor: Supervisor;
  readonly #slots: DecodeSlots<LlamaGeneration>;
  readonly #promptQueue: PromptQueue;
  readonly #owner: GenerationOwner;
  #model: LoadedModel | undefined;
  /** Watches the steps of the present child. */
  #watch: ProgressWatch | undefined;
  #lastId = 0;
  #aheadItemsLeft: number;
  #lookTimer: NodeJS.Timeout | undefined;

  /** Use `startLlamaEngine`. */
  constructor(options: LlamaOptions & { loadMs: number }) {
    const { environment, loadMs, log, restartWaitMs = defaultRestartWaitMs } = options;
    this.#options = options;
    this.warnings = options.warnings ?? [];
    this.#slots = new DecodeSlots(options.parallel, options.queueMax, options.slotsLimits);
    this.#aheadItemsLeft = options.aheadItemsMax ?? defaultAheadItemsMax;
    this.#supervisor = new Supervisor({
      load: loadOptionsOf(options),
      weightsMs: loadMs,
      environment,
      log,
      restartWaitMs,
      status: () => this.load(),
      onReady: (model) => this.#ready(model),
      onMessage: (message) => this.#receive(message),
      onLost: (reason) => this.#lost(reason),
      onUnavailable: () => this.#failWaiting(this.#unavailable()),
    });
    this.#promptQueue = new PromptQueue({
      waitMs: restartWaitMs,
      stallMs: options.stallMs ?? stallMinMs,
      send: (message) => this.#supervisor.send(message),
      stalled: () => this.#supervisor.killHung("has not counted a prompt"),
      disturbs: (accountId) => this.#slots.isAnyRunningBesides(accountId),
    });
    this.#owner = {
      send: (message) => {
        // Otherwise it will start with what it was granted and paid by then.
        if (this.#slots.find(message.id) === undefined) return;
        this.#send(message);
        if (this.#slots.isPaused(message.id)) this.#dispatch();
      },
      cancel: (generation) => this.#cancel(generation),
      reserve: (items) => this.#reserve(items),
    };
  }

  get contextWindow(): number {
    invariant(this.#model !== undefined, "an engine is handed out after its model has been loaded");
    return this.#model.contextWindow;
  }

  get state(): EngineState {
    return this.#supervisor.state;
  }

  load(): EngineLoad {
    return this.#slots.load(performance.now());
  }

  /** Process number of the child, if there is one. */
  get pid(): number | undefined {
    return this.#supervisor.pid;
  }

  async open(): Promise<void> {
    const { contextWindow, log, modelPath } = this.#options;
    const model = await this.#supervisor.launch();
    if (model.contextWindow < contextWindow) {
      log.warn(
        { contextWindow: model.contextWindow },
        `the context window is lowered from ${contextWindow} to the ${model.contextWindow} tokens that the model was trained for`,
      );
    }
    log.info({ modelPath, engine: this.pid }, `model loaded: ${model.description}`);
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    this.#checkAvailable();
    const { promptTokens, prompt: plan } = await this.#promptQueue.prepare(prompt, signal);
    const generate = (options: GenerateOptions): LlamaGeneration => {
      invariant(
        plan !== null,
        `a prompt of ${promptTokens} tokens or more is refused before it is generated`,
      );
      return this.#generate(prompt.accountId, plan, options);
    };
    return { promptTokens, generate };
  }

  async close(): Promise<void> {
    const ended = this.#supervisor.close();
    clearTimeout(this.#lookTimer);
    this.#watch?.stop();
    const closing = new EngineError("unavailable", "the engine has been closed");
    for (const generation of this.#slots.takeBegun(performance.now())) generation.finish(closing);
    this.#failWaiting(closing);
    await ended;
  }

  #generate(
    accountId: string,
    prompt: PromptPlan,
    { maxTokens, paidTokens, sampling, onTokens }: GenerateOptions,
  ): LlamaGeneration {
    this.#checkAvailable();
    const job = { id: ++this.#lastId, accountId, prompt, maxTokens, paidTokens, sampling };
    const generation = new LlamaGeneration(job, this.#owner, onTokens);
    if (!this.#slots.enqueue(generation, performance.now())) {
      const why = `${this.load().waiting} generations are waiting already`;
      throw new EngineError("overloaded", why, { retryAfterSeconds });
    }
    this.#dispatch();
    return generation;
  }

  /** Call this whenever a slot may be free, or needed. */
  #dispatch(): void {
    clearTimeout(this.#lookTimer);
    if (this.state !== "ready") return;
    for (const { type, job } of this.#slots.moves(performance.now())) {
      if (type === "start") this.#send({ type, job: job.job });
      else this.#send({ type, id: job.job.id });
    }
    if (!this.#slots.isAnyoneWaiting) return;
    for (const generation of this.#slots.running()) generation.runAhead();
    this.#lookTimer = setTimeout(() => this.#dispatch(), lookMs).unref();
  }

  #reserve(items: number): boolean {
    if (items > this.#aheadItemsLeft) return false;
    this.#aheadItemsLeft -= items;
    // There may be room now for a generation that found none.
    if (items < 0) this.#dispatch();
    return true;
  }

  /** Sends a message after which the child may have work. */
  #send(message: ToChild): void {
    this.#supervisor.send(message);
    this.#watch?.look();
  }

  #cancel(generation: LlamaGeneration): void {
    const { id } = generation.job;
    if (this.#slots.find(id) !== undefined) this.#send({ type: "stop", id });
    else if (this.#slots.remove(generation)) generation.finish();
  }

  #isDue(): boolean {
    for (const generation of this.#slots.begun())
      if (generation.stopping || (generation.isDue && !this.#slots.isPaused(generation.job.id))) return true;
    return false;
  }

  #ready(model: LoadedModel): void {
    this.#model = model;
    this.#watch = new ProgressWatch({
      boundMs: this.#options.stallMs ?? stallMsOf(model),
      isDue: () => this.#isDue(),
      stalled: () => this.#supervisor.killHung("has made no progress"),
    });
    this.#promptQueue.resume();
    this.#dispatch();
  }

  #receive(message: EngineMessage): void {
    switch (message.type) {
      case "prepared":
      case "prepareFailed":
        this.#promptQueue.receive(message);
        return;
      case "progress":
        for (const answers of message.batches) this.#options.onDecode?.(answers);
        for (const job of message.jobs) this.#progress(job);
        this.#dispatch();
        this.#watch?.heard();
        return;
      case "placed":
        this.#slots.placed(message.id, message.sequence, message.tookMs);
        this.#dispatch();
        return;
      case "log":
        this.#options.log[message.level]({ engine: this.pid }, message.message);
        return;
    }
  }

  #progress(progress: JobProgress): void {
    const generation = this.#slots.find(progress.id);
    if (generation === undefined) return;
    if (progress.ending !== undefined) this.#slots.ended(progress.id, performance.now());
    generation.receive(progress);
    if (progress.ending?.type === "failed")
      generation.finish(new EngineError("failed", progress.ending.message));
  }

  /** Fails generations that the child had started. The others wait for the next child. */
  #lost(reason: string): void {
    this.#watch?.stop();
    this.#watch = undefined;
    this.#promptQueue.suspend();
    const failure = new EngineError("failed", `the engine's process ended (${reason})`);
    // The youngest comes first, so that those put back keep their order.
    for (const generation of this.#slots.takeBegun(performance.now())) {
      if (generation.started) generation.finish(failure);
      else if (generation.stopping) generation.finish();
      else this.#slots.putBack(generation, performance.now());
    }
  }

  #failWaiting(failure: EngineError): void {
    this.#promptQueue.failAll(failure);
    for (const generation of this.#slots.takeQueue()) generation.finish(failure);
  }

  #checkAvailable(): void {
    if (this.state === "closed" || this.state === "unavailable") throw this.#unavailable();
  }

  #unavailable(): EngineError {
    const why =
      this.state === "closed" ? "the engine has been closed" : "the engine's process is not running";
    return new EngineError("unavailable", why, { retryAfterSeconds });
  }
}

function loadOptionsOf(options: LlamaOptions): LoadOptions {
  const { modelPath, contextWindow, parallel, pausedBytesMax = defaultPausedBytesMax, gpu } = options;
  return {
    modelPath,
    contextWindow,
    parallel,
    pausedBytesMax,
    ...threadsOf(options),
    gpu: gpu ?? "auto",
    thinkTags: options.reasoning?.tags,
    renderMs: options.renderMs,
  };
}

/** Surplus threads would wait for their turn on a core, and a token would take seconds. */
function threadsOf({ log, threads }: LlamaOptions): Pick<LoadOptions, "threads" | "threadsMax"> {
  const cores = availableParallelism();
  if (threads === undefined) return { threads: Math.max(1, cores - 1), threadsMax: cores };
  if (threads > cores)
    log.warn({ cores }, `threads is lowered from ${threads} to the number of cores, ${cores}`);
  return { threads: Math.min(threads, cores) };
}
