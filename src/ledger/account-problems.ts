/**
 * Describes why the row of an account cannot be used, because it contradicts itself or the plans.
 * The store compares the row with its journal and grants (src/store/account-rows.ts). Pure.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { PlanCatalog } from "./plan.ts";
import { type AccountRow, fieldOf, type WindowBucket } from "./rows.ts";
import { isPeriod } from "./windows.ts";

function isAmount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

/**
 * Describes why the account cannot be used. Returns null if it is sound. Fields are named one by
 * one, because this runs twice for each operation: a computed name takes ten times as long.
 */
export function problemOf(account: AccountRow): string | null {
  const { additional, additionalHeld, holds, kept } = account;
  const { base, baseCap, baseHeld, baseAnchorMs, baseStartsMs, baseEndsMs } = account;
  const { overage, overageCap, overageHeld, overageAnchorMs, overageStartsMs, overageEndsMs } = account;
  const problem =
    problemOfAmounts(base, baseCap, baseHeld) ??
    problemOfAmounts(overage, overageCap, overageHeld) ??
    problemOfTimes(baseAnchorMs, baseStartsMs, baseEndsMs) ??
    problemOfTimes(overageAnchorMs, overageStartsMs, overageEndsMs);
  if (problem !== null) return problem;
  if (!isAmount(additional)) return "a bucket is negative or not whole";
  if (!isAmount(additionalHeld) || !isAmount(holds) || !isAmount(account.used))
    return "what is held is negative or not whole";
  if (!isAmount(additional + additionalHeld)) return "the additional credits are too many to count exactly";
  if (kept.some(({ spent, held }) => !isAmount(spent) || !isAmount(held))) {
    return "a window that was closed early is negative or not whole";
  }
  return null;
}

function problemOfAmounts(bucket: MicroCredits, cap: MicroCredits, held: MicroCredits): string | null {
  if (!Number.isSafeInteger(bucket)) return "a bucket is not whole";
  if (!isAmount(cap)) return "a cap is negative or not whole";
  if (!isAmount(held)) return "what is held is negative or not whole";
  // Credits that were neither spent nor held exceed the grant.
  return isAmount(cap - bucket - held) ? null : "a bucket is above its cap";
}

function problemOfTimes(anchorMs: EpochMs, startsMs: EpochMs, endsMs: EpochMs): string | null {
  if (!isTime(startsMs)) return "a window has no beginning";
  if (!isTime(endsMs)) return "a window has no end";
  if (!isTime(anchorMs)) return "a window has no anchor";
  return startsMs < endsMs ? null : "a window ends before it begins";
}

/** The range of dates in JavaScript. */
const timeMax = 8.64e15;

function isTime(ms: EpochMs): boolean {
  return Number.isSafeInteger(ms) && Math.abs(ms) <= timeMax;
}

/** Describes what is wrong in the fields that a row is checked for once, when it is read. */
export function problemOfRest(account: AccountRow, plans: PlanCatalog): string | null {
  const { seq, endsMs, holds, baseHeld, overageHeld, additionalHeld, used } = account;
  if (!isAmount(seq - 1)) return "the number of its last journal entry is not 1 or more";
  if (endsMs !== null && !isTime(endsMs)) return "its end is not a time";
  if (!Number.isFinite(account.requestsTatMs) || !Number.isFinite(account.tokensTatMs))
    return "the state of its limits per minute is not a time";
  if (holds === 0 && (baseHeld !== 0 || overageHeld !== 0 || additionalHeld !== 0 || used !== 0))
    return "credits are held without a running request";
  if (
    account.kept.some(
      ({ every, startsMs, endsMs }) => !isPeriod(every) || !isTime(startsMs) || !isTime(endsMs),
    )
  )
    return "a window that was closed early has no period or no time";
  return (
    problemOfPeriod(plans, account, "base", account.baseEvery) ??
    problemOfPeriod(plans, account, "overage", account.overageEvery)
  );
}

/**
 * Plans that the database has lost are not a problem of the window: only operations that need them
 * fail.
 */
function problemOfPeriod(
  { versions }: PlanCatalog,
  account: AccountRow,
  bucket: WindowBucket,
  every: string,
): string | null {
  if (!isPeriod(every)) return `the period "${every}" of its ${bucket} window cannot be read`;
  const { plan, version: number } = fieldOf[bucket];
  const known = versions.get(account[plan]);
  if (known === undefined) return null;
  if (known.some((version) => version.version === account[number] && version[bucket].every === every))
    return null;
  return `no version ${account[number]} of the plan "${account[plan]}" has the period "${every}" of its ${bucket} window`;
}
