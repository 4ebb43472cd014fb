/**
 * The port between the pipeline and the engines that generate text.
 *
 * An engine does not know credits, callers' keys or the public format. The pipeline calls it in
 * two steps: `prepare` counts the prompt, so that its length and price are known before the hold,
 * and `generate` generates the answer.
 */

import { noTokens, type TokenCounts } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";

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
  /** Any integer. An engine that takes fewer bits folds it. */
  seed?: number;
  /** Any number. The embedded engine clamps to its range; an upstream gets it as it is. */
  presencePenalty?: number;
  frequencyPenalty?: number;
  /** Up to four stop sequences. They are never part of the answer. */
  stop: readonly string[];
  /** Report the log-probability of each token. */
  logprobs?: boolean;
  /** Number of alternatives for each token, 0 to 20, if `logprobs` is true. Default: 0. */
  topLogprobs?: number;
}

export interface Reasoning {
  /** Unknown words mean the model's default effort. */
  effort?: string;
  /** Most tokens to think; 0 means no thinking. */
  maxTokens?: number;
}

export interface Prompt {
  /** Prefixes are reused within an account, and queues are fair between accounts. */
  accountId: string;
  messages: readonly Message[];
  reasoning: Reasoning;
  /** The caller's name for its user. Passed to upstreams, never logged. */
  user?: string;
}

export interface TokenLogprob {
  token: string;
  logprob: number;
  /** UTF-8 bytes of the token. */
  bytes: number[];
  topLogprobs: { token: string; logprob: number; bytes: number[] }[];
}

/**
 * Whole tokens, never negative. Reasoning tokens are part of the completion tokens, cached ones of
 * the prompt tokens.
 */
export interface Usage extends TokenCounts {
  /**
   * True if the upstream's counts were missing or impossible, so that tokens were counted here.
   */
  estimated: boolean;
  /** True if the upstream's counts were impossible. The operator should look into it. */
  absurd?: boolean;
  /** True if a stop sequence ended the answer here, before the upstream sent its counts. */
  endedHere?: boolean;
  /** Something odd about the counts, for the receipt: a line without data of the request. */
  note?: string;
}

/** Usage of a request that no engine has started on. */
export const nothingMade: Usage = { ...noTokens, estimated: false };

/** "content_filter": an upstream withheld the rest of its answer. */
export type FinishReason = "stop" | "length" | "content_filter";

/**
 * Event of a generation. A generation yields text events, then one `end`, in batches. A batch has
 * the events of one network read or one decode step, at least one. Each text event is one token. A
 * token that ends inside a UTF-8 character is joined to the next. Text that may start a stop
 * sequence is held. Thinking is counted in the usage and never yielded.
 */
export type EngineEvent =
  | { type: "text"; text: string; logprobs?: TokenLogprob[] }
  /** `isCut`: ended with "length" here, although the server would have continued. */
  | { type: "end"; finishReason: FinishReason; isCut?: boolean };

export interface GenerateOptions {
  /**
   * Limit of completion tokens, thinking included; at least 1. An answer that reaches it ends with
   * "length".
   */
  maxTokens: number;
  /**
   * Completion tokens that are paid for, 1 to `maxTokens`. The engine yields no more until
   * `extendBudget`.
   */
  paidTokens: number;
  /**
   * False if the caller asked for no limit of tokens, so an upstream may do without one. Default:
   * true.
   */
  isLimited?: boolean;
  /**
   * The text is sent to the caller as a whole, so an engine may yield it and count it up to 20 ms
   * late, but for the first. Default: false.
   */
  isWhole?: boolean;
  sampling: Sampling;
  /**
   * Called with the number of tokens generated so far, hidden tokens included. It includes tokens
   * of an upstream that wait for an extension of the budget. Must be cheap and must not throw.
   */
  onTokens(completionTokens: number): void;
}

/**
 * One running generation. Iterate it once. A slow reader holds up only this generation, within a
 * bounded buffer. The iteration throws an `EngineError` if the engine fails.
 */
export interface Generation extends AsyncIterable<readonly EngineEvent[]> {
  /**
   * Usage so far, at least the tokens that were yielded. Final after the `end` event or a resolved
   * `stop`.
   */
  readonly usage: Usage;
  /**
   * Extends the budget to `paidTokens` completion tokens in all. With `isLast`, no further
   * extension follows, and the generation ends there with "length". Has no effect after the end.
   */
  extendBudget(paidTokens: number, isLast: boolean): void;
  /**
   * True while an engine works on the prompt or has worked on it, so that the prompt is charged.
   * False again if the request is sent to another server.
   */
  readonly started: boolean;
  /**
   * Stops the generation within one token, ends the iteration and frees its slot in the engine.
   * Resolves when `usage` is final. Idempotent, and never rejects.
   */
  stop(): Promise<void>;
}

/** Most tokens of any context window. Its cost at the highest price is a safe integer. */
export const contextWindowMax = 16_777_216;

/** Most tokens of a prompt that is not counted. */
export interface PromptBound {
  tokens: number;
  /** The same of the shortest prompt. */
  shortestTokens: number;
}

