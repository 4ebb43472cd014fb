/** The statements on operator keys, once for both stores. */
import type { OperatorKeyStore } from "./operator-keys.ts";
import type { SqlConnections } from "./queries.ts";
import { insertOnce, type SqlDialect } from "./sql.ts";
import { changeLogTable, operatorKeyTable } from "./tables.ts";

export function operatorKeysOn(
  { find, write }: SqlConnections,
  { parameter: p }: SqlDialect,
): OperatorKeyStore {
  const select = `select ${operatorKeyTable.list()} from operator_key`;
  const end = `update operator_key set ended_ms = ${p(1)} where id = ${p(2)} and ended_ms is null returning id`;
  return {
    // Two nodes may do the same at the same time: both rows are written once.
    async add(row, change) {
      const key = insertOnce(operatorKeyTable, row, p);
      return (await write(key, insertOnce(changeLogTable, change, p))).length === 1;
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
      const log = insertOnce(changeLogTable, change, p);
      return (await write({ text: end, values: [atMs, id] }, log)).length === 1;
    },
  };
}
