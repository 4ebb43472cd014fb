/**
 * What the service and the engine's child process say to each other over the IPC channel (structured clone).
 *
 * Both ends are this source tree, so a message is recognised by its `type` and not checked further. The child
 * sends a `progress` message for each decode step as it begins, with what all sequences made in the one before.
 */
import type { Message, Reasoning, Sampling, TokenLogprob } from "../../chat/engine.ts";
import type { ThinkTags } from "../text/thinking.ts";

export type Gpu = "auto" | "cuda" | "vulkan" | "metal" | false;

export interface LoadOptions {
  modelPath: string;
  /** Most tokens of one sequence; lowered to what the model was trained for. */
  contextWindow: number;
  /** Sequences decoded together. */
  parallel: number;
  /** Bytes of memory for the states of paused jobs; a job that finds no room there is evaluated again when it goes on. */
  pausedBytesMax: number;
  threads: number;
  /** Absent: always `threads`. More: each decode may get as many where that is quicker (thread-governor.ts); not on a GPU. */
  threadsMax?: number | undefined;
  gpu: Gpu;
  /** Absent: found in the model's chat template. Null: the model does not think. */
  thinkTags?: ThinkTags | null | undefined;
}

export interface LoadedModel {
  contextWindow: number;
  /** What the model calls itself, its size and its quantisation; for the log. */
  description: string;
  /** Of all its weights. */
  sizeBytes: number;
  /** Null where the model does not think. */
  thinkTags: ThinkTags | null;
}

/** What `prepare` found out and `start` needs again. */
export interface PromptPlan {
  tokens: Uint32Array;
  /** True where the prompt itself opens the thinking. */
  thinking: boolean;
  /** Most tokens to think; absent: no limit but the completion's own. */
  thinkingTokensMax?: number | undefined;
}

export interface JobSpec {
  id: number;
  accountId: string;
  prompt: PromptPlan;
  maxTokens: number;
  /** Completion tokens that are paid for; the job rests when it has made them, until a `pay`. */
  paidTokens: number;
  sampling: Sampling;
  /** Text events that may be sent before the first `grant`. */
  window: number;
}

export type ToChild =
  | { type: "load"; options: LoadOptions }
  | { type: "prepare"; id: number; messages: readonly Message[]; reasoning: Reasoning }
  | { type: "start"; job: JobSpec }
  | { type: "grant"; id: number; events: number }
  /** `isLast`: the job ends there, as at `maxTokens`. */
  | { type: "pay"; id: number; paidTokens: number; isLast: boolean }
  /** The job gives up its place before the next step; a later job may get its sequence. */
  | { type: "pause"; id: number }
  /** In its own sequence, or in another one if a job that runs has that. */
  | { type: "resume"; id: number }
  | { type: "stop"; id: number };

export interface TextEvent {
  type: "text";
  text: string;
  logprobs?: TokenLogprob[];
}

export type JobEnding =
  /** The model ended its turn, or a stop sequence did. */
  | { type: "stop" }
  | { type: "length" }
  /** As asked for by a `stop` message. */
  | { type: "stopped" }
  | { type: "failed"; message: string };

/** What one job made in one decode step; the counts are totals. The first one says that the job has begun. */
export interface JobProgress {
  id: number;
  events: TextEvent[];
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  ending?: JobEnding;
}

/** What a child that loads a model is doing. */
export type LoadPhase = "process" | "weights" | "template";

export type FromChild =
  /** The child's code runs and waits for `load`. */
  | { type: "up" }
  | { type: "loading"; phase: LoadPhase }
  | { type: "loaded"; model: LoadedModel }
  /** The model cannot be used; `message` is for the operator, whole sentences. The child ends. */
  | { type: "refused"; message: string }
  /**
   * `prompt` is null where the prompt cannot fit the window; `promptTokens` is then the least it can have. `workMs`: processor
   * time that the thread which drives the decoder has spent meanwhile.
   */
  | { type: "prepared"; id: number; promptTokens: number; prompt: PromptPlan | null; workMs: number }
  | { type: "prepareFailed"; id: number; message: string; workMs: number }
  /** `batches`: how many jobs each decode that has begun since the last such message has in it; one decode, or none. */
  | { type: "progress"; jobs: JobProgress[]; batches: number[] }
  /** The job has this sequence. `tookMs`: what it cost to bring it back, in time that no job was decoded. */
  | { type: "placed"; id: number; sequence: number; tookMs: number }
  | { type: "log"; level: "info" | "warn" | "error"; message: string };

const toChildTypes: ReadonlySet<unknown> = new Set<ToChild["type"]>([
  "load",
  "prepare",
  "start",
  "grant",
  "pay",
  "pause",
  "resume",
  "stop",
]);
const fromChildTypes: ReadonlySet<unknown> = new Set<FromChild["type"]>([
  "up",
  "loading",
  "loaded",
  "refused",
  "prepared",
  "prepareFailed",
  "progress",
  "placed",
  "log",
]);

export function isToChild(message: unknown): message is ToChild {
  return (
    typeof message === "object" && message !== null && "type" in message && toChildTypes.has(message.type)
  );
}

export function isFromChild(message: unknown): message is FromChild {
  return (
    typeof message === "object" && message !== null && "type" in message && fromChildTypes.has(message.type)
  );
}
