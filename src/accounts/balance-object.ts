/**
 * The JSON of a balance, as `GET /v1/balance`, the operator API and the command line show it, and
 * of the refills to come, which pages show beside it.
 */
import Type, { type Static } from "typebox";
import type { BalanceView, BucketView } from "../ledger/balance.ts";
import { windowBuckets } from "../ledger/rows.ts";
import { creditsIn, type MicroCredits } from "../units.ts";
import { closed, isoTime, time } from "./json-objects.ts";

export function balanceObject(view: BalanceView) {
  const { base, overage, additionalMicro } = view;
  const credits = {
    base: creditsIn(base.remainingMicro),
    overage: creditsIn(overage.remainingMicro),
    additional: creditsIn(additionalMicro),
  };
  const caps = { base: creditsIn(base.capMicro), overage: creditsIn(overage.capMicro) };
  // The sum of the three rounded values, so that the total matches them.
  const total = credits.base + credits.overage + credits.additional;
  return {
    object: "balance" as const,
    available: total > 0,
    plan: view.plan,
    balances: {
      base: { credits: credits.base, percent: percentOf(base.remainingMicro, base.capMicro) },
      overage: { credits: credits.overage, percent: percentOf(overage.remainingMicro, overage.capMicro) },
      additional: { credits: credits.additional },
      total: {
        credits: total,
        percent: percentOf(base.remainingMicro + overage.remainingMicro, base.capMicro + overage.capMicro),
      },
    },
    caps: {
      base: { credits: caps.base },
      overage: { credits: caps.overage },
      total: { credits: caps.base + caps.overage },
    },
    baseWindow: windowObject(base),
    overageWindow: windowObject(overage),
  };
}

function windowObject(bucket: BucketView) {
  return {
    startedAt: new Date(bucket.startsMs).toISOString(),
    refreshesAt: new Date(bucket.endsMs).toISOString(),
  };
}

/**
 * Returns a percentage from 0 to 100 with at most two decimals, rounded down; 0 if the cap is 0.
 */
function percentOf(micro: MicroCredits, capMicro: MicroCredits): number {
  if (capMicro <= 0) return 0;
  // 10,000 times micro-credits can exceed 53 bits.
  const share = Number((BigInt(micro) * 10_000n) / BigInt(capMicro));
  return Math.min(share, 10_000) / 100;
}

const refill = closed({
  bucket: Type.Enum([...windowBuckets]),
  credits: Type.Integer({ minimum: 1 }),
  at: time,
});

/** Refills that are due at the ends of the present windows. */
export const refills = Type.Array(refill, {
  description:
    "the buckets that refill, soonest first: from the scheduled plan if there is one, and not after the end of the account",
});

export function refillsOf({ base, overage }: BalanceView): Static<typeof refills> {
  const windows = [
    { bucket: "base" as const, ...base },
    { bucket: "overage" as const, ...overage },
  ];
  return windows
    .filter(({ refillMicro }) => refillMicro > 0)
    .toSorted((one, other) => one.endsMs - other.endsMs)
    .map(({ bucket, refillMicro, endsMs }) => ({
      bucket,
      credits: creditsIn(refillMicro),
      at: isoTime(endsMs),
    }));
}
