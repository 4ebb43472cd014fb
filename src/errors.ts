/**
 * The complete list of refusals. Every error code of the public API has a row here, a row in
 * docs/errors.md and a test. This file imports nothing.
 *
 * A refusal has two texts. `message` is for the caller. `detail` is only for the operator's log
 * and is never sent: an upstream's message, a path, an exit code.
 */

export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "insufficient_quota"
  | "permission_error"
  | "not_found_error"
  | "rate_limit_error"
  | "server_error";

export const catalogue = {
  invalid_json: { status: 400, type: "invalid_request_error" },
  missing_required_parameter: { status: 400, type: "invalid_request_error" },
  invalid_type: { status: 400, type: "invalid_request_error" },
  invalid_value: { status: 400, type: "invalid_request_error" },
  unknown_parameter: { status: 400, type: "invalid_request_error" },
  context_length_exceeded: { status: 400, type: "invalid_request_error" },
  content_filter: { status: 400, type: "invalid_request_error" },
  missing_person: { status: 400, type: "invalid_request_error" },
  missing_api_key: { status: 401, type: "authentication_error" },
  invalid_api_key: { status: 401, type: "authentication_error" },
  insufficient_credits: { status: 402, type: "insufficient_quota" },
  key_budget_exceeded: { status: 402, type: "insufficient_quota" },
  account_suspended: { status: 403, type: "permission_error" },
  model_not_allowed: { status: 403, type: "permission_error" },
  unknown_person: { status: 403, type: "permission_error" },
  request_stopped: { status: 403, type: "permission_error" },
  unknown_path: { status: 404, type: "not_found_error" },
  model_not_found: { status: 404, type: "invalid_request_error" },
  method_not_allowed: { status: 405, type: "invalid_request_error" },
  request_timeout: { status: 408, type: "invalid_request_error" },
  request_too_large: { status: 413, type: "invalid_request_error" },
  unsupported_media_type: { status: 415, type: "invalid_request_error" },
  rate_limit_exceeded: { status: 429, type: "rate_limit_error" },
  concurrency_limit_exceeded: { status: 429, type: "rate_limit_error" },
  too_many_refusals: { status: 429, type: "rate_limit_error" },
  credits_reserved: { status: 429, type: "rate_limit_error" },
  internal_error: { status: 500, type: "server_error" },
  balance_unavailable: { status: 500, type: "server_error" },
  upstream_error: { status: 502, type: "server_error" },
  upstream_timeout: { status: 504, type: "server_error" },
  overloaded: { status: 503, type: "server_error" },
  model_unavailable: { status: 503, type: "server_error" },
  shutting_down: { status: 503, type: "server_error" },
  store_unavailable: { status: 503, type: "server_error" },
} as const satisfies Record<string, { status: number; type: ErrorType }>;

export type ErrorCode = keyof typeof catalogue;

/** State of a limit after the decision. */
export interface RateState {
  limit: number;
  remaining: number;
  /** Time until the limit is completely restored. */
  resetMs: number;
}

interface RefusalOptions {
  /** Path of the invalid field in the body: `messages[0].name`. */
  param?: string;
  /** Sent as `retry-after`, as whole seconds from 1 to 60. */
  retryAfterSeconds?: number;
  /** False if the same request will always be refused. Default: depends on the status. */
  waitingHelps?: boolean;
  /** The limits that were checked. Sent as `x-ratelimit-*`. */
  rates?: { [name in string]?: RateState };
  /** Only for the operator's log. */
  detail?: string;
  cause?: unknown;
}

/**
 * An error for the caller. Any module may throw it; the listener turns it into an error response.
 */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: ErrorCode;
  readonly param: string | null;
  readonly retryAfterSeconds: number | undefined;
  readonly waitingHelps: boolean | undefined;
  readonly rates: RefusalOptions["rates"] | undefined;
  readonly detail: string | undefined;

  constructor(code: ErrorCode, message: string, options: RefusalOptions = {}) {
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

/** A request that an operator, or a person of its account, has stopped. */
export class RequestStopped extends Refusal {
  /** Who stopped it. A person may have done so in the portal or in the console. */
  readonly by: string;

  constructor(by: string) {
    super(
      "request_stopped",
      `${by.startsWith("person:") ? "A person" : "An operator"} stopped this request. The tokens so far are charged. If it still waited, it costs nothing.`,
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
