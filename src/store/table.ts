/**
 * Converts between rows and the cells of a database, from the description of a table.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws.
 */
import { invariant } from "../errors.ts";
import type { Columns, ColumnType, Group, RowOf } from "../ledger/columns.ts";
import { snakeCased } from "../ledger/fact-values.ts";

export interface Column {
  /** The field in snake case, without `_micro`: all amounts of a database are micro-credits. */
  readonly name: string;
  readonly field: string;
  readonly table: string;
  readonly type: ColumnType;
  /** The cells of an item, if it is a list of items. */
  readonly items: Table<object> | null;
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
 * (docs/decisions/0033). `made`: columns that are written with the row, and are no field of it.
 */
export function tableOf<const C extends Columns>(
  name: string,
  types: C,
  made: Readonly<Record<string, (row: RowOf<C>) => string>> = {},
): Table<RowOf<C>> {
  const columns: Column[] = [];
  const reads: string[] = [];
  const writes: string[] = [];
  const add = (field: string, type: ColumnType, name_: string): string => {
    const items = isItems(type) ? tableOf(`${field} of ${name}`, type.items) : null;
    const n = columns.push({ name: columnOf(name_), field, table: name, type, items }) - 1;
    return `read["${decoderOf(type)}"](cells[from + ${n}], columns[${n}])`;
  };
  for (const [field, type] of Object.entries<ColumnType | Group>(types)) {
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
    const none = `read.none(cells, from + ${first + 1}, columns, ${first + 1}, ${columns.length})`;
    reads.push(
      `${field}: ${type.isNullable ? `cells[from + ${first}] === null ? ${none} : ${object}` : object}`,
    );
  }
  for (const column of Object.keys(made)) {
    columns.push({ name: column, field: column, table: name, type: "text", items: null });
    writes.push(`made["${column}"](row)`);
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
    valuesOf: new Function("writers", "columns", "made", `return (row) => [${writes.join(", ")}]`)(
      writers,
      columns,
      made,
    ),
  };
}

function isGroup(type: ColumnType | Group): type is Group {
  return typeof type === "object" && "columns" in type;
}

function isItems(type: ColumnType): type is Extract<ColumnType, { items: unknown }> {
  return typeof type === "object" && "items" in type;
}

/** Returns some of the columns, in the order of their names here. */
export function pick<C extends Columns, F extends keyof C>(columns: C, ...fields: readonly F[]): Pick<C, F> {
  return Object.fromEntries(fields.map((field) => [field, columns[field]])) as Pick<C, F>;
}

export function columnOf(field: string): string {
  return snakeCased(field.replace(/Micro$/, ""));
}

/** The code that makes the cell of a value. */
function writerOf(value: string, type: ColumnType, column: number): string {
  if (isItems(type)) return `writers.items(${value}, columns[${column}])`;
  if (type === "boolean") return `${value} ? 1 : 0`;
  if (type === "boolean?") return `${value} === null ? null : ${value} ? 1 : 0`;
  if (type === "texts") return `JSON.stringify(${value})`;
  const isNullable = typeof type === "string" ? type.endsWith("?") : type.includes(null);
  return isNullable ? `(${value} ?? writers.nullOf(${value}, columns[${column}]))` : value;
}

const decoders = {
  /** A nullable object that is null: so are its columns after the first, up to `end`. */
  none(cells: readonly unknown[], from: number, columns: readonly Column[], first: number, end: number) {
    for (let n = first; n < end; n += 1) {
      const [cell, column] = [cells[from + n - first], columns[n]];
      if (cell !== null && column !== undefined) throw misread(cell, column);
    }
    return null;
  },
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
  /** Null, or the JSON of a list of rows. */
  items(cell: unknown, column: Column): readonly object[] {
    if (cell === null || column.items === null) return nothing;
    const { columns, rowOf } = column.items;
    const items: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
    if (!Array.isArray(items)) throw misread(cell, column);
    return items.map((cells: unknown) => {
      if (!Array.isArray(cells) || cells.length !== columns.length) throw misread(cell, column);
      return rowOf(cells);
    });
  },
  oneOf(cell: unknown, column: Column): unknown {
    if (!(column.type as readonly unknown[]).includes(cell)) throw misread(cell, column);
    return cell;
  },
};

const writers = {
  /** Arrays, because an account has up to 16 grants in its row, and every commit writes it. */
  items: (items: readonly object[], { items: table }: Column) =>
    items.length === 0 ? null : JSON.stringify(items.map((item) => table?.valuesOf(item))),
  /**
   * Both drivers bind undefined as null, so they would write a row without one of its fields. The
   * database refuses null in the other columns.
   */
  nullOf(value: unknown, { table, field }: Column): null {
    invariant(value === null, () => `a row of ${table} has no ${field}`);
    return null;
  },
};

const nothing: readonly never[] = [];

function decoderOf(type: ColumnType): keyof typeof decoders {
  if (isItems(type)) return "items";
  if (typeof type === "object") return "oneOf";
  switch (type) {
    case "text":
    case "text?":
    case "boolean":
    case "boolean?":
    case "texts":
      return type;
    default:
      return type.endsWith("?") ? "number?" : "number";
  }
}

function misread(cell: unknown, { table, field }: Column): Error {
  return new Error(`the database holds ${String(cell)} where ${field} of ${table} should be`);
}
