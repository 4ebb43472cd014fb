/**
 * Ends holds: a settlement, an expiry, and the settlement of a hold that has expired.
 *
 * Guarantees that a hold ends once, that its charge names the grants that paid, and that the
 * charges of a request add up to its tokens x prices. None of this needs the plan of the account:
 * no configuration makes work free, or a hold impossible to end.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { countSpent, endTaking, isCurrent, spendable } from "./entitlement.ts";
import { chargeBudget } from "./key-budget.ts";
import type { ExpireOutcome, SettleOperation, SettleOutcome } from "./operations.ts";
import {
  allocate,
  assertTokens,
  costOf,
  heldBy,
  minus,
  negated,
  plus,
  priceOf,
  sumOf,
  takingsOf,
} from "./pricing.ts";
import { countTokens, scopesOf } from "./rates.ts";
import {
  type BucketAmounts,
  type ChargeRow,
  type Ending,
  type HoldRow,
  noTokens,
  type TokenCounts,
  windowBuckets,
} from "./rows.ts";
import { lateOp } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";

export function settle(work: UnitOfWork, found: FoundAccount, operation: SettleOperation): SettleOutcome {
  const { account } = found;
  assertTokens(operation.used);
  invariant(operation.ending !== "expired", "a settlement is not an expiry");
  const row = work.hold(account.id, operation.hold);
  if (row !== null) {
    return settled([end(work, found, row, operation)]);
  }
  const [first, late] = work.charges(account.id, operation.hold);
  if (first === undefined) return { kind: "unknown_hold" };
  if (first.ending !== "expired") return settled([first]);
  return settled([first, late ?? settleLate(work, found, first, operation)]);
}

/** Adds up the charges of a request. The first of two was made by the expiry of its hold. */
function settled([first, late]: [ChargeRow, ChargeRow?]): SettleOutcome {
  const paid = { base: first.base, overage: first.overage, additional: first.additional };
  if (late === undefined) return { kind: "settled", cost: first.cost, paid, shortfall: first.shortfall };
  return {
    kind: "settled",
    cost: first.cost + late.cost,
    paid: plus(paid, late),
    shortfall: first.shortfall + late.shortfall,
    paidBefore: paid,
    shortfallBefore: first.shortfall,
  };
}

export function expire(work: UnitOfWork, found: FoundAccount, id: string): ExpireOutcome {
  const row = work.hold(found.account.id, id);
  if (row === null) return { kind: "ended" };
  if (row.expiresMs > found.nowMs) return { kind: "alive" };
  end(work, found, row, { used: row, ending: "expired", estimated: false });
  return { kind: "expired" };
}

/**
 * Ends the overdue holds of the account. Returns `some` if a further commit has to end the rest.
 */
export function expireOverdue(work: UnitOfWork, found: FoundAccount): "all" | "some" {
  const { account } = found;
  if (account.holds === 0) return "all";
  for (const overdue of work.overdue(account.id)) {
    end(work, found, overdue, { used: overdue, ending: "expired", estimated: false });
  }
  return work.isUnfinished(account.id) ? "some" : "all";
}

interface Ended {
  used: TokenCounts;
  ending: Ending;
  estimated: boolean;
}

/** Ends an open hold: charges it and returns the rest to the windows that count it. */
function end(
  work: UnitOfWork,
  found: FoundAccount,
  row: HoldRow,
  { used, ending, estimated }: Ended,
): ChargeRow {
  const { account, nowMs } = found;
  const cost = costOf(priceOf(row), used);
  const takings = takingsOf(row);
  const held = heldBy(row);
  const fromHold = allocate(held, cost);
  // What was taken first is spent first: closed windows get nothing back.
  const back = { base: 0, overage: 0, additional: row.additional - fromHold.additional };
  const past = { base: 0, overage: 0 };
  for (const bucket of windowBuckets) {
    let unpaid = fromHold[bucket];
    for (const taking of takings) {
      const paid = Math.min(unpaid, taking[bucket]);
      unpaid -= paid;
      if (!isCurrent(account, bucket, taking.seq)) past[bucket] += paid;
      back[bucket] += endTaking(account, bucket, { seq: taking.seq, amount: taking[bucket], paid });
    }
  }
  account.additionalHeld -= row.additional;
  account.holds -= 1;
  const checkpoint = costOf(priceOf(row), row);
  account.used -= checkpoint;
  // The engine generated more than its limit. The account pays if it can, and the rest is recorded
  // as shortfall.
  const extra = payExtra(found, cost - sumOf(fromHold));
  const paid = plus(fromHold, extra);
  const key = work.key(row.key);
  let { atMs } = found;
  if (key !== null) {
    key.holds -= 1;
    key.held -= sumOf(held);
    key.used -= checkpoint;
    atMs = chargeBudget(key, sumOf(paid), { atMs, seq: account.seq + 1 });
  }
  const made = used.promptTokens + used.completionTokens;
  countTokens(scopesOf(account, found.plan, key), made - row.meteredTokens, nowMs);

  const kind = ending === "expired" ? "expire" : made === 0 ? "void" : "settle";
  work.post(account, { kind, op: `${row.id}/end`, note: ending, deltas: minus(back, extra), atMs });
  const charge = chargeOf(found, row, {
    ...{ atMs, used, ending, estimated, cost, paid },
    late: false,
    basePast: past.base,
    overagePast: past.overage,
  });
  work.end(row, charge);
  return charge;
}

