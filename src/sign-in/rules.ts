/**
 * Decides what the rules of the configuration give to a person. Pure.
 *
 * Guarantees that an unverified address matches no rule, and that a missing list of groups never
 * counts as an empty one.
 */
import { type OperatorRole, operatorRoles } from "../actors.ts";
import { endOf } from "../ledger/windows.ts";
import type { PersonRow } from "../store/people.ts";
import { inLowerCase } from "../store/sql.ts";
import type { EpochMs } from "../units.ts";
import type { Identity } from "./claims.ts";
import {
  type Condition,
  conditionNameOf,
  isSameIssuer,
  type RoleRule,
  type SignInSettings,
} from "./settings.ts";

/** `isComplete`: false if a rule about groups could not be decided and might have given more. */
export interface Verdict<T> {
  value: T | null;
  isComplete: boolean;
}

type Trust = Pick<SignInSettings, "trustsEmail">;

type Rules = Pick<SignInSettings, "operators">;

/** Returns the rule with the highest role of those that match. */
export function roleRuleOf(identity: Identity, settings: Rules & Trust): Verdict<RoleRule> {
  const rank = ({ role }: RoleRule) => operatorRoles.indexOf(role);
  const highestFirst = settings.operators.toSorted((a, b) => rank(b) - rank(a));
  return firstOf(highestFirst, identity, settings);
}

/** Returns the plan of the first rule that matches. */
export function planOf(
  identity: Identity,
  settings: Pick<SignInSettings, "accounts"> & Trust,
): Verdict<string> {
  const { value, isComplete } = firstOf(settings.accounts, identity, settings);
  return { value: value?.plan ?? null, isComplete };
}

/** Rules that cannot be decided are skipped. */
function firstOf<R extends Condition>(rules: readonly R[], identity: Identity, trust: Trust): Verdict<R> {
  let isComplete = true;
  for (const rule of rules) {
    const isMatch = matches(rule, identity, trust);
    if (isMatch) return { value: rule, isComplete };
    if (isMatch === null) isComplete = false;
  }
  return { value: null, isComplete };
}

/** Returns the record of a rule on its person: the role that it gave, and its condition. */
export function recordOf(rule: RoleRule): string {
  return `${rule.role} ${conditionNameOf(rule)}`;
}

/** Returns the present rule with the condition of a record. Null: there is none any more. */
export function ruleBy(record: string | null, { operators }: Rules): RoleRule | null {
  const condition = record?.slice(record.indexOf(" ") + 1);
  return operators.find((rule) => conditionNameOf(rule) === condition) ?? null;
}

/** Returns the role that a person has now. Null: none, its rule is gone, or it has lapsed. */
export function roleNow(
  { roleRule, roleMatchedMs, suspendedMs, issuer }: PersonRow,
  settings: SignInSettings,
  nowMs: EpochMs,
): OperatorRole | null {
  if (roleMatchedMs === null || suspendedMs !== null || !isSameIssuer(issuer, settings.issuer)) return null;
  return endOf(settings.lapse, roleMatchedMs) > nowMs ? (ruleBy(roleRule, settings)?.role ?? null) : null;
}

/** Returns the role that a person had until now, as recorded. Null: none, or it has lapsed. */
export function roleBefore(person: PersonRow, settings: SignInSettings, nowMs: EpochMs): OperatorRole | null {
  if (roleNow(person, settings, nowMs) === null) return null;
  return operatorRoles.find((role) => person.roleRule?.startsWith(`${role} `)) ?? null;
}

/** Null: the issuer has left the groups out. */
function matches({ kind, value }: Condition, identity: Identity, { trustsEmail }: Trust): boolean | null {
  const { groups, email, emailVerified } = identity;
  if (kind === "group") return groups?.has(value) ?? null;
  if (email === null || !(emailVerified || trustsEmail)) return false;
  const address = inLowerCase(email);
  return kind === "email" ? address === value : address.slice(address.lastIndexOf("@") + 1) === value;
}
