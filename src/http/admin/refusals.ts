/**
 * What the operator API refuses: the closed table of its own codes, beside those of the public catalogue (errors.ts)
 * that it shares. docs/operating/operator-errors.md has a row for each. A test holds the two together.
 */
import { type ErrorType, Refusal } from "../../errors.ts";

export const operatorCatalogue = {
  missing_operator_token: { status: 401, type: "authentication_error" },
  invalid_operator_token: { status: 401, type: "authentication_error" },
  host_not_allowed: { status: 403, type: "permission_error" },
  origin_not_allowed: { status: 403, type: "permission_error" },
  list_too_slow: { status: 400, type: "invalid_request_error" },
  account_not_found: { status: 404, type: "not_found_error" },
  key_not_found: { status: 404, type: "not_found_error" },
  account_exists: { status: 409, type: "invalid_request_error" },
  operation_differs: { status: 409, type: "invalid_request_error" },
  payment_differs: { status: 409, type: "invalid_request_error" },
  too_few_credits: { status: 409, type: "invalid_request_error" },
  too_many_credits: { status: 409, type: "invalid_request_error" },
} as const satisfies Record<string, { status: number; type: ErrorType }>;

export type OperatorCode = keyof typeof operatorCatalogue;

/** Codes of the public catalogue that the operator API uses too, with the same meaning. */
export const sharedCodes = [
  "invalid_json",
  "missing_required_parameter",
  "invalid_type",
  "invalid_value",
  "unknown_parameter",
  "unknown_path",
  "method_not_allowed",
  "request_too_large",
  "unsupported_media_type",
  "internal_error",
  "balance_unavailable",
  "store_unavailable",
  "overloaded",
] as const;

/** What an operator is told instead of an answer; the counterpart of a `Refusal`, and shaped like one. */
export class OperatorRefusal extends Error {
  override readonly name = "OperatorRefusal";
  readonly code: OperatorCode;
  readonly param: string | null;

  constructor(code: OperatorCode, message: string, param: string | null = null) {
    super(message);
    this.code = code;
    this.param = param;
  }

  get status(): number {
    return operatorCatalogue[this.code].status;
  }

  get type(): ErrorType {
    return operatorCatalogue[this.code].type;
  }
}

export function accountNotFound(account: string): OperatorRefusal {
  return new OperatorRefusal(
    "account_not_found",
    `There is no account "${account}"; GET /admin/accounts lists those there are.`,
  );
}

export function keyNotFound(id: string): OperatorRefusal {
  return new OperatorRefusal(
    "key_not_found",
    `There is no key "${id}"; GET /admin/accounts/{account}/keys lists those of an account.`,
  );
}

/** A value of the right form that names nothing here, or not now. */
export function invalidValue(param: string, message: string): Refusal {
  return new Refusal("invalid_value", message, { param });
}

export function unknownPath(): Refusal {
  return new Refusal(
    "unknown_path",
    "There is nothing at this path. There are /healthz, /readyz, /metrics and what GET /admin/openapi.json describes. The public API is on the other port.",
  );
}
