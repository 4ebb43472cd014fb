/**
 * The complete list of refusals. Every error code has a row here, a row in docs/errors.md or
 * docs/operating, and a test. ledger/refusals.ts has the sentences of what the ledger refuses.
 * This file imports nothing.
 *
 * A refusal has two texts. `message` is for whoever is refused. `detail` is for the operator, and
 * never sent to others: an upstream's message, a path, an exit code.
 */

export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "insufficient_quota"
  | "permission_error"
  | "not_found_error"
  | "rate_limit_error"
  | "server_error";

export interface Entry {
  /** Callers of the public API, operators and holders of keys, or both. */
  for: "caller" | "operator" | "both";
  status: number;
  type: ErrorType;
  /** The field of the request that is wrong if the ledger refuses it. */
  param?: string;
}

export const catalogue = {
  invalid_json: { for: "both", status: 400, type: "invalid_request_error" },
  missing_required_parameter: { for: "both", status: 400, type: "invalid_request_error" },
  invalid_type: { for: "both", status: 400, type: "invalid_request_error" },
  invalid_value: { for: "both", status: 400, type: "invalid_request_error" },
  unknown_parameter: { for: "both", status: 400, type: "invalid_request_error" },
  context_length_exceeded: { for: "caller", status: 400, type: "invalid_request_error" },
  content_filter: { for: "caller", status: 400, type: "invalid_request_error" },
  missing_person: { for: "caller", status: 400, type: "invalid_request_error" },
  missing_api_key: { for: "caller", status: 401, type: "authentication_error" },
  invalid_api_key: { for: "caller", status: 401, type: "authentication_error" },
  insufficient_credits: { for: "caller", status: 402, type: "insufficient_quota" },
  cap_reached: { for: "caller", status: 402, type: "insufficient_quota" },
  account_suspended: { for: "caller", status: 403, type: "permission_error" },
  model_not_allowed: { for: "caller", status: 403, type: "permission_error" },
  unknown_person: { for: "caller", status: 403, type: "permission_error" },
  request_stopped: { for: "caller", status: 403, type: "permission_error" },
  unknown_path: { for: "both", status: 404, type: "not_found_error" },
  model_not_found: { for: "caller", status: 404, type: "invalid_request_error" },
  method_not_allowed: { for: "both", status: 405, type: "invalid_request_error" },
  request_timeout: { for: "caller", status: 408, type: "invalid_request_error" },
  request_too_large: { for: "both", status: 413, type: "invalid_request_error" },
  unsupported_media_type: { for: "both", status: 415, type: "invalid_request_error" },
  rate_limit_exceeded: { for: "both", status: 429, type: "rate_limit_error" },
  concurrency_limit_exceeded: { for: "caller", status: 429, type: "rate_limit_error" },
  too_many_refusals: { for: "caller", status: 429, type: "rate_limit_error" },
  credits_reserved: { for: "caller", status: 429, type: "rate_limit_error" },
  internal_error: { for: "both", status: 500, type: "server_error" },
  balance_unavailable: { for: "both", status: 500, type: "server_error" },
  upstream_error: { for: "caller", status: 502, type: "server_error" },
  upstream_timeout: { for: "caller", status: 504, type: "server_error" },
  overloaded: { for: "both", status: 503, type: "server_error" },
  model_unavailable: { for: "caller", status: 503, type: "server_error" },
  shutting_down: { for: "caller", status: 503, type: "server_error" },
  store_unavailable: { for: "both", status: 503, type: "server_error" },
  missing_operator_token: { for: "operator", status: 401, type: "authentication_error" },
  invalid_operator_token: { for: "operator", status: 401, type: "authentication_error" },
  invalid_session: { for: "operator", status: 401, type: "authentication_error" },
  invalid_code: { for: "operator", status: 401, type: "authentication_error" },
  missing_request_header: { for: "operator", status: 403, type: "permission_error" },
  insecure_sign_in: { for: "operator", status: 403, type: "permission_error" },
  token_required: { for: "operator", status: 403, type: "permission_error" },
  too_many_sign_ins: { for: "operator", status: 429, type: "rate_limit_error" },
  host_not_allowed: { for: "operator", status: 403, type: "permission_error" },
  origin_not_allowed: { for: "operator", status: 403, type: "permission_error" },
  list_too_slow: { for: "operator", status: 400, type: "invalid_request_error" },
  account_not_found: { for: "operator", status: 404, type: "not_found_error" },
  key_not_found: { for: "operator", status: 404, type: "not_found_error" },
  endpoint_not_found: { for: "operator", status: 404, type: "not_found_error" },
  event_not_found: { for: "operator", status: 404, type: "not_found_error" },
  request_not_found: { for: "operator", status: 404, type: "not_found_error", param: "request_id" },
  account_exists: { for: "operator", status: 409, type: "invalid_request_error", param: "id" },
  operation_differs: { for: "operator", status: 409, type: "invalid_request_error", param: "operation_id" },
  payment_differs: { for: "operator", status: 409, type: "invalid_request_error", param: "credits" },
  account_closed: { for: "operator", status: 409, type: "invalid_request_error" },
  external_id_used: { for: "operator", status: 409, type: "invalid_request_error", param: "external_id" },
  payment_not_found: { for: "operator", status: 404, type: "not_found_error", param: "payment_id" },
  refund_differs: { for: "operator", status: 409, type: "invalid_request_error", param: "refund_id" },
  refund_used: { for: "operator", status: 409, type: "invalid_request_error", param: "refund_id" },
  refund_too_large: { for: "operator", status: 409, type: "invalid_request_error", param: "credits" },
  payment_used: { for: "operator", status: 409, type: "invalid_request_error", param: "payment_id" },
  grant_not_found: { for: "operator", status: 404, type: "not_found_error", param: "grant" },
  request_running: { for: "operator", status: 409, type: "invalid_request_error", param: "request_id" },
  memo_too_large: { for: "operator", status: 409, type: "invalid_request_error", param: "credits" },
  window_differs: { for: "operator", status: 409, type: "invalid_request_error", param: "at" },
  too_few_credits: { for: "operator", status: 409, type: "invalid_request_error", param: "credits" },
  too_many_credits: { for: "operator", status: 409, type: "invalid_request_error", param: "credits" },
  key_revoked: { for: "operator", status: 409, type: "invalid_request_error" },
  key_expired: { for: "operator", status: 409, type: "invalid_request_error" },
  key_changed: { for: "operator", status: 409, type: "invalid_request_error" },
  not_permitted: { for: "operator", status: 403, type: "permission_error" },
  allowance_exceeded: { for: "operator", status: 403, type: "permission_error" },
  too_many_keys: { for: "operator", status: 409, type: "invalid_request_error" },
  too_many_changes: { for: "operator", status: 429, type: "rate_limit_error" },
  cannot_reload_now: { for: "operator", status: 409, type: "invalid_request_error" },
  service_unavailable: { for: "operator", status: 503, type: "server_error" },
  configuration_invalid: { for: "operator", status: 422, type: "invalid_request_error" },
  no_portal_url: { for: "operator", status: 409, type: "invalid_request_error" },
  no_mail_server: { for: "operator", status: 409, type: "invalid_request_error" },
  mail_failed: { for: "operator", status: 503, type: "server_error" },
  contact_differs: { for: "operator", status: 409, type: "invalid_request_error" },
  person_suspended: { for: "operator", status: 409, type: "invalid_request_error" },
  sign_in_failed: { for: "operator", status: 401, type: "authentication_error" },
  not_admitted: { for: "operator", status: 403, type: "permission_error" },
  sign_in_again: { for: "operator", status: 403, type: "permission_error" },
  person_not_found: { for: "operator", status: 404, type: "not_found_error" },
  sign_in_off: { for: "operator", status: 404, type: "not_found_error" },
  person_linked: { for: "operator", status: 409, type: "invalid_request_error" },
  person_erased: { for: "operator", status: 409, type: "invalid_request_error" },
  issuer_unavailable: { for: "operator", status: 503, type: "server_error" },
  invalid_link: { for: "operator", status: 401, type: "authentication_error" },
  link_full: { for: "operator", status: 403, type: "permission_error" },
  link_ended: { for: "operator", status: 403, type: "permission_error" },
  link_not_found: { for: "operator", status: 404, type: "not_found_error" },
  domain_differs: { for: "operator", status: 403, type: "permission_error" },
  already_joined: { for: "operator", status: 403, type: "permission_error" },
  invalid_invitation: { for: "operator", status: 401, type: "authentication_error" },
} as const satisfies Record<string, Entry>;

