/**
 * Changes of keys by operators: settings, budgets and rotations.
 *
 * Guarantees that each operation takes effect once, at the moment of its commit, and is in the
 * journal without the secret. A revoked key does not change. At most one old secret is valid.
 */
import { invariant } from "../errors.ts";
import { type BudgetChange, setBudget } from "./key-budget.ts";
import type { KeyOperation, KeyOutcome, KeySettings } from "./operations.ts";
import { noAmounts } from "./pricing.ts";
import { followClock, scopesOf } from "./rates.ts";
import { hasSameAuthority, type KeyRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";
import { windowAt } from "./windows.ts";

export function changeKey(work: UnitOfWork, found: FoundAccount, operation: KeyOperation): KeyOutcome {
  const { account, nowMs, atMs } = found;
  const read = work.key(operation.key);
  if (read === null || read.account !== account.id) return { kind: "key_unknown" };
  const op = opOf(operation);
  const note = noteOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    if (before.note === note) return { kind: "changed", key: { ...read }, replayed: true };
    return { kind: "conflict", note: before.note ?? "" };
  }
  if (read.revokedMs !== null) return { kind: "key_revoked" };
  if (operation.seen !== undefined && !hasSameAuthority(read, operation.seen)) return { kind: "key_changed" };
  const { budget, rotation, ...set } = operation.set;
  // Its new secret would not be valid either.
  if (rotation !== undefined && read.expiresMs !== null && read.expiresMs <= nowMs) {
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
  setBudget(key, next, { atMs, seq: account.seq + 1 });
  if (rotation !== undefined) rotate(key, rotation, nowMs);
  work.post(account, { kind: "key", op, note, deltas: noAmounts });
  // A copy, because later operations of the batch change the row.
  return { kind: "changed", key: { ...key }, replayed: false };
}

/** Completes a change of the budget by the parts that stay. */
function budgetAfter(key: KeyRow, budget: KeySettings["budget"]): BudgetChange | "incomplete" {
  if (budget === undefined || budget === null) return budget;
  const micro = budget.micro ?? key.budget;
  const every = budget.every ?? key.budgetEvery;
  return micro === null || every === null ? "incomplete" : { micro, every };
}

function rotate(
  key: KeyRow,
  { hash, lastFour, overlap }: NonNullable<KeySettings["rotation"]>,
  nowMs: number,
): void {
  key.oldHash = key.hash;
  key.oldUntilMs = overlap === null ? nowMs : windowAt(nowMs, overlap, nowMs).endsMs;
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
    budget: budget && { micro: budget.micro, every: budget.every },
    rotation: rotation && { overlap: rotation.overlap },
    portal,
  };
  return `${key} ${JSON.stringify(settings)}`;
}
