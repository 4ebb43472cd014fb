/**
 * Decides what the rules of the configuration give to a person. Pure.
 *
 * Guarantees that an unverified address matches no rule, and that a missing list of groups never
 * counts as an empty one.
 */
import { isHigherRole, type OperatorRole, operatorRoles } from "../actors.ts";
import { inLowerCase } from "../store/sql.ts";
import type { Identity } from "./claims.ts";
import type { Condition, PlanRule, SignInSettings } from "./settings.ts";

/** `isComplete`: false if a rule about groups could not be decided and might have given more. */
export interface Verdict<T> {
  value: T | null;
  isComplete: boolean;
}

type Trust = Pick<SignInSettings, "trustsEmail">;

/** Returns the highest role whose rule matches. */
export function roleOf(
  identity: Identity,
  { operators, trustsEmail }: Pick<SignInSettings, "operators" | "trustsEmail">,
): Verdict<OperatorRole> {
  const given = operators.filter((rule) => matches(rule, identity, { trustsEmail }) === true);
  const ranks = given.map(({ role }) => operatorRoles.indexOf(role));
  const value = operatorRoles[Math.max(-1, ...ranks)] ?? null;
  const open = operators.filter((rule) => matches(rule, identity, { trustsEmail }) === null);
  return { value, isComplete: !open.some(({ role }) => isHigherRole(role, value)) };
}

/** Returns the plan of the first rule that matches. Rules that cannot be decided are skipped. */
export function planOf(
  identity: Identity,
  { accounts, trustsEmail }: Pick<SignInSettings, "accounts" | "trustsEmail">,
): Verdict<string> {
  let isComplete = true;
  for (const rule of accounts) {
    const isMatch = matches(rule, identity, { trustsEmail });
    if (isMatch) return { value: (rule satisfies PlanRule).plan, isComplete };
    if (isMatch === null) isComplete = false;
  }
  return { value: null, isComplete };
}

/** Null: the issuer has left the groups out. */
function matches({ kind, value }: Condition, identity: Identity, { trustsEmail }: Trust): boolean | null {
  const { groups, email, emailVerified } = identity;
  if (kind === "group") return groups?.has(value) ?? null;
  if (email === null || !(emailVerified || trustsEmail)) return false;
  const address = inLowerCase(email);
  return kind === "email" ? address === value : address.slice(address.lastIndexOf("@") + 1) === value;
}
