/**
 * The statements on events and their deliveries, once for both stores.
 *
 * Most statements write at most `rowsMax` rows, because SQLite has one writer, which commits
 * share.
 */
import type { EventType } from "../ledger/events.ts";
import { Conditions } from "./conditions.ts";
import {
  type ClaimedEvent,
  type EventStore,
  endpointColumns,
  expiringKeyColumns,
  type ListedDelivery,
  newEventId,
  type ServiceEvent,
} from "./events.ts";
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import { tableOf } from "./table.ts";
import { deliveryTable, eventTable } from "./tables.ts";

const rowsMax = 1000;
const keptEventsMax = 1_000_000;

const endpointTable = tableOf("endpoint", endpointColumns);
const expiringKeyTable = tableOf("expiring key", expiringKeyColumns);

/** Returns the statement that adds an event, unless there is one with its cause. */
export function eventInsertion(
  { parameter: p }: Pick<SqlDialect, "parameter">,
  { type, atMs, data, account, cause }: ServiceEvent,
): SqlStatement {
  const text = `insert into event (${eventTable.list()})
    values (${p(1)}, ${p(2)}, (select seq from account where id = ${p(2)}), ${p(3)}, ${p(4)}, ${p(5)}, ${p(6)})
    on conflict (cause) where cause is not null do nothing returning number`;
  return { text, values: [newEventId(), account, atMs, type, JSON.stringify(data), cause] };
}

