/** Amounts and numbers as text. */
import { exactCredits, grouped, type MicroCredits, microPerCredit } from "../../units.ts";

/** Returns the number of decimals that an amount needs. */
export function decimalsOf(micro: MicroCredits): number {
  return exactCredits(micro).split(".")[1]?.length ?? 0;
}

/** Returns an amount with all its digits, and zeros up to this number of decimals. */
export function creditsWith(micro: MicroCredits, decimals: number): string {
  const zeros = "0".repeat(Math.max(0, decimals - decimalsOf(micro)));
  return `${exactCredits(micro)}${zeros !== "" && decimalsOf(micro) === 0 ? "." : ""}${zeros}`;
}

/**
 * Returns an amount for a figure: whole, or with two decimals. A small amount is never rounded to
 * zero.
 */
export function shortCredits(micro: MicroCredits): string {
  const size = Math.abs(micro);
  if (size % microPerCredit === 0) return exactCredits(micro);
  if (size < microPerCredit / 100) return micro < 0 ? "> -0.01" : "< 0.01";
  return new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }).format(
    micro / microPerCredit,
  );
}

/** Returns a whole number with separators, or a dash. */
export function wholeNumber(value: number | null): string {
  return value === null ? "–" : grouped(value);
}

/** Returns the whole number that a person typed; null for anything else. */
export function wholeNumberIn(text: string): number | null {
  const digits = text.trim().replace(/(?<=\d)[ ,](?=\d{3}(?!\d))/g, "");
  if (!/^-?\d{1,15}$/.test(digits)) return null;
  return Number(digits);
}

/** Returns a plural: `3 keys`, `1 key`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}
