/**
 * The few verbs of llama.cpp that the decode loop works with, and the loading of a model into them.
 *
 * Why not the library's sequences: `sequence.evaluate` lets each sequence queue by itself, and at 4 to 8 sequences
 * the last one regularly misses the batch (118 to 138 decodes measured where 100 do), samples with a full sort of the
 * vocabulary by default, and gives log-probabilities only after sampling. So this file reaches through
 * node-llama-cpp (pinned to one exact version) to the native context under it, checks that what it needs is there,
 * and is the only file that knows.
 */
import {
  getLlama,
  type Llama,
  type LlamaContext,
  LlamaLogLevel,
  type LlamaModel,
  NoBinaryFoundError,
} from "node-llama-cpp";
import { invariant, messageOf, OperatorError } from "../../../errors.ts";
import type { PromptTokenizer } from "../prompt/prompt.ts";
import { Vocabulary } from "../prompt/vocabulary.ts";
import type { Gpu, LoadOptions } from "../protocol.ts";
import { ThreadGovernor } from "./thread-governor.ts";

/** Tokens to put into one sequence at a position. */
export interface BatchEntry {
  sequence: number;
  position: number;
  tokens: Uint32Array;
  /** Whether the next token is to be sampled after the last of these. */
  sample: boolean;
}

export interface SamplerConfig {
  /** 0 is greedy. */
  temperature: number;
  topP?: number;
  topK?: number;
  /** 32 bits; never 0xffffffff, which means "random" to llama.cpp. */
  seed: number;
  repeatPenaltyTokens?: Uint32Array;
  repeatPenaltyMaxTokens?: number;
  repeatPenaltyPresencePenalty?: number;
  repeatPenaltyFrequencyPenalty?: number;
}

export interface Sampler {
  applyConfig(config: SamplerConfig): void;
  dispose(): void;
}

export interface Candidates {
  logprob: number;
  top: { token: number; logprob: number }[];
}

export interface Backend {
  /** Tokens of a prompt that are evaluated in one `decode`; beside them each sequence has room for `tokensPerSequenceMax`. */
  readonly chunkTokens: number;
  readonly tokensPerSequenceMax: number;
  /**
   * Evaluates all entries in one pass. Per entry: where its logits lie, -1 without `sample`. `repeatable`: the numbers
   * must come out as they would at any other time, to the last bit.
   */
  decode(entries: readonly BatchEntry[], repeatable: boolean): Promise<number[]>;
  newSampler(config: SamplerConfig): Sampler;
  sample(logits: number, sampler: Sampler): Promise<number>;
  /** The model's own log-probabilities (before penalties, temperature, top_k and top_p): of `token` and of the likeliest. */
  candidates(logits: number, token: number, count: number): Promise<Candidates>;
  /** Keeps the first `length` tokens of a sequence. False where the model's memory cannot be cut there: it is then empty. */
  truncate(sequence: number, length: number): boolean;
  /** Copies a sequence into this process's memory. Rejects if there is not enough. */
  save(sequence: number): Promise<SavedState>;
  /**
   * Puts a copy back, bit for bit, into the sequence that it was taken from. False if that cannot be done: llama.cpp copies
   * a part of the state only for models with sliding windows beside full attention, or with recurrent layers beside it.
   * The sequence is then empty.
   */
  restore(state: SavedState): Promise<boolean>;
}

/** A copy of one sequence, in memory and nowhere else. */
export interface SavedState {
  readonly bytes: number;
  dispose(): void;
}

