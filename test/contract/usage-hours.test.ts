/**
 * Usage by the hour on every store: each charge counts once, in the hour of its time, before and
 * after it is summed.
 */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { ChargeRow } from "../../src/ledger/rows.ts";
import type { Store } from "../../src/store/store.ts";
import { graphHoursMax, type UsageHour, type UsageHoursQuery } from "../../src/store/usage-hours.ts";
import type { UsageSum } from "../../src/store/usage-measures.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("daily", 1000, 1000));

for (const backend of backends) {
  describe(`usage by the hour on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let requests = 0;
    beforeEach(async () => {
      database = backend.create(plans);
      store = await database.open();
      for (const account of ["ada", "bob"]) {
        await store.commit([{ kind: "open", account, plan: "daily", by: "test" }]);
        await addKey(store, keyOf(`key-${account}`, account));
      }
      await addKey(store, keyOf("key-second", "ada", { hash: "1".repeat(64) }));
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    async function request(account: string, model: string, tokens: number, key = `key-${account}`) {
      requests += 1;
      const id = `hold-${requests}`;
      await store.commit([hold(id, tokens, { account, key, model })]);
      await store.commit([settle(id, tokens, { account })]);
    }

    /** Requests of several hours, with an hour in between that has none. */
    async function someHours() {
      for (const at of [0, 1, 3, 4]) {
        database.clock.advance(at === 0 ? 0 : hour);
        if (at === 3) database.clock.advance(hour);
        await request("ada", "small", 10 + at);
        database.clock.advance(5 * minute);
        await request("ada", "large", 100 + at);
        await request("ada", "small", 10_000 + at, "key-second");
        await request("bob", "small", 1000 + at);
      }
    }

    async function sumAll() {
      while (await store.sumUsage("UTC"));
    }

    const present = () => Math.floor(database.clock.get() / hour) + 1;

    async function assertHours() {
      const charges = await store.usage({ limit: 1000 });
      const to = present();
      const filters: Partial<UsageHoursQuery>[] = [
        {},
        { account: "ada" },
        { model: "small" },
        { account: "bob", model: "small" },
        { account: "bob", model: "large" },
        { account: "ada", key: "key-ada" },
        { account: "ada", key: "key-second" },
        { key: "key-second" },
        { key: "key-ada", model: "large" },
        { account: "bob", key: "key-ada" },
        { key: "key-unknown" },
        { from: to - 2, to: to - 1 },
        { from: to, to: to + 5 },
      ];
      for (const filter of filters) {
        for (const byModel of [false, true]) {
          const query = { from: to - graphHoursMax, to, byModel, ...filter };
          assert.deepEqual(await store.usageHours(query), hoursOf(charges, query), JSON.stringify(query));
        }
      }
    }

    test("is what its charges add up to, summed or not", async () => {
      await someHours();
      await assertHours();
      const all = { from: 0, to: present(), byModel: false };
      const costs = (await store.usageHours(all)).map((row) => [row.hour - start / hour, row.costMicro]);
      assert.deepEqual(costs, [
        [0, 11_110],
        [1, 11_114],
        [3, 11_122],
        [4, 11_126],
      ]);
      database.clock.advance(day);
      await sumAll();
      const [{ n } = {}] = await database.sql(
        "select sum(requests) as n from usage_sum where unit = 'hour' and account = ''",
      );
      assert.equal(Number(n), 16);
      await assertHours();
      await someHours();
      await assertHours();
      database.clock.advance(day);
      await sumAll();
      await assertHours();
    });

    test("is deleted when it is older than the longest graph", async () => {
      await someHours();
      database.clock.advance(day);
      await sumAll();
      database.clock.advance(6 * day);
      await request("ada", "small", 5);
      await sumAll();
      await assertHours();
      const count = async () =>
        Number((await database.sql("select count(*) as n from usage_sum where unit = 'hour'"))[0]?.n);
      assert.ok((await count()) > 4, "a graph still needs the first hours");
      database.clock.advance(3 * day);
      await sumAll();
      await assertHours();
      assert.equal(await count(), 3, "the hour of the key, of ada, and of all accounts");
      database.clock.advance(9 * day);
      await sumAll();
      assert.equal(await count(), 0);
    });
  });
}

/** Sums charges by hour, as every store sums them. */
function hoursOf(charges: readonly ChargeRow[], query: UsageHoursQuery): UsageHour[] {
  const { from, to, account, model, key, byModel } = query;
  const hourOf = (row: ChargeRow) => Math.floor(row.atMs / hour);
  const found = charges.filter(
    (row) =>
      hourOf(row) >= from &&
      hourOf(row) < to &&
      (account === undefined || row.account === account) &&
      (key === undefined || row.key === key) &&
      (model === undefined || row.model === model),
  );
  const groups = Map.groupBy(found, (row) => `${hourOf(row)}\n${byModel ? row.model : ""}`);
  return [...groups]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, members]) => {
      const [at, of = ""] = name.split("\n");
      return { hour: Number(at), model: byModel ? of : null, ...sumOf(members) };
    });
}

function sumOf(charges: readonly ChargeRow[]): UsageSum {
  const sum = (of: (row: ChargeRow) => number) => charges.reduce((total, row) => total + of(row), 0);
  return {
    requests: sum((row) => (row.late ? 0 : 1)),
    late: sum((row) => (row.late ? 1 : 0)),
    promptTokens: sum((row) => row.promptTokens),
    cachedTokens: sum((row) => row.cachedTokens),
    completionTokens: sum((row) => row.completionTokens),
    reasoningTokens: sum((row) => row.reasoningTokens),
    costMicro: sum((row) => row.costMicro),
    baseMicro: sum((row) => row.baseMicro),
    overageMicro: sum((row) => row.overageMicro),
    additionalMicro: sum((row) => row.additionalMicro),
    shortfallMicro: sum((row) => row.shortfallMicro),
  };
}
