/**
 * A client of the public API, like any other: it knows the service by its address and a key, and nothing else.
 * Whatever goes wrong is a `ClientError` of one line.
 */
import { costOf, type Price } from "../ledger/pricing.ts";
import type { MicroCredits } from "../units.ts";
import { eventData } from "./event-stream.ts";

export interface ChatMessage {
  role: "user" | "assistant";
  content: string;
}

export interface OfferedModel {
  id: string;
  /** Credits per million tokens; null if the service does not say. */
  price: Price | null;
  limits: AnswerLimits;
}

/** Bounds of an answer in completion tokens; null if the service does not say. */
export interface AnswerLimits {
  /** `max_tokens` of a request that has none. */
  defaultTokens: number | null;
  outputTokensMax: number | null;
  /** For prompt and answer together. */
  contextWindow: number | null;
}

export interface Bucket {
  name: "base" | "overage" | "additional";
  credits: number;
  /** Null: it has none. */
  cap: number | null;
  refreshesAt: string | null;
}

export interface Balance {
  total: number;
  buckets: Bucket[];
}

export interface TokenUsage {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
}

export type ChatEvent =
  | { kind: "text"; text: string }
  | { kind: "end"; finishReason: string; usage: TokenUsage | null };

/** One line for the person at the terminal. */
export class ClientError extends Error {
  override readonly name = "ClientError";
}

export class ChatClient {
  readonly #baseUrl: string;
  readonly #key: string;

  /** `baseUrl` without `/v1`. */
  constructor(baseUrl: string, key: string) {
    this.#baseUrl = baseUrl;
    this.#key = key;
  }

  /** Returns the models that the key may use; none if `signal` aborts. */
  async models(signal: AbortSignal): Promise<OfferedModel[]> {
    const body = await this.#json("/v1/models", signal);
    return list(field(body, "data")).flatMap((each) => {
      const id = field(each, "id");
      const price = priceIn(field(each, "pricing"));
      return typeof id === "string" ? [{ id, price, limits: limitsIn(each) }] : [];
    });
  }

  /** Returns null if the answer has no balance, or if `signal` aborts. */
  async balance(signal: AbortSignal): Promise<Balance | null> {
    const body = await this.#json("/v1/balance", signal);
    const total = whole(field(field(field(body, "balances"), "total"), "credits"));
    const names = ["base", "overage", "additional"] as const;
    return total === null ? null : { total, buckets: names.flatMap((name) => bucketIn(body, name)) };
  }

  /** Ends with the `end` event, or throws. Aborting `signal` ends it without one. */
  async *answer(
    model: string,
    messages: readonly ChatMessage[],
    maxTokens: number | null,
    signal: AbortSignal,
  ): AsyncGenerator<ChatEvent> {
    const limit = maxTokens === null ? {} : { max_tokens: maxTokens };
    const body = { model, messages, ...limit, stream: true, stream_options: { include_usage: true } };
    const response = await this.#fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (response === null || response.body === null) return;
    let finishReason = "";
    let usage: TokenUsage | null = null;
    try {
      for await (const data of eventData(response.body)) {
        if (data === "[DONE]") {
          yield { kind: "end", finishReason, usage };
          return;
        }
        const chunk = parse(data);
        const error = field(chunk, "error");
        if (error !== undefined) throw new ClientError(errorLine(error, "the service broke off the answer"));
        const choice = list(field(chunk, "choices"))[0];
        const text = field(field(choice, "delta"), "content");
        if (typeof text === "string" && text !== "") yield { kind: "text", text };
        const reason = field(choice, "finish_reason");
        if (typeof reason === "string") finishReason = reason;
        usage = usageIn(field(chunk, "usage")) ?? usage;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ClientError) throw error;
      throw new ClientError(`the connection broke: ${reasonOf(error)}`);
    }
    throw new ClientError("the answer broke off before its end");
  }

  /** Returns undefined if `signal` aborts first. */
  async #json(path: string, signal: AbortSignal): Promise<unknown> {
    const response = await this.#fetch(path, { signal });
    if (response === null) return undefined;
    let text: string;
    try {
      text = await response.text();
    } catch (error) {
      if (signal.aborted) return undefined;
      throw new ClientError(`the connection broke: ${reasonOf(error)}`);
    }
    return parse(text);
  }

  /** A good answer; null where it was aborted first. */
  async #fetch(path: string, init: RequestInit): Promise<Response | null> {
    const headers = { ...init.headers, authorization: `Bearer ${this.#key}` };
    let response: Response;
    try {
      response = await fetch(`${this.#baseUrl}${path}`, { ...init, headers });
      if (response.ok) return response;
    } catch (error) {
      if (init.signal?.aborted) return null;
      throw new ClientError(
        `no service answers at ${this.#baseUrl} (${reasonOf(error)}); "npm start" starts one`,
      );
    }
    const error = field(parse(await response.text()), "error");
    throw new ClientError(errorLine(error, `the service answered with status ${response.status}`));
  }
}

/** What the answer cost; null where usage or price are not known. */
export function costOfAnswer(usage: TokenUsage | null, price: Price | null): MicroCredits | null {
  return usage === null || price === null ? null : costOf(price, usage);
}

function errorLine(error: unknown, otherwise: string): string {
  const message = field(error, "message");
  const code = field(error, "code");
  const text = typeof message === "string" && message !== "" ? message : otherwise;
  const line = text.replace(/\s+/g, " ").trim();
  return typeof code === "string" ? `${line} (${code})` : line;
}

function priceIn(pricing: unknown): Price | null {
  const prompt = whole(field(pricing, "prompt"));
  const completion = whole(field(pricing, "completion"));
  const cachedPrompt = whole(field(pricing, "cached_prompt"));
  if (prompt === null || completion === null) return null;
  return { prompt, completion, ...(cachedPrompt === null ? {} : { cachedPrompt }) };
}

function limitsIn(model: unknown): AnswerLimits {
  return {
    defaultTokens: whole(field(field(model, "defaults"), "max_tokens")),
    outputTokensMax: whole(field(model, "max_output_tokens")),
    contextWindow: whole(field(model, "context_window")),
  };
}

function bucketIn(balance: unknown, name: Bucket["name"]): Bucket[] {
  const credits = whole(field(field(field(balance, "balances"), name), "credits"));
  const refreshesAt = field(field(balance, `${name}Window`), "refreshesAt");
  if (credits === null) return [];
  return [
    {
      name,
      credits,
      cap: whole(field(field(field(balance, "caps"), name), "credits")),
      refreshesAt: typeof refreshesAt === "string" ? refreshesAt : null,
    },
  ];
}

function usageIn(usage: unknown): TokenUsage | null {
  const promptTokens = whole(field(usage, "prompt_tokens"));
  const completionTokens = whole(field(usage, "completion_tokens"));
  const cachedTokens = whole(field(field(usage, "prompt_tokens_details"), "cached_tokens")) ?? 0;
  return promptTokens === null || completionTokens === null
    ? null
    : { promptTokens, cachedTokens, completionTokens };
}

function whole(value: unknown): number | null {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ClientError("the service answered with something that is no JSON; is the address right?");
  }
}

function field(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, name)?.value;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** `fetch` hides the reason in its cause, and that one may be several (one for each address of a name). */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause instanceof AggregateError && error.cause.errors.length > 0)
    return reasonOf(error.cause.errors[0]);
  return error.cause === undefined ? error.message : reasonOf(error.cause);
}
