/** A chat request after the edge has parsed and checked it: what the pipeline works from. */
import type { Message, Reasoning, Sampling } from "./engine.ts";

export interface ChatRequest {
  model: string;
  messages: readonly Message[];
  /** The smaller of `max_tokens` and `max_completion_tokens`; absent: as much as the window leaves. */
  maxTokens?: number;
  sampling: Sampling;
  reasoning: Reasoning;
  user?: string;
  /** The caller gets the answer as it is made. Otherwise nothing of it is delivered before its end. */
  stream: boolean;
}
