/** Text for people: tables, times and counts, without colour. */
import { type EpochMs, grouped } from "../units.ts";

export interface Column {
  head: string;
  align?: "left" | "right";
  /** Minimum width in characters. */
  width?: number;
}

/** Returns the head of a column that is aligned to the right. */
export function right(head: string): Column {
  return { head, align: "right" };
}

/** Formats a table. Each column is as wide as its longest value; columns are two spaces apart. */
export function table(heads: readonly (string | Column)[], rows: readonly (readonly string[])[]): string {
  const columns = heads.map((head): Column => (typeof head === "string" ? { head } : head));
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

/** Returns a time to the minute, for tables. */
export function shortTime(ms: EpochMs | null): string {
  return ms === null ? "-" : `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")}Z`;
}

/** Returns a number with its noun: `1 request`, `2 requests`. */
export function count(number: number, singular: string, plural = `${singular}s`): string {
  return `${grouped(number)} ${number === 1 ? singular : plural}`;
}
