/**
 * What a statement of SQLite answers with: rows as arrays of cells, and each cell as what it has to be. A value of another
 * type than the schema says is a defect and throws; integers beyond 2^53 are refused by the driver.
 */
import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";

/** The cells of a row, in the order of its columns below. */
export type Row = readonly SQLOutputValue[];

/** A statement that returns rows as arrays: half the time of objects with a property for each column. */
export class Query {
  readonly #statement: StatementSync;

  constructor(db: DatabaseSync, sql: string) {
    this.#statement = db.prepare(sql);
    this.#statement.setReturnArrays(true);
  }

  get(...values: SQLInputValue[]): Row | undefined {
    const row = this.#statement.get(...values);
    return row === undefined ? undefined : cellsOf(row);
  }

  all(...values: SQLInputValue[]): Row[] {
    return this.#statement.all(...values).map(cellsOf);
  }

  /** Integers of any size, as bigints. */
  getExact(...values: SQLInputValue[]): Row | undefined {
    this.#statement.setReadBigInts(true);
    try {
      return this.get(...values);
    } finally {
      this.#statement.setReadBigInts(false);
    }
  }
}

function cellsOf(row: unknown): Row {
  invariant(Array.isArray(row), "the driver returns rows as arrays");
  return row;
}

/** All columns of a table, in the order in which its rows are read. */
export function select(table: string, columns: readonly string[]): string {
  return `select ${columns.join(", ")} from ${table}`;
}

/** Undefined where the row has no such column. */
export type Cell = SQLOutputValue | undefined;

export function misread(cell: Cell, expected: string): Error {
  return new Error(`the database holds ${String(cell)} where ${expected} should be`);
}

export function text(cell: Cell): string {
  if (typeof cell !== "string") throw misread(cell, "text");
  return cell;
}

export function textOrNull(cell: Cell): string | null {
  return cell === null ? null : text(cell);
}

export function numeric(cell: Cell): number {
  if (typeof cell !== "number") throw misread(cell, "a number");
  return cell;
}

export function numericOrNull(cell: Cell): number | null {
  return cell === null ? null : numeric(cell);
}

export function oneOf<T extends string>(values: readonly T[], cell: Cell): T {
  const found = values.find((value) => value === cell);
  if (found === undefined) throw misread(cell, values.join(" or "));
  return found;
}
