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
export function update<R>(table: Table<R>, key: readonly string[], name = table.name): Writing<R> {
  const set = table.columns.filter((column) => !key.includes(column.name));
  const cells = set.map((column) => `${column.name} = ${readFrom(column)}`).join(", ");
  return expecting(`update ${name}`, table, { verb: `update ${table.name} t set ${cells} from`, key });
}

export function deletion<R>(table: Table<R>): Writing<R> {
  const key = table.columns.map((column) => column.name);
  return expecting(`delete ${table.name}`, table, { verb: `delete from ${table.name} t using`, key });
}

/**
 * The last parameter is the number of rows that must be written, in case they changed after they
 * were read. The rows are found first, each by its key (`limit`, as in read-under-lock.ts), and
 * written at the place where they were found: the lock of their account keeps them there.
 */
function expecting<R>(
  name: string,
  table: Table<R>,
  { verb, key }: { verb: string; key: readonly string[] },
): Writing<R> {
  const where = key.map((column) => `k.${column} = n.${column}`).join(" and ");
  const textFrom = (rows: string) => `
    with written as (
      ${verb} (
        select found.place, n.* from ${rows} as n(${table.list()})
        cross join lateral (select k.ctid as place from ${table.name} k where ${where} limit 1) found
      ) n where t.ctid = n.place returning 1
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
