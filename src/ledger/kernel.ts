/**
 * Decides operations. Only it and what it calls move credits.
 *
 * Pure: no I/O and no clock. The store reads, under its locks, every row that a batch of
 * operations can change. The kernel decides the operations in order and returns the new rows. The
 * store writes them in the same transaction. The kernel guarantees, for any input:
 *
 * - nobody takes more than the open grants have free;
 * - a hold ends once: a repeated operation finds its hold or its charge and changes nothing;
 * - every credit that is granted has a fact, and every credit that is spent has a charge;
 * - tokens x prices = cost = what the grants paid + shortfall.
 *
 * What time and plans change (entitlement.ts) is applied before anything else is decided.
 */
import { invariant } from "../errors.ts";
import type { MicroCredits } from "../units.ts";
import { changePlan, changeState, open } from "./account.ts";
import { problemOfAmounts } from "./account-problems.ts";
import { adjust, promote, refund, topup } from "./additional.ts";
import { accountAt } from "./balance.ts";
import { addRunning, type Capped, type CapRoom, everyModel, mostOf, roomsOf, runningOf } from "./caps.ts";
import { expire, expireOverdue, settle, stop } from "./ending.ts";
import type { EventSettings } from "./events.ts";
import { amountOf, joined, sumOf } from "./grants.ts";
import { changeKey, issueKey, revokeKey } from "./key-changes.ts";
import { OpenGrants } from "./open-grants.ts";
import type { ExtendOperation, HoldOperation, Operation } from "./operations.ts";
import type {
  AccountError,
  CapName,
  Decision,
  DeferredOutcome,
  ExtendOutcome,
  HoldOutcome,
  Refresh,
  Unpaid,
} from "./outcomes.ts";
import { cappedOf, planProblem } from "./plan.ts";
import { assertTokens, costOf, priceOf } from "./pricing.ts";
import type { Rates } from "./rate-limits.ts";
import { countRates, followLimits, rateRefusalOf, ratesOf, scopesOf } from "./rates.ts";
import type { Refused } from "./refusals.ts";
import {
  type AccountRow,
  countsOf,
  type HoldRow,
  type KeyRow,
  noTokens,
  type TokenCounts,
  works,
} from "./rows.ts";
import type { Changes, Snapshot, Times } from "./snapshot.ts";
import { type FoundAccount, UnitOfWork } from "./unit-of-work.ts";

/**
 * Running requests rarely spend their whole hold. Some of them end and give credits back in about
 * this time.
 */
const reservedRetryMs = 1000;

/**
 * Throws a `LaterNeeded` if the snapshot lacks later grants that a decision needs. `events`: null
 * if none are written.
 */
export function decide(
  snapshot: Snapshot,
  operations: readonly Operation[],
  events: EventSettings | null = null,
): { outcomes: Decision[]; changes: Changes } {
  const work = new UnitOfWork(snapshot, events);
  const deferred = new Set<string>();
  const outcomes = operations.map((operation): Decision => {
    const { account } = operation;
    // Operations on an account keep their order.
    if (deferred.has(account)) return { kind: "more_overdue" };
    const outcome = decideOne(work, operation);
    if (outcome.kind === "more_overdue") deferred.add(account);
    work.look(account);
    const expired = work.takeExpired();
    return expired.length === 0 ? outcome : { ...outcome, expired };
  });
  const changes = work.changes();
  for (const account of changes.accounts) {
    const problem = problemOfAmounts(account);
    if (problem !== null) throw new Error(`account ${account.id} would not be sound: ${problem}`);
  }
  return { outcomes, changes };
}

function decideOne(work: UnitOfWork, operation: Operation): Decision {
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
      return expire(work, found, operation.requestId);
    case "stop":
      return stop(work, found, operation);
    case "topup":
      return topup(work, found, operation);
    case "promote":
      return promote(work, found, operation);
    case "adjust":
      return adjust(work, found, operation);
    case "refund":
      return refund(work, found, operation);
    case "plan":
      return changePlan(work, found, operation);
    case "state":
      return changeState(work, found, operation);
    case "key":
      return changeKey(work, found, operation);
    case "issue":
      return issueKey(work, found, operation);
    case "revoke":
      return revokeKey(work, found, operation);
  }
}

