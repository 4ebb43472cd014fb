/**
 * Decides what an account may spend from base and overage: its windows, and how they change with
 * time, with plans and at the end of the account.
 *
 * The state is always as if every boundary, plan version and scheduled change had been applied at
 * its own moment, in order, whether or not anyone looked. Nothing is clipped: a bucket counts
 * credits, spent and held, and has a deficit after a change to a smaller plan. A window that a
 * plan change closed before its planned end is kept, and resumes if the account returns to its
 * period. So nobody gains credits by a plan change and the change back. Pure.
 */
import { type EpochMs, type MicroCredits, microOf } from "../units.ts";
import { AccountWindows, type WindowsChange } from "./account-windows.ts";
import { newestVersion, type PlanCatalog, type PlanVersion } from "./plan.ts";
import {
  type AccountRow,
  type BucketAmounts,
  fieldOf,
  type KeptWindow,
  type PastWindows,
  type WindowBucket,
  windowBuckets,
} from "./rows.ts";

/**
 * Returns the amounts that can be spent now. Without a version of the plan, a window whose end has
 * passed cannot be refreshed, and has nothing to spend.
 */
export function spendable({
  account,
  plan,
  atMs,
}: {
  account: AccountRow;
  plan: PlanVersion | null;
  atMs: EpochMs;
}): BucketAmounts {
  const free = (bucket: WindowBucket) =>
    plan === null && account[fieldOf[bucket].endsMs] <= atMs ? 0 : Math.max(0, account[bucket]);
  return { base: free("base"), overage: free("overage"), additional: account.additional };
}

/** Reports whether time has changed the windows, the plan or the state of the account. */
function isDue(account: AccountRow, atMs: EpochMs): boolean {
  if (account.state === "closed") return false;
  if (account.endsMs !== null && account.endsMs <= atMs) return true;
  return account.baseEndsMs <= atMs || account.overageEndsMs <= atMs;
}

/**
 * Applies what is due at `atMs` to every field except the three buckets, which `post` moves. The
 * windows and the end of the account are two changes: call it until it returns null.
 */
export function applyDue(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): WindowsChange | null {
  if (!isDue(account, atMs)) return null;
  const { endsMs } = account;
  if (endsMs === null || endsMs > atMs) return applyBoundaries(account, catalog, atMs);
  return applyBoundaries(account, catalog, endsMs) ?? closeWindows(account, catalog, atMs);
}

/**
 * Applies the boundaries of windows, with a scheduled change of the plan. Changes nothing if a
 * plan that it needs has no version.
 */
function applyBoundaries(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): WindowsChange | null {
  const plans = [account.plan, account.nextPlan ?? account.plan];
  if (plans.some((plan) => newestVersion(catalog, plan) === undefined)) return null;
  const windows = new AccountWindows(account, catalog);
  const plan = passBoundaries(account, windows, atMs);
  return windows.write({ kind: plan === null ? "refresh" : "plan", plan, atMs });
}

/** Returns the plan of a scheduled change that took effect. */
function passBoundaries(account: AccountRow, windows: AccountWindows, atMs: EpochMs): string | null {
  const boundaryMs = windows.endOf("base");
  const plan = boundaryMs <= atMs ? account.nextPlan : null;
  if (plan !== null) {
    windows.refresh("overage", boundaryMs);
    windows.refresh("base", boundaryMs);
    account.nextPlan = null;
    windows.changePlan(plan, boundaryMs, "refresh");
  }
  windows.refresh("base", atMs);
  windows.refresh("overage", atMs);
  return plan;
}

/** Returns the account as time changes it until `atMs`, if nothing else happens until then. */
export function accountAt(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): AccountRow {
  const later = { ...account };
  for (;;) {
    const due = applyDue(later, catalog, atMs);
    if (due === null) return later;
    later.base += due.deltas.base;
    later.overage += due.deltas.overage;
  }
}

/**
 * Returns the credits that a bucket has when its present window ends; 0 if nothing refills it. A
 * scheduled plan takes effect at the end of the base window.
 */
export function refillOf(account: AccountRow, catalog: PlanCatalog, bucket: WindowBucket): MicroCredits {
  const { state, plan, nextPlan, baseEndsMs, endsMs: accountEndsMs } = account;
  const endsMs = account[fieldOf[bucket].endsMs];
  if (state === "closed" || (accountEndsMs !== null && accountEndsMs <= endsMs)) return 0;
  const next = baseEndsMs <= endsMs ? (nextPlan ?? plan) : plan;
  return microOf(newestVersion(catalog, next)?.[bucket].credits ?? 0);
}

