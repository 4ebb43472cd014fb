/**
 * Statements that write rows of one table on PostgreSQL, any number of rows with one statement.
 *
 * Guarantees that an update or a deletion fails unless it finds every row.
 */
import type { Table } from "../table.ts";
import type { Statement } from "./exchange.ts";
import { arraysOf, onlyRow, readFrom, unnest } from "./rows.ts";

/** Writes all rows with one statement. Null if the list is empty. */
type Writing<R> = (rows: readonly R[]) => Statement | null;

/** Columns of an index that finds a row, and those of its key that are compared then. */
interface Key {
  unique: readonly string[];
  more?: readonly string[];
}

export function insertInto<R>(table: Table<R>): Writing<R> {
  const { name } = table;
  const cells = table.columns.map(readFrom).join(", ");
  const textFrom = (rows: string) =>
    `insert into ${name} (${table.list()}) select ${cells} from ${rows} as n(${table.list()})`;
  return writing(`insert ${name}`, table, textFrom, (rows) => arraysOf(table, rows));
}

/**
 * The key is not set, not even to its own value: no index changes, and sessions with rows that
 * refer to it do not wait. `name` tells updates of one table apart.
 */
export function update<R>(table: Table<R>, key: Key, name = table.name): Writing<R> {
  const { unique, more = [] } = key;
  const set = table.columns.filter(({ name }) => ![...unique, ...more].includes(name));
  const cells = set.map((column) => `${column.name} = ${readFrom(column)}`).join(", ");
  return expecting(`update ${name}`, table, { verb: `update ${table.name} t set ${cells} from`, key });
}

export function deletion<R>(table: Table<R>, key: Key): Writing<R> {
  return expecting(`delete ${table.name}`, table, { verb: `delete from ${table.name} t using`, key });
}

/**
 * The last parameter is the number of rows that must be written, in case they changed after they
 * were read. The rows are found first, each by its key (`offset 0`, as in read-under-lock.ts), and
 * written where they were found: the lock of their account keeps them there.
 */
function expecting<R>(
  name: string,
  table: Table<R>,
  { verb, key: { unique, more = [] } }: { verb: string; key: Key },
): Writing<R> {
  const equal = (one: string, other: string) => (column: string) => `${one}.${column} = ${other}.${column}`;
  const found = ["ctid as place", ...more].join(", ");
  const textFrom = (rows: string) => `
    with written as (
      ${verb} ${rows} as n(${table.list()}) cross join lateral (
        select ${found} from ${table.name} k where ${unique.map(equal("k", "n")).join(" and ")} offset 0
      ) f where ${["t.ctid = f.place", ...more.map(equal("f", "n"))].join(" and ")} returning 1
    )
    select expect_rows(count(*), $${table.columns.length + 1}::bigint, '${table.name}') from written`;
  const valuesOf = (rows: readonly R[]) => [...arraysOf(table, rows), rows.length];
  return writing(name, table, textFrom, valuesOf);
}

/** A single row has a statement of its own, which takes less time. */
function writing<R>(
  name: string,
  table: Table<R>,
  textFrom: (rows: string) => string,
  valuesOf: (rows: readonly R[]) => unknown[],
): Writing<R> {
  const many = { name, text: textFrom(unnest(table)) };
  const one = { name: `${name}, one row`, text: textFrom(onlyRow(table)) };
  return (rows) =>
    rows.length === 0 ? null : { ...(rows.length === 1 ? one : many), values: valuesOf(rows) };
}
