/** Arithmetic of amounts in the three buckets. Pure. */
import type { MicroCredits } from "../units.ts";
import type { Split } from "./rows.ts";

export function sumOf(split: Split): MicroCredits {
  return split.base + split.overage + split.additional;
}

export function negated(split: Split): Split {
  return { base: 0 - split.base, overage: 0 - split.overage, additional: 0 - split.additional };
}

export function plus(a: Split, b: Split): Split {
  return { base: a.base + b.base, overage: a.overage + b.overage, additional: a.additional + b.additional };
}

export function minus(a: Split, b: Split): Split {
  return { base: a.base - b.base, overage: a.overage - b.overage, additional: a.additional - b.additional };
}

export function additionally(amount: number): Split {
  return { base: 0, overage: 0, additional: amount };
}

/** Splits an amount over what each bucket has, in the order in which they are spent; less where there is less. */
export function splitOver(available: Split, amount: MicroCredits): Split {
  const base = Math.min(amount, available.base);
  const overage = Math.min(amount - base, available.overage);
  const additional = Math.min(amount - base - overage, available.additional);
  return { base, overage, additional };
}