/** Settles a hold that has expired: charges the tokens since its last checkpoint, once. */
function settleLate(
  work: UnitOfWork,
  found: FoundAccount,
  expired: ChargeRow,
  operation: SettleOperation,
): ChargeRow {
  const { account, nowMs } = found;
  const { used, ending, estimated } = operation;
  const known = costOf(priceOf(expired), used);
  // The charge of the checkpoint is never taken back. If it is higher, it stays.
  const isMore = known >= expired.cost && used.completionTokens >= expired.completionTokens;
  const difference = isMore ? differenceOf(used, expired) : noTokens;
  const cost = isMore ? known - expired.cost : 0;
  const paid = payExtra(found, cost);
  const key = work.key(expired.key);
  const atMs =
    key === null ? found.atMs : chargeBudget(key, sumOf(paid), { atMs: found.atMs, seq: account.seq + 1 });
  const scopes = scopesOf(account, found.plan, key);
  countTokens(scopes, difference.promptTokens + difference.completionTokens, nowMs);
  work.post(account, { kind: "settle", op: lateOp(expired.id), note: ending, deltas: negated(paid), atMs });
  const charge = chargeOf(found, expired, {
    ...{ atMs, used: difference, ending, estimated, cost, paid },
    late: true,
    basePast: 0,
    overagePast: 0,
  });
  work.record(charge);
  return charge;
}

function differenceOf(used: TokenCounts, before: TokenCounts): TokenCounts {
  return {
    promptTokens: used.promptTokens - before.promptTokens,
    cachedTokens: used.cachedTokens - before.cachedTokens,
    completionTokens: used.completionTokens - before.completionTokens,
    reasoningTokens: used.reasoningTokens - before.reasoningTokens,
  };
}

/** Takes credits that were not held, as far as there are any. */
function payExtra(found: FoundAccount, amount: MicroCredits): BucketAmounts {
  const extra = allocate(spendable(found), amount);
  for (const bucket of windowBuckets) countSpent(found.account, bucket, extra[bucket]);
  return extra;
}

interface Charge extends Ended {
  atMs: EpochMs;
  cost: MicroCredits;
  paid: BucketAmounts;
  late: boolean;
  basePast: MicroCredits;
  overagePast: MicroCredits;
}

/** Call it after the journal entry was posted. */
function chargeOf({ account }: FoundAccount, of: HoldRow | ChargeRow, charge: Charge): ChargeRow {
  const { used, cost, paid } = charge;
  return {
    account: account.id,
    id: of.id,
    seq: account.seq,
    atMs: charge.atMs,
    key: of.key,
    model: of.model,
    ending: charge.ending,
    estimated: charge.estimated,
    late: charge.late,
    promptTokens: used.promptTokens,
    cachedTokens: used.cachedTokens,
    completionTokens: used.completionTokens,
    reasoningTokens: used.reasoningTokens,
    pricePrompt: of.pricePrompt,
    priceCompletion: of.priceCompletion,
    priceCachedPrompt: of.priceCachedPrompt,
    cost,
    base: paid.base,
    overage: paid.overage,
    additional: paid.additional,
    shortfall: cost - sumOf(paid),
    baseGrant: account.baseGrant,
    overageGrant: account.overageGrant,
    basePast: charge.basePast,
    overagePast: charge.overagePast,
  };
}
