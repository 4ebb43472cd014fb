/**
 * Computes the present balance of an account from its row and writes nothing. Windows are rolled
 * forward and overdue holds are expired. Credits that running requests hold are part of the
 * balance.
 */
import { invariant, Refusal } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { expireOverdue } from "./kernel.ts";
import type { Plans } from "./plan.ts";
import type { AccountRow, HoldRow } from "./rows.ts";
import { rowKey, UnitOfWork } from "./unit-of-work.ts";

/** The rows that a balance is computed from, and the time at which they were read. */
export interface AccountSnapshot {
  account: AccountRow;
  /**
   * Overdue holds of the account that have not been expired yet, soonest first, at most
   * `overdueMax`. Further overdue holds count as running until they end, so the balance does not
   * yet contain the cost of their last checkpoints.
   */
  overdue: readonly HoldRow[];
  nowMs: EpochMs;
}

export interface BucketView {
  /** Remaining credits, including the holds of running requests. */
  micro: MicroCredits;
  capMicro: MicroCredits;
  /** The window that contains the moment of the snapshot. */
  startsMs: EpochMs;
  endsMs: EpochMs;
}

export interface BalanceView {
  plan: string;
  base: BucketView;
  overage: BucketView;
  additionalMicro: MicroCredits;
  /** The part of the three buckets that running requests hold. */
  heldMicro: MicroCredits;
}

/** Throws the refusal `balance_unavailable` if the account is missing or invalid. */
export function balanceOf(snapshot: AccountSnapshot | null, plans: Plans): BalanceView {
  if (snapshot === null) throw balanceUnavailable("the account has no row");
  const found = readBalance(snapshot, plans);
  if ("problem" in found) throw balanceUnavailable(`account ${snapshot.account.id}: ${found.problem}`);
  return found;
}

/**
 * Returns the balance, or the problem if the account contradicts itself or its plan is not
 * configured.
 */
export function readBalance(
  { account: read, overdue, nowMs }: AccountSnapshot,
  plans: Plans,
): BalanceView | { problem: string } {
  const work = new UnitOfWork(
    {
      nowMs,
      accounts: new Map([[read.id, read]]),
      holds: new Map(overdue.map((hold) => [rowKey(hold.account, hold.id), hold])),
      overdue: overdue.map((hold) => rowKey(hold.account, hold.id)),
      unfinished: new Set(),
      journal: new Map(),
      usage: new Map(),
      keys: new Map(),
    },
    plans,
  );
  const found = work.account(read.id);
  if (found.kind === "balance_invalid") return { problem: found.problem };
  invariant(found.kind === "found", "the snapshot has the account");
  expireOverdue(work, found);
  const { account } = found;
  return {
    plan: account.plan,
    base: {
      micro: account.base + account.heldBase,
      capMicro: account.baseCap,
      startsMs: account.baseStartsMs,
      endsMs: account.baseEndsMs,
    },
    overage: {
      micro: account.overage + account.heldOverage,
      capMicro: account.overageCap,
      startsMs: account.overageStartsMs,
      endsMs: account.overageEndsMs,
    },
    additionalMicro: account.additional + account.heldAdditional,
    heldMicro: account.heldBase + account.heldOverage + account.heldAdditional,
  };
}

/** Builds this refusal. `detail` is for the operator. */
export function balanceUnavailable(detail: string): Refusal {
  return new Refusal(
    "balance_unavailable",
    "The balance of this account cannot be read. Nothing was charged. The operator of this service can mend it.",
    { detail },
  );
}
