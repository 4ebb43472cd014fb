/**
 * Failures of requests to upstreams: the error for the caller, the message for the operator's log,
 * and whether another upstream may answer.
 *
 * Pure. An upstream's own messages go to the log. They are shortened, and the key, the caller's
 * name for its user and quotes from the conversation are removed.
 */
import {
  type EngineFailure,
  isCallersFailure,
  type Message,
  type RejectionReason,
} from "../../chat/engine.ts";
import { codeOf } from "../../errors.ts";
import { visibleLine } from "../../visible-text.ts";
import { errorIn, errorInBody, type UpstreamError } from "./error-body.ts";

interface FailureOptions {
  /** Another upstream may answer. */
  elsewhere?: boolean;
  /** Counts as a failure for the circuit breaker. */
  isFault?: boolean;
  /** The answer is missing, whoever asked. Other faults may be due to the request. */
  isOfAll?: boolean;
  /** The connection closed before the first byte of the answer. It may have been stale. */
  isStale?: boolean;
  /** The chat template may accept the conversation in another form. */
  isRefused?: boolean;
  retryAfterSeconds?: number | undefined;
  /** Why the server rejected the request, with its sentence as it was sent. */
  reason?: RejectionReason;
  /** The server's objection to the request, if it gave one. */
  objection?: Objection;
}

/** A refusal of the request or of one of its fields. */
export interface Objection {
  /** Name of the field as the server gives it, or null. */
  field: string | null;
  /** The same if callers know it, or null. */
  param: string | null;
  text: string;
}

export class UpstreamFailure extends Error {
  override readonly name = "UpstreamFailure";
  readonly failure: EngineFailure;
  readonly elsewhere: boolean;
  readonly isFault: boolean;
  readonly isOfAll: boolean;
  readonly isStale: boolean;
  readonly isRefused: boolean;
  readonly retryAfterSeconds: number | undefined;
  readonly reason: RejectionReason | undefined;
  readonly objection: Objection | undefined;

  /** `message` is for the operator's log. */
  constructor(failure: EngineFailure, message: string, options: FailureOptions = {}) {
    super(message);
    this.failure = failure;
    this.elsewhere = options.elsewhere ?? false;
    this.isFault = options.isFault ?? false;
    this.isOfAll = options.isOfAll ?? false;
    this.isStale = options.isStale ?? false;
    this.isRefused = options.isRefused ?? false;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.reason = options.reason;
    this.objection = options.objection;
  }

  /** The caller can correct the request. The server is not at fault. */
  get isCallers(): boolean {
    return isCallersFailure(this.failure);
  }
}

/** Returns the failure of an upstream whose answer is malformed or incomplete. */
export function brokenAnswer(message: string): UpstreamFailure {
  return new UpstreamFailure("failed", message, { elsewhere: true, isFault: true });
}

/**
 * Returns the failure for an answer that had begun. A server that has generated text has accepted
 * the request, whatever its error says.
 */
export function inMidAnswer(failure: UpstreamFailure): UpstreamFailure {
  return failure.isCallers ? brokenAnswer(failure.message) : failure;
}

/** Errors before the request was sent: connection refused, unknown host name, no route. */
const notReached: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);
const closedCodes: ReadonlySet<unknown> = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

/**
 * Returns whether the other side closed the connection. If the answer had not started, the
 * connection may have been stale.
 */
export function wasClosed(error: unknown): boolean {
  return closedCodes.has(codeOf(error));
}

/**
 * Returns the failure for a connection error. `begun`: the request was being sent. `answered`: the
 * answer had started.
 */
export function failureOfConnection(
  error: Error,
  { begun, answered }: { begun: boolean; answered: boolean },
): UpstreamFailure {
  const code = codeOf(error);
  const said = `${error.message || error.name}${code === undefined ? "" : ` (${code})`}`;
  const worthAnother = { elsewhere: true, isFault: true, isOfAll: !answered };
  switch (code) {
    case "UND_ERR_CONNECT_TIMEOUT":
      return new UpstreamFailure("timeout", `no connection in time: ${said}`, worthAnother);
    case "UND_ERR_HEADERS_TIMEOUT":
      return new UpstreamFailure("timeout", `no answer in time: ${said}`, worthAnother);
    case "UND_ERR_BODY_TIMEOUT":
      return new UpstreamFailure("timeout", `silent for too long in mid-answer: ${said}`, worthAnother);
  }
  if (!begun || notReached.has(code)) {
    return new UpstreamFailure("unavailable", `it cannot be reached: ${said}`, worthAnother);
  }
  // Our side closes it, over an answer that breaks HTTP or an interim one that nobody asked for.
  const isOwn = error.message === "bad response" || error.message === "bad upgrade";
  const isStale = !answered && !isOwn && wasClosed(error);
  return new UpstreamFailure("failed", `the connection broke: ${said}`, { ...worthAnother, isStale });
}