/** Opens both windows of a new account. Its plan has a version. */
export function openWindows(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): WindowsChange | null {
  const windows = new AccountWindows(account, catalog);
  windows.open(atMs);
  return windows.write({ kind: "open", plan: account.plan, atMs });
}

/** Changes the plan now. The plan has a version. */
export function changePlanNow(
  account: AccountRow,
  catalog: PlanCatalog,
  { plan, atMs }: { plan: string; atMs: EpochMs },
): WindowsChange | null {
  const windows = new AccountWindows(account, catalog);
  account.nextPlan = null;
  windows.changePlan(plan, atMs, "now");
  return windows.write({ kind: "plan", plan, atMs });
}

/**
 * Takes back windows that a wrong clock opened in the future, as far as the facts name an earlier
 * window. Everything that was spent or held since its start counts in the window that comes back.
 * Returns null if there is nothing to take back.
 */
export function reverseWindows(
  account: AccountRow,
  catalog: PlanCatalog,
  { past, nowMs }: { past: PastWindows; nowMs: EpochMs },
): WindowsChange | null {
  if (account.state === "closed") return null;
  const windows = new AccountWindows(account, catalog);
  const buckets = windowBuckets.filter((bucket) => account[fieldOf[bucket].startsMs] > nowMs);
  const restored = buckets.filter((bucket) => windows.restore(bucket, past[bucket]));
  if (restored.length === 0) return null;
  account.kept = account.kept.filter(({ startsMs }) => startsMs <= nowMs);
  const before = past.base?.grant.plan ?? account.plan;
  if (past.scheduled !== null && past.scheduled === account.plan && before !== account.plan) {
    // A bucket whose window is not of the future has the credits of the plan before, too.
    const others = windowBuckets.filter((bucket) => !restored.includes(bucket));
    windows.changePlan(before, nowMs, "now", others);
    account.nextPlan = past.scheduled;
  } else if (restored.some((bucket) => past[bucket]?.grant.plan !== account.plan)) {
    windows.changePlan(account.plan, nowMs, "now");
  }
  passBoundaries(account, windows, nowMs);
  const { plan, nextPlan } = account;
  const note = nextPlan === null ? plan : `${nextPlan} at refresh`;
  return windows.write({ kind: "reverse", plan: note, atMs: nowMs });
}

/**
 * Closes the account: base and overage lapse. Held and spent credits stay counted, so open
 * holds settle as before.
 */
export function closeWindows(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs): WindowsChange | null {
  const windows = new AccountWindows(account, catalog);
  windows.close();
  account.state = "closed";
  account.nextPlan = null;
  account.kept = [];
  return windows.write({ kind: "close", plan: null, atMs });
}

/** Counts an amount that a hold takes from a bucket. */
export function countHeld(account: AccountRow, bucket: WindowBucket, amount: MicroCredits): void {
  if (amount === 0) return;
  account[fieldOf[bucket].held] += amount;
  changeKept(account, bucket, (kept) => ({ ...kept, held: kept.held + amount }));
}

/** Counts an amount that is charged without having been held. */
export function countSpent(account: AccountRow, bucket: WindowBucket, amount: MicroCredits): void {
  if (amount === 0) return;
  changeKept(account, bucket, (kept) => ({ ...kept, spent: kept.spent + amount }));
}

/**
 * Ends what a hold took from a bucket at one journal number, of which `paid` was charged. Returns
 * the amount that the bucket gets back, which is 0 if its window is closed.
 */
export function endTaking(
  account: AccountRow,
  bucket: WindowBucket,
  { seq, amount, paid }: { seq: number; amount: MicroCredits; paid: MicroCredits },
): MicroCredits {
  if (amount === 0) return 0;
  changeKept(account, bucket, (kept) =>
    seq < kept.since ? kept : { ...kept, held: kept.held - amount, spent: kept.spent + paid },
  );
  if (!isCurrent(account, bucket, seq)) return 0;
  account[fieldOf[bucket].held] -= amount;
  return amount - paid;
}

/**
 * Reports whether an amount that was taken at this journal number counts in the current window.
 */
export function isCurrent(account: AccountRow, bucket: WindowBucket, seq: number): boolean {
  return seq >= account[fieldOf[bucket].since];
}

function changeKept(
  account: AccountRow,
  bucket: WindowBucket,
  change: (kept: KeptWindow) => KeptWindow,
): void {
  if (account.kept.length === 0) return;
  account.kept = account.kept.map((kept) => (kept.bucket === bucket ? change(kept) : kept));
}
