/**
 * Error responses of the operator API and of the portal's API: the codes that all of their routes
 * share, and the response to each error.
 */
import { codeOf, Refusal, StoreUnavailableError } from "../../errors.ts";
import { ListTooSlowError } from "../../store/store.ts";
import { notJson } from "../error-response.ts";
import type { ErrorResponse } from "../openai-format/error-body.ts";
import { apiBodyBytesMax } from "./app.ts";

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

export function responseTo(error: unknown, bodyBytesMax = apiBodyBytesMax): ErrorResponse {
  if (error instanceof Refusal) return error;
  if (error instanceof ListTooSlowError) return new Refusal("list_too_slow", error.message);
  if (error instanceof StoreUnavailableError) {
    return new Refusal("store_unavailable", "The database cannot be reached or written now.");
  }
  return refusalOfFastify(error, bodyBytesMax);
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
