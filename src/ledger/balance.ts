/**
 * What an account has at this moment, computed from its row without writing anything: windows are rolled, overdue
 * holds are taken as expired, and what running requests hold still counts as the account's.
 */
import { invariant, Refusal } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { expireOverdue } from "./kernel.ts";
import type { Plans } from "./plan.ts";
import type { AccountRow, HoldRow } from "./rows.ts";
import { rowKey, UnitOfWork } from "./snapshot.ts";

/** An account as a balance is computed from it: one snapshot, and the clock it was read at. */
export interface AccountSnapshot {
  account: AccountRow;
  /**
   * Holds of the account whose time has run out but which nobody has expired yet, soonest first, `overdueMax` at most.
   * Others count as running until they are ended, which shows a balance without what their last checkpoints cost.
   */
  overdue: readonly HoldRow[];
  nowMs: EpochMs;
}

export interface BucketView {
  /** Remaining, holds of running requests included. */
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
  /** Part of the three buckets above that running requests hold. */
  heldMicro: MicroCredits;
}

/** Throws the refusal `balance_unavailable` if the account is missing or invalid. */
export function balanceOf(snapshot: AccountSnapshot | null, plans: Plans): BalanceView {
  if (snapshot === null) throw balanceUnavailable("the account has no row");
  const found = readBalance(snapshot, plans);
  if ("problem" in found) throw balanceUnavailable(`account ${snapshot.account.id}: ${found.problem}`);
  return found;
}

/** Returns the balance, or the problem if the account contradicts itself or its plan is not configured. */
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

/** The one wording of this refusal; `detail` is for the operator. */
export function balanceUnavailable(detail: string): Refusal {
  return new Refusal(
    "balance_unavailable",
    "The balance of this account cannot be read. Nothing was charged. The operator of this service can mend it.",
    { detail },
  );
}
