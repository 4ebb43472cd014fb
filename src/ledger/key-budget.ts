/**
 * The budget of a key: what it may spend in each of its windows, whatever bucket pays.
 *
 * Everything that the open holds of the key hold counts against the present window. A charge
 * counts in the window of its time. Pure: only the given rows change.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { type KeyRow, uncounted } from "./rows.ts";
import type { Times } from "./snapshot.ts";
import { isSameRule, type Window, type WindowRule, windowAfter, windowFrom } from "./windows.ts";

/** The state of a budget at one moment. */
interface BudgetState extends Window {
  /** What the window has not spent, including what running requests hold. */
  unspentMicro: MicroCredits;
  /** What a hold can still take. */
  leftMicro: MicroCredits;
}

/** The budget to set. Undefined leaves it. Null removes it. */
export type BudgetChange =
  | { amountMicro: MicroCredits; rule: WindowRule; byOperator: boolean }
  | null
  | undefined;

/** Returns how the windows of a budget follow one another, or null without a budget. */
export function ruleOfBudget(key: KeyRow): WindowRule | null {
  const { budgetEvery: every, budgetAlign: align, budgetTimezone: timezone } = key;
  return every === null || align === null || timezone === null ? null : { every, align, timezone };
}

function windowOf({ budgetFromMs, budgetUntilMs, budgetAnchorMs }: KeyRow): Window {
  invariant(
    budgetFromMs !== null && budgetUntilMs !== null && budgetAnchorMs !== null,
    "a budget has a window",
  );
  return { fromMs: budgetFromMs, untilMs: budgetUntilMs, anchorMs: budgetAnchorMs };
}

/**
 * Moves the budget to the window of `atMs`. Nothing is spent yet in a new window. Returns the
 * state of the budget, or null for a key without a budget.
 */
export function rollBudget(key: KeyRow, atMs: EpochMs): BudgetState | null {
  const rule = ruleOfBudget(key);
  if (rule === null) return null;
  const last = windowOf(key);
  if (last.untilMs <= atMs) startWindow(key, windowAfter(rule, last, atMs), 0);
  return budgetOf(key);
}

function startWindow(key: KeyRow, { fromMs, untilMs, anchorMs }: Window, spentMicro: MicroCredits): void {
  key.budgetFromMs = fromMs;
  key.budgetUntilMs = untilMs;
  key.budgetAnchorMs = anchorMs;
  key.budgetSpentMicro = spentMicro;
}

/** Returns the state of the budget in the window that the key has, or null if it has none. */
export function budgetOf(key: KeyRow): BudgetState | null {
  const { budgetMicro, budgetSpentMicro, heldMicro } = key;
  if (budgetMicro === null) return null;
  const unspentMicro = Math.max(0, budgetMicro - (budgetSpentMicro ?? 0));
  return { unspentMicro, leftMicro: Math.max(0, unspentMicro - heldMicro), ...windowOf(key) };
}

/**
 * Returns the key as it is then: in the window of that time, without an ended old secret.
 */
export function keyAt(read: KeyRow, { atMs }: Times): KeyRow {
  const key = { ...read };
  rollBudget(key, atMs);
  const hasEnded = key.revokedMs !== null || (key.oldUntilMs !== null && key.oldUntilMs <= atMs);
  if (hasEnded) {
    key.oldHash = null;
    key.oldUntilMs = null;
  }
  return key;
}

/** Counts a charge in the window of `atMs`. */
export function chargeBudget(key: KeyRow, paidMicro: MicroCredits, atMs: EpochMs): void {
  if (rollBudget(key, atMs) !== null) key.budgetSpentMicro = (key.budgetSpentMicro ?? 0) + paidMicro;
}

/**
 * Changes the budget. The same rule keeps the window. Another one begins a window now, which
 * carries what was spent.
 */
export function setBudget(key: KeyRow, budget: BudgetChange, atMs: EpochMs): void {
  if (budget === undefined) return;
  if (budget === null) {
    Object.assign(key, noBudget);
    return;
  }
  rollBudget(key, atMs);
  const before = ruleOfBudget(key);
  const { amountMicro, rule, byOperator } = budget;
  key.budgetMicro = amountMicro;
  key.budgetByOperator = byOperator;
  if (before !== null && isSameRule(before, rule)) return;
  key.budgetEvery = rule.every;
  key.budgetAlign = rule.align;
  key.budgetTimezone = rule.timezone;
  startWindow(key, windowFrom(rule, atMs), key.budgetSpentMicro ?? 0);
}

const noBudget = {
  budgetMicro: null,
  budgetEvery: null,
  budgetAlign: null,
  budgetTimezone: null,
  budgetAnchorMs: null,
  budgetFromMs: null,
  budgetUntilMs: null,
  budgetSpentMicro: null,
  budgetByOperator: null,
} as const satisfies Partial<KeyRow>;

/** A key that was never used, changed or revoked, without a budget. */
export const unusedKey = {
  revokedMs: null,
  lastUsedMs: null,
  ...uncounted,
  heldMicro: 0,
  runningCostMicro: 0,
  ...noBudget,
  oldHash: null,
  oldUntilMs: null,
} as const satisfies Partial<KeyRow>;
