/**
 * The answers in OpenAI's format: chunks of a stream, whole completions, the list of
 * models, and the rate-limit headers.
 */

import { longestAnswer, type Model, type RequestDefaults } from "../../chat/catalog.ts";
import type { FinishReason, TokenLogprob, Usage } from "../../chat/engine.ts";
import type { Price } from "../../ledger/pricing.ts";
import { type RateName, type Rates, rateNames } from "../../ledger/rate-limits.ts";
import { type BucketAmounts, buckets } from "../../ledger/rows.ts";
import { given } from "../../objects.ts";
import type { MicroCredits } from "../../units.ts";

/** Fields that a completion and every chunk of a stream share. */
export interface AnswerHead {
  /** `chatcmpl-` and the request id. */
  id: string;
  /** Seconds since the epoch. */
  created: number;
  model: string;
}

export const doneEvent = "data: [DONE]\n\n";

/**
 * A comment in the block of the next event: some parsers take each blank line for an event, and an
 * event without data breaks them.
 */
export const keepAliveComment = ": keep-alive\n";

/** The cost of a request, and the credits that are left. */
interface Paid {
  costMicro: MicroCredits;
  /** Of each bucket. */
  left: BucketAmounts;
}

/** Headers with the cost of an answer and the balance after it, in credits: 0.001234. */
export function paidHeaders({ costMicro, left }: Paid): Record<string, string> {
  // The sum of the buckets can have more digits than a number.
  const leftMicro = buckets.reduce((sum, bucket) => sum + BigInt(left[bucket]), 0n);
  return { "x-inkwell-cost": decimalOf(BigInt(costMicro)), "x-inkwell-balance": decimalOf(leftMicro) };
}

function decimalOf(micro: bigint): string {
  const digits = String(micro).padStart(7, "0");
  return `${digits.slice(0, -6)}.${digits.slice(-6)}`.replace(/\.?0+$/, "");
}

/** The same for a stream: a comment, which clients that do not look for it skip. */
export function paidComment(paid: Paid): string {
  const parts = Object.entries(paidHeaders(paid)).map(([name, value]) => `${name}: ${value}`);
  return `: ${parts.join(", ")}\n`;
}

/** Returns an error event. `body` is the JSON of an error body; `fields` are added to it. */
export function errorEvent(body: string, fields = ""): string {
  return `data: ${oneLine(fields === "" ? body : `${body.slice(0, -1)},${fields}}`)}\n\n`;
}

/**
 * Most tokens are printable ASCII, which needs no escapes. This check is faster than
 * `JSON.stringify`.
 */
export function textJson(text: string): string {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x20 || unit > 0x7e || unit === 0x22 || unit === 0x5c) return oneLine(JSON.stringify(text));
  }
  return `"${text}"`;
}

/**
 * Escapes three characters that JSON allows unescaped. Unicode line readers (Python's
 * `splitlines`, which some clients use on event streams) would split an event at them.
 */
export function oneLine(json: string): string {
  return /[\u0085\u2028\u2029]/.test(json)
    ? json.replace(
        /[\u0085\u2028\u2029]/g,
        (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
      )
    : json;
}

export interface WholeAnswer {
  text: string;
  /** Tokens encoded by `logprobJson`. Absent unless the request asks for them. */
  logprobs?: readonly string[];
  finishReason: FinishReason;
  usage: Usage;
}

/**
 * Returns the JSON of a whole answer. Its log-probabilities are already encoded: those of 8,192
 * tokens with 20 alternatives are 12 MB, and would block the event loop for 0.1 s if encoded
 * together.
 */
export function completionJson(head: AnswerHead, answer: WholeAnswer): string {
  const { text, logprobs, finishReason, usage } = answer;
  const { id, created, model } = head;
  const fields = JSON.stringify({ id, object: "chat.completion", created, model }).slice(0, -1);
  // Role and content only, so that a client may send the message back as it is.
  const message = JSON.stringify({ role: "assistant", content: text });
  const content = logprobs === undefined ? "" : `"logprobs":${logprobsJson(logprobs)},`;
  const choice = `{"index":0,"message":${message},${content}"finish_reason":"${finishReason}"}`;
  return `${fields},"choices":[${choice}],"usage":${JSON.stringify(usageObject(usage))}}`;
}

export function usageObject(usage: Usage) {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}

/** `tokens` are encoded by `logprobJson`. */
export function logprobsJson(tokens: readonly string[]): string {
  return `{"content":[${tokens.join(",")}],"refusal":null}`;
}

export function logprobJson({ token, logprob, bytes, topLogprobs }: TokenLogprob): string {
  return JSON.stringify({ token, logprob, bytes, top_logprobs: topLogprobs });
}

export function modelList(models: readonly Model[]) {
  return {
    object: "list",
    data: models.map(({ id, created, engine, outputTokensMax, defaults = {}, price }) => ({
      id,
      object: "model",
      created,
      owned_by: "inkwell",
      context_window: engine.contextWindow,
      max_output_tokens: longestAnswer(engine.contextWindow, outputTokensMax),
      defaults: defaultsObject(defaults),
      pricing: pricingObject(price),
    })),
  };
}

/** Credits per million tokens. */
export function pricingObject({ prompt, completion, cachedPrompt = prompt }: Price) {
  return { prompt, completion, cached_prompt: cachedPrompt };
}

/** Returns the defaults that are set, under the names that requests use. */
export function defaultsObject(defaults: RequestDefaults) {
  const { temperature, topP, topK, frequencyPenalty, maxTokens } = defaults;
  return given({
    temperature,
    top_p: topP,
    top_k: topK,
    frequency_penalty: frequencyPenalty,
    max_tokens: maxTokens,
  });
}

/**
 * Returns `x-ratelimit-*`, in the units that SDKs know from OpenAI: a reset is written `1m30s` or
 * `250ms`.
 */
export function rateHeaders(rates: Rates): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of rateNames) {
    const state = rates[name];
    if (state === undefined) continue;
    const [limit, remaining, reset] = rateHeaderNames(name);
    headers[limit] = String(state.limit);
    headers[remaining] = String(Math.max(0, Math.floor(state.remaining)));
    headers[reset] = duration(Math.max(0, Math.ceil(state.resetMs)));
  }
  return headers;
}

/** Returns the headers of a limit: the limit, what is left, and the time until nothing is used. */
export function rateHeaderNames(name: RateName) {
  return [`x-ratelimit-limit-${name}`, `x-ratelimit-remaining-${name}`, `x-ratelimit-reset-${name}`] as const;
}

function duration(ms: number): string {
  if (ms < 1000) return `${ms}ms`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = `${(ms % 60_000) / 1000}s`;
  return minutes === 0 ? seconds : `${minutes}m${seconds}`;
}
