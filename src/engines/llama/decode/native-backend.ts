/**
 * The operations of llama.cpp that the decode loop uses.
 *
 * The library's own `sequence.evaluate` is not used. It queues each sequence by itself, so at 4 to
 * 8 sequences the last one regularly misses the batch (118 to 138 decodes measured instead of
 * 100). It also samples with a full sort of the vocabulary, and reports log-probabilities only
 * after sampling. This file therefore calls the native context below node-llama-cpp, which is
 * pinned to one exact version. No other file depends on that context.
 */
import { invariant, OperatorError } from "../../../errors.ts";
import type { ThreadGovernor } from "./thread-governor.ts";

/** Tokens to put into one sequence at a position. */
export interface BatchEntry {
  sequence: number;
  position: number;
  tokens: Uint32Array;
  /** Whether the next token is sampled after the last of these. */
  sample: boolean;
}

export interface SamplerConfig {
  /** 0 is greedy. */
  temperature: number;
  topP?: number;
  topK?: number;
  /** 32 bits. Never 0xffffffff, which means "random" to llama.cpp. */
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

interface Candidates {
  logprob: number;
  top: { token: number; logprob: number }[];
}

export interface Backend {
  /** Maximum tokens of a prompt in one `decode`. */
  readonly chunkTokens: number;
  /**
   * Evaluates all entries, which are of different sequences. Returns the position of each entry's
   * logits, -1 without `sample`. `repeatable`: the result must be the same at any time, to the
   * last bit.
   */
  decode(entries: readonly BatchEntry[], repeatable: boolean): Promise<number[]>;
  newSampler(config: SamplerConfig): Sampler;
  sample(logits: number, sampler: Sampler): Promise<number>;
  /**
   * Returns the model's log-probabilities of `token` and of the most likely tokens, before
   * penalties, temperature, top_k and top_p.
   */
  candidates(logits: number, token: number, count: number): Promise<Candidates>;
  /** Keeps the first `length` tokens. Returns false if that is impossible, and keeps none. */
  truncate(sequence: number, length: number): boolean;
  /** Copies a sequence into this process's memory. Rejects if there is not enough. */
  save(sequence: number): Promise<SavedState>;
  /**
   * Restores a copy bit for bit into the sequence it was taken from. Returns false if that fails,
   * and the sequence is then empty. llama.cpp copies only a part of the state for models that
   * combine full attention with sliding windows or recurrent layers.
   */
  restore(state: SavedState): Promise<boolean>;
}

/** A copy of one sequence, in memory only. */
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

/** Holds its copy in memory. `saveSequenceStateToFile` would write prompts to disk. */
interface NativeCheckpoint {
  readonly size: number;
  readonly maxPos: number;
  init(context: NativeContext, sequence: number): Promise<void>;
  dispose(): void;
}

/** Objects of the native addon under the library's. */
interface Native {
  context: NativeContext;
  Sampler: new (model: unknown) => Sampler;
  Checkpoint: new () => NativeCheckpoint;
  model: unknown;
}

const contextMethods = [
  "initBatch",
  "addToBatch",
  "decodeBatch",
  "setThreads",
  "sampleToken",
  "disposeSequence",
  "removeTokenCellsFromSequence",
  "getSequenceKvCacheMinPosition",
  "restoreCheckpoint",
];

/** Throws an `OperatorError` if the installed version of the library has other objects. */
export function nativeOf(llama: unknown, model: unknown, context: unknown): Native {
  const bindings = property(llama, "_bindings");
  const native = {
    context: property(context, "_ctx"),
    Sampler: property(bindings, "AddonSampler"),
    Checkpoint: property(bindings, "AddonContextSequenceCheckpoint"),
    model: property(model, "_model"),
  };
  if (isNative(native)) return native;
  throw new OperatorError(
    "The installed version of node-llama-cpp is not the one that this program was made for: install Inkwell again (in a checkout: npm ci).",
  );
}

function isNative(native: Record<keyof Native, unknown>): native is Native {
  return (
    hasMethods(native.context, contextMethods) &&
    hasMethods(property(native.Sampler, "prototype"), ["applyConfig"]) &&
    hasMethods(property(native.Checkpoint, "prototype"), ["init"])
  );
}

function hasMethods(value: unknown, names: readonly string[]): boolean {
  return names.every((name) => typeof property(value, name) === "function");
}

function property(value: unknown, name: string): unknown {
  return (typeof value === "object" && value !== null) || typeof value === "function"
    ? Reflect.get(value, name)
    : undefined;
}

/** Number of returned tokens. More than any request asks for, to include the sampled one. */
const likeliestMax = 256;
/** Reported for tokens of probability 0, as OpenAI does, because JSON has no infinity. */
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

export class NativeBackend implements Backend {
  readonly chunkTokens: number;
  readonly #native: Native;
  /** Null: every decode uses the context's number of threads. */
  readonly #governor: ThreadGovernor | null;
  readonly #all: Sampler;
  readonly #likeliest: Sampler;
  /** The two samplers above have one buffer each, so only one `#read` runs at a time. */
  #reading: Promise<unknown> = Promise.resolve();

  constructor(native: Native, chunkTokens: number, governor: ThreadGovernor | null) {
    this.chunkTokens = chunkTokens;
    this.#native = native;
    this.#governor = governor;
    this.#all = this.newSampler({ temperature: 0, seed: 0 });
    this.#likeliest = this.newSampler({ temperature: 1, topK: likeliestMax, seed: 0 });
  }