interface NativeContext {
  initBatch(size: number): void;
  addToBatch(sequence: number, position: number, tokens: Uint32Array, logits: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  setThreads(threads: number): void;
  sampleToken(
    logits: number,
    sampler: Sampler,
    probabilities?: boolean,
    confidence?: boolean,
  ): Promise<unknown>;
  disposeSequence(sequence: number): void;
  removeTokenCellsFromSequence(sequence: number, from: number, to: number): boolean;
  getSequenceKvCacheMinPosition(sequence: number): number;
  restoreCheckpoint(checkpoint: NativeCheckpoint, lastPosition: number): Promise<boolean>;
}

/** Holds its copy in a buffer of its own. `saveSequenceStateToFile` would write prompts to a disk. */
interface NativeCheckpoint {
  readonly size: number;
  readonly maxPos: number;
  init(context: NativeContext, sequence: number): Promise<void>;
  dispose(): void;
}

type NativeSamplerClass = new (model: unknown) => Sampler;
type NativeCheckpointClass = new () => NativeCheckpoint;

function isNativeContext(value: unknown): value is NativeContext {
  return [
    "initBatch",
    "addToBatch",
    "decodeBatch",
    "setThreads",
    "sampleToken",
    "disposeSequence",
    "removeTokenCellsFromSequence",
    "getSequenceKvCacheMinPosition",
    "restoreCheckpoint",
  ].every((name) => isFunction(property(value, name)));
}

function isCheckpointClass(value: unknown): value is NativeCheckpointClass {
  return isFunction(value) && isFunction(property(property(value, "prototype"), "init"));
}

function isSamplerClass(value: unknown): value is NativeSamplerClass {
  return isFunction(value) && isFunction(property(property(value, "prototype"), "applyConfig"));
}

function isFunction(value: unknown): boolean {
  return typeof value === "function";
}

function property(value: unknown, name: string): unknown {
  return (typeof value === "object" && value !== null) || typeof value === "function"
    ? Reflect.get(value, name)
    : undefined;
}

/**
 * Prompts are evaluated in chunks of this many tokens, so that a long one never holds up the others' next token for long.
 * On a CPU chunks of 64 cost no more per token than chunks of 512 (5.6 ms of CPU time each, chunks of 32 cost 7.6); a GPU
 * wants more at once.
 */
const chunkTokens = { cpu: 64, gpu: 512 };
/** Room in a batch for each sequence's own next tokens: one, or a closing tag that is put in by force. */
const tokensPerSequenceMax = 16;
/** More than any request asks for, so that the token that was drawn is nearly always among them. */
const likeliestMax = 256;
/** For what is too unlikely for a number, as OpenAI has it: minus infinity is no JSON. */
const logprobMin = -9999;
const noTokens = new Uint32Array(0);

class SavedSequence implements SavedState {
  readonly sequence: number;
  readonly checkpoint: NativeCheckpoint;

  constructor(sequence: number, checkpoint: NativeCheckpoint) {
    this.sequence = sequence;
    this.checkpoint = checkpoint;
  }

  get bytes(): number {
    return this.checkpoint.size;
  }

  dispose(): void {
    this.checkpoint.dispose();
  }
}

class NativeBackend implements Backend {
  readonly chunkTokens: number;
  readonly tokensPerSequenceMax = tokensPerSequenceMax;
  readonly #context: NativeContext;
  readonly #Sampler: NativeSamplerClass;
  readonly #Checkpoint: NativeCheckpointClass;
  readonly #model: unknown;
  /** Null: every decode gets the threads that the context was made with. */
  readonly #governor: ThreadGovernor | null;
  readonly #all: Sampler;
  readonly #likeliest: Sampler;
  /** The two samplers above have one buffer each: their readings wait for one another. */
  #reading: Promise<unknown> = Promise.resolve();

  constructor(
    context: NativeContext,
    samplerClass: NativeSamplerClass,
    checkpointClass: NativeCheckpointClass,
    model: unknown,
    chunk: number,
    governor: ThreadGovernor | null,
  ) {
    this.chunkTokens = chunk;
    this.#governor = governor;
    this.#context = context;
    this.#Sampler = samplerClass;
    this.#Checkpoint = checkpointClass;
    this.#model = model;
    this.#all = this.newSampler({ temperature: 0, seed: 0 });
    this.#likeliest = this.newSampler({ temperature: 1, topK: likeliestMax, seed: 0 });
  }

  async decode(entries: readonly BatchEntry[], repeatable: boolean): Promise<number[]> {
    let size = 0;
    for (const entry of entries) size += entry.tokens.length;
    this.#context.initBatch(size);
    const logits = entries.map(({ sequence, position, tokens, sample }) => {
      const wanted = sample ? Uint32Array.of(tokens.length - 1) : noTokens;
      return this.#context.addToBatch(sequence, position, tokens, wanted)[0] ?? -1;
    });
    await this.#evaluate(size, repeatable);
    return logits;
  }

  async #evaluate(tokens: number, repeatable: boolean): Promise<void> {
    const governor = this.#governor;
    if (governor === null) return this.#context.decodeBatch();
    const startedMs = performance.now();
    const threads = governor.choose(tokens, repeatable, startedMs);
    // Notes a number, nothing else: llama.cpp makes its helper threads anew for each decode.
    this.#context.setThreads(threads);
    await this.#context.decodeBatch();
    const nowMs = performance.now();
    governor.record(tokens, threads, nowMs - startedMs, nowMs);
  }

  newSampler(config: SamplerConfig): Sampler {
    const sampler = new this.#Sampler(this.#model);
    sampler.applyConfig(config);
    return sampler;
  }

  async sample(logits: number, sampler: Sampler): Promise<number> {
    const token = await this.#context.sampleToken(logits, sampler);
    if (typeof token !== "number" || token < 0) throw new Error("no token could be sampled");
    return token;
  }

  candidates(logits: number, token: number, count: number): Promise<Candidates> {
    const found = this.#reading.then(() => this.#read(logits, token, count));
    this.#reading = found.catch(() => {});
    return found;
  }

