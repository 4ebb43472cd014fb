/** Amounts and numbers as text. Credits have all their decimals, or are marked as rounded. */
import { exactCredits, grouped, type MicroCredits, microPerCredit } from "../../units.ts";

const decimals = 6;

/**
 * Returns an amount in two parts: the digits, and the zeros that would fill up six decimals. A
 * column of amounts aligns if the zeros are laid out but not shown.
 */
export function alignedCredits(micro: MicroCredits): { digits: string; padding: string } {
  const digits = exactCredits(micro);
  const shown = digits.split(".")[1]?.length ?? 0;
  return { digits, padding: `${shown === 0 ? "." : ""}${"0".repeat(decimals - shown)}` };
}

/**
 * Returns an amount for a narrow place. It has `≈` in front if it is rounded; a small amount is
 * never rounded to zero.
 */
export function shortCredits(micro: MicroCredits): string {
  const size = Math.abs(micro);
  if (size % microPerCredit === 0 && size < 100_000 * microPerCredit) return exactCredits(micro);
  const credits = micro / microPerCredit;
  const text = new Intl.NumberFormat("en-US", {
    notation: size < 100_000 * microPerCredit ? "standard" : "compact",
    maximumSignificantDigits: size < microPerCredit ? 2 : size < 1000 * microPerCredit ? 4 : 6,
  }).format(credits);
  return text === exactCredits(micro) ? text : `≈ ${text}`;
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