function hold(
  work: UnitOfWork,
  found: FoundAccount,
  operation: HoldOperation,
): HoldOutcome | DeferredOutcome | AccountError {
  const { account, grants, plan, times } = found;
  const { nowMs, atMs } = times;
  const { minMicro, wantMicro } = operation;
  invariant(
    Number.isSafeInteger(minMicro) && minMicro >= 0 && wantMicro >= minMicro,
    "a hold asks for a whole amount or more",
  );
  const taken = work.hold(account.id, operation.requestId);
  if (taken !== null) {
    const amountMicro = amountOf(taken.takings);
    const capped = cappedOf(work.plans, found, work.key(taken.key));
    const lack = lackOf(found, taken, capped, wantMicro - amountMicro);
    return { kind: "held", amountMicro, ...lack, rates: {} };
  }
  if (work.ended(account.id, operation.requestId).charges.length > 0) return { kind: "ended" };
  const problem = planProblem(work.plans, account.plan, account.nextPlan);
  if (plan === null || problem !== null) {
    return {
      kind: "balance_unavailable",
      account: account.id,
      problem: problem ?? "its plan has no version",
    };
  }
  const key = work.key(operation.key);
  const refusal = keyRefusal(account, key, times);
  if (key === null || refusal !== null) return refusal ?? keyUnknown;

  // The hold may need their credits and places. Without them it could be refused, or spend the
  // wrong bucket.
  if (expireOverdue(work, found) === "some") return { kind: "more_overdue" };

  const scopes = scopesOf(account, plan, key);
  followLimits(scopes, nowMs);
  const amounts = { requests: 1, tokens: operation.promptTokens };
  const limited = rateRefusalOf(scopes, amounts, nowMs);
  if (limited !== null) return limited;
  const capped = cappedOf(work.plans, found, key);
  const rooms = roomsOf(capped, operation.model, atMs);
  const leftMicro = sumOf(grants.free(times));
  const mostMicro = Math.min(leftMicro, mostOf(rooms));
  const unpaid = unpaidBy(rooms, minMicro);
  if (unpaid !== null) return { ...unpaid, mostMicro, rates: ratesOf(scopes, nowMs) };
  if (grants.ifAllReturns(times) < minMicro) {
    const refreshes = refreshesOf(work, found, leftMicro);
    const rates = ratesOf(scopes, nowMs);
    return { kind: "insufficient_credits", cap: null, leftMicro, mostMicro, refreshes, rates };
  }
  const short = rooms.find((room) => room.leftMicro < leastOf(room, minMicro));
  if (short !== undefined || leftMicro < minMicro)
    return reservedRefusal(short?.of ?? "account", ratesOf(scopes, nowMs));

  const takings = grants.take(Math.min(wantMicro, mostMicro), times, "heldMicro");
  const amountMicro = amountOf(takings);
  countRates(scopes, amounts, nowMs);
  key.holds += 1;
  for (const { row } of capped) addRunning(row, operation.model, { heldMicro: amountMicro });
  key.lastUsedMs = atMs;
  account.holds += 1;
  const row: HoldRow = {
    account: account.id,
    id: operation.requestId,
    key: key.id,
    model: operation.model,
    createdMs: atMs,
    expiresMs: nowMs + operation.ttlMs,
    takings,
    extension: 0,
    extendedMicro: 0,
    meteredTokens: operation.promptTokens,
    ...noTokens,
    pricePrompt: operation.price.prompt,
    priceCompletion: operation.price.completion,
    priceCachedPrompt: operation.price.cachedPrompt ?? operation.price.prompt,
  };
  work.put(row);
  const lack = lackOf(found, row, capped, wantMicro - amountMicro);
  return { kind: "held", amountMicro, ...lack, rates: ratesOf(scopes, nowMs) };
}

/** What a request needs of a cap. A cap of 0 pauses a key, also for what costs nothing. */
function leastOf({ of, amountMicro }: CapRoom, minMicro: MicroCredits): MicroCredits {
  return of === "key" && amountMicro === 0 ? Math.max(1, minMicro) : minMicro;
}