  /**
   * The library gives probabilities after sampling, and all of them cost 10 ms of this thread. So one sampler tells
   * how likely the likeliest token is among all (greedy leaves the logits alone), another how the first few hundred
   * compare with it.
   */
  async #read(logits: number, token: number, count: number): Promise<Candidates> {
    const [best, likeliest] = await Promise.all([
      this.#context.sampleToken(logits, this.#all, false, true),
      this.#context.sampleToken(logits, this.#likeliest, true, false),
    ]);
    const confidence: unknown = Array.isArray(best) ? best[2] : undefined;
    if (typeof confidence !== "number") throw new Error("no log-probabilities came back");
    let ratios = ratiosIn(likeliest);
    if (!ratios.some(([id]) => id === token)) {
      ratios = ratiosIn(await this.#context.sampleToken(logits, this.#all, true, false));
    }
    const highest = Math.log(confidence) - Math.log(ratios[0]?.[1] ?? 1);
    const logprobOf = (ratio: number): number => Math.max(logprobMin, highest + Math.log(ratio));
    return {
      logprob: logprobOf(ratios.find(([id]) => id === token)?.[1] ?? 0),
      top: ratios.slice(0, count).map(([id, ratio]) => ({ token: id, logprob: logprobOf(ratio) })),
    };
  }

