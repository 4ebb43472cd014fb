/**
 * The statements on events and their deliveries, once for both stores.
 *
 * Most statements write at most `rowsMax` rows, because SQLite has one writer, which commits
 * share.
 */
import type { EventType } from "../ledger/events.ts";
import { pageSize } from "./conditions.ts";
import {
  type DueEvent,
  type EventStore,
  type ListedDelivery,
  newEventId,
  type ServiceEvent,
} from "./events.ts";
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import { deliveryTable, endpointTable, eventTable } from "./tables.ts";

const rowsMax = 1000;
const keptEventsMax = 1_000_000;

/** Returns the statement that adds an event, unless there is one with its cause. */
export function eventInsertion(
  { parameter: p }: SqlDialect,
  { type, atMs, data, account, cause }: ServiceEvent,
): SqlStatement {
  const text = `insert into event (${eventTable.list()})
    values (${p(1)}, ${p(2)}, (select seq from account where id = ${p(2)}), ${p(3)}, ${p(4)}, ${p(5)}, ${p(6)})
    on conflict (cause) where cause is not null do nothing returning number`;
  return { text, values: [newEventId(), account, atMs, type, JSON.stringify(data), cause] };
}

export function eventQueriesOn({ find, findPage, write }: SqlConnections, dialect: SqlDialect): EventStore {
  const { parameter: p, items } = dialect;
  /**
   * Compares an endpoint so that no index of all its deliveries is used. Without statistics,
   * SQLite prefers such an index to one of the few that wait: 500 waiting events then took 0.5 s.
   */
  const isOf = (endpoint: string, parameter: string) => `coalesce(${endpoint}, '') = ${parameter}`;
  /** A cell of the rows that are passed as JSON. */
  const text = (index: number) => `e.value ->> ${index}`;
  const whole = (index: number) => `cast(e.value ->> ${index} as bigint)`;
  const numbers = `(select ${whole(0)} from ${items(p(1))})`;
  const fresh = `select number, account, type from event where not queued order by number limit ${rowsMax}`;
  const deliver = `insert into event_delivery (endpoint, number, account, state, attempts, next_ms)
    select ${text(0)}, ${whole(1)}, ${text(2)}, 'pending', 0, 0 from ${items(p(1))} where true
    on conflict (endpoint, number) do nothing`;
  const queued = `update event set queued = true where number in ${numbers}`;
  const lead = `insert into event_endpoint (name, node, lease_ms, failures, next_ms)
    values (${p(1)}, ${p(2)}, ${p(3)}, 0, 0)
    on conflict (name) do update set node = excluded.node, lease_ms = excluded.lease_ms
    where event_endpoint.lease_ms <= ${p(4)} or event_endpoint.node = excluded.node
    returning ${endpointTable.list()}`;
  const endpoint = `select ${endpointTable.list()} from event_endpoint where name = ${p(1)}`;
  const release = `update event_endpoint set lease_ms = 0 where name = ${p(1)} and node = ${p(2)}`;
  const due = `select e.number, d.attempts, d.tried_ms, ${eventTable.list("e")}
    from event_delivery d join event e on e.number = d.number
    where ${isOf("d.endpoint", p(1))} and d.state = 'pending' and d.account not in (
      select b.account from event_delivery b
      where ${isOf("b.endpoint", p(1))} and b.state = 'pending' and b.next_ms > 0 and b.next_ms > ${p(2)}
    ) order by d.number limit ${p(3)}`;
  // As an insertion it begins with the rows of the parameter, and finds each delivery by its key.
  const record = `insert into event_delivery (${deliveryTable.list()})
    select ${p(2)}, ${whole(0)}, ${text(1)}, ${text(2)}, ${whole(3)}, ${whole(4)}, ${whole(5)}, ${whole(6)}, ${text(7)}
    from ${items(p(1))} where exists (select 1 from event where number = ${whole(0)})
    on conflict (endpoint, number) do update set state = excluded.state, attempts = excluded.attempts,
      next_ms = excluded.next_ms, tried_ms = excluded.tried_ms, status = excluded.status, answer = excluded.answer
    where event_delivery.state = 'pending'
      and (excluded.state in ('delivered', 'skipped') or event_delivery.attempts = excluded.attempts - 1)`;
  const setEndpoint = `update event_endpoint set failures = ${p(1)}, failing_ms = ${p(2)}, next_ms = ${p(3)},
    parked_ms = ${p(4)}, problem = ${p(5)} where name = ${p(6)} and node = ${p(7)}
      and failures = ${p(8)} and failing_ms is not distinct from ${p(9)} returning name`;
  const retrySetAside = `update event_delivery set state = 'pending', attempts = 0, next_ms = 0
    where endpoint = ${p(1)} and state = 'set_aside' and tried_ms >= ${p(2)}`;
  const resume = `update event_endpoint set failures = 0, failing_ms = null, next_ms = 0, parked_ms = null
    where name = ${p(1)} returning name`;
  const retryUnanswered = `update event_delivery set next_ms = 0 where ${isOf("endpoint", p(1))} and state = 'pending'
    and next_ms > 0 and attempts <= ${p(2)} and (status is null or status = 429 or status >= 500)`;
  const retryNow = `update event_delivery set next_ms = 0, attempts = 0
    where ${isOf("endpoint", p(1))} and state = 'pending' and next_ms > 0`;
  const replay = `insert into event_delivery (endpoint, number, account, state, attempts, next_ms)
    select ${text(0)}, ${whole(1)}, ${text(2)}, 'pending', 0, 0 from ${items(p(1))} where true
    on conflict (endpoint, number) do update set state = 'pending', attempts = 0, next_ms = 0
    where event_delivery.state <> 'pending'`;
  const between = `select number, account, type from event
    where number > ${p(1)} and at_ms >= ${p(2)} and at_ms < ${p(3)} order by number limit ${rowsMax}`;
  // The newest event stays, because the next one gets the number after it.
  const old = `select number from (select number, at_ms from event order by number limit ${rowsMax}) o
    where (at_ms < ${p(1)} or number <= (select max(number) from event) - ${p(2)})
      and number < (select max(number) from event)`;
  // Also those that another process has added since their events were deleted.
  const forget = `delete from event_delivery where number < (select min(number) from event)
    and endpoint in (select name from event_endpoint)`;
  const remove = `delete from event where number in ${numbers}`;
  const endpoints = `select ${endpointTable.list("o")},
      (select count(*) from event_delivery d where ${isOf("d.endpoint", "o.name")} and d.state = 'pending'),
      (select count(*) from event_delivery d where d.endpoint = o.name and d.state = 'set_aside')
    from event_endpoint o order by o.name`;
  const deliveredSince = `select e.data from event_delivery d join event e on e.number = d.number
    where d.endpoint = ${p(1)} and d.account = ${p(2)} and d.state = 'delivered' and d.tried_ms > ${p(3)}
      and e.type = ${p(4)} order by d.number desc limit ${rowsMax}`;
  const expiring = `select k.account, k.id, k.name, k.expires_ms
    from api_key k join account a on a.id = k.account
    where k.expires_ms > ${p(1)} and k.expires_ms <= ${p(2)} and k.revoked_ms is null and a.state <> 'closed'
    order by k.expires_ms, k.id`;

  return {
    async add(event) {
      return (await write(eventInsertion(dialect, event))).length === 1;
    },

    async queue(wanted) {
      const rows = await find("service", { text: fresh, values: [] });
      if (rows.length === 0) return false;
      const deliveries = wanted.flatMap(({ name, types }) =>
        rows
          .filter(([, , type]) => types.has(type as EventType))
          .map(([number, account]) => [name, number, account ?? ""]),
      );
      if (deliveries.length > 0) await write({ text: deliver, values: [JSON.stringify(deliveries)] });
      await write({ text: queued, values: [JSON.stringify(rows.map(([number]) => [number]))] });
      return rows.length === rowsMax;
    },

    async lead({ name, node, leaseMs }, nowMs) {
      const [cells] = await write({ text: lead, values: [name, node, leaseMs, nowMs] });
      return cells === undefined ? null : endpointTable.rowOf(cells);
    },

    async endpoint(name) {
      const [cells] = await find("service", { text: endpoint, values: [name] });
      return cells === undefined ? null : endpointTable.rowOf(cells);
    },

    async release(name, node) {
      await write({ text: release, values: [name, node] });
    },

    async due(endpoint, nowMs, limit) {
      const rows = await find("service", { text: due, values: [endpoint, nowMs, pageSize(limit)] });
      return rows.map(([number, attempts, triedMs, ...cells]): DueEvent => {
        const { cause: _, ...event } = eventTable.rowOf(cells);
        const tried = triedMs === null ? null : Number(triedMs);
        return { ...event, number: Number(number), attempts: Number(attempts), triedMs: tried };
      });
    },

    async record(endpoint, attempts) {
      if (attempts.length === 0) return;
      const rows = attempts.map((row) => [
        ...[row.number, row.account, row.state, row.attempts],
        ...[row.nextMs, row.triedMs, row.status, row.answer],
      ]);
      await write({ text: record, values: [JSON.stringify(rows), endpoint] });
    },

    async setEndpoint({ name, node, failures, failingMs, nextMs, parkedMs, problem }, read) {
      const values = [failures, failingMs, nextMs, parkedMs, problem, name, node];
      const asRead = [read.failures, read.failingMs];
      return (await write({ text: setEndpoint, values: [...values, ...asRead] })).length === 1;
    },

    async retrySetAside(endpoint, sinceMs) {
      await write({ text: retrySetAside, values: [endpoint, sinceMs] });
    },

    async retryUnanswered(endpoint, attemptsMax) {
      await write({ text: retryUnanswered, values: [endpoint, attemptsMax] });
    },

    async resume(name) {
      if ((await write({ text: resume, values: [name] })).length === 0) return false;
      await write({ text: retryNow, values: [name] });
      return true;
    },

    async replay({ name, types, fromMs, toMs }) {
      let count = 0;
      for (let after = 0; ; ) {
        const rows = await findPage("history", { text: between, values: [after, fromMs, toMs] });
        const chosen = rows.filter(([, , type]) => types.has(type as EventType));
        const again = chosen.map(([number, account]) => [name, number, account ?? ""]);
        if (again.length > 0) await write({ text: replay, values: [JSON.stringify(again)] });
        count += again.length;
        if (rows.length < rowsMax) return count;
        after = Number(rows.at(-1)?.[0]);
      }
    },

    async deliveries({ endpoint, account, state, after, limit }) {
      const values = [endpoint, account ?? null, state ?? null, after ?? null, pageSize(limit)];
      const text = `select ${deliveryTable.list("d")}, ${eventTable.list("e")}
        from event_delivery d join event e on e.number = d.number
        where d.endpoint = ${p(1)} and (cast(${p(2)} as text) is null or d.account = ${p(2)})
          and (cast(${p(3)} as text) is null or d.state = ${p(3)})
          and (cast(${p(4)} as bigint) is null or d.number < ${p(4)})
        order by d.number desc limit ${p(5)}`;
      return (await findPage("history", { text, values })).map((cells): ListedDelivery => {
        const event = eventTable.rowOf(cells, deliveryTable.columns.length);
        const { id, seq, atMs, type, data } = event;
        return { ...deliveryTable.rowOf(cells), id, seq, atMs, type, data };
      });
    },

    async endpoints() {
      return (await find("service", { text: endpoints, values: [] })).map((cells) => {
        const [pending, setAside] = cells.slice(endpointTable.columns.length).map(Number);
        return { ...endpointTable.rowOf(cells), pending: pending ?? 0, setAside: setAside ?? 0 };
      });
    },

    async deliveredSince({ endpoint, account, type }, sinceMs) {
      const values = [endpoint, account, sinceMs, type];
      return (await find("service", { text: deliveredSince, values })).map(([data]) => String(data));
    },

    async prune(beforeMs) {
      const rows = await find("service", { text: old, values: [beforeMs, keptEventsMax] });
      if (rows.length === 0) return false;
      const list = JSON.stringify(rows.map(([number]) => [number]));
      await write({ text: remove, values: [list] }, { text: forget, values: [] });
      return rows.length === rowsMax;
    },

    async keysExpiring(afterMs, untilMs) {
      const rows = await findPage("lists", { text: expiring, values: [afterMs, untilMs] });
      return rows.map(([account, id, name, expiresMs]) => ({
        account: String(account),
        id: String(id),
        name: name === null ? null : String(name),
        expiresMs: Number(expiresMs),
      }));
    },
  };
}
