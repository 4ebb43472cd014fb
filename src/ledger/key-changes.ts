/**
 * Keys: issuing, changing, rotating and revoking them.
 *
 * Guarantees that each operation takes effect once, at the moment of its commit, and is in the
 * journal with everything that the audit needs to compute the key again, and without its secret. A
 * revoked key does not change. At most one old secret is valid.
 */
import { invariant } from "../errors.ts";
import { earlier } from "./account.ts";
import { type BudgetChange, ruleOfBudget, setBudget, unusedKey } from "./key-budget.ts";
import type {
  IssueOperation,
  IssueOutcome,
  KeyOperation,
  KeyOutcome,
  KeySettings,
  RevokeOperation,
  RevokeOutcome,
} from "./operations.ts";
import { followClock, scopesOf } from "./rates.ts";
import { hasSameAuthority, type KeyRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";
import { endOf, isCalendarPeriod } from "./windows.ts";

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
  const next = budgetAfter(found, read, budget);
  if (next !== null && next !== undefined && "kind" in next) return next;
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
function budgetAfter(
  { plan }: FoundAccount,
  key: KeyRow | null,
  budget: KeySettings["budget"],
): BudgetChange | Extract<KeyOutcome, { kind: "no_budget" | "no_calendar_period" }> {
  if (budget === undefined || budget === null) return budget;
  const before = key === null ? null : ruleOfBudget(key);
  const micro = budget.micro ?? key?.budget ?? null;
  const every = budget.rule?.every ?? before?.every;
  if (micro === null || every === undefined) return { kind: "no_budget" };
  const align = budget.rule?.align ?? before?.align ?? "opening";
  if (align === "calendar" && !isCalendarPeriod(every)) return { kind: "no_calendar_period", every };
  const zoneBefore = before?.align === "calendar" ? before.timezone : undefined;
  const timezone =
    align === "opening" ? "UTC" : (budget.rule?.timezone ?? zoneBefore ?? plan?.timezone ?? "UTC");
  return {
    micro,
    rule: { every, align, timezone },
    byOperator: budget.byOperator ?? key?.budgetByOperator ?? true,
  };
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
function noteOf({ key, set }: Pick<KeyOperation, "key" | "set">): string {
  const { name, models, requestsPerMinute, tokensPerMinute, concurrent, expiresMs } = set;
  const { budget, rotation, portal } = set;
  const expires =
    expiresMs === undefined || expiresMs === null ? expiresMs : new Date(expiresMs).toISOString();
  const settings = {
    ...{ name, models, requestsPerMinute, tokensPerMinute, concurrent, expires },
    budget: budget && { micro: budget.micro, ...budget.rule, byOperator: budget.byOperator },
    rotation: rotation && { overlap: rotation.overlap },
    portal,
  };
  return `${key} ${JSON.stringify(settings)}`;
}

/** Adds a key. A repetition after a lost answer finds it by its id and its secret. */
export function issueKey(work: UnitOfWork, found: FoundAccount, operation: IssueOperation): IssueOutcome {
  const { account } = found;
  const { row, creator, keysMax } = operation;
  invariant(row.id === operation.key && row.account === account.id, "the operation names its key");
  const existing = work.key(row.id);
  if (existing !== null) {
    const kind = existing.hash === row.hash ? "issued" : "key_exists";
    return { kind, key: { ...existing } };
  }
  if (creator !== null) {
    const now = work.key(creator.id);
    if (now === null || !hasSameAuthority(now, creator)) return { kind: "key_changed" };
  }
  if (keysMax !== null && work.keyCount(account.id) >= keysMax) return { kind: "too_many_keys" };
  return addKey(work, found, operation);
}

/** Adds a key that does not exist. */
export function addKey(
  work: UnitOfWork,
  found: FoundAccount,
  { row, budget: settings, by }: Pick<IssueOperation, "row" | "budget" | "by">,
): IssueOutcome {
  const { atMs } = found.times;
  const budget = budgetAfter(found, null, settings);
  if (budget !== null && budget !== undefined && "kind" in budget) return budget;
  const key: KeyRow = { ...row, createdMs: atMs, ...unusedKey };
  setBudget(key, budget, atMs);
  work.addKey(key);
  const { name, models, requestsPerMinute, tokensPerMinute, concurrent, expiresMs, portal } = row;
  const limits = { requestsPerMinute, tokensPerMinute, concurrent };
  const set = {
    name,
    models,
    ...limits,
    expiresMs,
    portal,
    ...(settings === null ? {} : { budget: settings }),
  };
  work.post(found, { kind: "key", by, note: noteOf({ key: row.id, set }) });
  return { kind: "issued", key: { ...key } };
}

export function revokeKey(work: UnitOfWork, found: FoundAccount, operation: RevokeOperation): RevokeOutcome {
  const read = work.key(operation.key);
  if (read === null || read.account !== found.account.id) return { kind: "key_unknown" };
  if (read.revokedMs !== null) return { kind: "revoked", key: { ...read }, replayed: true };
  const key = work.keyToSet(operation.key);
  invariant(key !== null, "the key was read");
  key.revokedMs = found.times.atMs;
  work.post(found, { kind: "key", by: operation.by, note: `${key.id} revoked` });
  return { kind: "revoked", key: { ...key }, replayed: false };
}