/**
 * Returns the failure for a status other than 200. `retryAfter`: the header, in seconds or a date.
 */
export function failureOfStatus(
  status: number,
  retryAfter: string | undefined,
  body: string,
): UpstreamFailure {
  const said = body === "" ? "" : `: ${body}`;
  const message = (hint: string) => `it answered ${status}${hint}${said}`;
  return failureOf(errorInBody(body), { status, message, retryAfterSeconds: secondsOf(retryAfter) });
}

/** Returns the failure for an error in an event of the answer. `event`: its parsed data. */
export function failureOfErrorEvent(event: unknown): UpstreamFailure {
  return failureOfStreamedError(errorIn(event));
}

/** Returns the failure for an event that is named an error. `data`: its data. */
export function failureOfNamedError(data: string): UpstreamFailure {
  return failureOfStreamedError(errorInBody(data));
}

/** An error in an event means what its status means: some servers send the head at once. */
function failureOfStreamedError(error: UpstreamError): UpstreamFailure {
  const said = [error.codes, error.sentence].filter((part) => part !== null && part !== "").join(" ");
  const message = (hint: string) => `it reported an error${hint}: ${said}`;
  const status = error.status ?? (error.isModeration ? 400 : null);
  return status === null ? brokenAnswer(message("")) : failureOf(error, { status, message });
}

interface StatusContext {
  status: number;
  /** Returns the message for the log, with a hint. */
  message(hint: string): string;
  retryAfterSeconds?: number | undefined;
}

const faulty = { elsewhere: true, isFault: true };

function failureOf(error: UpstreamError, context: StatusContext): UpstreamFailure {
  const { status, message, retryAfterSeconds } = context;
  if (error.isModeration && (status === 400 || status === 403 || status === 422)) {
    // Its words quote the prompt.
    return new UpstreamFailure("filtered", `its moderation refused the prompt: ${status} ${error.codes}`);
  }
  const { field, param } = error;
  const objection = { field, param, text: error.sentence ?? message("") };
  // The balance pays for fewer tokens than were asked for (OpenRouter).
  if (status === 402 && /max_tokens.*\bafford\b/.test(objection.text))
    return new UpstreamFailure("failed", message(""), { elsewhere: true, objection });
  if (status === 402 || (status === 429 && error.isOutOfCredit && retryAfterSeconds === undefined)) {
    const hint = ", so the operator's account at the provider has no credits";
    return new UpstreamFailure("out_of_credit", message(hint), { elsewhere: true });
  }
  switch (status) {
    case 429:
      return new UpstreamFailure("overloaded", message(""), { elsewhere: true, retryAfterSeconds });
    case 503:
      return new UpstreamFailure("overloaded", message(""), { ...faulty, retryAfterSeconds });
    case 401:
    case 403:
      return new UpstreamFailure("failed", message(", so the key of this model is wrong or missing"), faulty);
    case 404:
      return new UpstreamFailure("failed", message(", so url or model of this model is wrong"), faulty);
    case 408:
    case 504:
      return new UpstreamFailure("timeout", message(""), faulty);
    case 400:
    case 413:
    case 422:
      return failureOfRejection(error, context);
  }
  // llama-cpp-python refuses values of a request with a 500.
  if (status === 500 && error.field !== null && /\bvalidation errors?\b/.test(message("")))
    return failureOfRejection(error, context);
  // llama-server reports an error in the template with a 500.
  const isRefused = status === 500 && /template|jinja|\broles?\b/i.test(message(""));
  if (isRefused) return new UpstreamFailure("failed", message(""), { isRefused });
  const hint = status >= 300 && status < 400 ? ", a redirect; let url name the place itself" : "";
  return new UpstreamFailure("failed", message(hint), faulty);
}

function failureOfRejection(error: UpstreamError, { status, message }: StatusContext): UpstreamFailure {
  const { field, param } = error;
  const objection = { field, param, text: error.sentence ?? message("") };
  if (isTooLong(`${error.codes} ${objection.text}`))
    return new UpstreamFailure("too_long", message(""), { objection });
  if (error.isAboutConfiguration || (error.isPage && status !== 413)) {
    const hint = ", so the configuration of this model may be wrong";
    return new UpstreamFailure("failed", message(hint), { objection });
  }
  const sentence = error.sentence ?? "";
  return new UpstreamFailure("rejected", message(""), {
    isRefused: (param === null || param.startsWith("messages")) && !aboutParameter.test(sentence),
    reason: { sentence, param, isTooLarge: status === 413 },
    objection,
  });
}

/** Another form of the conversation does not help. */
const aboutParameter =
  /temperature|top_[pk]\b|max_(?:completion_)?tokens|penalty|logprobs|\bseed\b|\bstop\b|reasoning_effort|content (?:filter|management|policy)/i;

