/**
 * What the journal says about keys, from which the audit computes them again. Of secrets it has
 * the beginning of their SHA-256. Pure.
 */
import { defined, fieldOf } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { type FactFields, factText, outcomeFields } from "./fact-values.ts";
import { type BudgetChange, rollBudget, ruleOfBudget, setBudget, unusedKey } from "./key-budget.ts";
import type { BudgetSettings, KeySettings, NewKey } from "./operations.ts";
import { countFields, type JournalRow, type KeyRow, keyColumns, settingsIn } from "./rows.ts";
import { isCalendarPeriod } from "./windows.ts";

/** Hexadecimal digits of the SHA-256 of a secret that the journal has. */
const digits = 32;

function secretFact(hash: string): string {
  return hash.slice(0, digits);
}

/** Returns the fields alone that the creator of a key chooses. */
export function newKeyOf(row: NewKey): NewKey {
  const { id, account, hash, lastFour, actsFor } = row;
  return { id, account, hash, lastFour, ...settingsIn(row), actsFor };
}

/** The values of a change of a key: what the operation names, without the secret. */
export function changeFact(set: KeySettings): string {
  const { rotation, ...named } = set;
  return factText({ ...named, rotation: rotation && { overlap: rotation.overlap } });
}

/** The values that a change of the key replaces. */
export function replacedFact(key: KeyRow, { rotation: _, ...set }: FactFields): string {
  const names = Object.keys(defined(set));
  const values = names.map((name) => [name, name === "budget" ? budgetFact(key) : fieldOf(key, name)]);
  return factText(Object.fromEntries(values));
}

function budgetFact(key: KeyRow): object | null {
  const rule = ruleOfBudget(key);
  return rule && { amountMicro: key.budgetMicro, rule, byOperator: key.budgetByOperator };
}

/** What a change has led to: the zone of a budget by the calendar, and a new secret. */
export function outcomeFact(
  { hash, oldUntilMs }: KeyRow,
  { budget, hasNewSecret }: { budget: BudgetChange; hasNewSecret: boolean },
): string | null {
  const secret = hasNewSecret ? { secret: secretFact(hash), oldUntilMs } : {};
  const outcome = { timezone: zoneOf(budget), ...secret };
  return hasNewSecret || outcome.timezone !== undefined ? factText(outcome) : null;
}

function zoneOf(budget: BudgetChange): string | undefined {
  return budget?.rule.align === "calendar" ? budget.rule.timezone : undefined;
}

/**
 * Completes a change of the budget by the parts that stay. The zone is that of the plan if none is
 * given.
 */
export function budgetAfter(
  planZone: string | undefined,
  key: KeyRow | null,
  budget: BudgetSettings | null | undefined,
): BudgetChange | { kind: "no_budget" } | { kind: "no_calendar_period"; every: string } {
  if (budget === undefined || budget === null) return budget;
  const before = key === null ? null : ruleOfBudget(key);
  const amountMicro = budget.amountMicro ?? key?.budgetMicro ?? null;
  const every = budget.rule?.every ?? before?.every;
  if (amountMicro === null || every === undefined) return { kind: "no_budget" };
  const align = budget.rule?.align ?? before?.align ?? "opening";
  if (align === "calendar" && !isCalendarPeriod(every)) return { kind: "no_calendar_period", every };
  const zoneBefore = before?.align === "calendar" ? before.timezone : undefined;
  const zone = budget.rule?.timezone ?? zoneBefore ?? planZone ?? "UTC";
  const rule = { every, align, timezone: align === "opening" ? "UTC" : zone };
  return { amountMicro, rule, byOperator: budget.byOperator ?? key?.budgetByOperator ?? true };
}

/**
 * Applies an entry with its values to the keys of its account. Their hashes are those of the
 * journal. Returns what is wrong with it, or null.
 */
export function applyKeyFact(keys: Map<string, KeyRow>, entry: JournalRow, after: FactFields): string | null {
  const { account, atMs, subject: id } = entry;
  if (id === null) return "names no key";
  const known = keys.get(id);
  const { rotation: _, ...fields } = after;
  const { timezone, secret, oldUntilMs = null } = outcomeFields(entry.outcome);
  if (known === undefined && secret === undefined) return "changes a key that is not there";
  const before = known === undefined ? null : replacedFact(known, fields);
  if (entry.before !== before) return "says that something else was there before";
  const key: KeyRow = known ?? { ...blankKey, id, account, createdMs: atMs };
  keys.set(id, key);
  const { budget, ...set } = fields;
  Object.assign(key, set);
  const change = budgetAfter(timezone, key, budget);
  if (change !== null && change !== undefined && "kind" in change) return "sets a budget without a period";
  if (zoneOf(change) !== timezone) return "has another zone than its budget";
  setBudget(key, change, atMs);
  if (secret !== undefined) {
    key.oldHash = known === undefined ? null : key.hash;
    key.oldUntilMs = oldUntilMs;
    key.hash = secret;
  }
  return null;
}

/** A key before its first fact: nobody has limited it. */
export const blankKey: Omit<KeyRow, "id" | "account" | "createdMs"> = {
  ...unusedKey,
  hash: "",
  lastFour: "",
  ...settingsIn({}),
  actsFor: null,
};

/** The fields of a key that its facts do not determine. */
const noFacts = ["id", "account", "lastFour", "lastUsedMs", ...countFields, "heldMicro", "runningCostMicro"];
const factsOfKey = Object.keys(keyColumns).filter((field) => !noFacts.includes(field));

/** The fields of a key that its facts determine, as texts. Both rows are in one window. */
export function keyFactsOf(key: KeyRow, atMs: EpochMs): (readonly [field: string, value: string])[] {
  const row = { ...key, hash: secretFact(key.hash), oldHash: key.oldHash && secretFact(key.oldHash) };
  rollBudget(row, atMs);
  return factsOfKey.map((field) => {
    const value = fieldOf(row, field);
    if (value === null) return [field, "none"] as const;
    return [field, typeof value === "object" ? factText({ value }) : String(value)] as const;
  });
}
