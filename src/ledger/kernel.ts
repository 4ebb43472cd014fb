/**
 * Decides operations. This is the only code that moves credits.
 *
 * Pure: no I/O and no clock. The store reads, under its locks, every row that a batch of
 * operations can change. The kernel decides the operations in order and returns the new rows. The
 * store writes them in the same transaction. The kernel guarantees, for any input:
 *
 * - nobody takes more than the buckets have free, and additional credits never go below zero;
 * - a hold ends once: a repeated operation finds its journal entry or its charge and changes
 *   nothing;
 * - every change of a bucket is a journal entry with that delta, numbered without gaps;
 * - every credit that is granted has a grant, and every credit that is spent has a charge;
 * - tokens x prices = cost = what each bucket paid + shortfall.
 *
 * What time and plans change (entitlement.ts) is applied before anything else is decided. Credits
 * are spent from base, then overage, then additional.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { changePlan, changeState, open, reverse } from "./account.ts";
import { adjust, refund, topup } from "./additional.ts";
import { expire, expireOverdue, settle } from "./ending.ts";
import { accountAt, countHeld, isCurrent, spendable } from "./entitlement.ts";
import { rollBudget } from "./key-budget.ts";
import { changeKey } from "./key-changes.ts";
import type {
  AccountError,
  Decision,
  ExtendOperation,
  ExtendOutcome,
  HoldOperation,
  HoldOutcome,
  Operation,
  PutOffOutcome,
  Rates,
  Refresh,
} from "./operations.ts";
import { type PlanCatalog, planProblem } from "./plan.ts";
import { allocate, assertTokens, costOf, heldBy, negated, priceOf, sumOf, takingsOf } from "./pricing.ts";
import { countRequest, followClock, rateRefusalOf, ratesOf, scopesOf } from "./rates.ts";
import {
  type AccountRow,
  type BucketAmounts,
  countsOf,
  type HoldRow,
  type KeyRow,
  type TokenCounts,
  windowBuckets,
} from "./rows.ts";
import { type Changes, opOf, type Snapshot } from "./snapshot.ts";
import { type FoundAccount, UnitOfWork } from "./unit-of-work.ts";

/**
 * Running requests rarely spend their whole hold. Some of them end and give credits back in about
 * this time.
 */
const reservedRetryMs = 1000;

export function decide(
  snapshot: Snapshot,
  operations: readonly Operation[],
): { outcomes: Decision[]; changes: Changes } {
  const work = new UnitOfWork(snapshot);
  const putOff = new Set<string>();
  const outcomes = operations.map((operation): Decision => {
    const { account } = operation;
    // Operations on an account keep their order.
    if (putOff.has(account)) return { kind: "unfinished" };
    const decision = decideOne(work, operation);
    if (decision.kind === "unfinished") putOff.add(account);
    return decision;
  });
  return { outcomes, changes: work.changes() };
}

function decideOne(work: UnitOfWork, operation: Operation): Decision {
  const outcome = outcomeOf(work, operation);
  const expired = work.takeExpired();
  return expired.length === 0 ? outcome : { ...outcome, expired };
}

function outcomeOf(work: UnitOfWork, operation: Operation): Decision {
  if (operation.kind === "open") return open(work, operation);
  const found = work.account(operation.account);
  if (found.kind !== "found") return found;
  switch (operation.kind) {
    case "hold":
      return hold(work, found, operation);
    case "extend":
      return extend(work, found, operation);
    case "settle":
      return settle(work, found, operation);
    case "expire":
      return expire(work, found, operation.hold);
    case "topup":
      return topup(work, found, operation);
    case "adjust":
      return adjust(work, found, operation);
    case "refund":
      return refund(work, found, operation);
    case "plan":
      return changePlan(work, found, operation);
    case "state":
      return changeState(work, found, operation);
    case "reverse":
      return reverse(work, found);
    case "key":
      return changeKey(work, found, operation);
  }
}

