/**
 * A client of the public API. It knows the service only by its URL and a key, as any other client
 * does, and expects no field of a response to be present. Every failure is a `ClientError` whose
 * message is one line.
 */

import { messageOf } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { costOf, type Price } from "../ledger/pricing.ts";
import { given } from "../objects.ts";
import type { MicroCredits } from "../units.ts";
import { eventsOf } from "./event-stream.ts";

export interface ChatMessage {
  role: "user" | "assistant";
  content: string;
}

export interface OfferedModel {
  id: string;
  /** Credits per million tokens; null if the service does not report them. */
  price: Price | null;
  limits: AnswerLimits;
}

/** Limits of an answer in tokens; null if the service does not report them. */
interface AnswerLimits {
  /** `max_tokens` of a request that does not set it. */
  defaultTokens: number | null;
  outputTokensMax: number | null;
  /** For prompt and answer together. */
  contextWindow: number | null;
}

interface Bucket {
  name: "base" | "overage" | "additional";
  credits: number;
  /** Null for a bucket without a cap. */
  cap: number | null;
  refreshesAt: string | null;
}

export interface Balance {
  total: number;
  buckets: Bucket[];
}

export interface TokenUsage {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}

type ChatEvent =
  | { kind: "text"; text: string }
  | { kind: "end"; finishReason: string; usage: TokenUsage | null };

/** A failure, as one line for the person at the terminal. */
export class ClientError extends Error {
  override readonly name = "ClientError";
}

/** Parsed JSON whose fields may all be missing or of another type. */
interface Json {
  readonly [field: string]: Json | undefined;
}

export class ChatClient {
  readonly #baseUrl: string;
  readonly #key: string;

  /** `baseUrl` without `/v1`. */
  constructor(baseUrl: string, key: string) {
    this.#baseUrl = baseUrl;
    this.#key = key;
  }

  /** Returns the models that the key may use, or no models if `signal` aborts. */
  async models(signal: AbortSignal): Promise<OfferedModel[]> {
    const body = await this.#json("/v1/models", signal);
    return list(body?.data).flatMap((model) => {
      const id = text(model?.id);
      return id === "" ? [] : [{ id, price: priceIn(model?.pricing), limits: limitsIn(model) }];
    });
  }

  /** Returns null if the response has no balance, or if `signal` aborts. */
  async balance(signal: AbortSignal): Promise<Balance | null> {
    const body = await this.#json("/v1/balance", signal);
    const total = whole(body?.balances?.total?.credits);
    const names = ["base", "overage", "additional"] as const;
    return total === null ? null : { total, buckets: names.flatMap((name) => bucketIn(body, name)) };
  }

  /**
   * Yields the answer, and the `end` event if the answer is whole; otherwise throws. Ends early if
   * `signal` aborts.
   */
  async *answer(
    model: string,
    messages: readonly ChatMessage[],
    maxTokens: number | null,
    signal: AbortSignal,
  ): AsyncGenerator<ChatEvent> {
    const body = {
      model,
      messages,
      ...given({ max_tokens: maxTokens }),
      stream: true,
      stream_options: { include_usage: true },
    };
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
      for await (const { data } of eventsOf(response.body)) {
        if (data === "[DONE]") {
          yield { kind: "end", finishReason, usage };
          return;
        }
        const chunk = parse(data);
        if (chunk?.error !== undefined) throw serviceError(chunk, "the service broke off the answer");
        const choice = list(chunk?.choices)[0];
        const content = text(choice?.delta?.content);
        if (content !== "") yield { kind: "text", text: content };
        finishReason = text(choice?.finish_reason) || finishReason;
        usage = usageIn(chunk?.usage) ?? usage;
      }
    } catch (error) {
      if (signal.aborted) return;
      throw connectionError(error);
    }
    throw new ClientError("the answer broke off before its end");
  }

  /** Returns undefined if `signal` aborts first. */
  async #json(path: string, signal: AbortSignal): Promise<Json | undefined> {
    const response = await this.#fetch(path, { signal });
    if (response === null) return undefined;
    try {
      return parse(await response.text());
    } catch (error) {
      if (signal.aborted) return undefined;
      throw connectionError(error);
    }
  }

  /** Returns a response with a status of success, or null if the signal aborts first. */
  async #fetch(path: string, init: RequestInit): Promise<Response | null> {
    const headers = { ...init.headers, authorization: `Bearer ${this.#key}` };
    let response: Response;
    try {
      response = await fetch(`${this.#baseUrl}${path}`, { ...init, headers });
      if (response.ok) return response;
    } catch (error) {
      if (init.signal?.aborted) return null;
      throw new ClientError(
        `no service responds at ${this.#baseUrl} (${reasonOf(error)}); "${inkwell("serve")}" starts one`,
      );
    }
    throw serviceError(parse(await response.text()), `the service responded with status ${response.status}`);
  }
}

