/**
 * Prepared statements of SQLite: they find rows of a table, or write them.
 *
 * The driver returns rows as arrays, which takes half the time of objects with a property for each
 * column. It throws a RangeError for integers beyond 2^53.
 */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import { accountOf, type ReadAccount } from "../account-rows.ts";
import type { SqlStatement } from "../sql.ts";
import { ListTooSlowError } from "../store.ts";
import type { Table } from "../table.ts";
import { accountTable } from "../tables.ts";

/** The cells of a row, in the order of its columns. */
export type Cells = readonly unknown[];

function prepare(db: DatabaseSync, sql: string): StatementSync {
  const statement = db.prepare(sql);
  statement.setReturnArrays(true);
  return statement;
}

function cellsOf(row: unknown): Cells {
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

/** Runs statements of any kind. */
export class Statements {
  readonly #db: DatabaseSync;
  readonly #named = new Map<string, StatementSync>();

  constructor(db: DatabaseSync) {
    this.#db = db;
  }

  rows({ name, text, values }: SqlStatement): Cells[] {
    const known = name === undefined ? undefined : this.#named.get(name);
    const statement = known ?? prepare(this.#db, text);
    if (name !== undefined) this.#named.set(name, statement);
    try {
      return statement.all(...values).map(cellsOf);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
    // A row is damaged, and has an amount beyond 2^53.
    const exact = prepare(this.#db, text);
    exact.setReadBigInts(true);
    return exact.all(...values).map((row) => cellsOf(row).map(numberIfExact));
  }
}

/**
 * Returns a function that runs statements, and throws a `ListTooSlowError` when one has read rows
 * for `limitMs`.
 *
 * node:sqlite cannot interrupt a statement. So each table is hidden by a view of the same name,
 * whose condition looks at the time for every row that is read. This takes 0.2 us. SQLite merges
 * the views into the statement, which uses the same indexes as before. Rows are sorted when all of
 * them are read: nothing stops that, and it can take about as long as reading them.
 */
export function rowsWithin(db: DatabaseSync, limitMs: number): Statements["rows"] {
  let endsMs = 0;
  db.function("is_in_time", () => {
    if (performance.now() < endsMs) return 1;
    throw new ListTooSlowError(limitMs);
  });
  const tables = db.prepare(
    "select name, wr from pragma_table_list where schema = 'main' and type = 'table' and name not like 'sqlite%'",
  );
  for (const { name, wr: isWithoutRowid } of tables.all()) {
    const columns = isWithoutRowid === 1 ? "*" : "rowid, *";
    db.exec(`create temp view ${name} as select ${columns} from main.${name} where is_in_time()`);
  }
  const statements = new Statements(db);
  return (statement) => {
    endsMs = performance.now() + limitMs;
    return statements.rows(statement);
  };
}

function numberIfExact(cell: unknown): unknown {
  return typeof cell === "bigint" && Number.isSafeInteger(Number(cell)) ? Number(cell) : cell;
}

/** Finds an account by its id, even if it was damaged. */
export function findAccount(statements: Statements, id: string): ReadAccount | undefined {
  const [cells] = statements.rows({ name: "account", text: selectAccount, values: [id] });
  return cells === undefined ? undefined : accountOf(cells);
}

const selectAccount = `select ${accountTable.list()} from account where id = ?`;

/** Returns a function that inserts a row. */
export function insertInto<R>(db: DatabaseSync, table: Table<R>): (row: R) => void {
  const names = table.columns.map((column) => column.name).join(", ");
  const marks = table.columns.map(() => "?").join(", ");
  const statement = db.prepare(`insert into ${table.name} (${names}) values (${marks})`);
  return (row) => void statement.run(...table.valuesOf(row));
}

/**
 * Returns a function that updates a row, and returns whether it exists. The key is not set, not
 * even to its own value: SQLite would search all rows that refer to it, which for an account is
 * its whole journal.
 */
export function update<R>(db: DatabaseSync, table: Table<R>, key: readonly string[]): (row: R) => boolean {
  const marked = table.columns.map(({ name }, index) => ({ name, equals: `${name} = ?${index + 1}` }));
  const set = marked.filter(({ name }) => !key.includes(name)).map(({ equals }) => equals);
  const where = marked.filter(({ name }) => key.includes(name)).map(({ equals }) => equals);
  const statement = db.prepare(`update ${table.name} set ${set.join(", ")} where ${where.join(" and ")}`);
  return (row) => statement.run(...table.valuesOf(row)).changes === 1;
}
