/**
 * Converts between rows and the cells of a database, from the description of a table.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws.
 */
import { invariant } from "../errors.ts";
import { type KeptWindow, type Taking, windowBuckets } from "../ledger/rows.ts";

/**
 * `?` allows null. A list stands for text that is one of its values. SQLite keeps booleans as 0
 * and 1.
 */
export type ColumnType =
  | "text"
  | "text?"
  | "integer"
  | "integer?"
  | "real"
  | "boolean"
  | "texts"
  | "takings"
  | "windows"
  | readonly string[];

export interface Column {
  /** The field in snake case. */
  readonly name: string;
  readonly field: string;
  readonly table: string;
  readonly type: ColumnType;
}

/** A cell as both databases accept it. */
export type Value = string | number | null;

export interface Table<R> {
  readonly name: string;
  readonly columns: readonly Column[];
  /** The columns for `select`, each after the alias `of`. */
  list(of?: string): string;
  /** Reads the row that begins at cell `from`, by default the first. */
  rowOf(cells: readonly unknown[], from?: number): R;
  /** The cells in the order of the columns. `listOf` writes a list of texts. */
  valuesOf(row: R, listOf: (texts: readonly string[]) => string): Value[];
}

/**
 * Compiles the two conversions from the description, because they run for every row of a commit.
 * The compiled literals take 20 to 50 ns for a row; a loop over the columns takes 200 to 400 ns
 * (docs/decisions/0033).
 */
export function tableOf<R extends object>(
  name: string,
  types: Record<keyof R & string, ColumnType>,
): Table<R> {
  const columns = Object.entries<ColumnType>(types).map(([field, type]) => ({
    name: field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    field,
    table: name,
    type,
  }));
  const reads = columns.map(
    ({ field, type }, n) => `${field}: read["${decoderOf(type)}"](cells[from + ${n}], columns[${n}])`,
  );
  const writes = columns.map(({ field, type }, n) => {
    switch (type) {
      case "boolean":
        return `row.${field} ? 1 : 0`;
      case "texts":
        return `listOf(row.${field})`;
      case "takings":
      case "windows":
        return `row.${field}.length === 0 ? null : JSON.stringify(row.${field})`;
      case "text?":
      case "integer?":
        return `row.${field} ?? nullOf(row.${field}, columns[${n}])`;
      default:
        return `row.${field}`;
    }
  });
  return {
    name,
    columns,
    list: (of) =>
      columns.map((column) => (of === undefined ? column.name : `${of}.${column.name}`)).join(", "),
    rowOf: new Function("read", "columns", `return (cells, from = 0) => ({ ${reads.join(", ")} })`)(
      decoders,
      columns,
    ),
    valuesOf: new Function("nullOf", "columns", `return (row, listOf) => [${writes.join(", ")}]`)(
      nullOf,
      columns,
    ),
  };
}

/**
 * Returns a comparison of two rows in the columns of `table` that `part` does not have. Compiled
 * for the same reason.
 */
export function sameBesides<R>(table: Table<R>, part: Pick<Table<R>, "columns">): (a: R, b: R) => boolean {
  const names = new Set(part.columns.map(({ name }) => name));
  const rest = table.columns.filter(({ name }) => !names.has(name));
  return new Function(
    `return (a, b) => ${rest.map(({ field }) => `a.${field} === b.${field}`).join(" && ")}`,
  )();
}

const decoders = {
  text(cell: unknown, column: Column): string {
    if (typeof cell !== "string") throw misread(cell, column);
    return cell;
  },
  "text?": (cell: unknown, column: Column) => (cell === null ? null : decoders.text(cell, column)),
  /** The database keeps fractions out of its integer columns. */
  number(cell: unknown, column: Column): number {
    if (typeof cell !== "number") throw misread(cell, column);
    return cell;
  },
  "number?": (cell: unknown, column: Column) => (cell === null ? null : decoders.number(cell, column)),
  boolean(cell: unknown, column: Column): boolean {
    if (typeof cell !== "boolean" && cell !== 0 && cell !== 1) throw misread(cell, column);
    return cell === true || cell === 1;
  },
  /** An array, or the JSON of one. */
  texts(cell: unknown, column: Column): string[] {
    const texts: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
    if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string"))
      throw misread(cell, column);
    return texts;
  },
  /** Null, which is usual, or the JSON of an array. */
  takings: (cell: unknown, column: Column) => itemsOf(cell, column, isTaking),
  windows: (cell: unknown, column: Column) => itemsOf(cell, column, isKeptWindow),
  oneOf(cell: unknown, column: Column): string {
    if (typeof cell !== "string" || !column.type.includes(cell)) throw misread(cell, column);
    return cell;
  },
};

/**
 * Both drivers bind undefined as null, so they would write a row without one of its fields. The
 * database refuses null in the other columns.
 */
function nullOf(value: unknown, { table, field }: Column): null {
  invariant(value === null, () => `a row of ${table} has no ${field}`);
  return null;
}

const nothing: readonly never[] = [];

function itemsOf<T>(cell: unknown, column: Column, isItem: (item: unknown) => item is T): readonly T[] {
  if (cell === null) return nothing;
  const items: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
  if (!Array.isArray(items) || !items.every(isItem)) throw misread(cell, column);
  return items;
}

function hasWhole(item: unknown, fields: readonly string[]): item is Record<string, unknown> {
  if (typeof item !== "object" || item === null) return false;
  const cells = new Map<string, unknown>(Object.entries(item));
  return fields.every((field) => Number.isSafeInteger(cells.get(field)));
}

function isTaking(item: unknown): item is Taking {
  return hasWhole(item, ["seq", "base", "overage"]);
}

function isKeptWindow(item: unknown): item is KeptWindow {
  return (
    hasWhole(item, ["version", "anchorMs", "startsMs", "endsMs", "since", "spent", "held"]) &&
    typeof item.plan === "string" &&
    typeof item.every === "string" &&
    windowBuckets.some((bucket) => bucket === item.bucket)
  );
}

function decoderOf(type: ColumnType): keyof typeof decoders {
  switch (type) {
    case "integer":
    case "real":
      return "number";
    case "integer?":
      return "number?";
    case "text":
    case "text?":
    case "boolean":
    case "texts":
    case "takings":
    case "windows":
      return type;
    default:
      return "oneOf";
  }
}

function misread(cell: unknown, { table, field }: Column): Error {
  return new Error(`the database holds ${String(cell)} where ${field} of ${table} should be`);
}