function hold(
  work: UnitOfWork,
  found: FoundAccount,
  operation: HoldOperation,
): HoldOutcome | PutOffOutcome | AccountError {
  const { account, plan, nowMs } = found;
  const { minMicro, wantMicro } = operation;
  invariant(
    Number.isSafeInteger(minMicro) && minMicro >= 0 && wantMicro >= minMicro,
    "a hold asks for a whole amount or more",
  );
  const taken = work.entry(account.id, opOf(operation));
  if (taken !== null) {
    const row = work.hold(account.id, operation.hold);
    if (row === null) return { kind: "refused", reason: "hold_ended" };
    const amount = 0 - taken.baseDelta - taken.overageDelta - taken.additionalDelta;
    const isReserved = amount < wantMicro && othersHold(work, found, row);
    return { kind: "held", amount, reserved: isReserved, rates: {} };
  }
  const problem = planProblem(work.plans, account.plan, account.nextPlan);
  if (plan === null || problem !== null) {
    return { kind: "balance_invalid", problem: problem ?? "its plan has no version" };
  }
  const key = work.key(operation.key);
  const refusal = keyRefusal(account, key, nowMs);
  if (key === null || refusal !== null) return { kind: "refused", reason: refusal ?? "key_unknown" };

  // The hold may need their credits and places. Without them it could be refused, or spend the
  // wrong bucket.
  if (expireOverdue(work, found) === "some") return { kind: "unfinished" };

  const scopes = scopesOf(account, plan, key);
  followClock(scopes, nowMs);
  const limited = rateRefusalOf(scopes, operation.promptTokens, nowMs);
  if (limited !== null) return limited;
  const budget = rollBudget(key, found.atMs, account.seq + 1);
  const left = budget?.left ?? Number.POSITIVE_INFINITY;
  if (budget !== null && left < minMicro) {
    const rates = ratesOf(scopes, nowMs);
    if (budget.unspent >= minMicro) return reserved("key", rates);
    const full = key.budget ?? 0;
    const refreshes = full > left ? [{ atMs: budget.endsMs, micro: full }] : [];
    return { kind: "refused", reason: "key_budget_exceeded", leftMicro: left, refreshes, rates };
  }
  const free = spendable(found);
  const leftMicro = sumOf(free);
  if (leftMicro < minMicro) {
    const rates = ratesOf(scopes, nowMs);
    if (sumOf(ifAllReturns(account)) >= minMicro) return reserved("account", rates);
    const refreshes = refreshesOf(account, work.plans, leftMicro);
    return { kind: "refused", reason: "insufficient_credits", leftMicro, refreshes, rates };
  }

  const amounts = allocate(free, Math.min(wantMicro, left));
  countRequest(scopes, operation.promptTokens, nowMs);
  key.holds += 1;
  key.held += sumOf(amounts);
  key.lastUsedMs = nowMs;
  account.holds += 1;
  take(account, amounts);
  const row: HoldRow = {
    account: account.id,
    id: operation.hold,
    key: key.id,
    model: operation.model,
    createdMs: nowMs,
    expiresMs: nowMs + operation.ttlMs,
    ...amounts,
    takenSeq: account.seq + 1,
    earlier: [],
    meteredTokens: operation.promptTokens,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    pricePrompt: operation.price.prompt,
    priceCompletion: operation.price.completion,
    priceCachedPrompt: operation.price.cachedPrompt ?? operation.price.prompt,
  };
  work.put(row);
  work.post(account, { kind: "hold", op: opOf(operation), note: key.id, deltas: negated(amounts) });
  const amount = sumOf(amounts);
  const isReserved = amount < wantMicro && othersHold(work, found, row);
  return { kind: "held", amount, reserved: isReserved, rates: ratesOf(scopes, nowMs) };
}

type KeyRefusal = "account_suspended" | "account_closed" | "key_revoked" | "key_expired" | "key_unknown";

function keyRefusal(account: AccountRow, key: KeyRow | null, nowMs: EpochMs): KeyRefusal | null {
  if (key === null || key.account !== account.id) return "key_unknown";
  if (key.revokedMs !== null) return "key_revoked";
  if (key.expiresMs !== null && key.expiresMs <= nowMs) return "key_expired";
  if (account.state === "active") return null;
  return account.state === "closed" ? "account_closed" : "account_suspended";
}

function reserved(scope: "account" | "key", rates: Rates): HoldOutcome {
  return { kind: "refused", reason: "credits_reserved", scope, retryAfterMs: reservedRetryMs, rates };
}

/** Returns the refreshes after which more can be spent than before, soonest first. */
function refreshesOf(account: AccountRow, plans: PlanCatalog, leftMicro: MicroCredits): Refresh[] {
  const { baseEndsMs, overageEndsMs } = account;
  // A scheduled plan begins then. It can continue windows in which credits were spent.
  const next = accountAt(account, plans, baseEndsMs);
  let most = leftMicro;
  return [baseEndsMs, overageEndsMs, next.baseEndsMs, next.overageEndsMs]
    .toSorted((one, other) => one - other)
    .flatMap((atMs) => {
      const then = accountAt(account, plans, atMs);
      const micro = then.state === "closed" ? 0 : sumOf(ifAllReturns(then));
      if (micro <= most) return [];
      most = micro;
      return [{ atMs, micro }];
    });
}

