/**
 * Messages between the service and the engine's child process, sent over the IPC channel
 * (structured clone).
 *
 * Both ends run this source tree, so messages are not validated. The child sends one `progress`
 * message at the start of each decode step. It holds the output of all jobs from the step before.
 */
import type { EngineEvent, Message, Reasoning, Sampling } from "../../chat/engine.ts";
import type { ThinkTags } from "../text/thinking-filter.ts";

export type Gpu = "auto" | "cuda" | "vulkan" | "metal" | false;

export interface LoadOptions {
  modelPath: string;
  /** Maximum tokens of one sequence, lowered to the length that the model was trained for. */
  contextWindow: number;
  /** Sequences decoded together. */
  parallel: number;
  /** Memory limit for the states of paused jobs (decode/saved-states.ts). */
  pausedBytesMax: number;
  threads: number;
  /** Maximum threads of one decode on a CPU (decode/thread-governor.ts). Default: `threads`. */
  threadsMax?: number | undefined;
  gpu: Gpu;
  /** Default: taken from the model's chat template. Null: the model does not think. */
  thinkTags?: ThinkTags | null | undefined;
  /** Time limit of rendering a conversation with the chat template. Default 5 s. */
  renderMs?: number | undefined;
}

export interface LoadedModel {
  contextWindow: number;
  /** The model's own name, its size and its quantisation, for the log. */
  description: string;
  /** Size of all weights. */
  sizeBytes: number;
}

/** Part of the result of `prepare` that `start` needs. */
export interface PromptPlan {
  tokens: Uint32Array;
  /** True if the prompt itself opens the thinking. */
  thinking: boolean;
  /** Maximum thinking tokens. Default: limited only by the completion. */
  thinkingTokensMax?: number | undefined;
}

/** `prompt` is null if the prompt cannot fit the window; `promptTokens` is then a lower bound. */
export interface Prepared {
  promptTokens: number;
  prompt: PromptPlan | null;
}

export interface JobSpec {
  id: number;
  accountId: string;
  prompt: PromptPlan;
  maxTokens: number;
  /** Completion tokens that are paid for. The job waits there for an `extendBudget` message. */
  paidTokens: number;
  sampling: Sampling;
  /** Text events that the child may send before the first `grant`. */
  window: number;
}

export type ToChild =
  | { type: "load"; options: LoadOptions }
  | { type: "prepare"; id: number; messages: readonly Message[]; reasoning: Reasoning }
  | { type: "start"; job: JobSpec }
  | { type: "grant"; id: number; events: number }
  /** `isLast`: the job ends at `paidTokens`, as it would at `maxTokens`. */
  | { type: "extendBudget"; id: number; paidTokens: number; isLast: boolean }
  /** The job takes no part in the next step. A later job may get its sequence. */
  | { type: "pause"; id: number }
  /** The job continues in its own sequence, or in another one if its own is in use. */
  | { type: "resume"; id: number }
  | { type: "stop"; id: number };

export type TextEvent = Extract<EngineEvent, { type: "text" }>;

export type JobEnding =
  /** The model ended its turn, or a stop sequence was generated. */
  | { type: "stop" }
  | { type: "length" }
  /** Reply to a `stop` message. */
  | { type: "stopped" }
  | { type: "failed"; message: string };

/** Output of a job in one step. Counts are totals. The first one reports the start. */
export interface JobProgress {
  id: number;
  events: TextEvent[];
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  ending?: JobEnding;
}

/** Phase of a child that loads a model. */
export type LoadPhase = "process" | "weights" | "template";

export type FromChild =
  /** The child's code runs and waits for `load`. */
  | { type: "up" }
  | { type: "loading"; phase: LoadPhase }
  | { type: "loaded"; model: LoadedModel }
  /**
   * The model cannot be used. `message` is for the operator, in whole sentences. The child ends.
   */
  | { type: "refused"; message: string }
  /** `workMs`: processor time of the thread that drives the decoder. */
  | ({ type: "prepared"; id: number; workMs: number } & Prepared)
  | { type: "prepareFailed"; id: number; message: string; workMs: number }
  /** `batches`: number of jobs in each decode since the last `progress` message. */
  | { type: "progress"; jobs: JobProgress[]; batches: number[] }
  /** The job has this sequence. `tookMs`: decode time lost to all jobs by restoring it. */
  | { type: "placed"; id: number; sequence: number; tookMs: number }
  | { type: "log"; level: "info" | "warn" | "error"; message: string };

/** Accepts any object with a `type`. The receiver ignores types that it does not handle. */
export function isMessage<M extends ToChild | FromChild>(message: unknown): message is M {
  return typeof message === "object" && message !== null && "type" in message;
}