/**
 * Returns the refusal of a cap that could not pay even if other requests gave back all they hold,
 * or null. Of several it is the one that refreshes last: until then none of the others helps.
 */
function unpaidBy(
  rooms: readonly CapRoom[],
  minMicro: MicroCredits,
): Omit<Unpaid, "mostMicro" | "rates"> | null {
  const [last] = rooms
    .filter((room) => room.unspentMicro < leastOf(room, minMicro))
    .sort((one, other) => other.untilMs - one.untilMs);
  if (last === undefined) return null;
  const { of, name, every, amountMicro, leftMicro, untilMs } = last;
  // Other caps refresh until then too, or have what they have now.
  const thenMicro = rooms.map((room) => (room.untilMs <= untilMs ? room.amountMicro : room.unspentMicro));
  const refreshes = amountMicro > leftMicro ? [{ atMs: untilMs, amountMicro: Math.min(...thenMicro) }] : [];
  return { kind: "cap_reached", cap: { of, name, every, amountMicro }, leftMicro, refreshes };
}

const keyUnknown = { kind: "invalid_api_key", why: "is not known" } as const;

function keyRefusal(
  account: AccountRow,
  key: KeyRow | null,
  times: Times,
): Refused<"invalid_api_key" | "account_suspended"> | null {
  // The key of a front end acts for other accounts.
  if (key === null || (key.account !== account.id && key.actsFor === null)) return keyUnknown;
  if (!works(key, times.atMs)) {
    return { kind: "invalid_api_key", why: key.revokedMs === null ? "has expired" : "was revoked" };
  }
  return haltOf(account);
}

/** Why the account gives no credits to requests. Null: it does. */
function haltOf({ state }: AccountRow): Refused<"account_suspended"> | null {
  return state === "active" ? null : { kind: "account_suspended", state };
}

function reservedRefusal(scope: "account" | "plan" | "key", rates: Rates): HoldOutcome {
  return { kind: "credits_reserved", scope, retryAfterMs: reservedRetryMs, rates };
}

/** Returns the refreshes after which more can be spent than before, soonest first. */
function refreshesOf(
  work: UnitOfWork,
  { account, grants, times }: FoundAccount,
  leftMicro: MicroCredits,
): Refresh[] {
  const { base, overage } = account;
  if (base === null || overage === null) return [];
  // A scheduled plan begins then, and can begin other windows.
  const next = accountAt(account, work.plans, base.untilMs);
  const ends = [base, overage, next.base, next.overage].flatMap((grant) => grant?.untilMs ?? []);
  let mostMicro = leftMicro;
  return ends
    .toSorted((one, other) => one - other)
    .flatMap((atMs) => {
      const then = accountAt(account, work.plans, atMs);
      const open = new OpenGrants(then, grants.later);
      const amountMicro = then.state === "closed" ? 0 : open.ifAllReturns({ ...times, atMs });
      if (amountMicro <= mostMicro) return [];
      mostMicro = amountMicro;
      return [{ atMs, amountMicro }];
    });
}