export type Code = keyof typeof catalogue;
type OperatorCode = { [C in Code]: (typeof catalogue)[C]["for"] extends "operator" ? C : never }[Code];
/** The public listener sends no others. */
export type CallerCode = Exclude<Code, OperatorCode>;

/** State of a limit after the decision. */
export interface RateState {
  limit: number;
  remaining: number;
  /** Time until the limit is completely restored. */
  resetMs: number;
}

interface RefusalOptions {
  /** Path of the invalid field in the body: `messages[0].name`. */
  param?: string | undefined;
  /** Sent as `retry-after`, as whole seconds from 1 to 60. */
  retryAfterSeconds?: number | undefined;
  /** False if the same request will always be refused. Default: depends on the status. */
  waitingHelps?: boolean | undefined;
  /** The limits that were checked. Sent as `x-ratelimit-*`. */
  rates?: { [name in string]?: RateState } | undefined;
  /** Only for the operator. */
  detail?: string | undefined;
  cause?: unknown;
}

/** Any module may throw it; the listener turns it into an error response. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: Code;
  readonly param: string | null;
  readonly retryAfterSeconds: number | undefined;
  readonly waitingHelps: boolean | undefined;
  readonly rates: RefusalOptions["rates"];
  readonly detail: string | undefined;

  constructor(code: Code, message: string, options: RefusalOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.param = options.param ?? null;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.waitingHelps = options.waitingHelps;
    this.rates = options.rates;
    this.detail = options.detail;
  }

  get status(): number {
    return catalogue[this.code].status;
  }

  get type(): ErrorType {
    return catalogue[this.code].type;
  }
}

export type CallerRefusal = Refusal & { readonly code: CallerCode };

export function isForCaller(refusal: Refusal): refusal is CallerRefusal {
  return catalogue[refusal.code].for !== "operator";
}

/** A request that an operator, or somebody of its account, has stopped. */
export class RequestStopped extends Refusal {
  /** Who stopped it. A person may have done so in the portal or in the console. */
  readonly by: string;

