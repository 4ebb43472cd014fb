/** Arithmetic of amounts in the three buckets. Pure. */
import type { MicroCredits } from "../units.ts";
import type { BucketAmounts } from "./rows.ts";

export function sumOf(amounts: BucketAmounts): MicroCredits {
  return amounts.base + amounts.overage + amounts.additional;
}

export function negated(amounts: BucketAmounts): BucketAmounts {
  return { base: 0 - amounts.base, overage: 0 - amounts.overage, additional: 0 - amounts.additional };
}

export function plus(a: BucketAmounts, b: BucketAmounts): BucketAmounts {
  return { base: a.base + b.base, overage: a.overage + b.overage, additional: a.additional + b.additional };
}

export function minus(a: BucketAmounts, b: BucketAmounts): BucketAmounts {
  return { base: a.base - b.base, overage: a.overage - b.overage, additional: a.additional - b.additional };
}

export function additionalOnly(amount: number): BucketAmounts {
  return { base: 0, overage: 0, additional: amount };
}

/** Takes an amount from the buckets in spending order. Returns less if the buckets contain less. */
export function allocate(available: BucketAmounts, amount: MicroCredits): BucketAmounts {
  const base = Math.min(amount, available.base);
  const overage = Math.min(amount - base, available.overage);
  const additional = Math.min(amount - base - overage, available.additional);
  return { base, overage, additional };
}
