/**
 * Builds the bodies and headers of error responses, for all listeners. The `detail` and the cause
 * of a refusal are not sent.
 */
import type { ErrorType } from "../../errors.ts";

/** The content of an error response: a `Refusal`, or a refusal of the operator API. */
export interface ErrorResponse {
  status: number;
  type: ErrorType;
  code: string;
  message: string;
  param: string | null;
  retryAfterSeconds?: number | undefined;
  waitingHelps?: boolean | undefined;
}

/**
 * Official SDKs ignore a longer wait and retry at once, so the header is capped. The message has
 * the full wait.
 */
const retryAfterSecondsMax = 60;

/** Messages may repeat long text of the caller. */
const lineCharactersMax = 1_000;
/** A list of faults has several lines: 20 of an import. */
const messageCharactersMax = 6_000;

export function errorBody(refusal: ErrorResponse): string {
  const { message, type, param, code } = refusal;
  return JSON.stringify({ error: { message: cut(message), type, param, code } });
}

/** Returns the error body for bytes that are not HTTP. The catalogue has no code for them. */
export function unparsableBody(message: string): string {
  return JSON.stringify({ error: { message, type: "invalid_request_error", param: null, code: null } });
}

/**
 * Headers of every response: no browser guesses another type, and no cache on the way or at the
 * client keeps what the next person could read. Streams replace the second one.
 */
export const safeHeaders = { "x-content-type-options": "nosniff", "cache-control": "no-store" } as const;

/**
 * Returns the bytes of an error response, for a connection without a Fastify reply. `status`: code
 * and reason phrase.
 */
export function rawResponse(status: string, body: string, headers: Record<string, string> = {}): string {
  const lines = Object.entries({
    "content-type": "application/json; charset=utf-8",
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
    ...safeHeaders,
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status}\r\n${lines.join("")}\r\n${body}`;
}

export function errorHeaders(refusal: ErrorResponse): Record<string, string> {
  if (refusal.status === 401) return { "www-authenticate": "Bearer" };
  if (refusal.status === 402 || refusal.waitingHelps === false) return { "x-should-retry": "false" };
  if (refusal.status !== 429 && refusal.status !== 503) return {};
  const seconds = Math.ceil(refusal.retryAfterSeconds ?? 1);
  return { "retry-after": String(Math.min(Math.max(seconds, 1), retryAfterSecondsMax)) };
}

function cut(message: string): string {
  const lines = message.slice(0, messageCharactersMax + 1).split("\n");
  return cutAt(messageCharactersMax, lines.map((line) => cutAt(lineCharactersMax, line)).join("\n"));
}

function cutAt(charactersMax: number, text: string): string {
  return text.length <= charactersMax ? text : `${text.slice(0, charactersMax).toWellFormed()}...`;
}