export function eventQueriesOn({ find, findPage, write }: SqlConnections, dialect: SqlDialect): EventStore {
  const { parameter: p, items } = dialect;
  /** A cell of the rows that are passed as JSON. */
  const text = (index: number) => `e.value ->> ${index}`;
  const whole = (index: number) => `cast(e.value ->> ${index} as bigint)`;
  const numbers = `(select ${whole(0)} from ${items(p(1))})`;
  const fresh = `select number, account, type from event where not queued order by number limit ${rowsMax}`;
  const deliver = `insert into event_delivery (endpoint, number, account, state, attempts, next_ms, claimed_ms)
    select ${text(0)}, ${whole(1)}, ${text(2)}, 'pending', 0, 0, 0 from ${items(p(1))} where true
    on conflict (endpoint, number) do nothing`;
  const queued = `update event set queued = true where number in ${numbers}`;
  /** Steps from one account to the next in an index, past all the events between them. */
  const nextAccount = (condition: string) =>
    `(select min(account) from event_delivery where endpoint = ${p(1)} and state = 'pending' and ${condition})`;
  const firsts = `with recursive line (n, account) as (
      select 1, ${nextAccount(`account >= ${p(2)}`)}
      union all select n + 1, ${nextAccount("account > line.account")} from line
      where account is not null and n < ${p(3)}
    ) select l.account, d.number, d.next_ms, d.claimed_ms from line l join event_delivery d
    on d.endpoint = ${p(1)} and d.number = (select min(number) from event_delivery
      where endpoint = ${p(1)} and account = l.account and state = 'pending')
    where l.account is not null order by l.account`;
  // One process of several gets a row: the others wait for its write, and compare again.
  const claim = `update event_delivery set claimed_ms = ${p(4)} where endpoint = ${p(2)} and number in ${numbers}
    and state = 'pending' and next_ms <= ${p(3)} and claimed_ms <= ${p(3)} returning number`;
  const claimed = `select d.number, d.attempts, ${eventTable.list("e")}
    from event_delivery d join event e on e.number = d.number
    where d.endpoint = ${p(2)} and d.number in ${numbers} order by d.account`;
  const record = `update event_delivery set state = ${p(3)}, attempts = ${p(4)}, next_ms = ${p(5)}, claimed_ms = 0,
      tried_ms = ${p(6)}, status = ${p(7)}, answer = ${p(8)}
    where endpoint = ${p(1)} and number = ${p(2)} and state = 'pending'
      and (${p(3)} in ('delivered', 'skipped') or attempts = ${p(4)} - 1)`;
  // Events have no index of their ids, which are random and would cost each commit a page.
  const byId = `select number from event where id = ${p(1)}`;
  const sendAgain = `update event_delivery set state = 'pending', attempts = 0, next_ms = 0
    where endpoint = ${p(1)} and number = ${p(2)} returning number`;
  const failing = "state = 'pending' and next_ms > 0";
  const some = (condition: string) => `select * from (select number from event_delivery
    where endpoint = ${p(1)} and ${condition} limit ${rowsMax}) s`;
  const sendFailed = `update event_delivery set state = 'pending', attempts = 0, next_ms = 0
    where endpoint = ${p(1)} and number in (${some("state = 'dead'")} union all ${some(failing)}) returning number`;
  // The newest event stays, because the next one gets the number after it. None goes before those
  // with smaller numbers: `forget` would not see its deliveries, and they would wait for ever.
  const old = `with o as (select number, at_ms from event order by number limit ${rowsMax}),
    m as (select max(number) as newest from event) select number from o, m where number < newest
      and (number < coalesce((select min(number) from o where at_ms >= ${p(1)}), newest) or number <= newest - ${p(2)})`;
  // Also those that another process has added since their events were deleted.
  const forget = `with recursive endpoints (name) as (
      select min(endpoint) from event_delivery union all
      select (select min(endpoint) from event_delivery where endpoint > endpoints.name) from endpoints
      where name is not null
    ) delete from event_delivery where endpoint in (select name from endpoints) and number < (select min(number) from event)`;
  const remove = `delete from event where number in ${numbers}`;
  const counted = (condition: string) =>
    `(select count(*) from event_delivery where endpoint = e.name and ${condition})`;
  const endpoints = `select name, ${counted("state = 'pending'")}, ${counted("state = 'dead'")},
      ${counted(failing)}, (select min(next_ms) from event_delivery where endpoint = e.name and ${failing}),
      (select coalesce(status || ' ', '') || answer from event_delivery
        where endpoint = e.name and ${failing} order by tried_ms desc limit 1)
    from (select ${text(0)} as name from ${items(p(1))}) e order by name`;
  const deliveredSince = `select e.data from event_delivery d join event e on e.number = d.number
    where d.endpoint = ${p(1)} and d.account = ${p(2)} and d.state = 'delivered' and d.tried_ms > ${p(3)}
      and e.type = ${p(4)} order by d.number desc limit ${rowsMax}`;
  const expiring = `select ${expiringKeyTable.list("k")}
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

    async firsts(endpoint, account, limit) {
      const rows = await find("service", { text: firsts, values: [endpoint, account, limit] });
      return rows.map(([account, number, nextMs, claimedMs]) => ({
        account: String(account),
        number: Number(number),
        dueMs: Math.max(Number(nextMs), Number(claimedMs)),
      }));
    },

    async claim(endpoint, numbers, nowMs, untilMs) {
      const wanted = JSON.stringify(numbers.map((number) => [number]));
      const own = await write({ text: claim, values: [wanted, endpoint, nowMs, untilMs] });
      if (own.length === 0) return [];
      const rows = await find("service", { text: claimed, values: [JSON.stringify(own), endpoint] });
      return rows.map(([number, attempts, ...cells]): ClaimedEvent => {
        const { cause: _, ...event } = eventTable.rowOf(cells);
        return { ...event, number: Number(number), attempts: Number(attempts) };
      });
    },

    async record(endpoint, attempts) {
      const statements = attempts.map(({ number, state, attempts, nextMs, triedMs, status, answer }) => {
        return { text: record, values: [endpoint, number, state, attempts, nextMs, triedMs, status, answer] };
      });
      await write(...statements);
    },

    async sendAgain(endpoint, id) {
      const [found] = await findPage("history", { text: byId, values: [id] });
      if (found === undefined) return false;
      return (await write({ text: sendAgain, values: [endpoint, Number(found[0])] })).length === 1;
    },

    async sendFailed(endpoint) {
      for (let count = 0; ; ) {
        const { length } = await write({ text: sendFailed, values: [endpoint] });
        count += length;
        if (length < rowsMax) return count;
      }
    },

    async deliveries({ endpoint, account, state, after, limit }) {
      const { sql, values } = new Conditions(p)
        .and("d.endpoint = ?", endpoint)
        .and("d.account = ?", account)
        .and("d.state = ?", state)
        .and("d.number < ?", after)
        .page("d.number desc", limit);
      const text = `select ${deliveryTable.list("d")}, ${eventTable.list("e")}
        from event_delivery d join event e on e.number = d.number${sql}`;
      return (await findPage("history", { text, values })).map((cells): ListedDelivery => {
        const event = eventTable.rowOf(cells, deliveryTable.columns.length);
        const { id, seq, atMs, type, data } = event;
        return { ...deliveryTable.rowOf(cells), id, seq, atMs, type, data };
      });
    },

    async endpoints(of) {
      const list = JSON.stringify(of.map(({ name }) => [name]));
      const rows = await find("service", { text: endpoints, values: [list] });
      return rows.map((cells) => endpointTable.rowOf(cells));
    },

    async deliveredSince({ endpoint, account, type }, sinceMs) {
      const values = [endpoint, account, sinceMs, type];
      return (await find("service", { text: deliveredSince, values })).map(([data]) => String(data));
    },

    async prune(beforeMs) {
      const rows = await find("service", { text: old, values: [beforeMs, keptEventsMax] });
      const list = JSON.stringify(rows.map(([number]) => [number]));
      await write({ text: remove, values: [list] }, { text: forget, values: [] });
      return rows.length === rowsMax;
    },

    async keysExpiring(afterMs, untilMs) {
      const rows = await findPage("lists", { text: expiring, values: [afterMs, untilMs] });
      return rows.map((cells) => expiringKeyTable.rowOf(cells));
    },
  };
}
