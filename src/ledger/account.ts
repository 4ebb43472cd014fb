/**
 * Changes of accounts by operators: opening, plans, states and reversed windows.
 *
 * Guarantees that an account is only put on a plan of the current plans section, and that a closed
 * account stays closed.
 */
import { invariant } from "../errors.ts";
import { changePlanNow, closeWindows, reverseWindows } from "./entitlement.ts";
import { restoreBudget, windowBefore } from "./key-budget.ts";
import type {
  OpenOperation,
  OpenOutcome,
  PlanOperation,
  PlanOutcome,
  PutOffOutcome,
  ReverseOutcome,
  StateOperation,
  StateOutcome,
} from "./operations.ts";
import { noAmounts } from "./pricing.ts";
import { opOf } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";

export function open(work: UnitOfWork, operation: OpenOperation): OpenOutcome {
  const existing = work.planOf(operation.account);
  if (existing !== undefined) return { kind: "exists", plan: existing };
  const refusal = planRefusal(work, operation.plan);
  if (refusal !== null) return refusal;
  work.open(operation.account, operation.plan);
  return { kind: "opened" };
}

/** Accounts can only be put on a plan of the current plans section. */
function planRefusal(
  { plans }: UnitOfWork,
  plan: string,
): Extract<OpenOutcome, { kind: "unknown_plan" | "retired_plan" }> | null {
  if (plans.offered.includes(plan)) return null;
  return plans.versions.has(plan) ? { kind: "retired_plan" } : { kind: "unknown_plan", plans: plans.offered };
}

/** Changes the plan now, or remembers the change for the end of the base window. */
export function changePlan(work: UnitOfWork, found: FoundAccount, operation: PlanOperation): PlanOutcome {
  const { account, atMs } = found;
  const { plan, at } = operation;
  const op = opOf(operation);
  const note = at === "now" ? plan : `${plan} at refresh`;
  const before = work.entry(account.id, op);
  if (before !== null) {
    if (before.note === note) return { kind: "changed", replayed: true };
    return { kind: "conflict", plan: before.note ?? "" };
  }
  if (account.state === "closed") return { kind: "closed" };
  const isPresent = plan === account.plan;
  const refusal = isPresent ? null : planRefusal(work, plan);
  if (refusal !== null) return refusal;
  // A change to the present plan cancels an earlier one.
  if (isPresent || at === "refresh") {
    account.nextPlan = isPresent ? null : plan;
    work.post(account, { kind: "plan", op, note, deltas: noAmounts });
    return { kind: "changed", replayed: false };
  }
  const change = changePlanNow(account, work.plans, { plan, atMs });
  invariant(change !== null, () => `the plan ${plan} has a version`);
  work.postWindows(account, change, op);
  return { kind: "changed", replayed: false };
}

/** Suspends, resumes or closes the account, or sets the time at which it closes. */
export function changeState(work: UnitOfWork, found: FoundAccount, operation: StateOperation): StateOutcome {
  const { account, nowMs, atMs } = found;
  const { to } = operation;
  const op = opOf(operation);
  const note =
    to.kind !== "end" ? to.kind : to.endsMs === null ? "no end" : new Date(to.endsMs).toISOString();
  const before = work.entry(account.id, op);
  if (before !== null) {
    if (before.note === note) return { kind: "changed", replayed: true };
    return { kind: "conflict", note: before.note ?? "" };
  }
  if (account.state === "closed") return { kind: "closed" };
  if (to.kind === "close" || (to.kind === "end" && to.endsMs !== null && to.endsMs <= nowMs)) {
    const change = closeWindows(account, work.plans, atMs);
    invariant(change !== null, "closing changes both windows");
    work.post(account, { ...change, op, note });
    return { kind: "changed", replayed: false };
  }
  if (to.kind === "end") account.endsMs = to.endsMs;
  else account.state = to.kind === "suspend" ? "suspended" : "active";
  work.post(account, { kind: to.kind, op, note, deltas: noAmounts });
  return { kind: "changed", replayed: false };
}

/**
 * Takes back windows that a wrong clock opened in the future, those of key budgets too. The facts
 * about the windows were
 * read before this batch, so what it has posted on the account is written first.
 */
export function reverse(work: UnitOfWork, { account, nowMs }: FoundAccount): ReverseOutcome | PutOffOutcome {
  const past = work.past(account.id);
  if (past === null) return { kind: "nothing" };
  const budgets = past.budgets.flatMap((budget) => {
    const key = work.key(budget.key);
    return key === null || windowBefore(key, nowMs) === null ? [] : [{ key, budget }];
  });
  const isAhead = account.baseStartsMs > nowMs || account.overageStartsMs > nowMs || budgets.length > 0;
  if (isAhead && work.hasPosted(account)) return { kind: "unfinished" };
  for (const { key, budget } of budgets) restoreBudget(key, budget, account.seq + 1);
  const change = reverseWindows(account, work.plans, { past, nowMs });
  if (change !== null) work.postWindows(account, change, `reverse/${account.seq + 1}`);
  return { kind: change === null && budgets.length === 0 ? "nothing" : "reversed" };
}
