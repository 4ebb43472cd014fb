/**
 * Describes why the row of an account cannot be used, because it contradicts itself or the plans.
 * The audit compares it with the facts. Pure.
 */
import type { EpochMs } from "../units.ts";
import { heldOf } from "./grants.ts";
import { type PlanCatalog, versionOf } from "./plan.ts";
import { type AccountRow, windowBuckets } from "./rows.ts";
import { isPeriod, type Window } from "./windows.ts";

function isAmount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

/** The range of dates in JavaScript. */
const timeMax = 8.64e15;

function isTime(ms: EpochMs): boolean {
  return Number.isSafeInteger(ms) && Math.abs(ms) <= timeMax;
}

/** Describes why the account cannot be used. Returns null if it is sound. */
export function problemOf(account: AccountRow, plans: PlanCatalog): string | null {
  const { seq, state, endsMs, holds, counters, running } = account;
  if (!isAmount(seq - 1)) return "the number of its last fact is not 1 or more";
  if (!isTime(account.atMs)) return "its last fact has no time";
  if (!isTime(account.planSinceMs)) return "the beginning of its plan is not a time";
  if (endsMs !== null && !isTime(endsMs)) return "its end is not a time";
  if (!Number.isFinite(account.requestsTatMs) || !Number.isFinite(account.tokensTatMs))
    return "the state of its limits per minute is not a time";
  const problem = problemOfAmounts(account);
  if (problem !== null) return problem;
  if (holds === 0 && (heldOf(account) !== 0 || running.length > 0))
    return "credits are held without a running request";
  for (const bucket of windowBuckets) {
    const grant = account[bucket];
    if ((grant === null) !== (state === "closed")) return `its state is ${state}, and its ${bucket} is not`;
    if (grant === null) continue;
    const wrong = problemOfWindow(grant);
    if (wrong !== null) return `its ${bucket} window ${wrong}`;
    const { plan, version } = grant;
    // Plans that the database has lost are not a problem of the window: only operations that need
    // them fail.
    if (plans.versions.has(plan) && versionOf(plans, plan, version) === undefined)
      return `there is no version ${version} of the plan "${plan}" of its ${bucket} window`;
  }
  for (const counter of counters) {
    const wrong = problemOfWindow(counter);
    if (wrong !== null) return `the window of its cap ${counter.name} ${wrong}`;
    if (!isPeriod(counter.every)) return `its cap ${counter.name} has no period`;
  }
  return null;
}

function problemOfWindow({ fromMs, untilMs, anchorMs }: Window): string | null {
  if (!isTime(fromMs)) return "has no beginning";
  if (!isTime(untilMs)) return "has no end";
  if (!isTime(anchorMs)) return "has no anchor";
  return fromMs < untilMs ? null : "ends before it begins";
}

/** Describes amounts that an account cannot have. Returns null if they are sound. */
export function problemOfAmounts(account: AccountRow): string | null {
  const { base, overage, additional, later, holds, counters, running } = account;
  for (const grant of [base, overage]) {
    if (grant === null) continue;
    const { amountMicro, spentMicro, heldMicro } = grant;
    if (!isAmount(amountMicro) || !isAmount(spentMicro) || !isAmount(heldMicro))
      return "a bucket is negative or not whole";
  }
  let sum = later.freeMicro + later.heldMicro;
  for (const { amountMicro: amount, spentMicro: spent, heldMicro: held } of additional) {
    if (!isAmount(spent) || !isAmount(held) || !isAmount(amount - spent - held))
      return "an additional grant is negative or not whole";
    sum += amount - spent;
  }
  if (!isAmount(later.count) || !isAmount(later.freeMicro) || !isAmount(later.heldMicro))
    return "the later grants are negative or not whole";
  if (!isAmount(sum)) return "the additional credits are too many to count exactly";
  if (!counters.every(({ spentMicro }) => isAmount(spentMicro)))
    return "what a cap has counted is negative or not whole";
  const isRunning = running.every(({ heldMicro, costMicro }) => isAmount(heldMicro) && isAmount(costMicro));
  return isAmount(holds) && isRunning ? null : "what is held is negative or not whole";
}
