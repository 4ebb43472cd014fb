/**
 * Compares an account with the naive ledger after a commit: its holds, limits, keys, charges and
 * balance. The preview of a plan change must have shown what the change did.
 */
import assert from "node:assert/strict";
import { type AccountSnapshot, readBalance } from "../../src/ledger/balance.ts";
import type { Operation, PlanOperation } from "../../src/ledger/operations.ts";
import type { Decision } from "../../src/ledger/outcomes.ts";
import type { PlanCatalog } from "../../src/ledger/plan.ts";
import { previewPlan } from "../../src/ledger/preview.ts";
import type { CountRow } from "../../src/ledger/rows.ts";
import type { Times } from "../../src/ledger/snapshot.ts";
import { type MemoryLedger, soonestFirst } from "../fixtures/memory-ledger.ts";
import type { Meter } from "../fixtures/naive-keys.ts";
import type { NaiveLedger, NaiveOutcome } from "../fixtures/naive-ledger.ts";
import { balanceIn, chargesOf, comparable, inOrder, keyRowOf, takingsIn } from "../fixtures/naive-rows.ts";

/** The rows of a ledger at the time of a commit. */
export interface Moment {
  ledger: MemoryLedger;
  plans: PlanCatalog;
  times: Times;
}

export function snapshotOf(id: string, { ledger, plans, times }: Moment): AccountSnapshot | null {
  const account = ledger.accounts.get(id);
  if (account === undefined) return null;
  const overdue = [...ledger.holds.values()]
    .filter((hold) => hold.account === id && hold.expiresMs <= times.nowMs)
    .sort(soonestFirst);
  return { account, problem: null, overdue, later: ledger.later.get(id) ?? [], times, plans };
}

export function checkAccount(naive: NaiveLedger, id: string, moment: Moment): void {
  const account = naive.accounts.get(id);
  const then = naive.accountAt(id, moment.times);
  const snapshot = snapshotOf(id, moment);
  if (account === undefined || then === null || snapshot === null) return;
  const { ledger } = moment;
  const { additional, later } = snapshot.account;
  assert.equal(additional.length + later.count, account.additional.length, `additional grants of ${id}`);
  assert.equal(later.count, snapshot.later.length, `later grants of ${id}`);
  for (const hold of ledger.holds.values()) {
    if (hold.account !== id) continue;
    const own = account.holds.get(hold.id);
    assert.ok(own !== undefined, `hold ${hold.id} of ${id} is open`);
    const { takings, expires, extension, metered, used, price, key, model } = own;
    const expected = {
      ...{ key, model, takings: takingsIn(takings), expiresMs: expires, meteredTokens: metered },
      ...{ extension: extension.n, extendedMicro: extension.amount, ...used },
      ...{ pricePrompt: price.prompt, priceCompletion: price.completion, priceCachedPrompt: price.cached },
    };
    assert.partialDeepStrictEqual(hold, expected, `hold ${hold.id} of ${id}`);
  }
  checkLimits(snapshot.account, account.meter, `account ${id}`);
  assert.partialDeepStrictEqual(readBalance(snapshot), balanceIn(naive, then), `balance of ${id}`);
  for (const [keyId, key] of naive.keys) {
    // Requests of any account change the key of a front end.
    if (key.account !== id && key.actsFor === null) continue;
    const row = ledger.keys.get(keyId);
    assert.ok(row !== undefined, `key ${keyId} exists`);
    checkLimits(row, key.meter, `key ${keyId}`);
    assert.partialDeepStrictEqual(comparable(row), keyRowOf(naive, key), `key ${keyId}`);
    assert.equal(row.revokedMs !== null, key.isRevoked, `key ${keyId} is revoked`);
  }
}

