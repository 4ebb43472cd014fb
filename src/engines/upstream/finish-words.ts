/**
 * The words with which servers end an answer, and what each means for the caller. A cut or
 * withheld answer must not look complete, and a breakdown is a failure.
 *
 * Pure. Case does not count, and "-" is "_".
 */
import type { FinishReason } from "../../chat/engine.ts";

/** "unknown": passed on as "stop", and reported to the operator. */
type Meaning = FinishReason | "failure" | "unknown";

const words: Readonly<Record<Exclude<Meaning, "unknown">, string>> = {
  // OpenAI, with the tools that are never sent; TGI, Anthropic, Cohere, SGLang, LM Studio.
  stop: `stop tool_calls function_call eos eos_token eos_found end end_turn end_of_turn tool_use
    stop_sequence stop_token stopword complete completed done`,
  // Gemini and Anthropic, Mistral, Zhipu, servers of Hugging Face.
  length: `length max_tokens model_length max_output_tokens max_completion_tokens max_new_tokens
    max_length token_limit model_context_window_exceeded incomplete`,
  // Gemini (seven), Anthropic, Zhipu, Cohere, AWS (two).
  content_filter: `content_filter safety recitation blocklist prohibited_content spii language
    image_safety refusal sensitive error_toxic content_filtered guardrail_intervened moderation
    content_policy_violation data_inspection_failed`,
  // vLLM and SGLang, DeepSeek, Zhipu, OpenRouter, Cohere, Gemini.
  failure: `error abort aborted cancelled canceled insufficient_system_resource network_error
    server_error internal_error engine_error failed timeout overloaded error_limit malformed_response`,
};

export function meaningOf(word: string): Meaning {
  const name = word.toLowerCase().replaceAll("-", "_").replace(prefix, "");
  for (const meaning of ["stop", "length", "content_filter", "failure"] as const) {
    if (words[meaning].split(/\s+/).includes(name)) return meaning;
  }
  return "unknown";
}

/** Some SDKs of Gemini put this before each word. */
const prefix = /^finish_reason_/;
