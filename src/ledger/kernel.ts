/**
 * Decides operations. This is the only code that moves credits.
 *
 * Pure: no I/O and no clock. The store reads, under its locks, every row that a batch of
 * operations can change. The kernel decides the operations in order and returns the new rows. The
 * store writes them in the same transaction. The kernel guarantees, for any input:
 *
 * - no bucket goes below zero, base and overage never above their caps;
 * - a hold ends once: a repeated operation finds its journal or usage row and changes nothing;
 * - every change of a bucket is a journal entry with that delta, numbered without gaps;
 * - tokens x prices = cost = what each bucket paid + shortfall.
 *
 * Windows roll forward before anything else is decided. Credits are spent from base, then overage,
 * then additional.
 */
import { invariant } from "../errors.ts";
import { type EpochMs, type MicroCredits, microOf } from "../units.ts";
import type {
  AccountError,
  AdjustOperation,
  AdjustOutcome,
  Decision,
  ExpireOutcome,
  ExtendOperation,
  ExtendOutcome,
  HoldOperation,
  HoldOutcome,
  OpenOperation,
  OpenOutcome,
  Operation,
  PlanOperation,
  PlanOutcome,
  PutOffOutcome,
  Rates,
  SettleOperation,
  SettleOutcome,
  TopupOperation,
  TopupOutcome,
} from "./operations.ts";
import type { Plans } from "./plan.ts";
import { additionalOnly, allocate, costOf, minus, negated, type Price, plus, sumOf } from "./pricing.ts";
import { countRequest, countTokens, followClock, rateRefusalOf, ratesOf, scopesOf } from "./rates.ts";
import {
  type AccountRow,
  type BucketAmounts,
  countsOf,
  type Ending,
  type HoldRow,
  type RowPrice,
  type TokenCounts,
  type UsageRow,
} from "./rows.ts";
import {
  type Changes,
  type FoundAccount,
  lateNote,
  lateOp,
  opOf,
  type Snapshot,
  shortfallIn,
  UnitOfWork,
} from "./unit-of-work.ts";

/**
 * Running requests rarely spend their whole hold. Some of them end and give credits back in about
 * this time.
 */
const reservedRetryMs = 1000;

export function decide(
  snapshot: Snapshot,
  plans: Plans,
  operations: readonly Operation[],
): { outcomes: Decision[]; changes: Changes } {
  const work = new UnitOfWork(snapshot, plans);
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
  if (operation.kind === "plan") return changePlan(work, operation);
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
  }
}

function open(work: UnitOfWork, operation: OpenOperation): OpenOutcome | AccountError {
  const existing = work.planOf(operation.account);
  if (existing !== undefined) return { kind: "exists", plan: existing };
  const plan = work.planNamed(operation.plan);
  if (plan === undefined) {
    return { kind: "balance_invalid", problem: `the plan "${operation.plan}" is not in the configuration` };
  }
  work.open(operation.account, plan);
  return { kind: "opened" };
}

function hold(work: UnitOfWork, found: FoundAccount, operation: HoldOperation): HoldOutcome | PutOffOutcome {
  const { account, plan, nowMs } = found;
  const { minMicro, wantMicro } = operation;
  invariant(
    Number.isSafeInteger(minMicro) && minMicro >= 0 && wantMicro >= minMicro,
    "a hold asks for a whole amount or more",
  );
  const taken = work.entry(account.id, opOf(operation));
  if (taken !== null) {
    if (work.hold(account.id, operation.hold) === null) return { kind: "refused", reason: "hold_ended" };
    const amount = 0 - taken.baseDelta - taken.overageDelta - taken.additionalDelta;
    return { kind: "held", amount, rates: {} };
  }
  const key = work.key(operation.key);
  if (key === null || key.account !== account.id) return { kind: "refused", reason: "key_unknown" };
  if (key.revokedMs !== null) return { kind: "refused", reason: "key_revoked" };
  if (key.expiresMs !== null && key.expiresMs <= nowMs) return { kind: "refused", reason: "key_expired" };

  // The hold may need their credits and places. Without them it could be refused, or spend the
  // wrong bucket.
  if (expireOverdue(work, found) === "some") return { kind: "unfinished" };

  const scopes = scopesOf(account, plan, key);
  followClock(scopes, nowMs);
  const limited = rateRefusalOf(scopes, operation.promptTokens, nowMs);
  if (limited !== null) return limited;
  const available = sumOf(account);
  if (available < minMicro) return creditRefusal(found, minMicro, ratesOf(scopes, nowMs));

  const amounts = allocate(account, wantMicro);
  countRequest(scopes, operation.promptTokens, nowMs);
  key.holds += 1;
  key.lastUsedMs = nowMs;
  account.holds += 1;
  addHeld(account, amounts);
  work.put({
    account: account.id,
    id: operation.hold,
    key: key.id,
    model: operation.model,
    createdMs: nowMs,
    expiresMs: nowMs + operation.ttlMs,
    ...amounts,
    baseStartsMs: account.baseStartsMs,
    overageStartsMs: account.overageStartsMs,
    basePast: 0,
    overagePast: 0,
    meteredTokens: operation.promptTokens,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    pricePrompt: operation.price.prompt,
    priceCompletion: operation.price.completion,
    priceCachedPrompt: operation.price.cachedPrompt ?? operation.price.prompt,
  });
  work.post(account, "hold", opOf(operation), key.id, negated(amounts));
  return { kind: "held", amount: sumOf(amounts), rates: ratesOf(scopes, nowMs) };
}

