/**
 * Error responses of the operator API: its error codes for the OpenAPI document, and the response
 * to each error. The catalogue of operator codes is accounts/refusals.ts; the other codes are
 * shared with the public catalogue.
 */
import { type OperatorCode, OperatorRefusal } from "../../accounts/refusals.ts";
import { codeOf, Refusal, StoreUnavailableError } from "../../errors.ts";
import { ListTooSlowError } from "../../store/store.ts";
import { notJson } from "../error-response.ts";
import type { ErrorResponse } from "../openai-format/error-body.ts";
import { adminBodyBytesMax } from "./app.ts";

/** Operator codes of requests that are refused before their route is called. */
export const refusedBeforeRouting = [
  "missing_operator_token",
  "invalid_operator_token",
  "invalid_session",
  "missing_request_header",
  "host_not_allowed",
  "origin_not_allowed",
] as const;

/** Shared codes that every route may respond with. */
export const refusedEverywhere = [
  "invalid_type",
  "invalid_value",
  "unknown_parameter",
  "internal_error",
  "balance_unavailable",
  "store_unavailable",
  "overloaded",
] as const;

/** Shared codes of routes that take a body. */
export const refusedWithBody = [
  "invalid_json",
  "missing_required_parameter",
  "request_too_large",
  "unsupported_media_type",
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

export function responseTo(error: unknown, bodyBytesMax = adminBodyBytesMax): ErrorResponse {
  if (error instanceof OperatorRefusal) return extended(error, advice[error.code]);
  // Only operators read this response, so it contains the detail.
  if (error instanceof Refusal) return extended(error, error.detail && `(${error.detail})`);
  if (error instanceof ListTooSlowError) return new OperatorRefusal("list_too_slow", error.message);
  if (error instanceof StoreUnavailableError) {
    return new Refusal(
      "store_unavailable",
      "The database cannot be reached or written now. Sending the same request again is safe.",
    );
  }
  return refusalOfFastify(error, bodyBytesMax);
}

/** Returns the error response with a text added to its message. */
function extended(error: ErrorResponse, text: string | undefined): ErrorResponse {
  if (text === undefined) return error;
  const { status, type, code, param, retryAfterSeconds } = error;
  return { status, type, code, message: `${error.message} ${text}`, param, retryAfterSeconds };
}

function refusalOfFastify(error: unknown, bodyBytesMax: number): Refusal {
  switch (codeOf(error)) {
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return notJson();
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new Refusal("request_too_large", `The body is larger than ${bodyBytesMax} bytes.`);
  }
  if (error instanceof Error && "statusCode" in error && error.statusCode === 400) {
    return new Refusal("invalid_json", "The body is shorter than its content-length.");
  }
  return new Refusal("internal_error", "The server failed, not the request. The log has the details.");
}
