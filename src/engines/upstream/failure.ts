/**
 * How an exchange with an upstream goes wrong: what the caller is told of it, what the operator reads in the log, and
 * whether it is worth asking elsewhere.
 *
 * Pure. An upstream's own words are for the log alone, shortened, and without what must not be there either: the key,
 * the caller's name for its user, and whatever the upstream quotes from the conversation.
 */
import type { EngineFailure, Message } from "../../chat/engine.ts";
import { codeOf } from "../../errors.ts";

export interface FailureOptions {
  /** Another upstream may answer. */
  elsewhere?: boolean;
  /** Counts towards taking this upstream for dead. */
  isFault?: boolean;
  /** The connection closed before a byte of the answer: it may have been a stale one. */
  isStale?: boolean;
  /** The chat template may take the same conversation in another form. */
  isRefused?: boolean;
  retryAfterSeconds?: number | undefined;
}

export class UpstreamFailure extends Error {
  override readonly name = "UpstreamFailure";
  readonly failure: EngineFailure;
  readonly elsewhere: boolean;
  readonly isFault: boolean;
  readonly isStale: boolean;
  readonly isRefused: boolean;
  readonly retryAfterSeconds: number | undefined;

  /** `message` is for the operator's log. */
  constructor(failure: EngineFailure, message: string, options: FailureOptions = {}) {
    super(message);
    this.failure = failure;
    this.elsewhere = options.elsewhere ?? false;
    this.isFault = options.isFault ?? false;
    this.isStale = options.isStale ?? false;
    this.isRefused = options.isRefused ?? false;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

/** An upstream that breaks its word in the middle of an answer, or gives none that can be read. */
export function brokenAnswer(message: string): UpstreamFailure {
  return new UpstreamFailure("failed", message, { elsewhere: true, isFault: true });
}

/** Connection refused, a name that is not found, no common TLS: nothing has been asked of it yet. */
const notReached: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);
const closed: ReadonlySet<unknown> = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

/** The connection closed from the other side; where no byte of an answer had come, it may have been a stale one. */
export function wasClosed(error: unknown): boolean {
  return closed.has(codeOf(error));
}

/** An error of the connection. `begun`: the request was on its way; `answered`: there was a byte of the answer. */
export function failureOfConnection(
  error: Error,
  { begun, answered }: { begun: boolean; answered: boolean },
): UpstreamFailure {
  const code = codeOf(error);
  const said = `${error.message || error.name}${code === undefined ? "" : ` (${code})`}`;
  const worthAnother = { elsewhere: true, isFault: true };
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
  const isStale = !answered && wasClosed(error);
  return new UpstreamFailure("failed", `the connection broke: ${said}`, { ...worthAnother, isStale });
}

/** An answer with a status other than 200. */
export function failureOfStatus(
  status: number,
  retryAfter: string | undefined,
  body: string,
): UpstreamFailure {
  const said = body === "" ? "" : `: ${body}`;
  const answered = (hint: string) => `it answered ${status}${hint}${said}`;
  const fault = { elsewhere: true, isFault: true };
  if (status === 429) {
    return new UpstreamFailure("overloaded", answered(""), {
      elsewhere: true,
      retryAfterSeconds: secondsOf(retryAfter),
    });
  }
  if (status === 503) {
    return new UpstreamFailure("overloaded", answered(""), {
      ...fault,
      retryAfterSeconds: secondsOf(retryAfter),
    });
  }
  if (status === 401 || status === 403) {
    return new UpstreamFailure("failed", answered(", so the key of this model is wrong or missing"), fault);
  }
  if (status === 404) {
    return new UpstreamFailure("failed", answered(", so url or model of this model is wrong"), fault);
  }
  if (status === 408 || status === 504) return new UpstreamFailure("timeout", answered(""), fault);
  if (isTooLong(status, body)) return new UpstreamFailure("too_long", answered(""));
  if (status === 400 || status === 413 || status === 422) {
    return new UpstreamFailure("failed", answered(""), { isRefused: true });
  }
  // llama-server tells of a template that raises an error with a 500.
  const isRefused = status === 500 && /template|jinja|\broles?\b/i.test(body);
  if (isRefused) return new UpstreamFailure("failed", answered(""), { isRefused });
  const hint = status >= 300 && status < 400 ? ", a redirect; let url name the place itself" : "";
  return new UpstreamFailure("failed", answered(hint), fault);
}

/** OpenAI's and vLLM's code, llama-server's type, or what SGLang and others say in words. */
function isTooLong(status: number, body: string): boolean {
  if (status !== 400 && status !== 413 && status !== 422) return false;
  return /context_length_exceeded|exceed_context_size|maximum context length|context (length|size|window)|longer than the model/i.test(
    body,
  );
}

/** Of a `retry-after`, seconds or a date: whole, at least 1. */
function secondsOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(1, Math.ceil(seconds));
}

