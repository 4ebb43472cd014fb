/**
 * What a change of the plan would do. The kernel's own code changes a copy of the account, so the
 * preview is what the change does if nothing else happens before it. Writes nothing. Pure.
 */
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { changePlan } from "./account.ts";
import { type AccountSnapshot, type BalanceView, readBalance, workOn } from "./balance.ts";
import { isSameCap } from "./caps.ts";
import type { PlanOperation } from "./operations.ts";
import type { AccountError, PlanOutcome } from "./outcomes.ts";
import { windowBuckets } from "./rows.ts";

export type PlanPreview =
  | {
      kind: "preview";
      /** The present time, or the end of the base window. */
      effectiveMs: EpochMs;
      before: BalanceView;
      /** The balance at `effectiveMs`. */
      after: BalanceView;
      /**
       * Credits that come then, or go if it is negative, before the present windows would have
       * ended. The windows that end then count nothing.
       */
      earlyMicro: number;
      /** Names of the caps of the plan that begin then, with nothing spent. */
      newCaps: string[];
    }
  | Exclude<PlanOutcome, { kind: "changed" | "operation_differs" }>
  | AccountError;

export function previewPlan(
  snapshot: AccountSnapshot,
  { plan, at }: Pick<PlanOperation, "plan" | "at">,
): PlanPreview {
  const before = readBalance(snapshot);
  if ("problem" in before) return before;
  const { work, found } = workOn(snapshot);
  if (found.kind !== "found") return found;
  const { account, times } = found;
  const operation = { kind: "plan", account: account.id, op: "preview", by: "preview", plan, at } as const;
  const outcome = changePlan(work, found, operation);
  invariant(outcome.kind !== "operation_differs", "no operation before had this id");
  if (outcome.kind === "changed") {
    const boundaryMs = account.nextPlan === null ? null : (account.base?.untilMs ?? null);
    const effectiveMs = boundaryMs ?? times.atMs;
    const then = boundaryMs === null ? times : { nowMs: boundaryMs, atMs: boundaryMs };
    const later = found.grants.later ?? [];
    const after = readBalance({ ...snapshot, account, overdue: [], later, times: then });
    if ("problem" in after) return after;
    const unchanged = readBalance({ ...snapshot, times: then });
    if ("problem" in unchanged) return unchanged;
    const earlyMicro = windowBuckets
      .filter((bucket) => unchanged[bucket].startsMs < effectiveMs)
      .reduce((sum, bucket) => sum + after[bucket].remainingMicro - unchanged[bucket].remainingMicro, 0);
    const newCaps = after.caps
      .filter((cap) => cap.fromMs === effectiveMs && !before.caps.some((each) => isSameCap(each, cap)))
      .map(({ name }) => name);
    return { kind: "preview", effectiveMs, before, after, earlyMicro, newCaps };
  }
  return outcome;
}
