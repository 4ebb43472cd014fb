/**
 * The numbers that must not be mixed up, branded, and the few conversions between them.
 *
 * Credits are counted in micro-credits, whole and safe integers: 1 credit = 1,000,000. A price in credits per
 * million tokens is then a whole number of micro-credits per token, and no cost is ever rounded.
 */
import { invariant } from "./errors.ts";

declare const unit: unique symbol;

/** Whole micro-credits; a safe integer, which bounds a bucket at 9,007,199,254 credits. */
export type MicroCredits = number & { readonly [unit]?: "micro-credits" };
/** Whole credits, as shown and as bought. */
export type Credits = number & { readonly [unit]?: "credits" };
/** Milliseconds since 1970-01-01T00:00:00Z. */
export type EpochMs = number & { readonly [unit]?: "epoch-ms" };

export const microPerCredit = 1_000_000;

/** The most credits that one plan, top-up or adjustment may name; a thousand of them still fit a safe integer of micro-credits. */
export const creditsMax: Credits = 9_000_000;

export function microOf(credits: Credits): MicroCredits {
  const micro = credits * microPerCredit;
  invariant(Number.isSafeInteger(micro), `${credits} credits are whole and fit 53 bits in micro-credits`);
  return micro;
}

/** Whole credits in an amount, rounded down. */
export function creditsIn(micro: MicroCredits): Credits {
  return Math.floor(micro / microPerCredit);
}