/** Returns what could be spent if all running requests ended and used nothing. */
function ifAllReturns(account: AccountRow): BucketAmounts {
  const { base, baseHeld, overage, overageHeld, additional, additionalHeld } = account;
  return {
    base: Math.max(0, base + baseHeld),
    overage: Math.max(0, overage + overageHeld),
    additional: additional + additionalHeld,
  };
}

function extend(
  work: UnitOfWork,
  found: FoundAccount,
  operation: ExtendOperation,
): ExtendOutcome | PutOffOutcome {
  const { account, nowMs } = found;
  const row = work.hold(account.id, operation.hold);
  if (row === null) return { kind: "ended" };
  const { used, moreMicro } = operation;
  assertTokens(used);
  invariant(
    Number.isSafeInteger(moreMicro) && moreMicro >= 0,
    "an extension asks for a whole amount or nothing",
  );
  // Throws for counts that cannot be charged. With such a checkpoint the hold could never end.
  const cost = costOf(priceOf(row), used);
  const key = work.key(row.key);
  row.expiresMs = Math.max(row.expiresMs, nowMs + operation.ttlMs);
  // A late checkpoint never replaces a newer one.
  if (isFurther(used, row)) {
    const more = cost - costOf(priceOf(row), row);
    account.used += more;
    if (key !== null) key.used += more;
    Object.assign(row, countsOf(used));
  }
  work.put(row);
  const ended = expireOverdue(work, found);
  // With a `ttlMs` of 0 the hold itself is overdue, and has ended.
  if (work.hold(account.id, row.id) === null) return { kind: "ended" };

  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    const amount = 0 - before.baseDelta - before.overageDelta - before.additionalDelta;
    return { kind: "extended", amount, reserved: amount < moreMicro && othersHold(work, found, row) };
  }
  // The new expiry and the checkpoint are still written.
  if (moreMicro > 0 && ended === "some") return { kind: "unfinished" };
  const budget = key === null ? null : rollBudget(key, found.atMs, account.seq + 1);
  const amounts = allocate(spendable(found), Math.min(moreMicro, budget?.left ?? moreMicro));
  const amount = sumOf(amounts);
  if (amount > 0) {
    addTaking(row, account, amounts);
    if (key !== null) key.held += amount;
    take(account, amounts);
    work.post(account, { kind: "extend", op, note: row.id, deltas: negated(amounts) });
  }
  // If nothing moved, there is no journal entry, and a repetition is decided anew.
  return { kind: "extended", amount, reserved: amount < moreMicro && othersHold(work, found, row) };
}

/**
 * Reports whether other requests will give back enough for one more token. They keep what they
 * have used. If the budget of the key has nothing left, only the other requests of the key count.
 */
function othersHold(work: UnitOfWork, found: FoundAccount, row: HoldRow): boolean {
  const { account } = found;
  const used = costOf(priceOf(row), row);
  const key = work.key(row.key);
  const budget = key === null ? null : rollBudget(key, found.atMs, account.seq + 1);
  const enough = Math.max(1, row.priceCompletion);
  if (key !== null && budget !== null && budget.left < enough) {
    const own = sumOf(heldBy(row));
    return Math.min(key.held - own - (key.used - used), budget.unspent - own) >= enough;
  }
  const held = sumOf(ifAllReturns(account)) - sumOf(spendable(found)) - sumOf(returnable(account, row));
  return held - (account.used - used) >= enough;
}

/** Returns what the account would get back if the hold ended and used nothing. */
function returnable(account: AccountRow, row: HoldRow): BucketAmounts {
  const back = { base: 0, overage: 0, additional: row.additional };
  for (const taking of takingsOf(row)) {
    for (const bucket of windowBuckets) {
      if (isCurrent(account, bucket, taking.seq)) back[bucket] += taking[bucket];
    }
  }
  return back;
}

/** Adds an amount to the latest takings of a hold, or begins new ones after a grant. */
function addTaking(row: HoldRow, account: AccountRow, amounts: BucketAmounts): void {
  if (row.takenSeq < Math.max(account.baseGrant, account.overageGrant)) {
    row.earlier = [...row.earlier, { seq: row.takenSeq, base: row.base, overage: row.overage }];
    row.base = 0;
    row.overage = 0;
    row.takenSeq = account.seq + 1;
  }
  row.base += amounts.base;
  row.overage += amounts.overage;
  row.additional += amounts.additional;
}

function take(account: AccountRow, { base, overage, additional }: BucketAmounts): void {
  countHeld(account, "base", base);
  countHeld(account, "overage", overage);
  account.additionalHeld += additional;
}

/** Reports whether the counts belong to a later moment of the same request. */
function isFurther(used: TokenCounts, known: TokenCounts): boolean {
  if (used.completionTokens !== known.completionTokens) return used.completionTokens > known.completionTokens;
  return used.promptTokens >= known.promptTokens;
}
