/**
 * An engine that says what it is told to say: for tests and for measuring everything around an engine. The same
 * script gives the same events, always.
 *
 * Keeps the engine port to the letter: events, counts, stop sequences, limits, failures. A prompt has one token for
 * each message and one for each run of characters between white space. Makes a token only when the reader asks for
 * the next event. Does not sample: temperature, seed and penalties are taken and ignored.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import {
  type Engine,
  EngineError,
  type EngineEvent,
  type EngineFailure,
  type EngineLoad,
  type EngineState,
  type GenerateOptions,
  type Generation,
  type PreparedPrompt,
  type Prompt,
  type TokenLogprob,
  type Usage,
} from "../generation/engine.ts";
import { StopFinder } from "./stops.ts";

/** Text, or bytes for a token that begins or ends inside a character. */
export type ScriptToken = string | Uint8Array;

export interface Script {
  /** The answer, up to its end-of-turn. Asynchronous: the generation waits for each token as long as it takes. */
  tokens: Iterable<ScriptToken> | AsyncIterable<ScriptToken>;
  /** How many tokens of thinking come first; counted, never yielded. */
  reasoningTokens?: number;
  /** How many of the prompt's tokens are reported as cached. */
  cachedTokens?: number;
  /** Before each token; 0 still lets the event loop turn once. */
  tokenDelayMs?: number;
  /** Fails instead of making the token after so many. */
  failure?: { afterTokens: number; kind: EngineFailure };
  /** `prepare` or `generate` fails at once. */
  refusal?: { at: "prepare" | "generate"; kind: EngineFailure };
}

export interface ScriptedOptions {
  contextWindow?: number;
  /** Generations at work together; more wait in line. */
  parallel?: number;
  /** Generations that may wait; one more is "overloaded". */
  queue?: number;
}

export class ScriptedEngine implements Engine {
  readonly contextWindow: number;
  state: EngineState = "ready";
  /** What the next generations say. */
  script: (prompt: Prompt) => Script;

  /** What was asked for, in order. */
  readonly prompts: Prompt[] = [];
  readonly options: GenerateOptions[] = [];
  tokensMade = 0;
  /** Generations that are at work, and the most there ever were. */
  working = 0;
  workingMost = 0;
  /** Generations that have been handed out and have not ended. */
  open = 0;

  readonly #parallel: number;
  readonly #queue: number;
  readonly #waiting: (() => void)[] = [];
  readonly #generations = new Set<ScriptedGeneration>();

  constructor(script: Script | ((prompt: Prompt) => Script), options: ScriptedOptions = {}) {
    this.script = typeof script === "function" ? script : () => script;
    this.contextWindow = options.contextWindow ?? 8192;
    this.#parallel = options.parallel ?? Number.POSITIVE_INFINITY;
    this.#queue = options.queue ?? Number.POSITIVE_INFINITY;
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    signal.throwIfAborted();
    if (this.state !== "ready") throw new EngineError("unavailable", `the scripted engine is ${this.state}`);
    const script = this.script(prompt);
    this.prompts.push(prompt);
    failAt("prepare", script);
    const promptTokens = countTokens(prompt);
    return {
      promptTokens,
      generate: (options) => {
        failAt("generate", script);
        if (this.open - this.working >= this.#queue && this.working >= this.#parallel) {
          throw new EngineError("overloaded", "the scripted queue is full");
        }
        this.options.push(options);
        const generation = new ScriptedGeneration(this, script, promptTokens, options);
        this.#generations.add(generation);
        this.open += 1;
        return generation;
      },
    };
  }

  load(): EngineLoad {
    return { running: this.working, waiting: this.open - this.working };
  }