/** Returns the cost of an answer, or null if its usage or price is unknown. */
export function costOfAnswer(usage: TokenUsage | null, price: Price | null): MicroCredits | null {
  if (usage === null || price === null) return null;
  const {
    prompt_tokens: promptTokens,
    cached_tokens: cachedTokens,
    completion_tokens: completionTokens,
  } = usage;
  return costOf(price, { promptTokens, cachedTokens, completionTokens });
}

function serviceError(body: Json | undefined, otherwise: string): ClientError {
  const message = text(body?.error?.message) || otherwise;
  const line = message.replace(/\s+/g, " ").trim();
  const code = text(body?.error?.code);
  return new ClientError(code === "" ? line : `${line} (${code})`);
}

function connectionError(error: unknown): ClientError {
  return error instanceof ClientError ? error : new ClientError(`the connection broke: ${reasonOf(error)}`);
}

function priceIn(pricing: Json | undefined): Price | null {
  const prompt = whole(pricing?.prompt);
  const completion = whole(pricing?.completion);
  if (prompt === null || completion === null) return null;
  return { prompt, completion, cachedPrompt: whole(pricing?.cached_prompt) ?? prompt };
}

function limitsIn(model: Json | undefined): AnswerLimits {
  return {
    defaultTokens: whole(model?.defaults?.max_tokens),
    outputTokensMax: whole(model?.max_output_tokens),
    contextWindow: whole(model?.context_window),
  };
}

function bucketIn(body: Json | undefined, name: Bucket["name"]): Bucket[] {
  const credits = whole(body?.balances?.[name]?.credits);
  const cap = whole(body?.caps?.[name]?.credits);
  const refreshesAt = text(body?.[`${name}Window`]?.refreshesAt) || null;
  return credits === null ? [] : [{ name, credits, cap, refreshesAt }];
}

function usageIn(usage: Json | undefined): TokenUsage | null {
  const prompt_tokens = whole(usage?.prompt_tokens);
  const completion_tokens = whole(usage?.completion_tokens);
  const cached_tokens = whole(usage?.prompt_tokens_details?.cached_tokens) ?? 0;
  if (prompt_tokens === null || completion_tokens === null) return null;
  return { prompt_tokens, cached_tokens, completion_tokens };
}

function parse(body: string): Json | undefined {
  try {
    return JSON.parse(body);
  } catch {
    throw new ClientError("the service responded with something that is not JSON; is the URL right?");
  }
}

function whole(value: unknown): number | null {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function list(value: unknown): (Json | undefined)[] {
  return Array.isArray(value) ? value : [];
}

/**
 * `fetch` keeps the reason in `cause`, which may be several errors, one for each address of a
 * host.
 */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error) || error.cause === undefined) return messageOf(error);
  const { cause } = error;
  return reasonOf(cause instanceof AggregateError ? (cause.errors[0] ?? cause) : cause);
}
