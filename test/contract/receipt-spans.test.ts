/**
 * Lists of receipts with a filter on every store: they have the receipts of the whole list that
 * fit, before and after charges are summed, page by page and in both orders.
 */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { ChargeRow } from "../../src/ledger/rows.ts";
import type { Store, UsageQuery } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { isThorough } from "../fixtures/thorough.ts";
import { day, hour } from "../fixtures/times.ts";

const plans = plansOf(planOf("daily", 1000, 1000));
const days = 4;
/** More journal entries than spans that are read as one. */
const others = Array.from({ length: 120 }, (_, n) => `other-${n}`);

for (const backend of backends) {
  describe(`filtered receipts on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      store = await database.open();
      for (const account of ["ada", "bob"]) {
        await store.commit([{ kind: "open", account, plan: "daily", by: "test" }]);
        for (const key of ["often", "rare"]) {
          await addKey(store, keyOf(`${account}-${key}`, account));
        }
      }
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    async function sumAll() {
      while (await store.sumUsage("UTC"));
    }

    /** Each day has many requests of one key, and every second day one of another key. */
    async function someDays(from = 0, to = days) {
      for (let n = from; n < to; n += 1) {
        for (const account of ["ada", "bob"]) {
          for (let at = 0; at < 12; at += 1)
            await request(`${n}-${at}-${account}`, account, "often", "small");
          if (n % 2 === 0) await request(`${n}-rare-${account}`, account, "rare", "large");
          if (n === 0) await request(`${n}-again-${account}`, account, "rare", "small");
        }
        // Only this account's receipts are listed.
        const account = "ada";
        await store.commit(others.map((at) => hold(`${n}-${at}`, 1, { account, key: "ada-often" })));
        await store.commit(others.map((at) => settle(`${n}-${at}`, 0, { account })));
        database.clock.advance(n === 1 ? hour : day);
      }
    }

    async function request(id: string, account: string, key: string, model: string) {
      await store.commit([hold(id, 5, { account, key: `${account}-${key}`, model })]);
      await store.commit([settle(id, 5, { account })]);
    }

    async function allOf(query: Partial<UsageQuery>, limit: number): Promise<ChargeRow[]> {
      const all: ChargeRow[] = [];
      for (;;) {
        const last = all.at(-1);
        const after = last && { account: last.account, seq: last.seq };
        const page = await store.usage({ ...query, after, limit });
        assert.ok(page.length <= limit, `${page.length} rows on a page of ${limit}`);
        all.push(...page);
        if (page.length < limit) return all;
      }
    }

    async function assertLists() {
      const all = await allOf({ account: "ada" }, 1000);
      const first = all[0]?.atMs ?? 0;
      const filters: Partial<UsageQuery>[] = [
        { key: "ada-rare" },
        { key: "ada-often" },
        { model: "large" },
        { key: "ada-rare", model: "small" },
        { key: "bob-rare" },
        { model: "none" },
        { fromMs: first + day },
        { toMs: first + day },
        { toMs: first + day + hour },
        { fromMs: first + hour, toMs: first + 3 * day },
        { fromMs: first + 2 * day, key: "ada-rare" },
        { fromMs: first + 100 * day },
      ];
      for (const [n, filter] of filters.entries()) {
        const { key, model, fromMs = 0, toMs = Number.POSITIVE_INFINITY } = filter;
        const fits = all.filter(
          (row) =>
            (key === undefined || row.key === key) &&
            (model === undefined || row.model === model) &&
            row.atMs >= fromMs &&
            row.atMs < toMs,
        );
        for (const newestFirst of [false, true]) {
          const expected = newestFirst ? fits.toReversed() : fits;
          // Pages of two rows end at each border of spans; of hundreds of rows they take seconds.
          const limits = [fits.length < 100 ? 2 : 17, 50];
          for (const limit of isThorough ? limits : limits.slice((n + Number(newestFirst)) % 2)) {
            const listed = await allOf({ account: "ada", newestFirst, ...filter }, limit);
            assert.deepEqual(listed, expected, JSON.stringify({ filter, newestFirst, limit }));
          }
        }
      }
      const ofKey = await store.usage({ key: "ada-rare", limit: 1000 });
      assert.deepEqual(ofKey, await store.usage({ account: "ada", key: "ada-rare", limit: 1000 }));
      assert.ok(ofKey.length > 1);
    }

    test("are those of the whole list before and after they are summed", async () => {
      await someDays(0, 2);
      await assertLists();
      await sumAll();
      await assertLists();
      await someDays(2, days);
      await assertLists();
      await sumAll();
      await assertLists();
      assert.deepEqual((await database.audit()).broken, []);
    });

    test("are not searched beside their spans", async () => {
      await someDays();
      await sumAll();
      const query = { account: "ada", key: "ada-rare", limit: 1000 };
      const before = await store.usage(query);
      await database.sql(
        backend.name === "SQLite"
          ? "drop trigger usage_day_is_final"
          : "drop trigger usage_day_is_final on usage_sum",
      );
      const move = (by: string) =>
        database.sql(`update usage_sum set first_seq = first_seq ${by}, last_seq = last_seq ${by}
          where unit = 'day' and key = 'ada-rare' and model = 'large'`);
      // Below all receipts.
      await move("- 100000");
      const found = await store.usage(query);
      assert.ok(found.length > 0 && found.length < before.length, `${found.length} of ${before.length}`);
      // The audit names spans that are wrong.
      assert.notDeepEqual((await database.audit()).broken, []);
      await move("+ 100000");
    });
  });
}
