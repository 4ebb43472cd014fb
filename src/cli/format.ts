/** How values look to people: tables, amounts, times. No colour and no decisions. */
import type { EpochMs, MicroCredits } from "../units.ts";
import { microPerCredit } from "../units.ts";

export interface Column {
  head: string;
  align?: "left" | "right";
  /** At least so many characters. */
  width?: number;
}

/** Columns wide enough for their longest value, two spaces apart. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const widths = columns.map(({ head, width = 0 }, i) =>
    Math.max(head.length, width, ...rows.map((row) => row[i]?.length ?? 0)),
  );
  const line = (cells: readonly string[]) =>
    columns
      .map(({ align }, i) => {
        const cell = cells[i] ?? "";
        return align === "right" ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0);
      })
      .join("  ")
      .trimEnd();
  return [line(columns.map(({ head }) => head)), ...rows.map(line)].join("\n");
}

/** Every digit of an amount: 1,234.000567. */
export function exactCredits(micro: MicroCredits): string {
  const sign = micro < 0 ? "-" : "";
  const size = Math.abs(micro);
  const fraction = String(size % microPerCredit)
    .padStart(6, "0")
    .replace(/0+$/, "");
  const wholePart = grouped(Math.floor(size / microPerCredit));
  return `${sign}${wholePart}${fraction === "" ? "" : `.${fraction}`}`;
}

/** 1,234,567 */
export function grouped(whole: number): string {
  return whole.toLocaleString("en-US");
}

export function isoTime(ms: EpochMs): string {
  return new Date(ms).toISOString();
}

/** To the minute, for tables. */
export function shortTime(ms: EpochMs | null): string {
  return ms === null ? "-" : `${isoTime(ms).slice(0, 16).replace("T", " ")}Z`;
}

export function count(number: number, singular: string, plural = `${singular}s`): string {
  return `${grouped(number)} ${number === 1 ? singular : plural}`;
}
