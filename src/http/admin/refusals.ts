/**
 * Error responses of the operator API: its error codes for the OpenAPI document, and the response
 * to each error. The catalogue of operator codes is accounts/refusals.ts; the other codes are
 * shared with the public catalogue.
 */
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

export function unknownPath(): Refusal {
  return new Refusal(
    "unknown_path",
    "This path does not exist. Available are /healthz, /readyz, /metrics and the paths in GET /admin/openapi.json. The public API has its own port.",
  );
}

export function operatorResponseTo(error: unknown, bodyBytesMax?: number): ErrorResponse {
  // Only operators read this response, so it contains the detail.
  if (error instanceof Refusal && error.detail !== undefined) {
    const { status, type, code, param, retryAfterSeconds } = error;
    const message = `${error.message} (${error.detail})`;
    return { status, type, code, message, param, retryAfterSeconds };
  }
  return responseTo(error, bodyBytesMax);
}
