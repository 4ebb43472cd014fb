/**
 * Errors of operator actions, as one closed catalogue for the operator API and the command line.
 * Errors whose code the public catalogue (errors.ts) defines are thrown as its `Refusal`. A
 * message names no command and no endpoint: the command line adds its own advice. A
 * test compares the catalogue with docs/operating.
 */

import { type Actor, hasRole, type Role } from "../actors.ts";
import { type ErrorType, Refusal } from "../errors.ts";
import { balanceUnavailable } from "../ledger/balance.ts";
import type { AccountError } from "../ledger/outcomes.ts";
import { unknownName } from "../spelling.ts";
import { type EpochMs, localMomentOf, momentRule } from "../units.ts";
import { idProblem } from "./value-rules.ts";

const notSignedIn = { status: 401, type: "authentication_error" } as const;
const forbidden = { status: 403, type: "permission_error" } as const;
const notFound = { status: 404, type: "not_found_error" } as const;
const conflict = { status: 409, type: "invalid_request_error" } as const;
const tooMany = { status: 429, type: "rate_limit_error" } as const;

export const operatorCatalogue = {
  missing_operator_token: notSignedIn,
  invalid_operator_token: notSignedIn,
  invalid_session: notSignedIn,
  invalid_code: notSignedIn,
  missing_request_header: forbidden,
  insecure_sign_in: forbidden,
  token_required: forbidden,
  too_many_sign_ins: tooMany,
  host_not_allowed: forbidden,
  origin_not_allowed: forbidden,
  list_too_slow: { status: 400, type: "invalid_request_error" },
  account_not_found: notFound,
  key_not_found: notFound,
  endpoint_not_found: notFound,
  event_not_found: notFound,
  request_not_found: notFound,
  account_exists: conflict,
  operation_differs: conflict,
  payment_differs: conflict,
  account_closed: conflict,
  external_id_used: conflict,
  payment_not_found: notFound,
  refund_differs: conflict,
  refund_used: conflict,
  refund_too_large: conflict,
  payment_used: conflict,
  grant_not_found: notFound,
  request_running: conflict,
  memo_too_large: conflict,
  window_differs: conflict,
  too_few_credits: conflict,
  too_many_credits: conflict,
  key_revoked: conflict,
  key_expired: conflict,
  key_changed: conflict,
  not_permitted: forbidden,
  allowance_exceeded: forbidden,
  too_many_keys: conflict,
  too_many_changes: tooMany,
  cannot_reload_now: conflict,
  service_unavailable: { status: 503, type: "server_error" },
  configuration_invalid: { status: 422, type: "invalid_request_error" },
  no_portal_url: conflict,
  no_mail_server: conflict,
  mail_failed: { status: 503, type: "server_error" },
  contact_differs: conflict,
  person_suspended: conflict,
  sign_in_failed: notSignedIn,
  not_admitted: forbidden,
  sign_in_again: forbidden,
  person_not_found: notFound,
  sign_in_off: notFound,
  person_linked: conflict,
  person_erased: conflict,
  issuer_unavailable: { status: 503, type: "server_error" },
  invalid_invitation: notSignedIn,
} as const satisfies Record<string, { status: number; type: ErrorType }>;

export type OperatorCode = keyof typeof operatorCatalogue;

export const newIdNeeded = "Nothing has changed. Use a new id for another change.";

/** A refused operator action. Nothing has changed. */
export class OperatorRefusal extends Error {
  override readonly name = "OperatorRefusal";
  readonly code: OperatorCode;
  readonly status: number;
  readonly type: ErrorType;
  /** Field of the API request that is wrong. */
  readonly param: string | null;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: OperatorCode, message: string, param: string | null = null, retryAfterSeconds?: number) {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
    this.code = code;
    this.status = operatorCatalogue[code].status;
    this.type = operatorCatalogue[code].type;
    this.param = param;
  }
}

export function accountNotFound(account: string): OperatorRefusal {
  return new OperatorRefusal("account_not_found", `There is no account ${account}.`);
}

/** `how`: "on plan pro". */
export function accountExists(account: string, how: string): OperatorRefusal {
  return new OperatorRefusal("account_exists", `Account ${account} already exists, opened ${how}.`, "id");
}

export function keyNotFound(id: string): OperatorRefusal {
  return new OperatorRefusal("key_not_found", `There is no key "${id}".`);
}

export function secretNotFound(): OperatorRefusal {
  return new OperatorRefusal(
    "key_not_found",
    "No key has this secret. It may belong to another installation, or have been replaced by two rotations.",
  );
}

export function keyRevoked(id: string): OperatorRefusal {
  return new OperatorRefusal("key_revoked", `Key ${id} is revoked, which is final. Nothing has changed.`);
}

export function keyChanged(): OperatorRefusal {
  return new OperatorRefusal(
    "key_changed",
    "A key was changed by someone else at the same time. Nothing has changed here. Look at it again.",
  );
}

/** An id that the operator or a random number chose twice. */
export function keyExists({ id, account }: { id: string; account: string }): OperatorRefusal {
  return new OperatorRefusal(
    "operation_differs",
    `The key ${id} of ${account} exists already. ${newIdNeeded}`,
  );
}