const saidLengthMax = 300;
/** Less names nobody. */
const userLengthMin = 3;
/** As long as what two texts have in common by accident never is. */
const quoteLength = 24;
const probeLength = 8;
/** An upstream's words about a longer conversation are left out unread. */
const comparedCharactersMax = 262_144;

/** What an upstream was told and the log is not. */
export interface Unlogged {
  key: string | null;
  user: string | null;
  messages: readonly Message[];
}

/** What may be logged of an upstream's words, as they read when all escapes of JSON are undone. */
export function loggable(said: string, { key, user, messages }: Unlogged): string {
  const readings: string[] = [];
  let text = said.slice(0, 16 * saidLengthMax);
  for (let depth = 0; depth <= escapesMax; depth += 1) {
    // However deep it was packed: one of the readings has what was sent as it was sent.
    if (key !== null && key !== "") text = text.replaceAll(key, "[key]");
    if (user !== null && user.length >= userLengthMin) text = text.replaceAll(user, "[user]");
    readings.push(spaced(text));
    const next = text.replace(jsonEscape, unescaped);
    if (next === text) break;
    text = next;
  }
  text = spaced(text)
    .replace(/\b(sk|ink|hf|gsk)[-_][\w-]{8,}/g, "[key]")
    .replace(/(Bearer )\S+/gi, "$1[key]");
  const quoted = "(its words quote the request, so they are left out)";
  return quotes(readings, messages) ? quoted : text.slice(0, saidLengthMax);
}

/** Compares as much of each reading as the last one can have come from. */
function quotes(readings: readonly string[], messages: readonly Message[]): boolean {
  let characters = 0;
  for (const { content } of messages) characters += content.length;
  // To be sure of more takes too long for the event loop.
  if (characters > comparedCharactersMax) return true;
  const contents = messages.map(({ content }) => spaced(content));
  const said = readings.map((reading, index) => {
    const isLast = index === readings.length - 1;
    return reading.slice(0, saidLengthMax * (isLast ? 1 : escapeLengthMax));
  });
  return quotesWhole(said, contents) || quotesPart(said, contents);
}

/** Short messages count only if all of them is there. */
function quotesWhole(said: readonly string[], contents: readonly string[]): boolean {
  const short = new Set(contents.filter(({ length }) => length > 3 && length < quoteLength));
  return said.some((text) => [...short].some((content) => text.includes(content)));
}

/**
 * Whether `quoteLength` characters in a row are in both. Looks at a few characters of a content at a time, so far apart that one
 * of these places is inside any part that the two have in common; linear in the contents.
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

/** JSON within JSON within JSON is not unheard of. */
const escapesMax = 4;
const jsonEscape = /\\(?:u([0-9a-fA-F]{4})|(["\\/])|[bfnrt])/g;
/** `\u0041` */
const escapeLengthMax = 6;

function unescaped(_: string, code: string | undefined, itself: string | undefined): string {
  return code === undefined ? (itself ?? " ") : String.fromCharCode(Number.parseInt(code, 16));
}

/** All that is not to be seen is one space. A single space is passed over: a conversation has a million of them. */
function spaced(text: string): string {
  return text.replace(/[\s\p{Cc}]{2,}|[^\S ]|\p{Cc}/gu, " ").trim();
}