  truncate(sequence: number, length: number): boolean {
    // Where a sliding window has dropped the beginning, what is left of it does not carry a shorter text.
    const whole = length > 0 && this.#context.getSequenceKvCacheMinPosition(sequence) === 0;
    if (whole && this.#context.removeTokenCellsFromSequence(sequence, length, -1)) return true;
    this.#context.disposeSequence(sequence);
    return length === 0;
  }

  async save(sequence: number): Promise<SavedState> {
    const checkpoint = new this.#Checkpoint();
    await checkpoint.init(this.#context, sequence);
    return new SavedSequence(sequence, checkpoint);
  }

  async restore(state: SavedState): Promise<boolean> {
    invariant(state instanceof SavedSequence, "a state is restored by the backend that saved it");
    const { sequence, checkpoint } = state;
    // The library restores into what is there: a part of a state must not meet another job's tokens.
    this.#context.disposeSequence(sequence);
    if (await this.#context.restoreCheckpoint(checkpoint, checkpoint.maxPos)) return true;
    this.#context.disposeSequence(sequence);
    return false;
  }
}

/** Token and probability, the likeliest first. */
function ratiosIn(sampled: unknown): [token: number, ratio: number][] {
  const pairs: unknown = Array.isArray(sampled) ? sampled[1] : undefined;
  if (!Array.isArray(pairs)) throw new Error("no log-probabilities came back");
  const ratios: [number, number][] = [];
  for (let index = 1; index < pairs.length; index += 2)
    ratios.push([Number(pairs[index - 1]), Number(pairs[index])]);
  return ratios.sort((left, right) => right[1] - left[1]);
}

export interface LoadedBackend {
  backend: Backend;
  vocabulary: Vocabulary;
  tokenize: PromptTokenizer["tokenize"];
  isEndOfTurn: (token: number) => boolean;
  /** Null where the model names none, or wants none in front. */
  bos: number | null;
  bosText: string;
  eosText: string;
  /** The chat template of the model's file. */
  template: string | null;
  contextWindow: number;
  description: string;
  sizeBytes: number;
}

export type Log = (level: "info" | "warn" | "error", message: string) => void;

/** Throws an `OperatorError` that says what is wrong with the file, the GPU, the memory or the installation. */
export async function loadBackend(options: LoadOptions, log: Log): Promise<LoadedBackend> {
  const complaints: string[] = [];
  const threadsMax = options.threadsMax ?? options.threads;
  const llama = await loadLibrary(options, threadsMax, (level, message) => {
    if (level === "error" && complaints.length < 20) complaints.push(message);
    log(level, message);
  });
  let model: LlamaModel;
  let context: LlamaContext;
  try {
    model = await llama.loadModel({ modelPath: options.modelPath });
  } catch (cause) {
    const why = diagnosis(await reason(cause, complaints));
    throw new OperatorError(`The model file ${options.modelPath} cannot be used: ${why}.`, cause);
  }
  const gpu = llama.gpu !== false && model.gpuLayers > 0;
  const governor =
    gpu || threadsMax === options.threads ? null : new ThreadGovernor(options.threads, threadsMax);
  const chunk = gpu ? chunkTokens.gpu : chunkTokens.cpu;
  const contextWindow = Math.min(options.contextWindow, model.trainContextSize);
  try {
    context = await model.createContext({
      sequences: options.parallel,
      contextSize: contextWindow,
      batchSize: chunk + options.parallel * tokensPerSequenceMax,
      threads: options.threads,
    });
  } catch (cause) {
    throw new OperatorError(
      `The model file ${options.modelPath} cannot be used: there is not enough memory for ${options.parallel} sequences of ${contextWindow} tokens (${await reason(cause, complaints)}); make context_window or parallel smaller.`,
      cause,
    );
  }
  const native = property(context, "_ctx");
  const bindings = property(llama, "_bindings");
  const samplerClass = property(bindings, "AddonSampler");
  const checkpointClass = property(bindings, "AddonContextSequenceCheckpoint");
  if (!isNativeContext(native) || !isSamplerClass(samplerClass) || !isCheckpointClass(checkpointClass)) {
    throw new OperatorError(
      "The installed version of node-llama-cpp is not the one that this program was made for: run npm ci.",
    );
  }
  const { metadata } = model.fileInfo;
  const { ggml } = metadata.tokenizer;
  const everyToken = [...model.iterateAllTokens()];
  const endOfTurn = new Set<number>(everyToken.filter((token) => model.isEogToken(token)));
  return {
    backend: new NativeBackend(
      native,
      samplerClass,
      checkpointClass,
      property(model, "_model"),
      chunk,
      governor,
    ),
    vocabulary: new Vocabulary({
      kind: ggml.model,
      tokens: ggml.tokens,
      types: ggml.token_type,
      addSpacePrefix: ggml.add_space_prefix !== false,
      spell: (token) => {
        const known = everyToken[token];
        return known === undefined ? "" : model.detokenize([known]);
      },
    }),
    tokenize: (text, continues = false) =>
      Uint32Array.from(model.tokenize(text, false, continues ? "trimLeadingSpace" : undefined)),
    isEndOfTurn: (token) => endOfTurn.has(token),
    bos: model.tokens.shouldPrependBosToken ? model.tokens.bos : null,
    bosText: model.tokens.bosString ?? "",
    eosText: model.tokens.eosString ?? "",
    template: metadata.tokenizer.chat_template ?? null,
    contextWindow,
    sizeBytes: model.size,
    description: `${metadata.general?.name ?? model.filename ?? "unnamed"} (${model.typeDescription}, ${model.gpuLayers} layers on the GPU, ${governor === null ? options.threads : `${options.threads} or ${threadsMax}`} threads)`,
  };
}

async function loadLibrary({ gpu, modelPath }: LoadOptions, maxThreads: number, log: Log): Promise<Llama> {
  let llama: Llama;
  try {
    llama = await getLlama({
      gpu,
      build: "never",
      skipDownload: true,
      progressLogs: false,
      maxThreads,
      logLevel: LlamaLogLevel.warn,
      logger: (level, message) => {
        const failed = level === LlamaLogLevel.error || level === LlamaLogLevel.fatal;
        log(failed ? "error" : "warn", message.trim());
      },
    });
  } catch (cause) {
    if (!(cause instanceof NoBinaryFoundError)) throw cause;
    throw new OperatorError(withoutBinaries(gpu, modelPath), cause);
  }
  // Where it does not know a kind of GPU at all, the library goes on without one.
  if (gpu !== "auto" && llama.gpu !== gpu) throw new OperatorError(withoutBinaries(gpu, modelPath));
  return llama;
}

function withoutBinaries(gpu: Gpu, modelPath: string): string {
  if (gpu === "auto" || gpu === false)
    return `llama.cpp's binaries for this machine (${process.platform}, ${process.arch}) are missing or cannot be loaded: run npm ci, remove LD_LIBRARY_PATH from the model's environment, or generate elsewhere (engine: upstream).`;
  const needs = {
    cuda: "its binaries, which npm run gpu fetches (again after each npm ci), and NVIDIA's driver",
    vulkan: "a Vulkan driver for the GPU",
    metal: "a Mac with Apple silicon",
  };
  return `The model file ${modelPath} cannot be run with gpu: ${gpu} here: that needs ${needs[gpu]}. Set gpu: auto to take what there is, gpu: off for the processor alone.`;
}

/** llama.cpp's own words come over a queue and may arrive after the failure. */
async function reason(cause: unknown, complaints: readonly string[]): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  const words = complaints.find((line) => line.includes("error loading") && !line.includes("failed to load"));
  return words?.replace(/^.*error loading model: /, "") ?? complaints[0] ?? messageOf(cause);
}

function diagnosis(words: string): string {
  if (words.includes("unknown model architecture"))
    return `${words}; use a model that this version of llama.cpp knows`;
  if (words.includes("unable to allocate") || words.includes("out of memory"))
    return `${words}; use a smaller model`;
  return `it is damaged or cut short (${words}); fetch the file again`;
}
