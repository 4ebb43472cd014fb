/** The statements on operator keys, once for both stores. */
import type { OperatorKeyStore } from "./operator-keys.ts";
import type { SqlConnections } from "./queries.ts";
import { insertOf, type SqlDialect } from "./sql.ts";
import type { Table } from "./table.ts";
import { changeLogTable, operatorKeyTable } from "./tables.ts";

export function operatorKeysOn(
  { find, write }: SqlConnections,
  { parameter: p }: SqlDialect,
): OperatorKeyStore {
  const select = `select ${operatorKeyTable.list()} from operator_key`;
  const end = `update operator_key set ended_ms = ${p(1)} where id = ${p(2)} and ended_ms is null returning id`;
  /** Two nodes may do the same at the same time: both rows are written once. */
  const once = <R>(table: Table<R>, row: R) => {
    const { text, values } = insertOf(table, row, p);
    return { text: `${text} on conflict do nothing returning id`, values };
  };
  return {
    async add(row, change) {
      return (await write(once(operatorKeyTable, row), once(changeLogTable, change))).length === 1;
    },

    async find(hash) {
      const [cells] = await find("lookups", { text: `${select} where hash = ${p(1)}`, values: [hash] });
      return cells === undefined ? null : operatorKeyTable.rowOf(cells);
    },

    async list() {
      const rows = await find("service", { text: `${select} order by created_ms, id`, values: [] });
      return rows.map((cells) => operatorKeyTable.rowOf(cells));
    },

    async use(id, atMs) {
      await write({
        text: `update operator_key set used_ms = ${p(1)} where id = ${p(2)}`,
        values: [atMs, id],
      });
    },

    async end(id, atMs, change) {
      return (await write({ text: end, values: [atMs, id] }, once(changeLogTable, change))).length === 1;
    },
  };
}
