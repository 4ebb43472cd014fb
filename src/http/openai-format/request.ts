/**
 * Parses the body of `POST /v1/chat/completions` into a `ChatRequest`. Measures its JSON first, so
 * that a body of a million tiny values is refused before it is parsed. Throws a `Refusal` that
 * names the invalid field.
 *
 * A value with the wrong JSON type is refused, never converted. An explicit null for an optional
 * parameter means that it is absent. Unknown parameters at the top are ignored; unknown fields
 * inside are refused. Values beyond the range of an engine (an enormous seed, a large penalty) are
 * passed on as finite numbers, for the engine to clamp. This file knows no models, accounts or
 * credits.
 */
import Type, { type Static, type TSchema } from "typebox";
import { Compile } from "typebox/schema";
import type { ChatRequest } from "../../chat/catalog.ts";
import type { Reasoning, Sampling } from "../../chat/engine.ts";
import { messageOf, Refusal } from "../../errors.ts";
import { exceededSize, valuesPerKey } from "../../json-size.ts";
import { isRecord } from "../../objects.ts";
import { explain } from "./explain.ts";

function orNull<S extends TSchema>(schema: S, description: string) {
  return Type.Optional(Type.Union([schema, Type.Null()], { description }));
}

/**
 * SDK helpers send answers back with these fields set to null. Any other value is refused like an
 * unknown field.
 */
const nullOnly = Type.Optional(Type.Null());

const messageSchema = Type.Object(
  {
    role: Type.Enum(["system", "developer", "user", "assistant"], {
      description: 'one of "system", "developer", "user" and "assistant"',
    }),
    content: Type.String({
      description: "plain text in one string",
      hint: "Send content as one string; parts, images and audio are not supported.",
    }),
    refusal: nullOnly,
    parsed: nullOnly,
    tool_calls: nullOnly,
    function_call: nullOnly,
    audio: nullOnly,
    annotations: nullOnly,
    name: nullOnly,
    reasoning_content: nullOnly,
  },
  { additionalProperties: false, description: "an object with role and content only" },
);

const streamOptionsSchema = Type.Object(
  {
    include_usage: orNull(Type.Boolean(), "true or false"),
    include_obfuscation: orNull(Type.Boolean(), "true or false"),
  },
  { additionalProperties: false, description: "an object with include_usage and include_obfuscation only" },
);

const reasoningSchema = Type.Object(
  {
    effort: orNull(Type.String(), 'a string, for example "low", "medium" or "high"'),
    max_tokens: integer("a whole number, 0 or more", { minimum: 0 }),
  },
  { additionalProperties: false, description: "an object with effort and max_tokens only" },
);

function number(description: string, range: { minimum?: number; maximum?: number } = {}) {
  return orNull(Type.Number({ ...range, description }), description);
}

function integer(description: string, range: { minimum?: number; maximum?: number } = {}) {
  return orNull(Type.Integer({ ...range, description }), description);
}

const stopText = Type.String({ minLength: 1, description: "a string that is not empty" });
const stopDescription = "a string that is not empty, or an array of up to 4 of them";

const chatBodySchema = Type.Object(
  {
    model: Type.String({ description: "a string, the id of a model" }),
    messages: Type.Array(messageSchema, { minItems: 1, description: "an array of at least one message" }),
    temperature: number("a number from 0 to 2", { minimum: 0, maximum: 2 }),
    top_p: number("a number from 0 to 1", { minimum: 0, maximum: 1 }),
    top_k: integer("a whole number, 0 (off) or more", { minimum: 0 }),
    max_tokens: integer("a whole number, 1 or more", { minimum: 1 }),
    max_completion_tokens: integer("a whole number, 1 or more", { minimum: 1 }),
    stream: orNull(Type.Boolean(), "true or false"),
    stream_options: orNull(streamOptionsSchema, "an object"),
    reasoning: orNull(reasoningSchema, "an object"),
    reasoning_effort: orNull(Type.String(), 'a string, for example "low", "medium" or "high"'),
    n: integer("1: a request gets one choice", { minimum: 1, maximum: 1 }),
    stop: Type.Optional(
      Type.Union(
        [
          Type.String({ minLength: 1, description: stopDescription }),
          Type.Array(stopText, { maxItems: 4, description: stopDescription }),
          Type.Null(),
        ],
        { description: stopDescription },
      ),
    ),
    seed: integer("a whole number"),
    presence_penalty: number("a number"),
    frequency_penalty: number("a number"),
    logprobs: orNull(Type.Boolean(), "true or false"),
    top_logprobs: integer("a whole number from 0 to 20", { minimum: 0, maximum: 20 }),
    user: orNull(Type.String(), "a string"),
  },
  { description: "a JSON object" },
);

type ChatBody = Static<typeof chatBodySchema>;

const chatBody = Compile(chatBodySchema);

export interface ParsedRequest {
  chat: ChatRequest;
  includeUsage: boolean;
  includeObfuscation: boolean;
}

export interface RequestLimits {
  /** Most messages in one request. */
  messagesMax: number;
  /** Most keys in the JSON of one request; it may have `valuesPerKey` times as many values. */
  keysMax: number;
}

