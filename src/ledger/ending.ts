/**
 * Ends holds: a settlement, an expiry, a stop, and the settlement of a hold that has expired.
 *
 * Guarantees that a hold ends once, that its charge names the grants that paid, and that the
 * charges of a request add up to its tokens x prices. None of this needs the plan of the account:
 * no configuration makes work free, or a hold impossible to end.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { addRunning, type Capped, chargeCaps, mostOf, roomsOf } from "./caps.ts";
import { amountOf, byBucket, joined, paidOf } from "./grants.ts";
import type { SettleOperation, StopOperation } from "./operations.ts";
import type { ExpireOutcome, SettleOutcome } from "./outcomes.ts";
import { cappedOf, capsVersionAt } from "./plan.ts";
import { assertTokens, costOf, priceOf } from "./pricing.ts";
import { countTokens, scopesOf } from "./rates.ts";
import {
  type ChargeRow,
  countsOf,
  type Ending,
  type HoldRow,
  noTokens,
  type Taking,
  type TokenCounts,
} from "./rows.ts";
import { type FoundAccount, nextFact, type UnitOfWork } from "./unit-of-work.ts";

export function settle(work: UnitOfWork, found: FoundAccount, operation: SettleOperation): SettleOutcome {
  const { account } = found;
  const settled = (charges: [ChargeRow, ChargeRow?]): SettleOutcome => ({
    ...settledBy(charges),
    left: found.grants.balance(found.times),
  });
  assertTokens(operation.usage);
  invariant(operation.ending !== "expired", "a settlement is not an expiry");
  const row = work.hold(account.id, operation.requestId);
  if (row !== null) return settled([end(work, found, row, operation)]);
  const [first, late] = work.ended(account.id, operation.requestId).charges;
  if (first === undefined) return { kind: "unknown_hold" };
  if (first.ending !== "expired") return settled([first]);
  return settled([first, late ?? settleLate(work, found, first, operation)]);
}

type Settled = Omit<Extract<SettleOutcome, { kind: "settled" }>, "left">;

/** Adds up the charges of a request. The first of two was made by the expiry of its hold. */
function settledBy([first, late]: [ChargeRow, ChargeRow?]): Settled {
  const paid = paidOf(first);
  if (late === undefined)
    return { kind: "settled", costMicro: first.costMicro, paid, shortfallMicro: first.shortfallMicro };
  return {
    kind: "settled",
    costMicro: first.costMicro + late.costMicro,
    paid: {
      base: paid.base + late.baseMicro,
      overage: paid.overage + late.overageMicro,
      additional: paid.additional + late.additionalMicro,
    },
    shortfallMicro: first.shortfallMicro + late.shortfallMicro,
    paidBefore: paid,
    shortfallBeforeMicro: first.shortfallMicro,
  };
}

export function expire(work: UnitOfWork, found: FoundAccount, id: string): ExpireOutcome {
  const row = work.hold(found.account.id, id);
  if (row === null) return { kind: "ended" };
  if (row.expiresMs > found.times.nowMs) return { kind: "alive" };
  end(work, found, row, expiryOf(row));
  return { kind: "expired" };
}

/** Ends a hold at its last checkpoint. Its process is gone, so nobody settles it. */
export function stop(work: UnitOfWork, found: FoundAccount, { requestId, by }: StopOperation): ExpireOutcome {
  const row = work.hold(found.account.id, requestId);
  if (row === null) return { kind: "ended" };
  end(work, found, row, { ...expiryOf(row), by });
  return { kind: "expired" };
}

function expiryOf(row: HoldRow): HoldEnd {
  return { usage: row, ending: "expired", by: null, estimated: false };
}

/**
 * Ends the overdue holds of the account. Returns `some` if a further commit has to end the rest.
 */
export function expireOverdue(work: UnitOfWork, found: FoundAccount): "all" | "some" {
  const { account } = found;
  if (account.holds === 0) return "all";
  for (const overdue of work.overdue(account.id)) end(work, found, overdue, expiryOf(overdue));
  return work.hasMoreOverdue(account.id) ? "some" : "all";
}

interface HoldEnd {
  usage: TokenCounts;
  ending: Ending;
  by: string | null;
  estimated: boolean;
  note?: string | null;
}