/** Another key that works, beyond those that the plan of a person allows. */
export function tooManyWork(max: number): OperatorRefusal {
  return new OperatorRefusal(
    "too_many_keys",
    max === 0
      ? "Your plan lets people make no keys. Ask the operator of this service for one."
      : `Your plan allows ${max === 1 ? "one key" : `${max} keys`} at the same time. Revoke one first.`,
  );
}

export function tooManyKeys(max: number): OperatorRefusal {
  return new OperatorRefusal(
    "too_many_keys",
    `The account has ${max} keys, ended keys included, which is the most. Use one of them, or ask the operator for another.`,
  );
}

export function keyExpired(id: string, expiresMs: EpochMs): OperatorRefusal {
  const expiry = new Date(expiresMs).toISOString();
  return new OperatorRefusal("key_expired", `Key ${id} expired at ${expiry}. Set a later expiry first.`);
}

/** Returns the refusal of an operation that the ledger answered with an account error. */
export function accountRefusal(account: string, error: AccountError): Error {
  if (error.kind === "no_account") return accountNotFound(account);
  return balanceUnavailable(`account ${account}: ${error.problem}`);
}

/** Refuses an actor without this role. */
export function requireRole(role: Role, needed: Role): void {
  if (hasRole(role, needed)) return;
  throw new OperatorRefusal(
    "not_permitted",
    `This needs the role ${needed}, and yours is ${role}. Nothing has changed.`,
  );
}

/** Refuses a person who has not signed in at the issuer just now. */
export function requireFresh({ isStale = false }: Actor): void {
  if (!isStale) return;
  throw new OperatorRefusal(
    "sign_in_again",
    "This needs a sign-in at your organisation within the last 15 minutes. Nothing has changed. Sign in again, and repeat it.",
  );
}

/** Returns the refusal of a value that is well-formed but cannot be used. */
export function invalidValue(param: string, message: string): Refusal {
  return new Refusal("invalid_value", message, { param });
}

/**
 * Returns the time that a field of a request names. A day is its start in the time zone, or the
 * start of a later day.
 */
export function momentNamed(param: string, text: string, timezone?: string, daysLater?: number): EpochMs;
export function momentNamed(
  param: string,
  text: string | undefined,
  timezone?: string,
  daysLater?: number,
): EpochMs | undefined;
export function momentNamed(
  param: string,
  text: string | undefined,
  timezone = "UTC",
  daysLater = 0,
): EpochMs | undefined {
  const ms = text === undefined ? undefined : localMomentOf(text, timezone, daysLater);
  if (ms === null) throw invalidValue(param, `${param} must be ${momentRule}.`);
  return ms;
}

/** Refuses an id that looks like another one. `param` is its field in the API. */
export function requireId(param: string, id: string | null | undefined): void {
  const problem = id === null || id === undefined ? null : idProblem(id);
  if (problem === null) return;
  throw invalidValue(param, `${param} ${problem}. Nothing has changed. Send the id in its plain form.`);
}

/** Throws the refusal of a plan that is not in the configuration. */
export function requirePlan(plans: ReadonlyMap<string, unknown>, plan: string, param = "plan"): void {
  if (!plans.has(plan)) throw invalidValue(param, unknownName("plan", plan, [...plans.keys()]));
}

/** Returns the refusal of a plan that accounts cannot be put on. */
export function planRefusal(
  plan: string,
  outcome: { kind: "unknown_plan"; plans: readonly string[] } | { kind: "retired_plan" },
): Refusal {
  if (outcome.kind === "unknown_plan") return invalidValue("plan", unknownName("plan", plan, outcome.plans));
  return invalidValue(
    "plan",
    `The plan "${plan}" is retired: it is not among the current plans. Choose another plan, or put it back into the configuration and apply it.`,
  );
}

export function accountClosed(account: string): OperatorRefusal {
  return new OperatorRefusal("account_closed", `Account ${account} is closed. Nothing has changed.`);
}

export function externalIdUsed(id: string, account: string, param = "external_id"): OperatorRefusal {
  return new OperatorRefusal(
    "external_id_used",
    `The external id "${id}" belongs to account ${account}. Nothing has changed.`,
    param,
  );
}

interface UsableKey {
  models?: readonly string[] | undefined;
  expiresMs?: EpochMs | null | undefined;
}

/** Refuses a key that names an unknown model or has expired already. */
export function requireUsableKey(
  { models = [], expiresMs = null }: UsableKey,
  modelIds: readonly string[],
  nowMs: EpochMs,
): void {
  for (const [index, model] of models.entries()) {
    if (model !== "*" && !modelIds.includes(model))
      throw invalidValue(`models[${index}]`, unknownName("model", model, modelIds));
  }
  if (expiresMs !== null && expiresMs <= nowMs) {
    const expiry = new Date(expiresMs).toISOString();
    throw invalidValue(
      "expires_at",
      `The key would have expired already, at ${expiry}. Choose a later time.`,
    );
  }
}