function creditRefusal({ account, plan }: FoundAccount, minMicro: MicroCredits, rates: Rates): HoldOutcome {
  const held = account.heldBase + account.heldOverage + account.heldAdditional;
  if (sumOf(account) + held >= minMicro) {
    return { kind: "refused", reason: "credits_reserved", retryAfterMs: reservedRetryMs, rates };
  }
  // The next refresh fills the buckets to the plan's credits, and not to the present cap of the
  // account.
  const refills: EpochMs[] = [];
  if (plan.base.credits > 0) refills.push(account.baseEndsMs);
  if (plan.overage.credits > 0) refills.push(account.overageEndsMs);
  const refreshesAtMs = refills.length === 0 ? null : Math.min(...refills);
  return { kind: "refused", reason: "insufficient_credits", refreshesAtMs, rates };
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
  costOf(priceOf(row), used);
  row.expiresMs = Math.max(row.expiresMs, nowMs + operation.ttlMs);
  // A late checkpoint never replaces a newer one.
  if (isFurther(used, row)) Object.assign(row, countsOf(used));
  work.put(row);
  const ended = expireOverdue(work, found);
  // With a `ttlMs` of 0 the hold itself is overdue, and has ended.
  if (work.hold(account.id, row.id) === null) return { kind: "ended" };

  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    return { kind: "extended", amount: 0 - before.baseDelta - before.overageDelta - before.additionalDelta };
  }
  // The new expiry and the checkpoint are still written.
  if (moreMicro > 0 && ended === "some") return { kind: "unfinished" };
  const amounts = allocate(account, moreMicro);
  const amount = sumOf(amounts);
  // Nothing moved, so there is no journal entry. A repetition is decided anew.
  if (amount === 0) return { kind: "extended", amount };
  rollHold(row, account);
  row.base += amounts.base;
  row.overage += amounts.overage;
  row.additional += amounts.additional;
  addHeld(account, amounts);
  work.post(account, "extend", op, row.id, negated(amounts));
  return { kind: "extended", amount };
}

function settle(work: UnitOfWork, found: FoundAccount, operation: SettleOperation): SettleOutcome {
  const { account } = found;
  assertTokens(operation.used);
  invariant(operation.ending !== "expired", "a settlement is not an expiry");
  const row = work.hold(account.id, operation.hold);
  if (row !== null) {
    return settled(end(work, found, row, operation.used, operation.ending, operation.estimated));
  }
  const ended = work.usage(account.id, operation.hold);
  if (ended === null) return { kind: "unknown_hold" };
  const outcome = settled(ended.ending === "expired" ? settleLate(work, found, ended, operation) : ended);
  const late = work.entry(account.id, lateOp(operation.hold));
  if (late === null) return outcome;
  const { baseDelta: base, overageDelta: overage, additionalDelta: additional } = late;
  return {
    ...outcome,
    paidBefore: plus(outcome.paid, { base, overage, additional }),
    shortfallBefore: shortfallIn(late.note),
  };
}

function settled({ cost, base, overage, additional, shortfall }: UsageRow) {
  return { kind: "settled", cost, paid: { base, overage, additional }, shortfall } satisfies SettleOutcome;
}

