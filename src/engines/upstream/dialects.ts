/**
 * What the same request is called by different servers: the one table of it (docs/upstreams.md has it in words).
 *
 * Pure. A request is always streamed, and its usage always asked for, whatever the client wanted. What a server would
 * refuse is left out or brought into its range, so that nothing a caller may say becomes an upstream's error.
 */
import { hash } from "node:crypto";
import type { Message, Reasoning, Sampling } from "../../chat/engine.ts";
import { isGreedy } from "../text/greedy.ts";

export const dialects = ["compatible", "openai", "vllm", "sglang", "llama-server", "ollama"] as const;
export type DialectName = (typeof dialects)[number];

export type Fields = Record<string, unknown>;

export interface Dialect {
  maxTokens: "max_tokens" | "max_completion_tokens";
  /** What stands for no limit there; null where `top_k` is not known at all. */
  topKOff: -1 | 0 | null;
  /** Beside `include_usage`. */
  streamOptions: Fields;
  /** For every request: what makes it report how many tokens it has made by each event. */
  extra: Fields;
  /** Keeps what is cached for one account from another, where the server can. */
  accountSalt: "cache_salt" | null;
  reasoning(wanted: WantedReasoning): Fields;
  /** Kind of tokenizer that counts the tokens of a prompt; null if the server has none. */
  tokenizer: "vllm" | "llama-server" | null;
  /**
   * Stop sequences are sent along by default. They are always matched here, and a server that matches them too may lose text
   * (docs/decisions/0017-stop-sequences-are-matched-here.md).
   */
  sendsStop: boolean;
}

interface WantedReasoning {
  effort: "low" | "medium" | "high" | null;
  /** The caller wants none. */
  none: boolean;
}

const effortOnly = ({ effort, none }: WantedReasoning): Fields => {
  // Not every model that thinks can leave it; the least is what all of them know.
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
const countsAlong = { ...plain, streamOptions: { continuous_usage_stats: true } } as const;

const table: Readonly<Record<DialectName, Dialect>> = {
  compatible: { ...plain, maxTokens: "max_tokens", topKOff: null, reasoning: effortOnly },
  openai: {
    ...plain,
    maxTokens: "max_completion_tokens",
    topKOff: null,
    reasoning: effortOnly,
    // It goes on without a reader, and charges for that.
    sendsStop: true,
  },
  vllm: {
    ...countsAlong,
    maxTokens: "max_tokens",
    topKOff: -1,
    reasoning: templateSwitch,
    accountSalt: "cache_salt",
    tokenizer: "vllm",
  },
  sglang: {
    ...countsAlong,
    maxTokens: "max_tokens",
    // 0 is refused.
    topKOff: -1,
    reasoning: templateSwitch,
    accountSalt: "cache_salt",
  },
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
    // It sends what it withheld when an answer ends by length.
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
  /** Its name at the upstream. */
  model: string;
  messages: readonly Message[];
  maxTokens: number;
  sampling: Sampling;
  /** Null: the caller named none. */
  user: string | null;
  /** Null where the model is not said to think: others refuse to be asked. */
  reasoning: Reasoning | null;
  /** Stop sequences go along. */
  sendStop: boolean;
}

const topKMax = 0x7fffffff;
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
  // What is not asked for is left to the upstream's own defaults: some models take no value for it at all.
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
    // With 0 llama-server gives no log-probabilities at all; what is too much is cut when it comes.
    body.top_logprobs = Math.max(1, sampling.topLogprobs);
  }
  if (user !== null) body.user = user.length > userLengthMax ? hash("sha256", user, "base64url") : user;
  if (dialect.accountSalt !== null) body[dialect.accountSalt] = saltOf(request.accountId);
  return JSON.stringify(body);
}

/** What a request says of thinking, which may change its prompt too. */
export function reasoningFields(dialect: Dialect, reasoning: Reasoning | null): Fields {
  return reasoning === null ? {} : dialect.reasoning(wantedOf(reasoning));
}

function wantedOf({ effort, maxTokens }: Reasoning): WantedReasoning {
  if (maxTokens === 0) return { effort: null, none: true };
  if (effort === "none") return { effort: null, none: true };
  const word = effort === "low" || effort === "medium" || effort === "high" ? effort : null;
  if (maxTokens === undefined) return { effort: word, none: false };
  // A number of tokens is nowhere understood; these are the limits of the words in docs/models.md.
  return { effort: maxTokens <= 512 ? "low" : maxTokens <= 2048 ? "medium" : "high", none: false };
}

/** 31 bits: the largest range that every server takes. */
function seedOf(seed: number): number {
  return Number(BigInt.asUintN(31, BigInt(seed)));
}

function clampPenalty(penalty: number): number {
  return Math.min(2, Math.max(-2, penalty));
}

/** One-way: the upstream is not told whose account it is. */
function saltOf(accountId: string): string {
  return hash("sha256", `inkwell ${accountId}`, "base64url");
}
