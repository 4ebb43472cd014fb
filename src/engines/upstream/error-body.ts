/**
 * Reads the error that an upstream sends: its sentence, the parameter that it names, its codes,
 * and whether the caller or the configuration of the model is at fault.
 *
 * Pure. Servers send about ten shapes: `{error: {...}}`, the error alone, a list, `detail` of
 * FastAPI, text. Nothing here is cleaned (failure.ts does that).
 */
import { fieldOf } from "../../objects.ts";

export interface UpstreamError {
  /** Null if the error has no sentence, or is a page of HTML. */
  sentence: string | null;
  /** Path of a parameter that callers know (`messages[0].role`), or null. */
  param: string | null;
  /** The parameter as the server names it, or null. */
  field: string | null;
  /** The codes and types that the error has. */
  codes: string;
  /** Status that the error itself names, as in an event of a stream, or null. */
  status: number | null;
  /** The server's moderation refused the prompt. */
  isModeration: boolean;
  /** The account of the operator at the provider has no credits. */
  isOutOfCredit: boolean;
  /** A page of HTML. Model servers send none, so it comes from a proxy. */
  isPage: boolean;
  /**
   * The configuration of the model is at fault, although the status is that of a faulty request: a
   * wrong key, no credits, an unknown model, or a field that Inkwell adds.
   */
  isAboutConfiguration: boolean;
}