export interface PreparedPrompt {
  /** Tokens of the prompt, or an estimate if there is a `bound`. Limits per minute count them. */
  readonly promptTokens: number;
  /**
   * Absent: the prompt is counted, and compared with the context window. Otherwise the hold pays
   * for the bound, and the upstream decides whether the prompt fits.
   */
  readonly bound?: PromptBound;
  /**
   * Queues the generation. Throws an `EngineError` "overloaded" if the engine's queue is full, or
   * "unavailable" if the engine cannot run now. The iteration throws later failures.
   */
  generate(options: GenerateOptions): Generation;
}

/** Generations in the engine at this moment. */
export interface EngineLoad {
  /** Generations that are being decoded. */
  running: number;
  /** Generations that wait for a slot. */
  waiting: number;
  /**
   * Started generations without a slot for now. Absent: this engine does not pause generations.
   */
  paused?: number;
  /** Longest wait in the queue, or 0. */
  oldestWaitMs?: number;
  /** Longest time that an account with waiting requests has had no slot. */
  starvedMs?: number;
}

/** A server that an engine sends requests to. */
export interface EngineServer {
  /** Without credentials. */
  url: string;
  /**
   * `down`: it does not respond, or with a 5xx, when it is asked for its models. `resting`: it
   * kept failing requests, and gets none for a while. `out_of_credit`: the operator's account
   * there is empty, and it gets a request every five minutes.
   */
  state: "ok" | "down" | "resting" | "out_of_credit";
  /** When this state began. */
  sinceMs: EpochMs;
  running: number;
  /** Accounts whose requests kept failing there, and are not sent for a while. */
  pausedAccounts: number;
  /** The last failure, without data of a request. */
  lastError: { atMs: EpochMs; message: string } | null;
  /** Oddities of its answers in the last hour, for the operator. */
  notices: EngineNotice[];
}

/**
 * `unknown_ending`: it ends answers with an unknown word. `odd_total`: its counts do not add up to
 * its total. `no_text`: tokens without text were charged. `prompt_cut`: it counts far fewer tokens
 * than the prompt has. `corrected_field`: it refused a field that Inkwell adds.
 */
export type NoticeKind = "unknown_ending" | "odd_total" | "no_text" | "prompt_cut" | "corrected_field";

export interface EngineNotice {
  kind: NoticeKind;
  /** When it was last seen. */
  atMs: EpochMs;
  message: string;
}

export type EngineState = "starting" | "ready" | "unavailable" | "closed";

export interface Engine {
  /** Limit of tokens for prompt and completion together. */
  readonly contextWindow: number;
  /**
   * True if tokens are reported only at the end. The whole answer is then held in advance.
   * Default: false.
   */
  readonly reportsUsageLate?: boolean;
  readonly state: EngineState;
  /** Sentences about its start, for the operator. Without addresses and paths. */
  readonly warnings?: readonly string[];
  /** Counts the prompt, in bounded time. Throws an `EngineError`. */
  prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt>;
  /** Absent or null: unknown. */
  load?(): EngineLoad | null;
  /** Absent or null: the engine has no servers. */
  servers?(): EngineServer[] | null;
  /** The operator has reloaded the configuration: what was learned of failures is forgotten. */
  reloaded?(): void;
  /**
   * Ends every running generation (their iterations fail with "unavailable") and frees everything.
   * Idempotent.
   */
  close(): Promise<void>;
}

/**
 * "too_long": the upstream rejected the prompt as too long. "filtered": its moderation refused the
 * prompt. "rejected": it rejected the request for another reason. In these cases the caller can
 * correct it, and no token was generated. "out_of_credit": only the operator can help, because the
 * account at the provider is empty.
 */
export type EngineFailure =
  | "overloaded"
  | "unavailable"
  | "failed"
  | "timeout"
  | "out_of_credit"
  | "too_long"
  | "filtered"
  | "rejected";

/** The request is at fault, not the engine. */
export function isCallersFailure(failure: EngineFailure): boolean {
  return failure === "too_long" || failure === "filtered" || failure === "rejected";
}

/** Why an upstream rejected a request. */
export interface RejectionReason {
  /** The upstream's own sentence. Empty if there is none, or the operator does not pass it on. */
  sentence: string;
  /** Path of the parameter at fault in the caller's request, or null. */
  param: string | null;
  isTooLarge: boolean;
}

interface EngineErrorOptions {
  retryAfterSeconds?: number;
  /** Given with "rejected". */
  reason?: RejectionReason;
  cause?: unknown;
}

/** Failure of an engine. `message` is for the operator's log and never reaches a caller. */
export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly failure: EngineFailure;
  readonly retryAfterSeconds: number | undefined;
  readonly reason: RejectionReason | undefined;

  constructor(failure: EngineFailure, message: string, options: EngineErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.failure = failure;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.reason = options.reason;
  }

  get isCallers(): boolean {
    return isCallersFailure(this.failure);
  }
}