function expire(work: UnitOfWork, found: FoundAccount, id: string): ExpireOutcome {
  const row = work.hold(found.account.id, id);
  if (row === null) return { kind: "ended" };
  if (row.expiresMs > found.nowMs) return { kind: "alive" };
  end(work, found, row, row, "expired", false);
  return { kind: "expired" };
}

/**
 * Ends the overdue holds of the account. Returns `some` if a further commit has to end the rest.
 */
export function expireOverdue(work: UnitOfWork, found: FoundAccount): "all" | "some" {
  const { account } = found;
  if (account.holds === 0) return "all";
  for (const overdue of work.overdue(account.id)) {
    end(work, found, overdue, overdue, "expired", false);
  }
  return work.isUnfinished(account.id) ? "some" : "all";
}

/** Ends an open hold: charges it, returns the rest to its windows, and writes the receipt. */
function end(
  work: UnitOfWork,
  found: FoundAccount,
  row: HoldRow,
  used: TokenCounts,
  ending: Ending,
  estimated: boolean,
): UsageRow {
  const { account, nowMs, atMs } = found;
  rollHold(row, account);
  const cost = costOf(priceOf(row), used);
  const held: BucketAmounts = {
    base: row.basePast + row.base,
    overage: row.overagePast + row.overage,
    additional: row.additional,
  };
  const spent = allocate(held, cost);
  // Credits from past windows are spent first, because they cannot be returned.
  const back: BucketAmounts = {
    base: row.base - Math.max(0, spent.base - row.basePast),
    overage: row.overage - Math.max(0, spent.overage - row.overagePast),
    additional: row.additional - spent.additional,
  };
  // The engine generated more than its limit. The account pays if it can, and the rest is recorded
  // as shortfall.
  const extra = allocate(account, cost - sumOf(spent));
  addHeld(account, negated(row));
  account.holds -= 1;
  const key = work.key(row.key);
  if (key !== null) key.holds -= 1;
  const made = used.promptTokens + used.completionTokens;
  countTokens(scopesOf(account, found.plan, key), made - row.meteredTokens, nowMs);

  const kind = ending === "expired" ? "expire" : made === 0 ? "void" : "settle";
  work.post(account, kind, `${row.id}/end`, ending, minus(back, extra));
  const paid = plus(spent, extra);
  const usage: UsageRow = {
    account: account.id,
    id: row.id,
    seq: account.seq,
    atMs,
    key: row.key,
    model: row.model,
    ending,
    estimated,
    ...countsOf(used),
    pricePrompt: row.pricePrompt,
    priceCompletion: row.priceCompletion,
    priceCachedPrompt: row.priceCachedPrompt,
    cost,
    ...paid,
    shortfall: cost - sumOf(paid),
  };
  work.end(row, usage);
  return usage;
}

/** Settles a hold that has expired: charges the tokens since its last checkpoint, once. */
function settleLate(
  work: UnitOfWork,
  found: FoundAccount,
  expired: UsageRow,
  operation: SettleOperation,
): UsageRow {
  const { account, nowMs, atMs, plan } = found;
  const known = costOf(priceOf(expired), operation.used);
  // The charge of the checkpoint is never taken back. If it is higher, it stays on the receipt.
  const isMore = known >= expired.cost && operation.used.completionTokens >= expired.completionTokens;
  const used = isMore ? operation.used : expired;
  const cost = isMore ? known : expired.cost;
  const extra = allocate(account, cost - expired.cost);
  const before = expired.promptTokens + expired.completionTokens;
  const scopes = scopesOf(account, plan, work.key(expired.key));
  countTokens(scopes, used.promptTokens + used.completionTokens - before, nowMs);
  const note = lateNote(operation.ending, expired.shortfall);
  work.post(account, "settle", lateOp(expired.id), note, negated(extra));
  const usage: UsageRow = {
    ...expired,
    ...countsOf(used),
    seq: account.seq,
    atMs,
    ending: operation.ending,
    estimated: operation.estimated,
    cost,
    ...plus(expired, extra),
    shortfall: expired.shortfall + cost - expired.cost - sumOf(extra),
  };
  work.record(usage);
  return usage;
}

