/** The statements about stopped requests, for both stores. */
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import type { StopRequests } from "./store.ts";

/** Rows are deleted after this time. Every process has looked at them by then. */
const keptMs = 600_000;

export function stopRequestsOn({ find, write }: SqlConnections, { parameter: p }: SqlDialect): StopRequests {
  const remove = `delete from stop_request where at_ms < ${p(1)}`;
  const add = `insert into stop_request (id, by, at_ms) select id, ${p(3)}, ${p(2)} from hold where id = ${p(1)}
    on conflict (id) do update set at_ms = excluded.at_ms returning id`;
  const since = `select id, by from stop_request where at_ms >= ${p(1)}`;
  const holdOf = `select account, key from hold where id = ${p(1)}`;
  return {
    async add({ id, by }, nowMs) {
      await write({ text: remove, values: [nowMs - keptMs] });
      return (await write({ text: add, values: [id, nowMs, by] })).length > 0;
    },
    async since(sinceMs) {
      const rows = await find("service", { text: since, values: [sinceMs] });
      return rows.map(([id, by]) => ({ id: String(id), by: String(by) }));
    },
    async holdOf(requestId) {
      const [cells] = await find("service", { text: holdOf, values: [requestId] });
      return cells === undefined ? null : { account: String(cells[0]), key: String(cells[1]) };
    },
  };
}
