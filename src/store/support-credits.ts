/**
 * What support has given today, for each maker of its rights: a counter, so that all keys and all
 * nodes share one limit. It only ever counts too much: credits are counted before they are given.
 */
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import type { SupportCredits } from "./store.ts";

const dayMs = 86_400_000;
/** Days for which counters are kept. */
const keptDays = 7;

export function supportCreditsOn(
  { find, write }: SqlConnections,
  { parameter: p }: SqlDialect,
): SupportCredits {
  const remove = `delete from support_credit where by = ${p(1)} and day < ${p(2)}`;
  // Of two nodes, the second one waits for the row and adds to what the first one has counted.
  const given = `cast(${p(3)} as bigint)`;
  const most = `cast(${p(4)} as bigint)`;
  const add = `insert into support_credit (by, day, given)
    select cast(${p(1)} as text), cast(${p(2)} as bigint), ${given} where ${given} <= ${most}
    on conflict (by, day) do update set given = support_credit.given + excluded.given
      where support_credit.given + excluded.given <= ${most}
    returning given`;
  const takeBack = `update support_credit set given = given - ${p(3)} where by = ${p(1)} and day = ${p(2)}`;
  return {
    async count(by, amountMicro, { mostMicro, atMs }) {
      const day = Math.floor(atMs / dayMs);
      const counted = { text: add, values: [by, day, amountMicro, mostMicro] };
      const old = { text: remove, values: [by, day - keptDays] };
      return (await write(counted, old)).length === 1;
    },
    async isDone(op) {
      const text = `select account from journal where op = ${p(1)}`;
      return (await find("service", { text, values: [op] })).length > 0;
    },
    async uncount(by, amountMicro, atMs) {
      await write({ text: takeBack, values: [by, Math.floor(atMs / dayMs), amountMicro] });
    },
  };
}