function topup(work: UnitOfWork, found: FoundAccount, operation: TopupOperation): TopupOutcome {
  const { account } = found;
  invariant(
    Number.isSafeInteger(operation.amount) && operation.amount > 0,
    "a top-up is a whole positive amount",
  );
  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    if (before.additionalDelta !== operation.amount)
      return { kind: "conflict", amount: before.additionalDelta };
    return { kind: "added", additional: account.additional, replayed: true };
  }
  if (!fits(account, operation.amount)) return { kind: "too_much" };
  work.post(account, "topup", op, operation.payment, additionalOnly(operation.amount));
  return { kind: "added", additional: account.additional, replayed: false };
}

function adjust(work: UnitOfWork, found: FoundAccount, operation: AdjustOperation): AdjustOutcome {
  const { account } = found;
  invariant(Number.isSafeInteger(operation.amount), "an adjustment is a whole amount");
  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    const same = before.additionalDelta === operation.amount && before.note === operation.reason;
    if (!same) return { kind: "conflict", amount: before.additionalDelta, reason: before.note ?? "" };
    return { kind: "adjusted", additional: account.additional, replayed: true };
  }
  if (account.additional + operation.amount < 0)
    return { kind: "too_little", additional: account.additional };
  if (!fits(account, operation.amount)) return { kind: "too_much" };
  work.post(account, "adjust", op, operation.reason, additionalOnly(operation.amount));
  return { kind: "adjusted", additional: account.additional, replayed: false };
}

/**
 * Changes the plan. An upgrade raises cap and remaining credits by the difference at once. A
 * downgrade takes effect at the next refresh. This also repairs an account whose plan is missing
 * from the configuration.
 */
function changePlan(work: UnitOfWork, operation: PlanOperation): PlanOutcome | AccountError {
  if (work.planOf(operation.account) === undefined) return { kind: "no_account" };
  const plan = work.planNamed(operation.plan);
  if (plan === undefined) {
    return { kind: "balance_invalid", problem: `the plan "${operation.plan}" is not in the configuration` };
  }
  const op = opOf(operation);
  const before = work.entry(operation.account, op);
  if (before !== null) {
    return before.note === plan.id
      ? { kind: "changed", replayed: true }
      : { kind: "conflict", plan: before.note ?? "" };
  }
  const found = work.account(operation.account, plan.id);
  if (found.kind !== "found") return found;
  const { account } = found;
  const raise: BucketAmounts = {
    base: Math.max(0, microOf(plan.base.credits) - account.baseCap),
    overage: Math.max(0, microOf(plan.overage.credits) - account.overageCap),
    additional: 0,
  };
  account.plan = plan.id;
  account.baseCap += raise.base;
  account.overageCap += raise.overage;
  work.post(account, "plan", op, plan.id, raise);
  return { kind: "changed", replayed: false };
}

/** Marks the amounts of a hold that came from a past window. They cannot be returned. */
function rollHold(row: HoldRow, account: AccountRow): void {
  if (row.baseStartsMs !== account.baseStartsMs) {
    row.basePast += row.base;
    row.base = 0;
    row.baseStartsMs = account.baseStartsMs;
  }
  if (row.overageStartsMs !== account.overageStartsMs) {
    row.overagePast += row.overage;
    row.overage = 0;
    row.overageStartsMs = account.overageStartsMs;
  }
}

function addHeld(account: AccountRow, amounts: BucketAmounts): void {
  account.heldBase += amounts.base;
  account.heldOverage += amounts.overage;
  account.heldAdditional += amounts.additional;
}

function fits(account: AccountRow, amount: number): boolean {
  return Number.isSafeInteger(account.additional + account.heldAdditional + amount);
}

function priceOf(row: RowPrice): Price {
  return { prompt: row.pricePrompt, completion: row.priceCompletion, cachedPrompt: row.priceCachedPrompt };
}

/** Reports whether the counts belong to a later moment of the same request. */
function isFurther(used: TokenCounts, known: TokenCounts): boolean {
  if (used.completionTokens !== known.completionTokens) return used.completionTokens > known.completionTokens;
  return used.promptTokens >= known.promptTokens;
}

function assertTokens(used: TokenCounts): void {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = used;
  for (const count of [promptTokens, cachedTokens, completionTokens, reasoningTokens]) {
    invariant(
      Number.isSafeInteger(count) && count >= 0,
      () => `token counts are whole: ${JSON.stringify(used)}`,
    );
  }
  invariant(cachedTokens <= promptTokens, "cached tokens are part of the prompt's");
  invariant(reasoningTokens <= completionTokens, "reasoning tokens are part of the completion's");
}