  /**
   * llama.cpp evaluates sequences together only if their numbers follow one another in the batch.
   * Each other sequence begins another pass over the weights: of 8 sequences, one swapped pair
   * made a decode 1.45 times as long.
   */
  async decode(entries: readonly BatchEntry[], repeatable: boolean): Promise<number[]> {
    const { context } = this.#native;
    const size = entries.reduce((sum, { tokens }) => sum + tokens.length, 0);
    context.initBatch(size);
    const logits = new Map<BatchEntry, number | undefined>();
    for (const entry of entries.toSorted((left, right) => left.sequence - right.sequence)) {
      const { sequence, position, tokens, sample } = entry;
      const wanted = sample ? Uint32Array.of(tokens.length - 1) : noTokens;
      logits.set(entry, context.addToBatch(sequence, position, tokens, wanted)[0]);
    }
    await this.#evaluate(size, repeatable && dependsOnThreads(entries));
    return entries.map((entry) => logits.get(entry) ?? -1);
  }

  async #evaluate(tokens: number, fixed: boolean): Promise<void> {
    const { context } = this.#native;
    const governor = this.#governor;
    if (governor === null) return context.decodeBatch();
    const startedMs = performance.now();
    const threads = governor.choose(tokens, fixed, startedMs);
    // Only stores the number: llama.cpp creates its helper threads anew for each decode.
    context.setThreads(threads);
    await context.decodeBatch();
    const nowMs = performance.now();
    governor.record(tokens, threads, nowMs - startedMs, nowMs);
  }

  newSampler(config: SamplerConfig): Sampler {
    const sampler = new this.#native.Sampler(this.#native.model);
    sampler.applyConfig(config);
    return sampler;
  }

  async sample(logits: number, sampler: Sampler): Promise<number> {
    const token = await this.#native.context.sampleToken(logits, sampler);
    if (typeof token !== "number" || token < 0) throw new Error("no token could be sampled");
    return token;
  }

  candidates(logits: number, token: number, count: number): Promise<Candidates> {
    const found = this.#reading.then(() => this.#read(logits, token, count));
    this.#reading = found.catch(() => {});
    return found;
  }

  /**
   * The library returns probabilities after sampling, and returning all of them costs 10 ms of
   * this thread. So one greedy sampler, which leaves the logits unchanged, returns the probability
   * of the likeliest token among all. The other one returns how the first few hundred compare with
   * it.
   */
  async #read(logits: number, token: number, count: number): Promise<Candidates> {
    const { context } = this.#native;
    const [best, likeliest] = await Promise.all([
      context.sampleToken(logits, this.#all, false, true),
      context.sampleToken(logits, this.#likeliest, true, false),
    ]);
    const confidence: unknown = Array.isArray(best) ? best[2] : undefined;
    if (typeof confidence !== "number") throw new Error("no log-probabilities came back");
    let ratios = ratiosIn(likeliest);
    if (!ratios.some(([id]) => id === token))
      ratios = ratiosIn(await context.sampleToken(logits, this.#all, true, false));
    const highest = Math.log(confidence) - Math.log(ratios[0]?.[1] ?? 1);
    const logprobOf = (ratio: number): number => Math.max(logprobMin, highest + Math.log(ratio));
    return {
      logprob: logprobOf(ratios.find(([id]) => id === token)?.[1] ?? 0),
      top: ratios.slice(0, count).map(([id, ratio]) => ({ token: id, logprob: logprobOf(ratio) })),
    };
  }

  truncate(sequence: number, length: number): boolean {
    const { context } = this.#native;
    // If a sliding window has dropped the beginning, the rest is no use for a shorter text.
    const isWhole = length > 0 && context.getSequenceKvCacheMinPosition(sequence) === 0;
    if (isWhole && context.removeTokenCellsFromSequence(sequence, length, -1)) return true;
    context.disposeSequence(sequence);
    return length === 0;
  }

  async save(sequence: number): Promise<SavedState> {
    const checkpoint = new this.#native.Checkpoint();
    await checkpoint.init(this.#native.context, sequence);
    return new SavedSequence(sequence, checkpoint);
  }

  async restore(state: SavedState): Promise<boolean> {
    invariant(state instanceof SavedSequence, "a state is restored by the backend that saved it");
    const { context } = this.#native;
    const { sequence, checkpoint } = state;
    // The library restores on top of existing tokens, so the sequence is emptied first.
    context.disposeSequence(sequence);
    if (await context.restoreCheckpoint(checkpoint, checkpoint.maxPos)) return true;
    context.disposeSequence(sequence);
    return false;
  }
}

/**
 * Returns whether the last bits of a result depend on the number of threads. From 512 cells on,
 * llama.cpp sums the attention of a single token in one part per thread
 * (`ggml_compute_forward_flash_attn_ext_f16`). It counts cells in steps of 256.
 */
function dependsOnThreads([entry]: readonly BatchEntry[]): boolean {
  return entry !== undefined && entry.tokens.length === 1 && entry.position >= 256;
}

/** Returns tokens and their probabilities relative to one another, the likeliest first. */
function ratiosIn(sampled: unknown): [token: number, ratio: number][] {
  const pairs: unknown = Array.isArray(sampled) ? sampled[1] : undefined;
  if (!Array.isArray(pairs)) throw new Error("no log-probabilities came back");
  const ratios: [number, number][] = [];
  for (let index = 1; index < pairs.length; index += 2)
    ratios.push([Number(pairs[index - 1]), Number(pairs[index])]);
  return ratios.sort((left, right) => right[1] - left[1]);
}