/** Ends an open hold: charges it and returns the rest to the grants that are still open. */
function end(work: UnitOfWork, found: FoundAccount, row: HoldRow, ended: HoldEnd): ChargeRow {
  const { account, grants, times } = found;
  const { usage } = ended;
  const costMicro = costOf(priceOf(row), usage);
  const fromHold = grants.settle(row.takings, costMicro);
  const paidMicro = amountOf(fromHold);
  const running = { heldMicro: -amountOf(row.takings), costMicro: -costOf(priceOf(row), row) };
  const key = work.key(row.key);
  const capped = cappedOf(work.plans, found, key);
  for (const each of capped) addRunning(each.row, row.model, running);
  account.holds -= 1;
  if (key !== null) key.holds -= 1;
  charge(capped, row.model, { paidMicro, atMs: times.atMs });
  // The engine generated more than its limit. The account pays if it can and its caps allow it,
  // and the rest is recorded as shortfall.
  const extra = takeExtra(found, capped, row.model, costMicro - paidMicro);
  const paid = joined(fromHold, extra);
  const made = usage.promptTokens + usage.completionTokens;
  countTokens(scopesOf(account, found.plan, key), made - row.meteredTokens, times.nowMs);
  const receipt = chargeOf(work, found, row, { ...ended, costMicro, paid, late: false });
  work.end(row, receipt);
  return receipt;
}

/** Spends what no hold has taken, at most what every cap has left. */
function takeExtra(
  { grants, times }: FoundAccount,
  capped: readonly Capped[],
  model: string,
  wantMicro: MicroCredits,
): Taking[] {
  // Most requests end within their holds.
  if (wantMicro === 0) return [];
  const mostMicro = mostOf(roomsOf(capped, model, times.atMs));
  const takings = grants.take(Math.min(wantMicro, mostMicro), times, "spentMicro");
  charge(capped, model, { paidMicro: amountOf(takings), atMs: times.atMs });
  return takings;
}

function charge(
  capped: readonly Capped[],
  model: string,
  spent: { paidMicro: MicroCredits; atMs: EpochMs },
): void {
  for (const { row, caps } of capped) chargeCaps(row, caps, { model, ...spent });
}

/** Settles a hold that has expired: charges the tokens since its last checkpoint, once. */
function settleLate(
  work: UnitOfWork,
  found: FoundAccount,
  expired: ChargeRow,
  operation: SettleOperation,
): ChargeRow {
  const { account, times } = found;
  const { usage } = operation;
  const knownMicro = costOf(priceOf(expired), usage);
  // The charge of the checkpoint is never taken back. If it is higher, it stays.
  const isMore = knownMicro >= expired.costMicro && usage.completionTokens >= expired.completionTokens;
  const difference = isMore ? differenceOf(usage, expired) : noTokens;
  const costMicro = isMore ? knownMicro - expired.costMicro : 0;
  const key = work.key(expired.key);
  const paid = takeExtra(found, cappedOf(work.plans, found, key), expired.model, costMicro);
  const scopes = scopesOf(account, found.plan, key);
  countTokens(scopes, difference.promptTokens + difference.completionTokens, times.nowMs);
  const charge = { ...operation, usage: difference, costMicro, paid, late: true };
  const receipt = chargeOf(work, found, expired, charge);
  work.record(receipt);
  return receipt;
}

function differenceOf(usage: TokenCounts, before: TokenCounts): TokenCounts {
  return {
    promptTokens: usage.promptTokens - before.promptTokens,
    cachedTokens: usage.cachedTokens - before.cachedTokens,
    completionTokens: usage.completionTokens - before.completionTokens,
    reasoningTokens: usage.reasoningTokens - before.reasoningTokens,
  };
}

interface HoldCharge extends HoldEnd {
  costMicro: MicroCredits;
  paid: readonly Taking[];
  late: boolean;
}

/** Makes the charge, which is the next fact of the account. */
function chargeOf(
  { plans }: UnitOfWork,
  { account, times }: FoundAccount,
  of: HoldRow | ChargeRow,
  charge: HoldCharge,
): ChargeRow {
  const { usage, costMicro, paid } = charge;
  const { base: baseMicro, overage: overageMicro, additional: additionalMicro } = byBucket(paid);
  const { id, key, model, pricePrompt, priceCompletion, priceCachedPrompt } = of;
  return {
    account: account.id,
    id,
    seq: nextFact(account, times),
    atMs: times.atMs,
    key,
    planVersion: capsVersionAt(plans, account.plan, times.atMs),
    model,
    ending: charge.ending,
    by: charge.by,
    estimated: charge.estimated,
    late: charge.late,
    note: charge.note ?? null,
    ...countsOf(usage),
    pricePrompt,
    priceCompletion,
    priceCachedPrompt,
    costMicro,
    baseMicro,
    overageMicro,
    additionalMicro,
    paid,
    shortfallMicro: costMicro - amountOf(paid),
  };
}