function extend(
  work: UnitOfWork,
  found: FoundAccount,
  operation: ExtendOperation,
): ExtendOutcome | DeferredOutcome {
  const { account, grants, times } = found;
  const row = work.hold(account.id, operation.requestId);
  if (row === null) return { kind: "ended" };
  const { usage, moreMicro, n } = operation;
  assertTokens(usage);
  invariant(
    Number.isSafeInteger(moreMicro) && moreMicro >= 0,
    "an extension asks for a whole amount or nothing",
  );
  // Throws for counts that cannot be charged. With such a checkpoint the hold could never end.
  const cost = costOf(priceOf(row), usage);
  const capped = cappedOf(work.plans, found, work.key(row.key));
  row.expiresMs = Math.max(row.expiresMs, times.nowMs + operation.ttlMs);
  // A late checkpoint never replaces a newer one.
  if (isFurther(usage, row)) {
    const more = cost - costOf(priceOf(row), row);
    for (const each of capped) addRunning(each.row, row.model, { costMicro: more });
    Object.assign(row, countsOf(usage));
  }
  work.put(row);
  const ended = expireOverdue(work, found);
  // With a `ttlMs` of 0 the hold itself is overdue, and has ended.
  if (work.hold(account.id, row.id) === null) return { kind: "ended" };

  if (n <= row.extension) {
    const amountMicro = n === row.extension ? row.extendedMicro : 0;
    return { kind: "extended", amountMicro, ...lackOf(found, row, capped, moreMicro - amountMicro) };
  }
  // The new expiry and the checkpoint are still written.
  if (moreMicro > 0 && ended === "some") return { kind: "more_overdue" };
  const halted = haltOf(account);
  if (moreMicro > 0 && halted !== null) return { kind: "extended", amountMicro: 0, reserved: false, halted };
  const mostMicro = mostOf(roomsOf(capped, row.model, times.atMs));
  const takings = grants.take(Math.min(moreMicro, mostMicro), times, "heldMicro");
  const amountMicro = amountOf(takings);
  // If nothing was taken, a repetition is decided anew.
  if (amountMicro > 0) {
    row.takings = joined(row.takings, takings);
    row.extension = n;
    row.extendedMicro = amountMicro;
    for (const each of capped) addRunning(each.row, row.model, { heldMicro: amountMicro });
  }
  return { kind: "extended", amountMicro, ...lackOf(found, row, capped, moreMicro - amountMicro) };
}

/**
 * Why so much less than asked for was taken, by the present credits: the first answer may be lost.
 * The cap is the one that has least left, and less than the credits.
 */
function lackOf(
  found: FoundAccount,
  row: HoldRow,
  capped: readonly Capped[],
  lackMicro: MicroCredits,
): { reserved: boolean; cap?: CapName } {
  // Extensions have taken more since.
  if (lackMicro <= 0) return { reserved: false };
  const { grants, times } = found;
  const rooms = roomsOf(capped, row.model, times.atMs);
  const [least] = rooms.toSorted((one, other) => one.leftMicro - other.leftMicro);
  const reserved = othersHold(found, row, rooms);
  if (least === undefined || least.leftMicro >= Math.min(lackMicro, sumOf(grants.free(times))))
    return { reserved };
  const { of, name } = least;
  return { reserved, cap: { of, name } };
}

/**
 * Reports whether other requests will give back enough for one more token. They keep what they
 * have used. Each cap that is short must get enough, and the credits if they are short.
 */
function othersHold(
  { account, grants, times }: FoundAccount,
  row: HoldRow,
  rooms: readonly CapRoom[],
): boolean {
  const enough = Math.max(1, row.priceCompletion);
  const own = amountOf(row.takings);
  const ownCost = costOf(priceOf(row), row);
  const short = rooms.filter(({ leftMicro }) => leftMicro < enough);
  const isHeld = ({ heldMicro, costMicro, unspentMicro }: CapRoom) =>
    Math.min(heldMicro, unspentMicro) - own - (costMicro - ownCost) >= enough;
  if (!short.every(isHeld)) return false;
  const freeMicro = sumOf(grants.free(times));
  if (short.length > 0 && freeMicro >= enough) return true;
  const heldMicro = grants.ifAllReturns(times) - freeMicro - returnable(account, row);
  const running = runningOf(account, everyModel).costMicro - ownCost;
  return heldMicro - running >= enough;
}

/** Returns what the account would get back if the hold ended and used nothing. */
function returnable({ base, overage, additional, later }: AccountRow, { takings }: HoldRow): MicroCredits {
  const open = new Set([base, overage, ...additional].map((grant) => grant?.seq));
  let back = 0;
  for (const { grant, bucket, amountMicro } of takings) {
    // A grant that is not in the row may be among the later ones.
    if (open.has(grant) || (bucket === "additional" && later.heldMicro > 0)) back += amountMicro;
  }
  return back;
}

/** Reports whether the counts belong to a later moment of the same request. */
function isFurther(usage: TokenCounts, known: TokenCounts): boolean {
  if (usage.completionTokens !== known.completionTokens)
    return usage.completionTokens > known.completionTokens;
  return usage.promptTokens >= known.promptTokens;
}