export function parseRequest(bytes: Uint8Array, limits: RequestLimits): ParsedRequest {
  const { keysMax } = limits;
  const exceeded = exceededSize(bytes, keysMax);
  if (exceeded !== null) {
    const max = exceeded === "keys" ? keysMax : valuesPerKey * keysMax;
    throw new Refusal(
      "invalid_value",
      `The body has more than ${max} ${exceeded}, in all its objects and arrays. Send fewer messages or smaller parameters.`,
    );
  }
  return readRequest(parseJson(bytes), limits);
}

function readRequest(given: unknown, { messagesMax }: RequestLimits): ParsedRequest {
  // Checked before the schema, so that the refusal does not cost a check of every message.
  if (isRecord(given) && Array.isArray(given.messages) && given.messages.length > messagesMax) {
    throw new Refusal(
      "invalid_value",
      `messages has ${given.messages.length} items; at most ${messagesMax} are accepted.`,
      { param: "messages" },
    );
  }
  const body = chatBody.Check(given) ? given : repaired(given);
  return {
    chat: chatRequestOf(body),
    includeUsage: body.stream_options?.include_usage === true,
    includeObfuscation: body.stream_options?.include_obfuscation === true,
  };
}

/** Numbers without an upper bound. `1e400` is valid JSON, and JSON.parse reads it as infinite. */
const unbounded = [
  "seed",
  "top_k",
  "max_tokens",
  "max_completion_tokens",
  "presence_penalty",
  "frequency_penalty",
];

/**
 * Makes infinite numbers finite where any number is allowed. Throws a refusal if the body is still
 * invalid.
 */
function repaired(given: unknown): ChatBody {
  if (isRecord(given)) {
    const { reasoning } = given;
    const isChanged = makeFinite(given, unbounded);
    const isReasoningChanged = isRecord(reasoning) && makeFinite(reasoning, ["max_tokens"]);
    if ((isChanged || isReasoningChanged) && chatBody.Check(given)) return given;
  }
  throw explain(chatBodySchema, given, "") ?? new Error("the schema refuses a body without a fault");
}

/** Returns whether a value was changed. */
function makeFinite(record: Record<string, unknown>, keys: readonly string[]): boolean {
  let isChanged = false;
  for (const key of keys) {
    const value = record[key];
    if (value !== Number.POSITIVE_INFINITY && value !== Number.NEGATIVE_INFINITY) continue;
    record[key] = Math.sign(value) * Number.MAX_VALUE;
    isChanged = true;
  }
  return isChanged;
}

function chatRequestOf(body: ChatBody): ChatRequest {
  const maxTokens = Math.min(
    body.max_tokens ?? Number.POSITIVE_INFINITY,
    body.max_completion_tokens ?? Number.POSITIVE_INFINITY,
  );
  const request: ChatRequest = {
    model: body.model.toWellFormed(),
    messages: body.messages.map(({ role, content }) => ({ role, content: content.toWellFormed() })),
    sampling: samplingOf(body),
    reasoning: reasoningOf(body),
    stream: body.stream === true,
  };
  if (maxTokens !== Number.POSITIVE_INFINITY)
    request.maxTokens = Math.min(maxTokens, Number.MAX_SAFE_INTEGER);
  if (typeof body.user === "string") request.user = body.user.toWellFormed();
  return request;
}

function samplingOf(body: ChatBody): Sampling {
  const sampling: Sampling = { stop: stopOf(body) };
  if (typeof body.temperature === "number") sampling.temperature = body.temperature;
  if (typeof body.top_p === "number") sampling.topP = body.top_p;
  if (typeof body.top_k === "number") sampling.topK = Math.min(body.top_k, Number.MAX_SAFE_INTEGER);
  if (typeof body.seed === "number") sampling.seed = body.seed;
  if (typeof body.presence_penalty === "number") sampling.presencePenalty = body.presence_penalty;
  if (typeof body.frequency_penalty === "number") sampling.frequencyPenalty = body.frequency_penalty;
  if (typeof body.logprobs === "boolean") sampling.logprobs = body.logprobs;
  if (typeof body.top_logprobs === "number") sampling.topLogprobs = body.top_logprobs;
  return sampling;
}

function stopOf({ stop }: ChatBody): readonly string[] {
  if (typeof stop === "string") return [stop.toWellFormed()];
  return stop?.map((text) => text.toWellFormed()) ?? [];
}

function reasoningOf(body: ChatBody): Reasoning {
  const reasoning: Reasoning = {};
  const effort = body.reasoning?.effort ?? body.reasoning_effort;
  if (typeof effort === "string") reasoning.effort = effort.toWellFormed();
  const maxTokens = body.reasoning?.max_tokens;
  if (typeof maxTokens === "number") reasoning.maxTokens = Math.min(maxTokens, Number.MAX_SAFE_INTEGER);
  return reasoning;
}

/** Skips a byte order mark at the start. Throws on bytes that are not UTF-8. */
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Throws `invalid_json` if the bytes are not one JSON value in UTF-8. */
export function parseJson(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch (cause) {
    throw new Refusal("invalid_json", "The body is not valid UTF-8; send JSON encoded as UTF-8.", { cause });
  }
  if (text === "") throw new Refusal("invalid_json", "The body is empty; send a JSON object.");
  try {
    return JSON.parse(text);
  } catch (cause) {
    const problem = messageOf(cause);
    throw new Refusal("invalid_json", `The body is not valid JSON: ${problem.toWellFormed()}.`, { cause });
  }
}
