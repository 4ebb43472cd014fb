/**
 * Amounts of grants and of takings, and the order in which grants are spent: base, overage, then
 * the additional ones. open-grants.ts changes grants. Pure.
 */
import type { MicroCredits } from "../units.ts";
import type { AccountRow, AdditionalGrant, BucketAmounts, ChargeRow, LaterGrants, Taking } from "./rows.ts";

export const noLater: LaterGrants = { count: 0, freeMicro: 0, heldMicro: 0, untilMs: null };

export interface Amounts {
  amountMicro: MicroCredits;
  spentMicro: MicroCredits;
  heldMicro: MicroCredits;
}

/** What can be taken. A change to a smaller plan can leave less than nothing. */
export function freeOf({ amountMicro, spentMicro, heldMicro }: Amounts): MicroCredits {
  return Math.max(0, amountMicro - spentMicro - heldMicro);
}

/** What is not spent, with what running requests hold. */
export function remainingOf({ amountMicro, spentMicro }: Amounts): MicroCredits {
  return Math.max(0, amountMicro - spentMicro);
}

/** What is left of all additional grants, with what running requests hold. */
export function additionalOf({ additional, later }: AccountRow): MicroCredits {
  return additional.reduce(
    (sum, { amountMicro, spentMicro }) => sum + (amountMicro - spentMicro),
    later.freeMicro + later.heldMicro,
  );
}

/** What running requests hold of the open grants. */
export function heldOf({ base, overage, additional, later }: AccountRow): MicroCredits {
  let held = (base?.heldMicro ?? 0) + (overage?.heldMicro ?? 0) + later.heldMicro;
  for (const grant of additional) held += grant.heldMicro;
  return held;
}

/** Grants with an end come first, soonest first, then promotions and payments, oldest first. */
export function inSpendingOrder(one: AdditionalGrant, other: AdditionalGrant): number {
  const [end, otherEnd] = [one.untilMs ?? Infinity, other.untilMs ?? Infinity];
  if (end !== otherEnd) return end < otherEnd ? -1 : 1;
  if (one.isPayment !== other.isPayment) return one.isPayment ? 1 : -1;
  return one.seq - other.seq;
}

export function sumOf({ base, overage, additional }: BucketAmounts): MicroCredits {
  return base + overage + additional;
}

/** Returns what each bucket has paid of a charge. */
export function paidOf(
  charge: Pick<ChargeRow, "baseMicro" | "overageMicro" | "additionalMicro">,
): BucketAmounts {
  return { base: charge.baseMicro, overage: charge.overageMicro, additional: charge.additionalMicro };
}

/** Adds up takings by bucket. */
export function byBucket(takings: readonly Taking[]): BucketAmounts {
  const amounts = { base: 0, overage: 0, additional: 0 };
  for (const { bucket, amountMicro } of takings) amounts[bucket] += amountMicro;
  return amounts;
}

/** Adds up takings, of closed grants too. */
export function amountOf(takings: readonly Taking[]): MicroCredits {
  let sum = 0;
  for (const { amountMicro } of takings) sum += amountMicro;
  return sum;
}

/** Returns the takings with others added: each grant once. */
export function joined(takings: readonly Taking[], more: readonly Taking[]): Taking[] {
  const all = [...takings];
  for (const taking of more) {
    const at = all.findIndex(({ grant }) => grant === taking.grant);
    const before = all[at];
    if (before === undefined) all.push(taking);
    else all[at] = { ...taking, amountMicro: before.amountMicro + taking.amountMicro };
  }
  return all;
}
