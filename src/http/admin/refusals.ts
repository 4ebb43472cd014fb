/**
 * Error responses of the operator API: its error codes for the OpenAPI document, and the response
 * to each error. The catalogue of operator codes is accounts/refusals.ts; the other codes are
 * shared with the public catalogue.
 */
import { type OperatorCode, OperatorRefusal } from "../../accounts/refusals.ts";
import { Refusal } from "../../errors.ts";
import { refusedEverywhere, refusedWithBody, responseTo } from "../api/refusals.ts";
import type { ErrorResponse } from "../openai-format/error-body.ts";

/** Codes of requests that are refused before their route is called. */
export const refusedBeforeRouting = [
  "missing_operator_token",
  "invalid_operator_token",
  "invalid_session",
  "not_permitted",
  "missing_request_header",
  "host_not_allowed",
  "origin_not_allowed",
  "rate_limit_exceeded",
] as const;

/** All codes of the public catalogue that the operator API shares, with the same meaning. */
export const sharedCodes = [
  ...refusedEverywhere,
  ...refusedWithBody,
  "unknown_path",
  "method_not_allowed",
] as const;

/** Appended to the messages of operator actions. */
const advice: Partial<Record<OperatorCode, string>> = {
  account_not_found: "GET /admin/accounts lists the accounts.",
  account_exists: "PATCH /admin/accounts/{account} changes the plan.",
  key_not_found: "GET /admin/accounts/{account}/keys lists the keys of an account.",
};

export function unknownPath(): Refusal {
  return new Refusal(
    "unknown_path",
    "This path does not exist. Available are /healthz, /readyz, /metrics and the paths in GET /admin/openapi.json. The public API has its own port.",
  );
}

export function operatorResponseTo(error: unknown, bodyBytesMax?: number): ErrorResponse {
  if (error instanceof OperatorRefusal) return extended(error, advice[error.code]);
  // Only operators read this response, so it contains the detail.
  if (error instanceof Refusal) return extended(error, error.detail && `(${error.detail})`);
  return responseTo(error, bodyBytesMax);
}

/** Returns the error response with a text added to its message. */
function extended(error: ErrorResponse, text: string | undefined): ErrorResponse {
  if (text === undefined) return error;
  const { status, type, code, param, retryAfterSeconds } = error;
  return { status, type, code, message: `${error.message} ${text}`, param, retryAfterSeconds };
}
