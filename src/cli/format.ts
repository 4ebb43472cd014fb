/** Text for people: tables, times and counts, without colour. */
import { grouped } from "../units.ts";
import { visibleLine } from "../visible-text.ts";

export interface Column<Row> {
  head: string;
  /** Aligned to the right, for numbers. */
  right?: boolean;
  /** Minimum width in characters. */
  width?: number;
  cell(row: Row): string;
}

/** Formats a table. Each column is as wide as its longest value; columns are two spaces apart. */
export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const padded = columns.map(({ head, right = false, width: least = 0, cell }) => {
    const cells = [head, ...rows.map((row) => visibleLine(cell(row)))];
    const width = Math.max(least, ...cells.map(({ length }) => length));
    return cells.map((text) => (right ? text.padStart(width) : text.padEnd(width)));
  });
  const lines = Array.from({ length: rows.length + 1 }, (_, line) =>
    padded
      .map((cells) => cells[line])
      .join("  ")
      .trimEnd(),
  );
  return lines.join("\n");
}

/** Returns a number with its noun: `1 request`, `2 requests`. */
export function count(number: number, singular: string, plural = `${singular}s`): string {
  return `${grouped(number)} ${number === 1 ? singular : plural}`;
}
