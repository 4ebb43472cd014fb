/**
 * Differences between the servers' request formats, in one table (docs/upstreams.md describes
 * them).
 *
 * Pure. Requests are always streamed and always ask for usage. The values of the caller are sent
 * as they are. A field that a server does not know is left out, and a value is changed only if the
 * server would read another value.
 */
import { hash } from "node:crypto";
import type { Message, Reasoning, Sampling } from "../../chat/engine.ts";
import { isGreedy, topKMax } from "../sampling-limits.ts";
import { type Corrections, correctFields } from "./added-fields.ts";

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
  /** Range of a seed. A seed outside it is folded into it. */
  seeds: Seeds;
  /** Least number of alternatives with which the server sends log-probabilities. */
  topLogprobsMin: 0 | 1;
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

interface Seeds {
  min: bigint;
  max: bigint;
}

/** OpenAI, vLLM and Ollama read 64 bits with a sign. */
const seedsOf64Bits: Seeds = { min: 1n - 2n ** 63n, max: 2n ** 63n - 1n };

interface WantedReasoning {
  /** The caller's word, which the server may not know. */
  effort: string | null;
  /** The caller disables thinking. */
  none: boolean;
}

const effortOnly = ({ effort, none }: WantedReasoning): Fields => {
  // Some models cannot disable thinking. All of them support "low".
  const word = effort ?? (none ? "low" : null);
  return word === null ? {} : { reasoning_effort: word };
};

const templateSwitch = ({ effort, none }: WantedReasoning): Fields => {
  if (none) return { chat_template_kwargs: { enable_thinking: false, thinking: false } };
  return effort === null ? {} : { reasoning_effort: effort };
};

const plain = {
  seeds: seedsOf64Bits,
  topLogprobsMin: 0,
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
  // SGLang refuses 0, and so do older versions of vLLM.
  topKOff: -1,
  reasoning: templateSwitch,
  accountSalt: "cache_salt",
  tokenizer: "tokenize",
};

const table: Readonly<Record<DialectName, Dialect>> = {
  compatible: { ...plain, maxTokens: "max_tokens", topKOff: 0, reasoning: effortOnly },
  openai: {
    ...plain,
    maxTokens: "max_completion_tokens",
    // It refuses requests with `top_k`.
    topKOff: null,
    reasoning: effortOnly,
    // It continues and charges after the connection is closed.
    sendsStop: true,
  },
  vllm: modelServer,
  // Older versions keep a seed in 32 bits with a sign, and crash on a larger one.
  sglang: { ...modelServer, seeds: { min: -(2n ** 31n), max: 2n ** 31n - 1n } },
  "llama-server": {
    ...plain,
    maxTokens: "max_tokens",
    topKOff: 0,
    // 32 bits. The last value means a random seed.
    seeds: { min: 0n, max: 2n ** 32n - 2n },
    topLogprobsMin: 1,
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
    // Its OpenAI-compatible API ignores `top_k`.
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
  /** Changes of fields that no caller sent and the server refuses. */
  corrections?: Corrections;
}

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
  else if (sampling.temperature !== undefined) body.temperature = sampling.temperature;
  if (sampling.topP !== undefined && sampling.topP > 0) body.top_p = sampling.topP;
  if (sampling.topK !== undefined && dialect.topKOff !== null)
    body.top_k = sampling.topK === 0 ? dialect.topKOff : Math.min(sampling.topK, topKMax);
  if (sampling.seed !== undefined) body.seed = wrapSeed(sampling.seed, dialect.seeds);
  if (sampling.presencePenalty !== undefined) body.presence_penalty = sampling.presencePenalty;
  if (sampling.frequencyPenalty !== undefined) body.frequency_penalty = sampling.frequencyPenalty;
  if (sendStop && sampling.stop.length > 0) body.stop = sampling.stop;
  if (sampling.logprobs !== undefined) body.logprobs = sampling.logprobs;
  const topLogprobs = topLogprobsOf(sampling, dialect);
  if (topLogprobs !== undefined) body.top_logprobs = topLogprobs;
  if (user !== null) body.user = user;
  if (dialect.accountSalt !== null) body[dialect.accountSalt] = saltOf(request.accountId);
  correctFields(body, request.corrections ?? new Map());
  return JSON.stringify(body);
}

/** Returns the fields that control thinking. They may change the prompt. */
export function reasoningFields(dialect: Dialect, reasoning: Reasoning | null): Fields {
  return reasoning === null ? {} : dialect.reasoning(wantedOf(reasoning));
}

function wantedOf({ effort, maxTokens }: Reasoning): WantedReasoning {
  if (maxTokens === 0) return { effort: null, none: true };
  if (effort !== undefined) return { effort, none: effort === "none" };
  if (maxTokens === undefined) return { effort: null, none: false };
  // No server accepts a number of tokens. These limits are those of docs/models.md.
  return { effort: maxTokens <= 512 ? "low" : maxTokens <= 2048 ? "medium" : "high", none: false };
}

/** Surplus alternatives are cut on arrival. */
function topLogprobsOf({ logprobs, topLogprobs }: Sampling, { topLogprobsMin }: Dialect): number | undefined {
  if (logprobs !== true || topLogprobsMin === 0) return topLogprobs;
  return Math.max(topLogprobsMin, topLogprobs ?? 0);
}

/** Returns a seed in the range as it is, and one value of the range for each other seed. */
function wrapSeed(seed: number, { min, max }: Seeds): number {
  const whole = BigInt(seed);
  if (whole >= min && whole <= max) return seed;
  const count = max + 1n;
  return Number(((whole % count) + count) % count);
}

/** Returns a hash, so that the upstream does not learn the account's name. */
function saltOf(accountId: string): string {
  return hash("sha256", `inkwell ${accountId}`, "base64url");
}
