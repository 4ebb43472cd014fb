/**
 * Differences between the servers' request formats, in one table (docs/upstreams.md describes
 * them).
 *
 * Pure. Requests are always streamed and always ask for usage. Values that a server would refuse
 * are left out or clamped, so that no valid request causes an error at the upstream.
 */
import { hash } from "node:crypto";
import type { Message, Reasoning, Sampling } from "../../chat/engine.ts";
import { clampPenalty, isGreedy, topKMax } from "../sampling-limits.ts";

export const dialects = ["compatible", "openai", "vllm", "sglang", "llama-server", "ollama"] as const;
export type DialectName = (typeof dialects)[number];

export type Fields = Record<string, unknown>;

/**
 * Tokens that a template adds to a prompt as a whole. Some templates have a default system prompt
 * of several hundred tokens.
 */
export const templateTokensDefault = 512;

export interface Dialect {
  maxTokens: "max_tokens" | "max_completion_tokens";
  /** Value that turns `top_k` off, or null if the server does not support `top_k`. */
  topKOff: -1 | 0 | null;
  /** Options besides `include_usage`. */
  streamOptions: Fields;
  /** Fields of every request. They make the server report its token count with each event. */
  extra: Fields;
  /** Field that separates the prompt caches of accounts, if the server supports it. */
  accountSalt: "cache_salt" | null;
  reasoning(wanted: WantedReasoning): Fields;
  /** API that counts the tokens of a conversation, or null. `tokenize`: vLLM and SGLang. */
  tokenizer: "tokenize" | "llama-server" | null;
  /**
   * Stop sequences are sent along by default. They are always matched here, and a server that
   * matches them too may lose text (docs/decisions/0017-stop-sequences-are-matched-here.md).
   */
  sendsStop: boolean;
}

interface WantedReasoning {
  effort: "low" | "medium" | "high" | null;
  /** The caller disables thinking. */
  none: boolean;
}

const effortOnly = ({ effort, none }: WantedReasoning): Fields => {
  // Some models cannot disable thinking. All of them support "low".
  const word = none ? "low" : effort;
  return word === null ? {} : { reasoning_effort: word };
};

const templateSwitch = ({ effort, none }: WantedReasoning): Fields => {
  if (none) return { chat_template_kwargs: { enable_thinking: false, thinking: false } };
  return effort === null ? {} : { reasoning_effort: effort };
};

const plain = {
  streamOptions: {},
  extra: {},
  accountSalt: null,
  tokenizer: null,
  sendsStop: false,
} as const;

/** vLLM and SGLang. */
const modelServer: Dialect = {
  ...plain,
  streamOptions: { continuous_usage_stats: true },
  maxTokens: "max_tokens",
  // SGLang refuses 0.
  topKOff: -1,
  reasoning: templateSwitch,
  accountSalt: "cache_salt",
  tokenizer: "tokenize",
};

const table: Readonly<Record<DialectName, Dialect>> = {
  compatible: { ...plain, maxTokens: "max_tokens", topKOff: null, reasoning: effortOnly },
  openai: {
    ...plain,
    maxTokens: "max_completion_tokens",
    topKOff: null,
    reasoning: effortOnly,
    // It continues and charges after the connection is closed.
    sendsStop: true,
  },
  vllm: modelServer,
  sglang: modelServer,
  "llama-server": {
    ...plain,
    maxTokens: "max_tokens",
    topKOff: 0,
    extra: { timings_per_token: true },
    reasoning: ({ effort, none }) => {
      if (none) return { chat_template_kwargs: { enable_thinking: false } };
      return effort === null ? {} : { chat_template_kwargs: { reasoning_effort: effort } };
    },
    tokenizer: "llama-server",
  },
  ollama: {
    ...plain,
    maxTokens: "max_tokens",
    topKOff: null,
    // It sends the withheld text if the answer ends by length.
    sendsStop: true,
    reasoning: ({ effort, none }) =>
      none ? { reasoning_effort: "none" } : effortOnly({ effort, none: false }),
  },
};

export function dialectOf(name: DialectName): Dialect {
  return table[name];
}

export interface UpstreamRequest {
  accountId: string;
  /** Name of the model at the upstream. */
  model: string;
  messages: readonly Message[];
  maxTokens: number;
  sampling: Sampling;
  /** The caller's name for its user, or null. */
  user: string | null;
  /** Null if the model is not configured to think: other models refuse the fields. */
  reasoning: Reasoning | null;
  /** Send the stop sequences. */
  sendStop: boolean;
}

/** OpenAI refuses a longer one (maximhq/bifrost#1000). */
const userLengthMax = 64;

/** The JSON of a chat request. */
export function requestBody(dialect: Dialect, request: UpstreamRequest): string {
  const { model, messages, maxTokens, sampling, user, reasoning, sendStop } = request;
  const body: Fields = {
    model,
    messages: messages.map(({ role, content }) => ({ role, content })),
    stream: true,
    stream_options: { include_usage: true, ...dialect.streamOptions },
    [dialect.maxTokens]: maxTokens,
    ...dialect.extra,
    ...reasoningFields(dialect, reasoning),
  };
  // Unset values are left to the upstream's defaults: some models accept no value at all.
  if (isGreedy(sampling)) body.temperature = 0;
  else {
    if (sampling.temperature !== undefined) body.temperature = sampling.temperature;
    if (sampling.topP !== undefined) body.top_p = sampling.topP;
    if (sampling.topK !== undefined && dialect.topKOff !== null)
      body.top_k = sampling.topK === 0 ? dialect.topKOff : Math.min(sampling.topK, topKMax);
  }
  if (sampling.seed !== undefined) body.seed = seedOf(sampling.seed);
  if (sampling.presencePenalty !== undefined) body.presence_penalty = clampPenalty(sampling.presencePenalty);
  if (sampling.frequencyPenalty !== undefined)
    body.frequency_penalty = clampPenalty(sampling.frequencyPenalty);
  if (sendStop && sampling.stop.length > 0) body.stop = sampling.stop;
  if (sampling.topLogprobs !== undefined) {
    body.logprobs = true;
    // llama-server sends no log-probabilities for 0. Surplus alternatives are cut on arrival.
    body.top_logprobs = Math.max(1, sampling.topLogprobs);
  }
  if (user !== null) body.user = user.length > userLengthMax ? hash("sha256", user, "base64url") : user;
  if (dialect.accountSalt !== null) body[dialect.accountSalt] = saltOf(request.accountId);
  return JSON.stringify(body);
}

/** Returns the fields that control thinking. They may change the prompt. */
export function reasoningFields(dialect: Dialect, reasoning: Reasoning | null): Fields {
  return reasoning === null ? {} : dialect.reasoning(wantedOf(reasoning));
}

function wantedOf({ effort, maxTokens }: Reasoning): WantedReasoning {
  if (maxTokens === 0) return { effort: null, none: true };
  if (effort === "none") return { effort: null, none: true };
  const word = effort === "low" || effort === "medium" || effort === "high" ? effort : null;
  if (maxTokens === undefined) return { effort: word, none: false };
  // No server accepts a number of tokens. These limits are those of docs/models.md.
  return { effort: maxTokens <= 512 ? "low" : maxTokens <= 2048 ? "medium" : "high", none: false };
}

/** Returns 31 bits, the largest range that every server accepts. */
function seedOf(seed: number): number {
  return Number(BigInt.asUintN(31, BigInt(seed)));
}

/** Returns a hash, so that the upstream does not learn the account's name. */
function saltOf(accountId: string): string {
  return hash("sha256", `inkwell ${accountId}`, "base64url");
}
