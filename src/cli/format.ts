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

interface TableOptions {
  /** Columns of the terminal. Default: no limit. */
  width?: number;
  /** The least widths of the columns. */
  widths?: readonly number[];
  /** Default: true. */
  hasHead?: boolean;
}

interface Laid {
  width: number;
  isNumber: boolean;
  cells: string[];
}

const indent = "    ";
/** A last column that has as much room stays on its line, and wraps there. */
const proseWidth = 40;

/**
 * Formats a table. Each column is as wide as its longest value or its minimum; columns are two
 * spaces apart. Nothing is cut: columns beyond the width of the terminal have a line of their own
 * below each row that has values in them, and longer text wraps between words.
 */
export function table<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width: most = Number.POSITIVE_INFINITY, widths = [], hasHead = true }: TableOptions = {},
): string {
  const hasValue = ({ cell }: Column<Row>) => rows.some((row) => cell(row) !== "-");
  const shown = columns.filter((column) => column.isOptional !== true || hasValue(column));
  const laid = shown.map(({ head, isNumber = false, cell }, index): Laid => {
    const cells = [head, ...rows.map((row) => visibleLine(cell(row)))];
    return { isNumber, cells, width: Math.max(widths[index] ?? 0, ...cells.map(({ length }) => length)) };
  });
  const lines = inLines(laid, most);
  const text = Array.from({ length: rows.length + 1 }, (_, row) =>
    lines.flatMap((line, n) => {
      if (n === 0) return lineTexts(line, row);
      const isEmpty = line.every(({ cells }) => cells[row] === "-");
      return isEmpty ? [] : lineTexts(line, row).map((each) => indent + each);
    }),
  );
  return text
    .slice(hasHead ? 0 : 1)
    .flat()
    .join("\n");
}

/** Divides the columns into lines. */
function inLines(columns: readonly Laid[], most: number): Laid[][] {
  const lines: Laid[][] = [];
  let leftWidth = 0;
  for (const [index, column] of columns.entries()) {
    const line = lines.at(-1);
    const isProse = index === columns.length - 1 && !column.isNumber && leftWidth >= proseWidth;
    if (line !== undefined && (column.width <= leftWidth || isProse)) {
      line.push({ ...column, width: Math.min(column.width, leftWidth) });
    } else {
      leftWidth = most - (line === undefined ? 0 : indent.length);
      lines.push([{ ...column, width: Math.min(column.width, leftWidth) }]);
    }
    leftWidth -= column.width + 2;
  }
  return lines;
}

/** Returns the lines that a row has in these columns: several if a cell wraps. */
function lineTexts(line: readonly Laid[], row: number): string[] {
  const wrapped = line.map(({ width, cells }) => wrap(cells[row] ?? "", width));
  return Array.from({ length: Math.max(...wrapped.map(({ length }) => length)) }, (_, n) =>
    line
      .map(({ width, isNumber }, index) => {
        const text = wrapped[index]?.[n] ?? "";
        return isNumber ? text.padStart(width) : text.padEnd(width);
      })
      .join("  ")
      .trimEnd(),
  );
}

/** Breaks a text between words. A word that is too long stays whole. */
function wrap(text: string, width: number): string[] {
  if (text.length <= width) return [text];
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines;
}

/** Returns a number with its noun: `1 request`, `2 requests`. */
export function count(number: number, singular: string, plural = `${singular}s`): string {
  return `${grouped(number)} ${number === 1 ? singular : plural}`;
}
