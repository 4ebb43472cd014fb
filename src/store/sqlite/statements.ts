/**
 * Runs statements of SQLite of any kind, within a time limit for lists. Reads accounts that were
 * damaged.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { accountRowIn, type ReadAccount } from "../account-rows.ts";
import type { SqlStatement } from "../sql.ts";
import { ListTooSlowError } from "../store.ts";
import { accountTable } from "../tables.ts";
import { type Cells, cellsOf, prepare } from "./query.ts";

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
  return cells === undefined ? undefined : accountRowIn(cells);
}

const selectAccount = `select ${accountTable.list()} from account where id = ?`;
