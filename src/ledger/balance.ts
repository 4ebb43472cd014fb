/**
 * Computes the present balance of an account from its row and writes nothing. Windows are rolled
 * forward and overdue holds are expired. Credits that running requests hold are part of the
 * balance.
 */
import { invariant } from "../errors.ts";
import { type EpochMs, type MicroCredits, microPerCredit } from "../units.ts";
import { type CapState, capStateOf } from "./caps.ts";
import { expireOverdue } from "./ending.ts";
import { type Entitlement, passBoundaries } from "./entitlement.ts";
import { additionalOf, heldOf, remainingOf } from "./grants.ts";
import { type Limits, type PlanCatalog, planCapsAt, planProblem } from "./plan.ts";
import { type LimitLeft, limitsLeft } from "./rates.ts";
import { type Refused, refusalOf } from "./refusals.ts";
import {
  type AccountRow,
  type AccountState,
  type AdditionalGrant,
  type HoldRow,
  isClosedAt,
  type WindowBucket,
} from "./rows.ts";
import { rowKey, type Times } from "./snapshot.ts";
import { type FoundAccount, UnitOfWork } from "./unit-of-work.ts";

/** The rows that a balance is computed from, and the time at which they were read. */
export interface AccountSnapshot {
  account: AccountRow;
  /** Why the row contradicts the facts of the database. Null: it does not. */
  problem: string | null;
  /**
   * Overdue holds of the account that have not been expired yet, soonest first, at most
   * `overdueMax`. Further overdue holds count as running until they end, so the balance does not
   * yet contain the cost of their last checkpoints.
   */
  overdue: readonly HoldRow[];
  /** The grants that are not in the row. */
  later: readonly AdditionalGrant[];
  times: Times;
  plans: PlanCatalog;
}

export interface BucketView {
  /** Credits - spent, and 0 if more was spent. It includes what running requests hold. */
  remainingMicro: MicroCredits;
  capMicro: MicroCredits;
  /** The window that contains the moment of the snapshot. */
  startsMs: EpochMs;
  endsMs: EpochMs;
  /** The credits of the next window; 0 if nothing refills the bucket. */
  refillMicro: MicroCredits;
}

export interface BalanceView {
  plan: string;
  /** Limits of the plan, for all keys of the account together. */
  limits: Limits;
  /** What is left of each of them. */
  limitsLeft: readonly LimitLeft[];
  /** The plan that takes effect at the end of the base window. */
  nextPlan: string | null;
  state: AccountState;
  /** The account closes at this time. */
  endsMs: EpochMs | null;
  base: BucketView;
  overage: BucketView;
  additionalMicro: MicroCredits;
  /** The caps of the plan. */
  caps: readonly CapState[];
  /** The part of the three buckets that running requests hold. */
  heldMicro: MicroCredits;
}

/** Throws the refusal `balance_unavailable` if the account is missing or invalid. */
export function balanceOf(snapshot: AccountSnapshot | null): BalanceView {
  if (snapshot === null) {
    throw refusalOf({ kind: "balance_unavailable", account: "of the request", problem: "it has no row" });
  }
  const found = readBalance(snapshot);
  if ("problem" in found) throw refusalOf(found);
  return found;
}

/**
 * Returns the balance, or the problem if the account contradicts itself or the database
 * does not have its plan.
 */
export function readBalance(snapshot: AccountSnapshot): BalanceView | BalanceError {
  const { found } = workOn(snapshot);
  if (found.kind === "balance_unavailable") return found;
  const { account, plan } = found;
  const problem = planProblem(snapshot.plans, account.plan, account.nextPlan);
  if (problem !== null) return { kind: "balance_unavailable", account: account.id, problem };
  invariant(plan !== null, "a plan without a problem is there");
  return {
    plan: account.plan,
    limits: plan.limits,
    limitsLeft: limitsLeft({ scope: "account", limits: plan.limits, row: account }, snapshot.times.nowMs),
    nextPlan: account.nextPlan,
    state: account.state,
    endsMs: account.endsMs,
    base: viewOf(account, snapshot, "base"),
    overage: viewOf(account, snapshot, "overage"),
    additionalMicro: additionalOf(account),
    caps: planCapsAt(snapshot.plans, account.plan, snapshot.times.atMs).map((cap) =>
      capStateOf(account, cap, snapshot.times.atMs),
    ),
    heldMicro: heldOf(account),
  };
}

