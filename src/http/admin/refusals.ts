/** Error codes and responses of the operator API. */
import { isForCaller, Refusal } from "../../errors.ts";
import { responseTo } from "../api/refusals.ts";
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

export function unknownPath(): Refusal {
  return new Refusal(
    "unknown_path",
    "This path does not exist. Available are /healthz, /readyz, /metrics and the paths in GET /admin/openapi.json. The public API has its own port.",
  );
}

export function operatorResponseTo(error: unknown, bodyBytesMax?: number): ErrorResponse {
  // Operators are told the detail that callers are not. That of a sign-in is for the log alone.
  if (error instanceof Refusal && isForCaller(error) && error.detail !== undefined) {
    const { status, type, code, param, retryAfterSeconds } = error;
    const message = `${error.message} (${error.detail})`;
    return { status, type, code, message, param, retryAfterSeconds };
  }
  return responseTo(error, bodyBytesMax);
}
