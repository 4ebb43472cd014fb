/**
 * What a refusal looks like on the wire: the one place that builds error bodies and the headers that go with them.
 * A refusal's `detail` and cause stay behind.
 */
import type { ErrorType } from "../../errors.ts";

/** Whatever is told to a caller: a `Refusal`, or the operator API's own kind of it. */
export interface ErrorResponse {
  status: number;
  type: ErrorType;
  code: string;
  message: string;
  param: string | null;
  retryAfterSeconds?: number | undefined;
  waitingHelps?: boolean | undefined;
}

/** Official SDKs ignore a longer wait and hammer instead; it is told in the message alone. */
const retryAfterSecondsMax = 60;

/** A message may repeat what the caller sent, which may be long. */
const messageCharactersMax = 1_000;

export function errorBody(refusal: ErrorResponse): string {
  const { message, type, param, code } = refusal;
  return JSON.stringify({ error: { message: cut(message), type, param, code } });
}

/** For bytes that were no HTTP request, so that no row of the catalogue applies: `code` is null. */
export function unparsableBody(message: string): string {
  return JSON.stringify({ error: { message, type: "invalid_request_error", param: null, code: null } });
}

export function errorHeaders(refusal: ErrorResponse): Record<string, string> {
  if (refusal.status === 401) return { "www-authenticate": "Bearer" };
  if (refusal.status === 402 || refusal.waitingHelps === false) return { "x-should-retry": "false" };
  if (refusal.status !== 429 && refusal.status !== 503) return {};
  const seconds = Math.ceil(refusal.retryAfterSeconds ?? 1);
  return { "retry-after": String(Math.min(Math.max(seconds, 1), retryAfterSecondsMax)) };
}

function cut(message: string): string {
  if (message.length <= messageCharactersMax) return message;
  return `${message.slice(0, messageCharactersMax).toWellFormed()}...`;
}
