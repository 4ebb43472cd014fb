/**
 * Daily counts: the credits that support gives, and the accounts that front ends open. A count
 * only ever has too much, because it is changed before what it counts.
 */

import { dayMs } from "../units.ts";
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import type { DailyCounts } from "./store.ts";

/** Days for which counters are kept. */
const keptDays = 7;

export function dailyCountsOn({ find, write }: SqlConnections, { parameter: p }: SqlDialect): DailyCounts {
  const remove = `delete from daily_count where name = ${p(1)} and day < ${p(2)}`;
  // Of two nodes, the second one waits for the row and adds to what the first one has counted.
  const added = `cast(${p(3)} as bigint)`;
  const limit = `cast(${p(4)} as bigint)`;
  const add = `insert into daily_count (name, day, counted)
    select cast(${p(1)} as text), cast(${p(2)} as bigint), ${added} where ${added} <= ${limit}
    on conflict (name, day) do update set counted = daily_count.counted + excluded.counted
      where daily_count.counted + excluded.counted <= ${limit}
    returning counted`;
  const takeBack = `update daily_count set counted = counted - ${p(3)} where name = ${p(1)} and day = ${p(2)}`;
  return {
    async count(name, amount, { most, atMs }) {
      const day = Math.floor(atMs / dayMs);
      const counted = { text: add, values: [name, day, amount, most] };
      const old = { text: remove, values: [name, day - keptDays] };
      return (await write(counted, old)).length === 1;
    },
    async isDone(op) {
      const text = `select account from journal where op = ${p(1)}`;
      return (await find("service", { text, values: [op] })).length > 0;
    },
    async uncount(name, amount, atMs) {
      await write({ text: takeBack, values: [name, Math.floor(atMs / dayMs), amount] });
    },
  };
}
