/**
 * What time and plans do to an account: windows of base and overage, changes of the plan, and its
 * end.
 *
 * The state is always as if every boundary, plan version and scheduled change had been applied at
 * its own moment, in order, whether or not anyone looked. A window never changes once it has
 * begun, except for the amount of its grant. Pure.
 */
import { type EpochMs, microOf } from "../units.ts";
import { newestVersion, type PlanCatalog, type PlanVersion, ruleOf, versionAt, versionOf } from "./plan.ts";
import { type AccountRow, type WindowBucket, type WindowGrant, windowBuckets } from "./rows.ts";
import { isOnGrid, isSameRule, type Window, windowAfter, windowOfNewRule } from "./windows.ts";

/** A fact that time or a change of the plan makes, in the order of its journal entry. */
export type Entitlement =
  | { kind: "window"; bucket: WindowBucket; grant: Omit<WindowGrant, "seq"> }
  | { kind: "change"; bucket: WindowBucket; grant: number; byMicro: number; plan: string }
  | { kind: "plan"; plan: string; atMs: EpochMs };

/** Receives the facts, changes the account by them, and gives them their numbers. */
type Post = (fact: Entitlement) => void;

/** Returns the grant of a window in which nothing is spent. */
export function freshGrant(
  version: PlanVersion,
  bucket: WindowBucket,
  window: Window,
): Omit<WindowGrant, "seq"> {
  const { id: plan, version: number } = version;
  return {
    amountMicro: microOf(version[bucket].credits),
    spentMicro: 0,
    heldMicro: 0,
    ...window,
    plan,
    version: number,
  };
}

/** Returns the plan of the account then: a scheduled one begins at the end of the base window. */
export function planAt(
  { plan, nextPlan, base }: Pick<AccountRow, "plan" | "nextPlan"> & { base: { untilMs: EpochMs } | null },
  atMs: EpochMs,
): string {
  return nextPlan !== null && base !== null && base.untilMs <= atMs ? nextPlan : plan;
}

/**
 * Applies the boundaries up to `atMs`, with a scheduled change of the plan. Changes nothing if a
 * plan that it needs has no version.
 */
export function passBoundaries(account: AccountRow, catalog: PlanCatalog, atMs: EpochMs, post: Post): void {
  const { base, overage, plan, nextPlan } = account;
  if (base === null || Math.min(base.untilMs, overage?.untilMs ?? Infinity) > atMs) return;
  if ([plan, nextPlan ?? plan].some((id) => newestVersion(catalog, id) === undefined)) return;
  const boundaryMs = base.untilMs;
  if (nextPlan !== null && planAt(account, atMs) === nextPlan) {
    // A window of overage that ends at the same moment is followed by one of the new plan.
    refresh(account, catalog, { bucket: "overage", untilMs: boundaryMs - 1 }, post);
    post({ kind: "plan", plan: nextPlan, atMs: boundaryMs });
    const version = versionAt(catalog.versions.get(nextPlan) ?? [], boundaryMs);
    if (version !== undefined && account.overage !== null && account.overage.untilMs > boundaryMs) {
      const window = windowOfNewRule(ruleOf(version, "overage"), boundaryMs);
      changeBucket(account, catalog, { bucket: "overage", version, window }, post);
    }
  }
  for (const bucket of windowBuckets) refresh(account, catalog, { bucket, untilMs: atMs }, post);
}

/**
 * Moves a bucket to the window that contains `untilMs`. Any number of missed windows is one step:
 * a window uses the newest version at its start, and the next version takes effect at the first
 * boundary after its creation.
 */
function refresh(
  account: AccountRow,
  catalog: PlanCatalog,
  { bucket, untilMs: limitMs }: { bucket: WindowBucket; untilMs: EpochMs },
  post: Post,
): void {
  const versions = catalog.versions.get(account.plan) ?? [];
  const open = account[bucket];
  if (open === null) return;
  let last: Omit<WindowGrant, "seq"> = open;
  while (last.untilMs <= limitMs) {
    const startMs = last.untilMs;
    const version = versionAt(versions, startMs);
    const before = versionOf(catalog, last.plan, last.version);
    if (version === undefined || before === undefined) return;
    const rule = ruleOf(version, bucket);
    const changesMs = versions.find(({ createdMs }) => createdMs >= startMs)?.createdMs ?? Infinity;
    const grid = isSameRule(rule, ruleOf(before, bucket)) && isOnGrid(rule, last) ? last : null;
    const at = (ms: EpochMs): Window => {
      const first = grid === null ? windowOfNewRule(rule, startMs) : windowAfter(rule, grid, startMs);
      return first.untilMs > ms ? first : windowAfter(rule, first, ms);
    };
    let next = at(limitMs);
    if (next.fromMs > changesMs) next = at(changesMs);
    last = freshGrant(version, bucket, next);
  }
  if (last !== open) post({ kind: "window", bucket, grant: last });
}

/** Reports whether the open window of a bucket follows the rule of this version. */
export function keepsWindow(
  { plan, version: number }: WindowGrant,
  catalog: PlanCatalog,
  { bucket, version }: { bucket: WindowBucket; version: PlanVersion },
): boolean {
  const before = versionOf(catalog, plan, number);
  return before !== undefined && isSameRule(ruleOf(before, bucket), ruleOf(version, bucket));
}

/**
 * Gives a bucket the credits of another plan version at once. If the rules are the same, the open
 * window stays and the amount of its grant changes. Otherwise `window` begins, in which what was
 * spent counts as spent; what is held stays with the closed grant.
 */
export function changeBucket(
  account: AccountRow,
  catalog: PlanCatalog,
  { bucket, version, window }: { bucket: WindowBucket; version: PlanVersion; window: Window },
  post: Post,
): void {
  const open = account[bucket];
  if (open === null) return;
  const amount = microOf(version[bucket].credits);
  if (keepsWindow(open, catalog, { bucket, version })) {
    const byMicro = amount - open.amountMicro;
    if (byMicro !== 0) post({ kind: "change", bucket, grant: open.seq, byMicro, plan: version.id });
    return;
  }
  post({
    kind: "window",
    bucket,
    grant: { ...freshGrant(version, bucket, window), spentMicro: open.spentMicro },
  });
}