/** A closed account has nothing left, in windows that end at once. */
function viewOf(account: AccountRow, { plans, times }: AccountSnapshot, bucket: WindowBucket): BucketView {
  const grant = account[bucket];
  if (grant === null) {
    return {
      remainingMicro: 0,
      capMicro: 0,
      startsMs: account.createdMs,
      endsMs: times.atMs + 1,
      refillMicro: 0,
    };
  }
  const { amountMicro, fromMs, untilMs } = grant;
  const then = accountAt(account, plans, untilMs)[bucket];
  // A scheduled plan may have replaced the window before its end. Then nothing refills at it.
  const isRefilled = then !== null && then.fromMs === untilMs;
  return {
    remainingMicro: remainingOf(grant),
    capMicro: amountMicro,
    startsMs: fromMs,
    endsMs: untilMs,
    refillMicro: isRefilled ? then.amountMicro : 0,
  };
}

/** Returns the account as time changes it until `atMs`, if nothing else happens until then. */
export function accountAt(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): AccountRow {
  const later = { ...account };
  if (isClosedAt(later, atMs)) {
    return Object.assign(later, { base: null, overage: null, state: "closed", nextPlan: null });
  }
  passBoundaries(later, catalog, atMs, (fact: Entitlement) => {
    if (fact.kind === "plan") {
      later.plan = fact.plan;
      later.planSinceMs = fact.atMs;
      later.nextPlan = null;
    } else if (fact.kind === "window") later[fact.bucket] = { ...fact.grant, seq: 0 };
    else {
      const grant = later[fact.bucket];
      if (grant !== null) later[fact.bucket] = { ...grant, amountMicro: grant.amountMicro + fact.byMicro };
    }
  });
  return later;
}

/** Share of the credits of both windows, in per cent, that counts as nearly exhausted. */
export const lowBalancePercent = 10;

/**
 * Reports whether the account has less than one credit, or less than a tenth of the credits of
 * both windows, additional credits included. A closed account has no low balance.
 */
export function hasLowBalance({ state, base, overage, additionalMicro }: BalanceView): boolean {
  if (state === "closed") return false;
  const left = base.remainingMicro + overage.remainingMicro + additionalMicro;
  const granted = base.capMicro + overage.capMicro;
  return left < microPerCredit || left < granted * (lowBalancePercent / 100);
}

type BalanceError = Refused<"balance_unavailable">;

/**
 * Returns the account as it is at the moment of the snapshot: windows are rolled forward, and
 * overdue holds are expired. What is done with it is written nowhere.
 */
export function workOn({ account: read, problem, overdue, later, times, plans }: AccountSnapshot): {
  work: UnitOfWork;
  found: FoundAccount | BalanceError;
} {
  const work = new UnitOfWork({
    times,
    plans,
    accounts: new Map([[read.id, read]]),
    problems: new Map(problem === null ? [] : [[read.id, problem]]),
    later: new Map([[read.id, later]]),
    holds: new Map(overdue.map((hold) => [rowKey(hold.account, hold.id), hold])),
    overdue: overdue.map((hold) => rowKey(hold.account, hold.id)),
    moreOverdue: new Set(),
    journal: new Map(),
    ended: new Map(),
    keys: new Map(),
    payments: new Map(),
  });
  const found = work.account(read.id);
  invariant(found.kind !== "account_not_found", "the snapshot has the account");
  if (found.kind === "found") expireOverdue(work, found);
  return { work, found };
}
