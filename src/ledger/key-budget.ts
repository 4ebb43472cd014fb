/**
 * The budget of a key: what it may spend in each of its windows, whatever bucket pays.
 *
 * Everything that the open holds of the key hold counts against the present window. A charge
 * counts in the window of its time. Pure: only the given rows change.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import type { KeyRow, PastBudget } from "./rows.ts";
import { isSamePeriod, windowAt } from "./windows.ts";

/** The state of a budget at one moment. */
interface BudgetState {
  /** What the window has not spent, including what running requests hold. */
  unspent: MicroCredits;
  /** What a hold can still take. */
  left: MicroCredits;
  startsMs: EpochMs;
  endsMs: EpochMs;
}

/** The budget to set. Undefined leaves it. Null removes it. */
export type BudgetChange = { micro: MicroCredits; every: string } | null | undefined;

/**
 * Moves the budget to the window of `atMs`. Nothing is spent yet in a new window. Returns the
 * state of the budget, or null for a key without a budget. `seq` is the number of the account's
 * next journal entry.
 */
export function rollBudget(key: KeyRow, atMs: EpochMs, seq: number): BudgetState | null {
  const { budget, budgetEvery, budgetAnchorMs } = key;
  if (budget === null) return null;
  invariant(budgetEvery !== null && budgetAnchorMs !== null, "a budget has a period and an anchor");
  if (key.budgetEndsMs === null || key.budgetEndsMs <= atMs) {
    startWindow(key, windowAt(budgetAnchorMs, budgetEvery, atMs), seq);
  }
  return budgetOf(key);
}

function startWindow(key: KeyRow, window: { startsMs: EpochMs; endsMs: EpochMs }, seq: number): void {
  key.budgetStartsMs = window.startsMs;
  key.budgetEndsMs = window.endsMs;
  key.budgetSpent = 0;
  key.budgetSince = seq;
}

/** Returns the state of the budget in the window that the key has, or null if it has none. */
export function budgetOf(key: KeyRow): BudgetState | null {
  const { budget, budgetSpent, budgetStartsMs, budgetEndsMs, held } = key;
  if (budget === null) return null;
  invariant(budgetStartsMs !== null && budgetEndsMs !== null, "a budget has a window");
  const unspent = Math.max(0, budget - (budgetSpent ?? 0));
  return { unspent, left: Math.max(0, unspent - held), startsMs: budgetStartsMs, endsMs: budgetEndsMs };
}

/**
 * Returns the key as it is at `nowMs`: in the window of that time, without an ended old secret.
 */
export function keyAt(read: KeyRow, nowMs: EpochMs): KeyRow {
  const key = { ...read };
  rollBudget(key, nowMs, key.budgetSince);
  const hasEnded = key.revokedMs !== null || (key.oldUntilMs !== null && key.oldUntilMs <= nowMs);
  if (hasEnded) {
    key.oldHash = null;
    key.oldUntilMs = null;
  }
  return key;
}

/**
 * Counts a charge in the window of `atMs`. Returns the time of the charge, which is in that
 * window even if the clock was set back. `seq` is the number of its journal entry.
 */
export function chargeBudget(
  key: KeyRow,
  paid: MicroCredits,
  { atMs, seq }: { atMs: EpochMs; seq: number },
): EpochMs {
  const budget = rollBudget(key, atMs, seq);
  if (budget === null) return atMs;
  key.budgetSpent = (key.budgetSpent ?? 0) + paid;
  return Math.max(atMs, budget.startsMs);
}

/**
 * Returns the window at `nowMs` of a budget whose window is of the future, because a wrong clock
 * opened it. Null: the budget has no such window.
 */
export function windowBefore(
  { budgetEvery, budgetAnchorMs, budgetStartsMs }: KeyRow,
  nowMs: EpochMs,
): { startsMs: EpochMs; endsMs: EpochMs } | null {
  const isAhead = budgetStartsMs !== null && budgetStartsMs > nowMs;
  if (!isAhead || budgetEvery === null || budgetAnchorMs === null || budgetAnchorMs > nowMs) return null;
  return windowAt(budgetAnchorMs, budgetEvery, nowMs);
}

/** Takes back a window of the future. `seq` is the number of the account's next journal entry. */
export function restoreBudget(key: KeyRow, past: PastBudget, seq: number): void {
  key.budgetStartsMs = past.startsMs;
  key.budgetEndsMs = past.endsMs;
  key.budgetSpent = past.spent;
  key.budgetSince = past.since ?? seq;
}

/** Changes the budget. The same period keeps the window and what was spent in it. */
export function setBudget(
  key: KeyRow,
  budget: BudgetChange,
  { atMs, seq }: { atMs: EpochMs; seq: number },
): void {
  if (budget === undefined) return;
  if (budget === null) {
    Object.assign(key, noBudget);
    return;
  }
  rollBudget(key, atMs, seq);
  key.budget = budget.micro;
  const isSame = key.budgetEvery !== null && isSamePeriod(key.budgetEvery, budget.every);
  key.budgetEvery = budget.every;
  if (isSame) return;
  key.budgetAnchorMs = atMs;
  startWindow(key, windowAt(atMs, budget.every, atMs), seq);
}

const noBudget = {
  budget: null,
  budgetEvery: null,
  budgetAnchorMs: null,
  budgetStartsMs: null,
  budgetEndsMs: null,
  budgetSpent: null,
  budgetSince: 0,
} as const satisfies Partial<KeyRow>;

/** A key that was never used, changed or revoked, without a budget. */
export const unusedKey = {
  revokedMs: null,
  lastUsedMs: null,
  requestsTatMs: 0,
  tokensTatMs: 0,
  tokensLimit: null,
  holds: 0,
  held: 0,
  used: 0,
  ...noBudget,
  oldHash: null,
  oldUntilMs: null,
} as const satisfies Partial<KeyRow>;
