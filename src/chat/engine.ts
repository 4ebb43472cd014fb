/**
 * The port between the pipeline and whatever decodes tokens.
 *
 * An engine knows nothing of accounts' credits, HTTP or SSE. It is called in two steps: `prepare` counts the
 * prompt (so that its length and price are known before anything is held), `generate` makes the tokens.
 */

export type Role = "system" | "developer" | "user" | "assistant";

export interface Message {
  role: Role;
  content: string;
}

export interface Sampling {
  /** 0 to 2; 0 is greedy. Absent: the engine's default. */
  temperature?: number;
  /** 0 to 1; 0 is greedy. */
  topP?: number;
  /** 0 is off. */
  topK?: number;
  /** Any integer; engines fold it to 32 bits. */
  seed?: number;
  /** Any number; engines clamp to their range. */
  presencePenalty?: number;
  frequencyPenalty?: number;
  /** Up to four; none of them is ever sent. */
  stop: readonly string[];
  /** How many alternatives to report for each token (0 to 20); absent: no log-probabilities at all. */
  topLogprobs?: number;
}

export interface Reasoning {
  /** Unknown words mean the model's default effort. */
  effort?: string;
  /** Most tokens to think; 0 means no thinking. */
  maxTokens?: number;
}

export interface Prompt {
  /** Prefixes are reused, and queues are fair, per account. */
  accountId: string;
  messages: readonly Message[];
  reasoning: Reasoning;
  /** Whom the caller asks for, by a name of the caller's. Of use to engines that ask others; kept and logged nowhere. */
  user?: string;
}

export interface TokenLogprob {
  token: string;
  logprob: number;
  /** UTF-8 bytes of the token. */
  bytes: number[];
  topLogprobs: { token: string; logprob: number; bytes: number[] }[];
}

/** Whole tokens, never negative. Reasoning tokens are part of the completion tokens, cached ones of the prompt tokens. */
export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  /** True where an upstream's own numbers were missing or absurd and we counted instead. */
  estimated: boolean;
  /** True where they were absurd, which somebody should look into. */
  absurd?: boolean;
  /** True if the answer was ended here by a stop sequence, so that the upstream's own numbers could not come. */
  endedHere?: boolean;
}

/** The usage of a request that no engine has begun on. */
export const nothingMade: Usage = {
  promptTokens: 0,
  cachedTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  estimated: false,
};

export type FinishReason = "stop" | "length";

/**
 * What a generation yields in batches, in order: any number of `text` events, then one `end`. A batch has at least one event
 * and is what one network read or one decode step brought.
 * One `text` event for each token that has text by itself: a token that ends inside a UTF-8 character is joined
 * to the one that completes it, text that may begin a stop sequence waits until that is decided. Thinking is
 * never yielded, only counted in the usage.
 */
export type EngineEvent =
  | { type: "text"; text: string; logprobs?: TokenLogprob[] }
  | { type: "end"; finishReason: FinishReason };

export interface GenerateOptions {
  /** Most completion tokens, thinking included; at least 1. Reached: `finishReason: "length"`. */
  maxTokens: number;
  /** Completion tokens that are paid for, 1 to `maxTokens`: the decoder makes no more and waits there for `pay`. */
  paidTokens: number;
  sampling: Sampling;
  /**
   * Called as tokens are made, hidden ones too, with how many there are; also with those that have been made elsewhere and
   * wait here to be paid for. Must be cheap and must not throw.
   */
  onTokens(completionTokens: number): void;
}

/**
 * One running generation. Iterate it once. A reader that pauses holds up this generation only, within a bounded
 * buffer. Throws an `EngineError` when the engine fails.
 */
export interface Generation extends AsyncIterable<readonly EngineEvent[]> {
  /** What has been made so far. After `stop` has resolved, or the `end` event, it is final. Never fewer tokens than were yielded. */
  readonly usage: Usage;
  /**
   * More is paid for: `paidTokens` completion tokens in all. `isLast`: and no more will be, so that the generation
   * ends there with "length". Without effect on one that has ended.
   */
  extendBudget(paidTokens: number, isLast: boolean): void;
  /** True once the engine has begun on the prompt: from here on the prompt has been worked on and is paid for. */
  readonly started: boolean;
  /**
   * Stops the decoder within one token, ends the iteration and frees what the generation held in the engine;
   * resolves when that is done and `usage` is final. Idempotent, never rejects (a dead engine makes no tokens).
   */
  stop(): Promise<void>;
}

export interface PreparedPrompt {
  /** Tokens of the prompt, as it would be charged. */
  readonly promptTokens: number;
  /**
   * Queues the generation. Throws `EngineError` "overloaded" at once when the engine's queue is full, "unavailable"
   * when it cannot run now; later failures come out of the iteration.
   */
  generate(options: GenerateOptions): Generation;
}

/** Generations in the engine at this moment. */
export interface EngineLoad {
  /** Being decoded together. */
  running: number;
  /** In line for a place among them. */
  waiting: number;
  /** Begun, and without a place for now. Absent: this engine pauses none. */
  paused?: number;
  /** How long the oldest of those in line has waited; 0 if there are none. */
  oldestWaitMs?: number;
  /** The longest that an account with requests in line has had no place at all. */
  starvedMs?: number;
}

export type EngineState = "starting" | "ready" | "unavailable" | "closed";

export interface Engine {
  /** Tokens that prompt and completion may take together. */
  readonly contextWindow: number;
  /**
   * Tokens may be made that nobody hears of before the end, so that no slice can hold them up: all that an answer may
   * have is held for beforehand. Absent: false.
   */
  readonly reportsUsageLate?: boolean;
  readonly state: EngineState;
  /** Counts the prompt. Throws `EngineError`; bounded in time by the engine itself. */
  prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt>;
  /** Absent, or null: not known (yet). */
  load?(): EngineLoad | null;
  /** Ends every running generation (their iterations fail with "unavailable") and frees everything. Idempotent. */
  close(): Promise<void>;
}

/** "too_long": the prompt turned out not to fit, which only an engine that counts elsewhere finds out so late. */
export type EngineFailure = "overloaded" | "unavailable" | "failed" | "timeout" | "too_long";

/** Why an engine gave no answer. `message` is for the operator's log and never reaches a caller. */
export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly failure: EngineFailure;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    failure: EngineFailure,
    message: string,
    options: { retryAfterSeconds?: number; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.failure = failure;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}
