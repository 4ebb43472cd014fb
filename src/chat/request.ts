/** A chat request after the edge has parsed and checked it: what the pipeline works from. */
import type { Message, Reasoning, Sampling } from "./engine.ts";

export interface ChatRequest {
  model: string;
  messages: readonly Message[];
  /** The smaller of `max_tokens` and `max_completion_tokens`. Absent: the model's default, else what the window leaves. */
  maxTokens?: number;
  sampling: Sampling;
  reasoning: Reasoning;
  user?: string;
  /** The caller gets the answer as it is made. Otherwise nothing of it is delivered before its end. */
  stream: boolean;
}

/** Values that a model gives a request that sets none. */
export interface RequestDefaults {
  temperature?: number;
  topP?: number;
  topK?: number;
  maxTokens?: number;
}

/** Returns the request with the model's defaults filled in. A value of the request always wins. */
export function withDefaults(request: ChatRequest, defaults: RequestDefaults): ChatRequest {
  const { maxTokens, ...sampling } = defaults;
  return {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...request,
    sampling: { ...sampling, ...request.sampling },
  };
}
