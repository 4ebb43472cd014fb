/**
 * Converts between rows and the cells of a database, from the description of a table.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws.
 */
import { invariant } from "../errors.ts";
import { type AdditionalGrant, buckets, type Taking } from "../ledger/rows.ts";

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
  | "boolean?"
  | "texts"
  | "takings"
  | "grants"
  | readonly string[];

/** The columns of a nested object, after the name of its field. */
interface Group {
  /** All columns are null if the object is, and the first of them is not null otherwise. */
  readonly isNullable: boolean;
  readonly columns: Readonly<Record<string, ColumnType>>;
}

type FieldType = ColumnType | Group;

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
  /** The cells in the order of the columns. */
  valuesOf(row: R): Value[];
}

/**
 * Compiles the two conversions from the description, because they run for every row of a commit.
 * The compiled literals take 20 to 50 ns for a row; a loop over the columns takes 200 to 400 ns
 * (docs/decisions/0033).
 */
export function tableOf<R extends object>(
  name: string,
  types: Record<keyof R & string, FieldType>,
): Table<R> {
  const columns: Column[] = [];
  const reads: string[] = [];
  const writes: string[] = [];
  const add = (field: string, type: ColumnType, name_: string): string => {
    const n = columns.push({ name: inSnakeCase(name_), field, table: name, type }) - 1;
    return `read["${decoderOf(type)}"](cells[from + ${n}], columns[${n}])`;
  };
  for (const [field, type] of Object.entries<FieldType>(types)) {
    if (!isGroup(type)) {
      reads.push(`${field}: ${add(field, type, field)}`);
      writes.push(writerOf(`row.${field}`, type, columns.length - 1));
      continue;
    }
    const first = columns.length;
    const parts: string[] = [];
    const nested = type.isNullable ? `row.${field} === null ? null : ` : "";
    for (const [part, partType] of Object.entries(type.columns)) {
      parts.push(`${part}: ${add(field, partType, `${field}_${part}`)}`);
      writes.push(`${nested}${writerOf(`row.${field}.${part}`, partType, columns.length - 1)}`);
    }
    const object = `{ ${parts.join(", ")} }`;
    reads.push(
      `${field}: ${type.isNullable ? `cells[from + ${first}] === null ? null : ${object}` : object}`,
    );
  }
  return {
    name,
    columns,
    list: (of) =>
      columns.map((column) => (of === undefined ? column.name : `${of}.${column.name}`)).join(", "),
    rowOf: new Function("read", "columns", `return (cells, from = 0) => ({ ${reads.join(", ")} })`)(
      decoders,
      columns,
    ),
    valuesOf: new Function("writers", "columns", `return (row) => [${writes.join(", ")}]`)(writers, columns),
  };
}

function isGroup(type: FieldType): type is Group {
  return typeof type === "object" && "columns" in type;
}

function inSnakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The code that makes the cell of a value. */
function writerOf(value: string, type: ColumnType, column: number): string {
  switch (type) {
    case "boolean":
      return `${value} ? 1 : 0`;
    case "boolean?":
      return `${value} === null ? null : ${value} ? 1 : 0`;
    case "texts":
      return `JSON.stringify(${value})`;
    case "takings":
    case "grants":
      return `writers.${type}(${value})`;
    case "text?":
    case "integer?":
      return `(${value} ?? writers.nullOf(${value}, columns[${column}]))`;
    default:
      return value;
  }
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
  "boolean?": (cell: unknown, column: Column) => (cell === null ? null : decoders.boolean(cell, column)),
  /** An array, or the JSON of one. */
  texts(cell: unknown, column: Column): string[] {
    const texts: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
    if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string"))
      throw misread(cell, column);
    return texts;
  },
  /** Null, or the JSON of an array. */
  takings: (cell: unknown, column: Column) => itemsOf(cell, column, takingOf),
  grants: (cell: unknown, column: Column) => itemsOf(cell, column, grantOf),
  oneOf(cell: unknown, column: Column): string {
    if (typeof cell !== "string" || !column.type.includes(cell)) throw misread(cell, column);
    return cell;
  },
};

/**
 * Items of JSON lists are arrays, because an account has up to 16 grants in its row, and every
 * commit writes it.
 */
const writers = {
  takings: (takings: readonly Taking[]) =>
    jsonOf(takings, ({ grant, bucket, amount }) => [grant, bucket, amount]),
  grants: (grants: readonly AdditionalGrant[]) =>
    jsonOf(grants, ({ seq, amount, spent, held, isPayment, untilMs }) => [
      ...[seq, amount, spent, held],
      ...[isPayment ? 1 : 0, untilMs],
    ]),
  /**
   * Both drivers bind undefined as null, so they would write a row without one of its fields. The
   * database refuses null in the other columns.
   */
  nullOf(value: unknown, { table, field }: Column): null {
    invariant(value === null, () => `a row of ${table} has no ${field}`);
    return null;
  },
};

function jsonOf<T>(items: readonly T[], cellsOf: (item: T) => unknown[]): string | null {
  return items.length === 0 ? null : JSON.stringify(items.map(cellsOf));
}

const nothing: readonly never[] = [];

function itemsOf<T>(cell: unknown, column: Column, itemOf: (cells: unknown[]) => T | null): readonly T[] {
  if (cell === null) return nothing;
  const items: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
  if (!Array.isArray(items)) throw misread(cell, column);
  return items.map((cells: unknown) => {
    const item = Array.isArray(cells) ? itemOf(cells) : null;
    if (item === null) throw misread(cell, column);
    return item;
  });
}

function takingOf([grant, name, amount, ...more]: unknown[]): Taking | null {
  const bucket = buckets.find((bucket) => bucket === name);
  if (bucket === undefined || more.length > 0 || typeof grant !== "number" || typeof amount !== "number")
    return null;
  return { grant, bucket, amount };
}

function grantOf([seq, amount, spent, held, isPayment, untilMs, ...more]: unknown[]): AdditionalGrant | null {
  if (typeof seq !== "number" || typeof amount !== "number" || typeof spent !== "number") return null;
  if (typeof held !== "number" || (untilMs !== null && typeof untilMs !== "number")) return null;
  if (more.length > 0 || (isPayment !== 0 && isPayment !== 1)) return null;
  return { seq, amount, spent, held, isPayment: isPayment === 1, untilMs };
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
    case "boolean?":
    case "texts":
    case "takings":
    case "grants":
      return type;
    default:
      return "oneOf";
  }
}

function misread(cell: unknown, { table, field }: Column): Error {
  return new Error(`the database holds ${String(cell)} where ${field} of ${table} should be`);
}
