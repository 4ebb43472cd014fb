/** Guards of actions: each refuses an actor or a value. */
import { type Actor, hasRole, type Role } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { isModelOf } from "../ledger/caps.ts";
import { unknownName } from "../spelling.ts";
import { type EpochMs, localMomentOf, momentRule } from "../units.ts";
import { idProblem } from "./value-rules.ts";

/** Refuses an actor without this role. */
export function requireRole(role: Role, needed: Role): void {
  if (hasRole(role, needed)) return;
  throw new Refusal(
    "not_permitted",
    `This needs the role ${needed}, and yours is ${role}. Nothing has changed.`,
  );
}

/** Refuses a person who has not signed in at the issuer just now. */
export function requireFresh({ isStale = false }: Actor): void {
  if (!isStale) return;
  throw new Refusal(
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

/** Refuses patterns that none of these models has. `*` is every model, also of none. */
export function requireModels(patterns: readonly string[], modelIds: readonly string[]): void {
  for (const [index, model] of patterns.entries()) {
    if (model !== "*" && !modelIds.some((id) => isModelOf(model, id)))
      throw invalidValue(`models[${index}]`, unknownName("model", model, modelIds));
  }
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
  requireModels(models, modelIds);
  if (expiresMs !== null && expiresMs <= nowMs) {
    const expiry = new Date(expiresMs).toISOString();
    throw invalidValue(
      "expires_at",
      `The key would have expired already, at ${expiry}. Choose a later time.`,
    );
  }
}