/**
 * Recognises OpenAI's and vLLM's code, llama-server's type and the messages of SGLang and others.
 */
function isTooLong(said: string): boolean {
  return /context_length_exceeded|exceed_context_size|maximum context length|context (length|size|window|limit)|longer than the model|model token limit/i.test(
    said,
  );
}

/** Parses a `retry-after` header with seconds or a date. Returns whole seconds, at least 1. */
function secondsOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(1, Math.ceil(seconds));
}

const saidLengthMax = 300;
/** A shorter name identifies nobody. */
const userLengthMin = 3;
/** Two texts never share this many characters by accident. */
const quoteLength = 24;
const probeLength = 8;
/** Messages about a longer conversation are not logged, because comparing would take too long. */
const comparedCharactersMax = 262_144;

/** Data of the request that the log must not contain. */
interface Unlogged {
  key: string | null;
  user: string | null;
  messages: readonly Message[];
}

/** Returns an upstream's message without data of the request, with all JSON escapes decoded. */
export function redact(said: string, { key, user, messages }: Unlogged): string {
  const readings: string[] = [];
  let text = said.slice(0, 16 * saidLengthMax);
  for (let depth = 0; depth <= escapesMax; depth += 1) {
    // Each level of escapes is decoded, so one of the readings contains the data as it was sent.
    if (key !== null && key !== "") text = text.replaceAll(key, "[key]");
    if (user !== null && user.length >= userLengthMin) text = text.replaceAll(user, "[user]");
    readings.push(spaced(text));
    const next = withoutEscapes(text);
    if (next === text) break;
    text = next;
  }
  text = spaced(text)
    .replace(/\b(sk|ink|hf|gsk)[-_][\w-]{8,}/g, "[key]")
    .replace(/(Bearer )\S+/gi, "$1[key]");
  const quoted = "(its words quote the request, so they are left out)";
  if (quotes(readings, messages)) return quoted;
  // The cut may leave half a character.
  return visibleLine(text)
    .slice(0, saidLengthMax)
    .replace(/[\ud800-\udbff]$/, "");
}

/** Compares the part of each reading that the last reading can come from. */
function quotes(readings: readonly string[], messages: readonly Message[]): boolean {
  let characters = 0;
  for (const { content } of messages) characters += content.length;
  // A longer comparison would block the event loop.
  if (characters > comparedCharactersMax) return true;
  const contents = messages.map(({ content }) => spaced(content));
  const said = readings.map((reading, index) => {
    const isLast = index === readings.length - 1;
    return reading.slice(0, saidLengthMax * (isLast ? 1 : escapeLengthMax));
  });
  return quotesWhole(said, contents) || quotesPart(said, contents);
}

/** Short messages count only if the text contains them whole. */
function quotesWhole(said: readonly string[], contents: readonly string[]): boolean {
  const short = new Set(contents.filter(({ length }) => length > 3 && length < quoteLength));
  return said.some((text) => [...short].some((content) => text.includes(content)));
}

/**
 * Whether `quoteLength` characters in a row are in both. Looks at a few characters of a content at
 * a time, so far apart that one of these places is inside any part that the two have in common;
 * linear in the contents.
 */
function quotesPart(said: readonly string[], contents: readonly string[]): boolean {
  const parts = new Set(said.flatMap((text) => windowsOf(text, quoteLength)));
  const probes = new Set(said.flatMap((text) => windowsOf(text, probeLength)));
  const step = quoteLength - probeLength + 1;
  return contents.some((content) => {
    for (let at = 0; at + probeLength <= content.length; at += step) {
      if (!probes.has(content.slice(at, at + probeLength))) continue;
      for (let start = Math.max(0, at - step + 1); start <= at; start += 1) {
        if (parts.has(content.slice(start, start + quoteLength))) return true;
      }
    }
    return false;
  });
}

function windowsOf(text: string, length: number): string[] {
  const count = Math.max(0, text.length - length + 1);
  return Array.from({ length: count }, (_, at) => text.slice(at, at + length));
}

/** Messages may be JSON in JSON in JSON. */
const escapesMax = 4;
const jsonEscape = /\\(?:u([0-9a-fA-F]{4})|(["\\/])|[bfnrt])/g;
/** `\u0041` */
const escapeLengthMax = 6;

/** Decodes one level of escapes. */
function withoutEscapes(text: string): string {
  return text.replace(jsonEscape, unescaped);
}

function unescaped(_: string, code: string | undefined, itself: string | undefined): string {
  return code === undefined ? (itself ?? " ") : String.fromCharCode(Number.parseInt(code, 16));
}

/**
 * Replaces each run of white space and control characters by one space. Single spaces are skipped,
 * because a conversation may have a million of them.
 */
function spaced(text: string): string {
  return text.replace(/[\s\p{Cc}]{2,}|[^\S ]|\p{Cc}/gu, " ").trim();
}
