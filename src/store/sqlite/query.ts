/**
 * Prepared statements of SQLite: they find rows of a table, or write them.
 *
 * The driver returns rows as arrays, which takes half the time of objects with a property for each
 * column. It throws a RangeError for integers beyond 2^53.
 */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import type { Table } from "../table.ts";

/** The cells of a row, in the order of its columns. */
export type Cells = readonly unknown[];

export function prepare(db: DatabaseSync, sql: string): StatementSync {
  const statement = db.prepare(sql);
  statement.setReturnArrays(true);
  return statement;
}

export function cellsOf(row: unknown): Cells {
  invariant(Array.isArray(row), "the driver returns rows as arrays");
  return row;
}

/** Finds rows of one table; `rest` is what follows `from`. */
export class Query<R> {
  readonly #table: Table<R>;
  readonly #statement: StatementSync;

  constructor(db: DatabaseSync, table: Table<R>, rest: string) {
    this.#table = table;
    this.#statement = prepare(db, `select ${table.list()} from ${table.name} ${rest}`);
  }

  get(...values: SQLInputValue[]): R | undefined {
    const row = this.#statement.get(...values);
    return row === undefined ? undefined : this.#table.rowOf(cellsOf(row));
  }

  all(...values: SQLInputValue[]): R[] {
    return this.#statement.all(...values).map((row) => this.#table.rowOf(cellsOf(row)));
  }
}

/** Returns a function that inserts a row. */
export function insertInto<R>(db: DatabaseSync, table: Table<R>): (row: R) => void {
  const marks = table.columns.map(() => "?").join(", ");
  const statement = db.prepare(`insert into ${table.name} (${table.list()}) values (${marks})`);
  return (row) => void statement.run(...table.valuesOf(row));
}

/**
 * Returns a function that updates a row, and returns whether it exists. The key is not set, not
 * even to its own value: SQLite would search all rows that refer to it, which for an account is
 * its whole journal. Nor are the columns `kept`.
 */
export function update<R>(
  db: DatabaseSync,
  table: Table<R>,
  key: readonly string[],
  kept: readonly string[] = [],
): (row: R) => boolean {
  const marked = table.columns.map(({ name }, index) => ({ name, equals: `${name} = ?${index + 1}` }));
  const set = marked.filter(({ name }) => ![...key, ...kept].includes(name)).map(({ equals }) => equals);
  const where = marked.filter(({ name }) => key.includes(name)).map(({ equals }) => equals);
  const statement = db.prepare(`update ${table.name} set ${set.join(", ")} where ${where.join(" and ")}`);
  return (row) => statement.run(...table.valuesOf(row)).changes === 1;
}