  async close(): Promise<void> {
    this.state = "closed";
    for (const generation of this.#generations) generation.breakOff();
  }

  /** A place in line; `granted` resolves when there is room to work. */
  enter(): Place {
    const { promise: granted, resolve } = Promise.withResolvers<void>();
    const begin = () => {
      this.working += 1;
      this.workingMost = Math.max(this.workingMost, this.working);
      resolve();
    };
    if (this.working < this.#parallel) begin();
    else this.#waiting.push(begin);
    return {
      granted,
      leave: () => {
        const at = this.#waiting.indexOf(begin);
        if (at !== -1) {
          this.#waiting.splice(at, 1);
          return;
        }
        this.working -= 1;
        this.#waiting.shift()?.();
      },
    };
  }

  forget(generation: ScriptedGeneration): void {
    if (this.#generations.delete(generation)) this.open -= 1;
  }
}

type Reading = IteratorResult<ScriptToken, unknown> | "stopped";

interface Place {
  granted: Promise<void>;
  leave(): void;
}

class ScriptedGeneration implements Generation {
  readonly usage: Usage;
  started = false;
  readonly #engine: ScriptedEngine;
  readonly #script: Script;
  readonly #options: GenerateOptions;
  readonly #stopped = Promise.withResolvers<"stopped">();
  #wanted = true;
  #broken = false;
  #paidTokens: number;
  #maxTokens: number;
  /** Resolves at the next `pay`. */
  #paying = Promise.withResolvers<void>();

  constructor(engine: ScriptedEngine, script: Script, promptTokens: number, options: GenerateOptions) {
    this.#engine = engine;
    this.#script = script;
    this.#options = options;
    this.#paidTokens = options.paidTokens;
    this.#maxTokens = options.maxTokens;
    const cachedTokens = Math.min(script.cachedTokens ?? 0, promptTokens);
    this.usage = { promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0, estimated: false };
  }

  pay(paidTokens: number, isLast: boolean): void {
    this.#paidTokens = Math.max(this.#paidTokens, paidTokens);
    if (isLast) this.#maxTokens = Math.min(this.#maxTokens, this.#paidTokens);
    this.#paying.resolve();
    this.#paying = Promise.withResolvers<void>();
  }

  async stop(): Promise<void> {
    this.#wanted = false;
    this.#stopped.resolve("stopped");
    this.#engine.forget(this);
  }

  /** The engine closes under it. */
  breakOff(): void {
    this.#broken = true;
    this.#stopped.resolve("stopped");
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<EngineEvent, void, undefined> {
    const place = this.#engine.enter();
    try {
      await Promise.race([place.granted, this.#stopped.promise]);
      if (this.#over()) return;
      this.started = true;
      yield* this.#events();
    } finally {
      place.leave();
      this.#engine.forget(this);
    }
  }

  async *#events(): AsyncGenerator<EngineEvent, void, undefined> {
    const text = new TextGate(this.#options.sampling.stop);
    for await (const token of this.#tokens()) {
      const { released, stopped } = text.add(token);
      yield* this.#textEvents(released);
      if (stopped) return yield { type: "end", finishReason: "stop" };
      if (this.#over()) return;
      if (await this.#full()) {
        yield* this.#textEvents(text.rest());
        return yield { type: "end", finishReason: "length" };
      }
    }
    if (this.#over()) return;
    yield* this.#textEvents(text.rest());
    yield { type: "end", finishReason: this.usage.completionTokens >= this.#maxTokens ? "length" : "stop" };
  }

  /** Makes one token after the other and counts it, thinking first. */
  async *#tokens(): AsyncGenerator<ScriptToken, void, undefined> {
    const { tokens, failure, reasoningTokens = 0 } = this.#script;
    const next = this.#reader(tokens);
    for (let thought = 0; thought < reasoningTokens; thought += 1) {
      if (!(await this.#turn())) return;
      this.usage.reasoningTokens += 1;
      this.#count();
      if (await this.#full()) return;
    }
    for (let made = 0; ; made += 1) {
      if (!(await this.#turn())) return;
      if (failure !== undefined && made >= failure.afterTokens) {
        throw new EngineError(failure.kind, `the script fails after ${made} tokens`);
      }
      const result = await next();
      if (result === "stopped" || result.done === true || this.#over()) return;
      this.#count();
      yield result.value;
    }
  }

  /** Asks for the script's next token; one that may be long in coming loses against `stop`. */
  #reader(tokens: Script["tokens"]): () => Reading | Promise<Reading> {
    if (Symbol.iterator in tokens) {
      const source = tokens[Symbol.iterator]();
      return () => source.next();
    }
    const source = tokens[Symbol.asyncIterator]();
    return () => Promise.race([source.next(), this.#stopped.promise]);
  }

  #count(): void {
    this.usage.completionTokens += 1;
    this.#engine.tokensMade += 1;
    this.#options.onTokens(this.usage.completionTokens);
  }

  /** Whether no more tokens may be made; waits where they are only not paid for yet. */
  async #full(): Promise<boolean> {
    const { usage } = this;
    while (usage.completionTokens >= this.#paidTokens && usage.completionTokens < this.#maxTokens) {
      await Promise.race([this.#paying.promise, this.#stopped.promise]);
      if (!this.#wanted || this.#broken) return false;
    }
    return usage.completionTokens >= this.#maxTokens;
  }

  /** Takes the time of one token; false when no more are wanted. */
  async #turn(): Promise<boolean> {
    const { tokenDelayMs = 0 } = this.#script;
    if (tokenDelayMs === 0) await nextTurn();
    else {
      const delay = Promise.withResolvers<void>();
      const timer = setTimeout(delay.resolve, tokenDelayMs);
      await Promise.race([delay.promise, this.#stopped.promise]);
      clearTimeout(timer);
    }
    return !this.#over();
  }

  #over(): boolean {
    if (this.#broken) throw new EngineError("unavailable", "the scripted engine was closed");
    return !this.#wanted;
  }

  *#textEvents(texts: readonly string[]): Generator<EngineEvent, void, undefined> {
    const { topLogprobs } = this.#options.sampling;
    for (const text of texts) {
      if (text === "") continue;
      if (topLogprobs === undefined) yield { type: "text", text };
      else yield { type: "text", text, logprobs: [logprobOf(text, topLogprobs)] };
    }
  }
}

/** Holds back half a character and the beginning of a stop sequence. */
class TextGate {
  readonly #stops: StopFinder;
  readonly #decoder = new TextDecoder();

  constructor(stops: readonly string[]) {
    this.#stops = new StopFinder(stops);
  }

  add(token: ScriptToken): { released: string[]; stopped: boolean } {
    const bytes = typeof token === "string" ? Buffer.from(token) : token;
    const text = this.#decoder.decode(bytes, { stream: true });
    const { pieces, stopped } = this.#stops.push({ text, tokens: 1, logprobs: [] });
    return { released: pieces.map((piece) => piece.text), stopped };
  }

  /** Returns the text that is still held at the end of the answer. */
  rest(): string[] {
    return [...this.#stops.flush().map(({ text }) => text), this.#decoder.decode()];
  }
}

function failAt(step: "prepare" | "generate", { refusal }: Script): void {
  if (refusal?.at === step) throw new EngineError(refusal.kind, `the script fails at ${step}`);
}

export function countTokens({ messages }: Pick<Prompt, "messages">): number {
  return messages.reduce((sum, { content }) => sum + 1 + (content.match(/\S+/g)?.length ?? 0), 0);
}

/** Every token is certain, and every alternative as unlikely as the one before it. */
function logprobOf(token: string, alternatives: number): TokenLogprob {
  const bytes = [...Buffer.from(token)];
  const topLogprobs = Array.from({ length: alternatives }, (_, rank) => ({ token, logprob: -rank, bytes }));
  return { token, logprob: 0, bytes, topLogprobs };
}