/** Both add up fractions of a millisecond. */
function checkLimits(row: CountRow, { requests, tokens, limit }: Meter, what: string): void {
  assert.equal(row.tokensLimit, limit, `limit of tokens of ${what}`);
  assert.ok(Math.abs(row.requestsTatMs - requests) < 0.1, `requests of ${what}: ${row.requestsTatMs}`);
  assert.ok(Math.abs(row.tokensTatMs - tokens) < 0.1, `tokens of ${what}: ${row.tokensTatMs}`);
}

/** Compares the charges of a request. The grants that paid are in the order of their numbers. */
export function checkCharges(naive: NaiveLedger, account: string, id: string, ledger: MemoryLedger): void {
  const request = naive.requests.get(`${account} ${id}`);
  const charges = ledger.chargesOf(account, id).map((row) => ({ ...row, paid: inOrder(row.paid) }));
  const expected = request === undefined ? [] : chargesOf(request);
  assert.equal(charges.length, expected.length, `charges of ${id}`);
  assert.partialDeepStrictEqual(charges, expected, `charges of ${id}`);
}

export function checkPayments(naive: NaiveLedger, account: string, ledger: MemoryLedger): void {
  for (const [id, { amount, refunded, seq }] of naive.paymentsOf(account)) {
    const expected = { account, seq, amountMicro: amount, refundedMicro: refunded };
    assert.deepEqual(ledger.payment(id), expected, `payment ${id}`);
  }
}

/** Checks the limits in the answer to a hold. Answers to repetitions do not have them. */
export function checkRates(naive: NaiveLedger, operation: Operation, outcome: Decision): void {
  if (operation.kind !== "hold" || !("rates" in outcome) || Object.keys(outcome.rates).length === 0) return;
  assert.deepEqual(outcome.rates, naive.ratesOf(operation), `limits after ${JSON.stringify(operation)}`);
}

/**
 * Applies a change of the plan to the naive ledger. A preview just before it must have shown what
 * the change does. `before`: the account without it.
 */
export function applyPreviewed(
  naive: NaiveLedger,
  operation: PlanOperation,
  before: AccountSnapshot | null,
): NaiveOutcome {
  const { account: id, plan, at } = operation;
  const present = before === null ? null : naive.accountAt(id, before.times);
  if (before === null || present === null) return naive.apply(operation);
  const { nowMs } = before.times;
  // The times of an account do not go back, and a node can be some milliseconds behind another.
  const atMs = Math.max(before.times.atMs, present.at);
  const balance = balanceIn(naive, present);
  const isScheduled = at === "refresh" && plan !== present.plan;
  const effectiveMs = isScheduled ? (present.base?.until ?? atMs) : atMs;
  const times = { nowMs, atMs: effectiveMs };
  const unchanged = naive.accountAt(id, times);
  const outcome = naive.apply(operation);
  if (outcome.replayed === true || outcome.kind === "operation_differs") return outcome;
  const preview = previewPlan(before, operation);
  if (outcome.kind !== "changed") {
    const { kind } = outcome;
    assert.equal(preview.kind, kind, `preview of ${JSON.stringify(operation)}`);
    return outcome;
  }
  // The preview ends all overdue holds. A commit ends some of them, and the others count later.
  const holds = naive.accounts.get(id)?.holds.values() ?? [];
  if ([...holds].some(({ expires }) => expires <= nowMs)) return outcome;
  const changed = naive.accountAt(id, times);
  assert.ok(changed !== null && unchanged !== null, `account ${id} exists`);
  const [after, without] = [balanceIn(naive, changed), balanceIn(naive, unchanged)];
  const early = (["base", "overage"] as const).map((bucket) => {
    const goesOn = (unchanged[bucket]?.from ?? 0) < effectiveMs;
    return goesOn ? after[bucket].remainingMicro - without[bucket].remainingMicro : 0;
  });
  const earlyMicro = early.reduce((sum, amount) => sum + amount, 0);
  const expected = { kind: "preview", effectiveMs, before: balance, after, earlyMicro };
  assert.partialDeepStrictEqual(preview, expected, `preview of ${JSON.stringify(operation)}`);
  return outcome;
}
