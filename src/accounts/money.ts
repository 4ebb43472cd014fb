/**
 * Credits in money, for reports: the configuration says what they cost. No decision and no fact
 * of the ledger has money.
 */
import type { MicroCredits } from "../units.ts";

export interface Currency {
  /** ISO 4217. */
  code: string;
  /** Price of 1,000 credits in millionths of the currency. */
  priceMicro: number;
}

/** An amount times a price: 10^6 of a credit, 10^6 of the currency, for 10^3 credits. */
const productDigits = 15;

/** Returns an amount with the decimals of its currency, `12.50`. Halves are rounded up. */
export function moneyOf(micro: MicroCredits, { code, priceMicro }: Currency): string {
  const decimals = decimalsOf(code);
  const unit = 10n ** BigInt(productDigits - decimals);
  const units = (2n * BigInt(micro) * BigInt(priceMicro) + unit) / (2n * unit);
  const digits = String(units).padStart(decimals + 1, "0");
  const point = digits.length - decimals;
  return decimals === 0 ? digits : `${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** Kept: a format takes 7 µs to make, and a report has many amounts. Currencies are few. */
const known = new Map<string, number>();

function decimalsOf(code: string): number {
  const before = known.get(code);
  if (before !== undefined) return before;
  const format = new Intl.NumberFormat("en", { style: "currency", currency: code });
  const { maximumFractionDigits: decimals = 2 } = format.resolvedOptions();
  known.set(code, decimals);
  return decimals;
}
