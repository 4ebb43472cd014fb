/** Text for people: tables, times and counts, without colour. */
import { columnsWith, type Kind } from "../actions/columns.ts";
import { exactCredits, grouped, shortTime } from "../units.ts";
import { visibleLine } from "../visible-text.ts";

export interface Column<Row> {
  head: string;
  /** Aligned to the right. */
  isNumber?: boolean;
  /** Left out if no row has a value. */
  isOptional?: boolean;
  cell(row: Row): string;
}

export const columnsOf = columnsWith(textOf);

function textOf(kind: Kind, value: unknown): string {
  if (value === null || (kind === "change" && value === 0)) return "-";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "number") return kind === "time" ? shortTime(String(value)) : String(value);
  if (kind === "number") return String(value);
  if (kind !== "credits" && kind !== "change") return grouped(value);
  return `${kind === "change" && value > 0 ? "+" : ""}${exactCredits(value)}`;
}

/**
 * Formats a table. Each column is as wide as its longest value or its minimum; columns are two
 * spaces apart.
 */
export function table<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  widths: readonly number[] = [],
): string {
  const hasValue = ({ cell }: Column<Row>) => rows.some((row) => cell(row) !== "-");
  const shown = columns.filter((column) => column.isOptional !== true || hasValue(column));
  const padded = shown.map(({ head, isNumber = false, cell }, index) => {
    const cells = [head, ...rows.map((row) => visibleLine(cell(row)))];
    const width = Math.max(widths[index] ?? 0, ...cells.map(({ length }) => length));
    return cells.map((text) => (isNumber ? text.padStart(width) : text.padEnd(width)));
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
