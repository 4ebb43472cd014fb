/** The statements about stopped requests, for both stores. */
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import type { StopRequests } from "./store.ts";

/** Rows are deleted after this time. Every process has looked at them by then. */
const keptMs = 600_000;

export function stopRequestsOn({ find, write }: SqlConnections, { parameter: p }: SqlDialect): StopRequests {
  const remove = `delete from stop_request where at_ms < ${p(1)}`;
  const add = `insert into stop_request (id, at_ms) select id, ${p(2)} from hold where id = ${p(1)}
    on conflict (id) do update set at_ms = excluded.at_ms returning id`;
  const since = `select id from stop_request where at_ms >= ${p(1)}`;
  const openUntil = `select expires_ms from hold where id = ${p(1)}`;
  return {
    async add(requestId, nowMs) {
      await write({ text: remove, values: [nowMs - keptMs] });
      return (await write({ text: add, values: [requestId, nowMs] })).length > 0;
    },
    async since(sinceMs) {
      return (await find("service", { text: since, values: [sinceMs] })).map(([id]) => String(id));
    },
    async openUntil(requestId) {
      const [cells] = await find("service", { text: openUntil, values: [requestId] });
      return cells === undefined ? null : Number(cells[0]);
    },
  };
}
