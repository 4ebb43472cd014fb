/**
 * Balances that a new account brings along from another system: its present windows with the rest
 * of their credits, and additional credits. Pure.
 */
import { type EpochMs, type MicroCredits, microOf } from "../units.ts";
import { type Entitlement, freshGrant } from "./entitlement.ts";
import { type PlanVersion, ruleOf } from "./plan.ts";
import { type WindowBucket, windowBuckets } from "./rows.ts";
import { grantWindowFrom, windowAfter } from "./windows.ts";

/** An absent bucket is full, and its window begins now. */
export interface OpeningBalances {
  base?: OpeningWindow;
  overage?: OpeningWindow;
  /** A payment, or a promotion if there is no payment id. */
  additional?: { amountMicro: MicroCredits; payment: string | null };
}

/** The present window: its beginning, and what is left in it. */
export interface OpeningWindow {
  fromMs: EpochMs;
  leftMicro: MicroCredits;
}

export interface BalancesRefused {
  kind: "balances_refused";
  faults: readonly BalanceFault[];
}

/** A balance that an account cannot bring along. */
export type BalanceFault =
  | { kind: "window_not_begun"; bucket: WindowBucket; atMs: EpochMs }
  /** `presentMs`: the beginning of the window that follows it now. */
  | { kind: "window_ended"; bucket: WindowBucket; untilMs: EpochMs; presentMs: EpochMs }
  /** The bucket has only this amount in the plan. */
  | { kind: "too_much_left"; bucket: WindowBucket; amount: MicroCredits }
  /** The payment was counted on this other account. */
  | { kind: "id_used"; account: string };

/** Opens both windows. One that is brought along is as if the account had been opened then. */
export function openWindows(
  version: PlanVersion,
  { atMs, balances }: { atMs: EpochMs; balances: OpeningBalances },
  post: (fact: Entitlement) => void,
): void {
  for (const bucket of windowBuckets) {
    const brought = balances[bucket];
    const window = grantWindowFrom(ruleOf(version, bucket), brought?.fromMs ?? atMs);
    const grant = freshGrant(version, bucket, window);
    post({
      ...{ kind: "window", bucket },
      grant: brought === undefined ? grant : { ...grant, spentMicro: grant.amountMicro - brought.leftMicro },
    });
  }
}

/** Returns why a new account cannot bring these windows along. */
export function windowFaults(
  version: PlanVersion,
  { atMs, balances }: { atMs: EpochMs; balances: OpeningBalances },
): BalanceFault[] {
  return windowBuckets.flatMap((bucket) => {
    const brought = balances[bucket];
    if (brought === undefined) return [];
    const faults: BalanceFault[] = [];
    const rule = ruleOf(version, bucket);
    const amount = microOf(version[bucket].credits);
    if (brought.fromMs > atMs) faults.push({ kind: "window_not_begun", bucket, atMs });
    else {
      const window = grantWindowFrom(rule, brought.fromMs);
      const { untilMs } = window;
      if (untilMs <= atMs) {
        const presentMs = windowAfter(rule, window, atMs).fromMs;
        faults.push({ kind: "window_ended", bucket, untilMs, presentMs });
      }
    }
    if (brought.leftMicro > amount) faults.push({ kind: "too_much_left", bucket, amount });
    return faults;
  });
}
