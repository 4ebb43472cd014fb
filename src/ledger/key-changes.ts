/**
 * Changes of keys by operators: settings, budgets and rotations.
 *
 * Guarantees that each operation takes effect once, at the moment of its commit, and is in the
 * journal without the secret. A revoked key does not change. At most one old secret is valid.
 */
import { invariant } from "../errors.ts";
import { earlier } from "./account.ts";
import { type BudgetChange, ruleOfBudget, setBudget } from "./key-budget.ts";
import type { KeyOperation, KeyOutcome, KeySettings } from "./operations.ts";
import { followClock, scopesOf } from "./rates.ts";
import { hasSameAuthority, type KeyRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";
import { endOf } from "./windows.ts";

export function changeKey(work: UnitOfWork, found: FoundAccount, operation: KeyOperation): KeyOutcome {
  const { account, times } = found;
  const { nowMs, atMs, latestMs } = times;
  const read = work.key(operation.key);
  if (read === null || read.account !== account.id) return { kind: "key_unknown" };
  const note = noteOf(operation);
  const before = earlier(work, operation, note);
  if (before?.kind === "replayed") return { kind: "changed", key: { ...read }, replayed: true };
  if (before !== null) return before;
  if (read.revokedMs !== null) return { kind: "key_revoked" };
  if (operation.seen !== undefined && !hasSameAuthority(read, operation.seen)) return { kind: "key_changed" };
  const { budget, rotation, ...set } = operation.set;
  // Its new secret would not be valid either.
  if (rotation !== undefined && read.expiresMs !== null && read.expiresMs <= latestMs) {
    return { kind: "key_expired", expiresMs: read.expiresMs };
  }
  const next = budgetAfter(read, budget);
  if (next === "incomplete") return { kind: "no_budget" };
  const key = work.keyToSet(operation.key);
  invariant(key !== null, "the key was read");
  // A debt of tokens follows the limit from this moment on.
  followClock(scopesOf(account, null, key), nowMs);
  Object.assign(key, set);
  followClock(scopesOf(account, null, key), nowMs);
  setBudget(key, next, atMs);
  if (rotation !== undefined) rotate(key, rotation, nowMs);
  work.post(found, { kind: "key", op: opOf(operation), by: operation.by, note });
  // A copy, because later operations of the batch change the row.
  return { kind: "changed", key: { ...key }, replayed: false };
}

/** Completes a change of the budget by the parts that stay. */
function budgetAfter(key: KeyRow, budget: KeySettings["budget"]): BudgetChange | "incomplete" {
  if (budget === undefined || budget === null) return budget;
  const micro = budget.micro ?? key.budget;
  const rule = budget.rule ?? ruleOfBudget(key);
  if (micro === null || rule === null) return "incomplete";
  return { micro, rule, byOperator: budget.byOperator ?? key.budgetByOperator ?? true };
}

function rotate(
  key: KeyRow,
  { hash, lastFour, overlap }: NonNullable<KeySettings["rotation"]>,
  nowMs: number,
): void {
  key.oldHash = key.hash;
  key.oldUntilMs = overlap === null ? nowMs : endOf(overlap, nowMs);
  key.hash = hash;
  key.lastFour = lastFour;
}

/** Returns what the journal says: the key and its new settings, without the secret. */
function noteOf({ key, set }: KeyOperation): string {
  const { name, models, requestsPerMinute, tokensPerMinute, concurrent, expiresMs } = set;
  const { budget, rotation, portal } = set;
  const expires =
    expiresMs === undefined || expiresMs === null ? expiresMs : new Date(expiresMs).toISOString();
  const settings = {
    ...{ name, models, requestsPerMinute, tokensPerMinute, concurrent, expires },
    budget: budget && { micro: budget.micro, ...budget.rule },
    rotation: rotation && { overlap: rotation.overlap },
    portal,
  };
  return `${key} ${JSON.stringify(settings)}`;
}
