/** A chat request after parsing and validation. */
import type { Message, Reasoning, Sampling } from "./engine.ts";

export interface ChatRequest {
  model: string;
  messages: readonly Message[];
  /**
   * The smaller of `max_tokens` and `max_completion_tokens`. Absent: the model's default, or as
   * many as the window leaves.
   */
  maxTokens?: number;
  sampling: Sampling;
  reasoning: Reasoning;
  user?: string;
  /** The answer is delivered while it is generated. Otherwise it is delivered at its end. */
  stream: boolean;
}

/** Values for requests that do not set them. */
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