  constructor(by: string) {
    const kind = by.split(":", 1)[0] ?? "";
    super(
      "request_stopped",
      `${{ person: "A person", key: "A key of the account" }[kind] ?? "An operator"} stopped this request. The tokens so far are charged. If it still waited, it costs nothing.`,
    );
    this.by = by;
  }
}

/**
 * A fault that the operator can fix (configuration, command line, model file, data folder). Its
 * message is printed without a stack, and the exit code is 1.
 */
export class OperatorError extends Error {
  override readonly name = "OperatorError";

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** The database is unavailable: it is locked, its disk is full, or the connection is lost. */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
  /**
   * False: nothing was changed. True: the change may have been made, and only its answer was lost.
   */
  readonly mayBeDone: boolean;

  constructor(message: string, options: ErrorOptions & { mayBeDone?: boolean } = {}) {
    super(message, options);
    this.mayBeDone = options.mayBeDone ?? true;
  }
}

/** Marks the error: nothing was changed before it. */
export function withNothingDone(error: unknown): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  return new StoreUnavailableError(error.message, { cause: error.cause, mayBeDone: false });
}

/** Returns the message of a caught value, whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** Returns the first lines of many for a message, indented, and how many more there are. */
export function firstOf(lines: readonly string[]): string[] {
  const shown = lines
    .slice(0, 20)
    .map((line) => `  ${line.length > 1000 ? `${line.slice(0, 1000)}...` : line}`);
  return lines.length > shown.length ? [...shown, `  and ${lines.length - shown.length} more`] : shown;
}

/** Returns the `code` of an error of Node or of a library, such as `ENOENT`. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/**
 * Throws if a condition that the code guarantees is false. Not for invalid input: a failed
 * invariant is a defect and becomes a 500.
 */
export function invariant(condition: unknown, message: string | (() => string)): asserts condition {
  if (!condition) throw new Error(`invariant broken: ${typeof message === "string" ? message : message()}`);
}
