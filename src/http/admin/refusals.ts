/**
 * The operator API's part of error responses: the codes of the public catalogue that it shares, and advice that names
 * its endpoints. The operator catalogue is accounts/refusals.ts.
 */
import type { OperatorCode } from "../../accounts/refusals.ts";
import { Refusal } from "../../errors.ts";

/** Operator codes of requests that are refused before their route is called. */
export const refusedBeforeRouting = [
  "missing_operator_token",
  "invalid_operator_token",
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
export const advice: Partial<Record<OperatorCode, string>> = {
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