/** Reads the body of an error response, which may be cut. */
export function errorInBody(body: string): UpstreamError {
  const text = body.trim();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const isPage = text.startsWith("<");
    return { ...errorIn(isPage ? null : /^[[{]/.test(text) ? cutSentence(text) : text), isPage };
  }
  return errorIn(value);
}

/** Finds the message in JSON whose end is missing. */
function cutSentence(json: string): string | null {
  const escaped = /"(?:message|msg|detail)"\s*:\s*"((?:[^"\\]|\\.)*)/.exec(json)?.[1];
  return escaped?.replace(/\\(["\\/])/g, "$1") ?? null;
}

/** Reads a parsed error. */
export function errorIn(value: unknown): UpstreamError {
  const outer: unknown = Array.isArray(value) ? value[0] : value;
  const inner = fieldOf(outer, "error") ?? outer;
  const place = reasonPlaceIn(inner);
  const codes = [
    ...["code", "type", "status"].map((name) => fieldOf(inner, name)),
    ...["error_type", "http_status_code"].map((name) => fieldOf(outer, name) ?? fieldOf(inner, name)),
  ].filter(isPlain);
  const named = fieldOf(inner, "param");
  const param = typeof named === "string" ? named : place.param;
  const said = `${codes.join(" ")} ${place.sentence ?? ""}`.slice(0, searchedCharactersMax);
  const words = codes.map((code) => String(code).toLowerCase());
  const reasons = fieldOf(fieldOf(inner, "metadata"), "reasons");
  return {
    sentence: place.sentence,
    param: callersParam(param),
    field: param,
    codes: codes.join(" "),
    status: statusOf(words),
    isModeration:
      words.some((word) => moderationWords.has(word)) || (Array.isArray(reasons) && reasons.length > 0),
    isOutOfCredit: words.some((word) => outOfCreditWords.has(word)),
    isPage: false,
    isAboutConfiguration: param === "model" || configuration.some((words) => words.test(said)),
  };
}

/** Other values may have no text, or one that takes long to write. */
function isPlain(value: unknown): value is string | number {
  return typeof value === "string" || typeof value === "number";
}

interface Place {
  sentence: string | null;
  param: string | null;
}

/** Nested messages deeper than this are not read. */
const depthMax = 4;

function reasonPlaceIn(value: unknown, depth = 0): Place {
  if (typeof value === "string") return placeInPython(value);
  if (Array.isArray(value) && depth < depthMax) return reasonPlaceIn(value[0], depth + 1);
  const name = ["message", "msg", "detail", "error"].find((key) => (fieldOf(value, key) ?? null) !== null);
  if (name === undefined || depth >= depthMax) return { sentence: null, param: null };
  const { sentence, param } = reasonPlaceIn(fieldOf(value, name), depth + 1);
  const location = fieldOf(value, "loc");
  if (!Array.isArray(location)) return { sentence, param };
  return placeAt(location.filter(isPlain).map(String), sentence);
}

/**
 * vLLM and SGLang write the errors of pydantic as Python does, with the values and with paths of
 * their host: `1 validation error: {'type': ..., 'loc': ('body', 'seed'), 'msg': '...'`. vLLM 0.32
 * writes `'loc': 'body.seed'`.
 */
function placeInPython(text: string): Place {
  const found = /'loc': (?:\(([^)]{1,200})\)|'([^']{1,200})'), 'msg': (?:'([^']*)|"([^"]*))/.exec(text);
  if (found === null) return { sentence: text.trim() === "" ? null : text, param: null };
  const [, tuple, path, single, double] = found;
  const parts = (tuple ?? path ?? "").split(/[,.]/).map((part) => part.trim().replace(/^'|'$/g, ""));
  return placeAt(parts, single ?? double ?? null);
}

function placeAt(location: readonly string[], sentence: string | null): Place {
  const path = location.filter((part, index) => part !== "" && !(index === 0 && part === "body"));
  const param = path.join(".");
  return { sentence: sentence === null || param === "" ? sentence : `${param}: ${sentence}`, param };
}

/** Parameters of a chat request that reach an upstream under these names. */
const callersParams =
  /^(?:temperature|top_[pk]|max_tokens|max_completion_tokens|reasoning_effort|stop|seed|presence_penalty|frequency_penalty|logprobs|top_logprobs|user|messages(?:\[\d{1,6}\])?(?:\.(?:role|content))?)$/;

/** Returns the path as callers know it, or null if they do not know the parameter. */
export function callersParam(param: string | null): string | null {
  const path = param?.replace(/^body\./, "").replace(/\.?\[?(\d+)\]?/g, "[$1]") ?? "";
  return callersParams.test(path) ? path : null;
}

/** Azure and OpenAI, LiteLLM, Alibaba, and gateways. */
const moderationWords: ReadonlySet<string> = new Set([
  "content_filter",
  "content_policy_violation",
  "data_inspection_failed",
  "moderation",
]);

/**
 * OpenAI (two), Moonshot, Zhipu. Sentences do not count: Gemini's for a limit per minute is that
 * of OpenAI for an empty account.
 */
const outOfCreditWords: ReadonlySet<string> = new Set([
  "insufficient_quota",
  "billing_hard_limit_reached",
  "exceeded_current_quota_error",
  "1113",
]);

/** Statuses for words of errors that have none. The first match counts. */
const statuses: readonly (readonly [words: RegExp, status: number])[] = [
  [/^(bad_?request|invalid_request|validation|context_length|exceed_context)/, 400],
  [/^(rate_?limit|too_?many_?requests|resource_exhausted)/, 429],
  [/overloaded|^(service_?unavailable|unavailable$)/, 503],
  [/^(authentication|invalid_api_key)/, 401],
];

function statusOf(words: readonly string[]): number | null {
  const numbers = words.map(Number).filter((code) => Number.isInteger(code) && code >= 400 && code < 600);
  const [number] = numbers;
  if (number !== undefined) return number;
  if (words.some((word) => outOfCreditWords.has(word))) return 429;
  return statuses.find(([pattern]) => words.some((word) => pattern.test(word)))?.[1] ?? null;
}

const searchedCharactersMax = 2000;
const configuration = [
  // Fields that Inkwell adds to a request.
  /\b(?:stream_options|include_usage|continuous_usage_stats|timings_per_token|cache_salt|chat_template_kwargs)\b/,
  /api[ _-]?key|\b(?:invalid|incorrect|wrong|expired) (?:access )?key\b|credentials?\b|authenticat|unauthori[sz]ed|permission/i,
  /billing|quota|credit balance|usage limits?\b|insufficient (?:balance|funds|credits)/i,
  /\b(?:invalid|unknown|unsupported|unrecogni[sz]ed|no such) model\b|model_not_found/i,
  // LiteLLM's proxy without a database, for a key that it does not know.
  /\bno_db_connection\b/,
  // The account of the operator, at Alibaba and at LiteLLM's proxy.
  /\barrearage\b|\bbudget_exceeded\b/i,
  /\bmodel\b.{0,80}\b(?:not found|not (?:be )?loaded|not exist|n't exist|not available|deprecated|decommissioned)\b/i,
];
