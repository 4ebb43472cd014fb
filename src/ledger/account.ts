/**
 * Changes of accounts by operators: opening, plans and states.
 *
 * Guarantees that an account is only put on a plan of the current plans section, and that a closed
 * account stays closed.
 */
import { invariant } from "../errors.ts";
import { microOf } from "../units.ts";
import { addAtOpening } from "./additional.ts";
import { changeBucket, keepsWindow } from "./entitlement.ts";
import { factText } from "./fact-values.ts";
import { remainingOf } from "./grants.ts";
import type { OpenOperation, PlanOperation, StateOperation } from "./operations.ts";
import type { OpenOutcome, PlanOutcome, PlanRefused, StateOutcome } from "./outcomes.ts";
import { newestVersion, type PlanVersion, ruleOf } from "./plan.ts";
import { type AccountRow, type WindowBucket, windowBuckets } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import { earlier, type FoundAccount, planFact, type UnitOfWork } from "./unit-of-work.ts";
import { windowFrom } from "./windows.ts";

export function open(work: UnitOfWork, operation: OpenOperation): OpenOutcome {
  const { account, plan, additional, by } = operation;
  const existing = work.planOf(account);
  if (existing !== undefined) return { kind: "exists", plan: existing };
  const refusal = planRefusal(work, plan);
  if (refusal !== null) return refusal;
  const version = newestVersion(work.plans, plan);
  invariant(version !== undefined, () => `the plan ${plan} has a version`);
  const payment = additional?.payment ?? "";
  const paid = work.payment(payment);
  if (paid !== null) return { kind: "payment_used", payment, account: paid.account };
  const found = work.open(operation, version);
  if (additional !== undefined) addAtOpening(work, found, { ...additional, by });
  return { kind: "opened" };
}

/** Accounts can only be put on a plan of the current plans section. */
function planRefusal({ plans: { offered, versions } }: UnitOfWork, plan: string): PlanRefused | null {
  if (offered.includes(plan)) return null;
  return versions.has(plan) ? { kind: "retired_plan", plan } : { kind: "unknown_plan", plan, plans: offered };
}

/** Remembers a change of the plan for the end of the base window, or changes it now. */
export function changePlan(work: UnitOfWork, found: FoundAccount, operation: PlanOperation): PlanOutcome {
  const { account, times } = found;
  const { plan, at, by } = operation;
  const after = factText({ plan, at });
  const earlierOne = earlier(work, operation, { after });
  if (earlierOne !== null) {
    return earlierOne.kind === "replayed" ? { kind: "changed", replayed: true } : earlierOne;
  }
  if (account.state === "closed") return { kind: "account_closed", account: account.id };
  const isPresent = plan === account.plan;
  const refusal = isPresent ? null : planRefusal(work, plan);
  if (refusal !== null) return refusal;
  const posting = { kind: "plan", op: opOf(operation), by, before: planFact(account), after } as const;
  if (at === "refresh") {
    // A change to the present plan cancels an earlier one.
    account.nextPlan = isPresent ? null : plan;
    work.post(found, posting);
    return { kind: "changed", replayed: false };
  }
  const version = newestVersion(work.plans, plan);
  invariant(version !== undefined, () => `the plan ${plan} has a version`);
  const buckets = differing(work, found, version);
  if (at === "now" && buckets.length > 0 && account.base !== null) {
    return { kind: "window_differs", plan, buckets, refreshMs: account.base.untilMs };
  }
  const from = account.plan;
  account.plan = plan;
  if (!isPresent) account.planSinceMs = times.atMs;
  account.nextPlan = null;
  found.plan = version;
  work.post(found, { ...posting, amountMicro: earlyOf(account, version) });
  if (!isPresent) work.tell(found, "account.plan_changed", { plan, from, by });
  for (const bucket of windowBuckets) {
    const window = windowFrom(ruleOf(version, bucket), times.atMs);
    changeBucket(account, work.plans, { bucket, version, window }, work.entitle(found, by));
  }
  return { kind: "changed", replayed: false };
}

/** What comes, or goes, before the open windows would have ended: a gift or a cut. */
function earlyOf(account: AccountRow, version: PlanVersion): number {
  return windowBuckets.reduce((sum, bucket) => {
    const grant = account[bucket];
    if (grant === null) return sum;
    return (
      sum + remainingOf({ ...grant, amountMicro: microOf(version[bucket].credits) }) - remainingOf(grant)
    );
  }, 0);
}

/** The buckets whose open windows are not those of the plan. */
function differing(work: UnitOfWork, { account }: FoundAccount, version: PlanVersion): WindowBucket[] {
  return windowBuckets.filter((bucket) => {
    const grant = account[bucket];
    return grant !== null && !keepsWindow(grant, work.plans, { bucket, version });
  });
}

/** Suspends, resumes or closes the account, or sets the time at which it closes. */
export function changeState(work: UnitOfWork, found: FoundAccount, operation: StateOperation): StateOutcome {
  const { account, times } = found;
  const { to, by } = operation;
  const op = opOf(operation);
  const { endsMs, state } = account;
  const [before, after] =
    to.kind === "end"
      ? [factText({ endsMs }), factText({ endsMs: to.endsMs })]
      : [factText({ state }), factText({ state: stateAfter[to.kind] })];
  const earlierOne = earlier(work, operation, { after });
  if (earlierOne !== null) {
    return earlierOne.kind === "replayed" ? { kind: "changed", replayed: true } : earlierOne;
  }
  if (state === "closed") return { kind: "account_closed", account: account.id };
  const values = { op, by, before, after };
  if (to.kind === "close" || (to.kind === "end" && to.endsMs !== null && to.endsMs <= times.atMs)) {
    work.close(found, values);
    return { kind: "changed", replayed: false };
  }
  if (to.kind === "end") account.endsMs = to.endsMs;
  else account.state = stateAfter[to.kind];
  work.post(found, { kind: to.kind, ...values });
  if (to.kind === "suspend") work.tell(found, "account.suspended", { by });
  if (to.kind === "resume") work.tell(found, "account.resumed", { by });
  return { kind: "changed", replayed: false };
}

const stateAfter = { suspend: "suspended", resume: "active", close: "closed" } as const;
