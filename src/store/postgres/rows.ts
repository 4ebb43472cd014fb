/**
 * The tables in PostgreSQL: cells as the driver reads them, and rows written as one array for each
 * column.
 */
import { invariant } from "../../errors.ts";
import type { Column, Table, Value } from "../table.ts";

/** A cell as the driver reads it. Integers beyond 2^53 are bigints. */
export type Cell = string | number | bigint | boolean | null | readonly (string | null)[];

/** Returns the rows as array literals for `unnest`, one for each column. */
export function arraysOf<R>(table: Table<R>, rows: readonly R[]): string[] {
  const values = rows.map((row) => table.valuesOf(row));
  return table.columns.map((_, index) => arrayLiteral(values.map((cells) => cells[index] ?? null)));
}

/** Returns a literal of an array of texts or numbers. Null stays null. */
export function arrayLiteral(values: readonly Value[]): string {
  return `{${values.map((value) => (typeof value === "string" ? `"${value.replace(/["\\]/g, "\\$&")}"` : String(value))).join(",")}}`;
}

/** Returns `unnest($1::text[], ...)` for the arrays of `arraysOf`. */
export function unnest<R>({ columns }: Table<R>): string {
  return `unnest(${columns.map((column, index) => `$${index + 1}::${sqlTypeOf(column)}[]`).join(", ")})`;
}

/**
 * Returns the only row of the same arrays. Costs less than `unnest`, which makes a temporary table
 * of each column.
 */
export function onlyRow<R>({ columns }: Table<R>): string {
  return `(select ${columns.map((column, index) => `($${index + 1}::${sqlTypeOf(column)}[])[1]`).join(", ")})`;
}

/**
 * Returns the cell of the row `n` of `unnest` or `onlyRow`. Lists and JSON arrive as text, because
 * an array of arrays would be taken apart.
 */
export function readFrom({ name, type, items }: Column): string {
  return type === "texts" || items !== null ? `n.${name}::json` : `n.${name}`;
}

function sqlTypeOf({ type }: Column): string {
  if (typeof type === "object") return "text";
  switch (type) {
    case "text":
    case "text?":
    case "texts":
      return "text";
    case "boolean":
    case "boolean?":
      return "boolean";
    case "real":
      return "double precision";
    default:
      return "bigint";
  }
}

/** Returns the first value of the first row. */
export function onlyCell(rows: readonly (readonly Cell[])[]): Cell {
  const cell = rows[0]?.[0];
  invariant(cell !== undefined, "the statement returns a row");
  return cell;
}
