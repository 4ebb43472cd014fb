/**
 * One job of the decode loop: its input, its completion so far, and the tokens that its next step
 * evaluates.
 *
 * Guarantees: generates no more tokens than are paid for, fit the context window and were asked
 * for. Chunks of the input lie on a grid that starts with the prompt, so equal prompts are cut at
 * equal slots.
 */
import type { TokenLogprob } from "../../../chat/engine.ts";
import { given } from "../../../objects.ts";
import type { ThinkTags } from "../../text/thinking-filter.ts";
import type { Vocabulary } from "../prompt/vocabulary.ts";
import type { JobEnding, JobProgress, JobSpec, TextEvent } from "../protocol.ts";
import { CompletionText } from "./completion-text.ts";
import type { Backend, BatchEntry, Sampler } from "./native-backend.ts";
import { samplerConfig } from "./sampling.ts";
import type { Lease } from "./sequence-pool.ts";

export interface JobContext {
  backend: Backend;
  vocabulary: Vocabulary;
  isEndOfTurn: (token: number) => boolean;
  thinkTags: ThinkTags | null;
  /** Closes the thinking at its limit. Not counted as completion tokens. */
  closingTokens: Uint32Array;
  contextWindow: number;
}

/** Output of one step, with the ending if the job is over. */
export interface Output {
  events: TextEvent[];
  ending?: JobEnding;
}

export class Job {
  readonly spec: JobSpec;
  readonly lease: Lease;
  readonly sampler: Sampler;
  readonly #context: JobContext;
  readonly #text: CompletionText;
  readonly #cachedTokens: number;
  /**
   * Evaluated in chunks before anything else: the prompt, or the whole text if its state was lost.
   */
  input: Uint32Array;
  /** Number of its prompt's last turn (prompt-turns.ts). */
  lastTurn: number;
  /** Events that the reader still has room for. */
  #room: number;
  #paidTokens: number;
  #completionTokensMax: number;
  #completionTokens = 0;
  /** Tokens to evaluate after the input. Empty until the first token is sampled. */
  #next = new Uint32Array(0);

  constructor(spec: JobSpec, lease: Lease, lastTurn: number, context: JobContext) {
    const { backend, contextWindow, thinkTags, vocabulary } = context;
    const { prompt, sampling } = spec;
    this.spec = spec;
    this.lease = lease;
    this.lastTurn = lastTurn;
    this.#context = context;
    this.input = prompt.tokens;
    this.sampler = backend.newSampler(samplerConfig(sampling, contextWindow));
    this.#text = new CompletionText({
      stop: sampling.stop,
      thinkTags,
      thinking: prompt.thinking,
      dropFirstSpace: vocabulary.dropFirstSpace,
    });
    this.#cachedTokens = lease.sequence.tokens.length;
    this.#room = spec.window;
    this.#paidTokens = spec.paidTokens;
    this.#completionTokensMax = Math.min(spec.maxTokens, contextWindow - prompt.tokens.length);
  }

  /** Part of its input is not in its sequence yet. */
  get isPrefilling(): boolean {
    return this.lease.sequence.tokens.length < this.input.length;
  }

  /** The next token is paid for, and the reader has room for its text. */
  get mayGenerate(): boolean {
    return this.#room > 0 && this.#completionTokens < this.#paidTokens;
  }

  /**
   * All tokens have been generated. True between steps only if the limit was lowered by
   * `extendBudget`.
   */
  get isComplete(): boolean {
    return this.#completionTokens > 0 && this.#completionTokens >= this.#completionTokensMax;
  }

  get isThinking(): boolean {
    return this.#text.thinking;
  }

  grant(events: number): void {
    this.#room += events;
  }

  extendBudget(paidTokens: number, isLast: boolean): void {
    this.#paidTokens = paidTokens;
    if (isLast) this.#completionTokensMax = Math.min(this.#completionTokensMax, paidTokens);
  }

  /** Returns the tokens that its next step evaluates. */
  entry(): BatchEntry {
    const { sequence } = this.lease;
    const position = sequence.tokens.length;
    if (!this.isPrefilling) return { sequence: sequence.index, position, tokens: this.#next, sample: true };
    const { chunkTokens } = this.#context.backend;
    const end = Math.min((Math.floor(position / chunkTokens) + 1) * chunkTokens, this.input.length);
    return {
      sequence: sequence.index,
      position,
      tokens: this.input.subarray(position, end),
      // Text that is evaluated again already has its next token.
      sample: end === this.input.length && this.#next.length === 0,
    };
  }

  /** Records that an entry is in the sequence now. `alone`: no other job was in the batch. */
  evaluated({ position, tokens }: BatchEntry, alone: boolean): void {
    const { sequence } = this.lease;
    const { chunkTokens } = this.#context.backend;
    const isWholeChunk = this.isPrefilling && tokens.length === chunkTokens;
    if (alone && isWholeChunk && sequence.repeatable === position) sequence.repeatable += chunkTokens;
    for (const token of tokens) sequence.tokens.push(token);
  }

  /** Adds a sampled token. */
  accept(token: number, logprob: TokenLogprob | undefined): Output {
    const { closingTokens, contextWindow, isEndOfTurn } = this.#context;
    const { thinkingTokensMax } = this.spec.prompt;
    const text = this.#text;
    if (isEndOfTurn(token)) return { events: text.end(), ending: { type: "stop" } };
    this.#completionTokens += 1;
    const events = text.push(this.#bytesOf(token), logprob);
    if (text.stopped) return { events, ending: { type: "stop" } };
    if (this.isComplete) return this.complete(events);
    if (text.thinking && thinkingTokensMax !== undefined && text.reasoningTokens >= thinkingTokensMax) {
      text.closeThinking();
      this.#next = Uint32Array.of(token, ...closingTokens);
    } else {
      this.#next = Uint32Array.of(token);
    }
    // Only closing tags can exceed the window, because they are not part of `completionTokensMax`.
    if (this.lease.sequence.tokens.length + this.#next.length > contextWindow) return this.complete(events);
    this.#room -= events.length;
    return { events };
  }

  /** Ends the text at its token limit. Text that was held may still complete a stop sequence. */
  complete(events: readonly TextEvent[] = []): Output {
    const all = [...events, ...this.#text.end()];
    return { events: all, ending: { type: this.#text.stopped ? "stop" : "length" } };
  }

  progress({ events, ending }: Output): JobProgress {
    const counts = {
      cachedTokens: this.#cachedTokens,
      completionTokens: this.#completionTokens,
      reasoningTokens: this.#text.reasoningTokens,
    };
    return { id: this.spec.id, events, ...counts, ...given({ ending }) };
  }

  /** A thinking tag may be a control token, which has no text of its own. */
  #bytesOf(token: number): Uint8Array {
    const { thinkTags, vocabulary } = this.#context;
    const isTag = thinkTags?.some((tag) => vocabulary.markers.get(tag) === token) ?? false;
    return isTag ? vocabulary.nameBytesOf(token) : vocabulary.bytesOf(token);
  }
}
