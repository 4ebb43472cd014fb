/** How values look to people: tables, amounts, times. No colour and no decisions. */
import { type EpochMs, grouped } from "../units.ts";

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
