/** Sums of usage on every store: each charge counts once, and a final day never changes. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import pg from "pg";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Store } from "../../src/store/store.ts";
import { chargeTable } from "../../src/store/tables.ts";
import type { UsageSumsQuery } from "../../src/store/usage-sums.ts";
import { dayMs } from "../../src/units.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { some } from "../fixtures/thorough.ts";
import { minute, second } from "../fixtures/times.ts";

const plans = plansOf(planOf("daily", 1000, 1000));
const utc = (text: string) => Date.parse(`${text}Z`);
const dayOf = (text: string) => Date.parse(text) / dayMs;

const january = { from: dayOf("2026-01-01"), to: dayOf("2026-02-01") };
const february = { from: dayOf("2026-02-01"), to: dayOf("2026-03-01") };

for (const backend of backends) {
  describe(`sums of usage on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      database.clock.set(utc("2026-01-31T23:00:00"));
      store = await database.open();
      for (const account of ["ada", "bob"]) {
        await store.commit([{ kind: "open", account, plan: "daily", by: "test" }]);
        await addKey(store, keyOf(`key-${account}`, account));
      }
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    let holds = 0;
    async function request(tokens: number, change: { account?: string; model?: string } = {}) {
      const { account = "ada", model = "model" } = change;
      holds += 1;
      const id = `hold-${holds}`;
      await store.commit([hold(id, tokens, { account, key: `key-${account}`, model, ttlMs: minute })]);
      await store.commit([settle(id, tokens, { account })]);
    }

    async function sumAll(of = store, timezone = "UTC"): Promise<void> {
      while (await of.sumUsage(timezone));
    }

    async function costs(query: Partial<UsageSumsQuery>, of = store) {
      const { rows, total, finalDay } = await of.usageSums({ by: "account", order: "name", ...query });
      assert.equal(
        rows.reduce((sum, { costMicro }) => sum + costMicro, 0),
        total.costMicro,
        "the total is the sum of the rows",
      );
      return { ...Object.fromEntries(rows.map(({ name, costMicro }) => [name, costMicro])), finalDay };
    }

    test("a late settlement counts on the day it comes, and the past month stays the same", async () => {
      await request(300);
      await store.commit([hold("late", 200, { key: "key-ada", ttlMs: minute })]);
      await store.commit([extend("late", 1, 1, { usage: tokens(1, 0) })]);
      database.clock.advance(2 * minute);
      await store.commit([{ kind: "expire", account: "ada", requestId: "late" }]);
      const provisional = { ada: 301, finalDay: -1 };
      const [expired] = await store.usage({ id: "late", limit: 10 });
      assert.equal(expired?.costMicro, 1, "the expiry charges the last checkpoint");
      assert.deepEqual(await costs(january), provisional);

      database.clock.set(utc("2026-02-02T10:00:00"));
      await sumAll();
      const final = await store.usageSums({ by: "key", order: "name", ...january });
      assert.equal(final.finalDay, dayOf("2026-02-01"));
      await store.commit([settle("late", 0, { usage: tokens(1, 57) })]);
      await request(199);
      assert.deepEqual(await costs(february), { ada: 256, finalDay: dayOf("2026-02-01") });
      assert.deepEqual(await store.usageSums({ by: "key", order: "name", ...january }), final);

      const { total } = await store.usageSums({ by: "day", order: "name", ...february });
      assert.deepEqual([total.requests, total.late, total.completionTokens], [1, 1, 256]);
      database.clock.set(utc("2026-03-02T00:05:00"));
      await sumAll();
      assert.deepEqual(await costs(january), { ada: 301, finalDay: dayOf("2026-03-01") });
      assert.deepEqual(await costs(february), { ada: 256, finalDay: dayOf("2026-03-01") });
    });

    test("a day is final five minutes after its end", async () => {
      await request(10);
      database.clock.set(utc("2026-02-01T00:04:59.999"));
      await sumAll();
      const last = dayOf("2026-01-31");
      assert.equal((await costs({})).finalDay, last - 1);
      database.clock.advance(1);
      await request(5);
      await sumAll();
      assert.deepEqual(await costs({ by: "day" }), { [last]: 10, [last + 1]: 5, finalDay: last });
    });

    const zones = [
      ["Europe/Berlin", "2026-03-28T20:00:00"],
      ["America/New_York", "2026-10-31T20:00:00"],
      ["Australia/Lord_Howe", "2026-04-04T08:00:00"],
      ["Asia/Kathmandu", "2026-05-01T10:00:00"],
      ["Pacific/Kiritimati", "2026-05-01T02:00:00"],
    ] as const;
    for (const [zone, from] of some(zones, 2)) {
      test(`days are those of ${zone}, before and after they are summed`, async () => {
        const calendar = new Intl.DateTimeFormat("en-CA", { timeZone: zone });
        await sumAll(store, zone);
        const expected: Record<string, number> = {};
        database.clock.set(utc(from));
        for (let n = 0; n < 40; n += 1) {
          const date = dayOf(calendar.format(database.clock.get()));
          expected[date] = (expected[date] ?? 0) + n + 1;
          await request(n + 1);
          database.clock.advance(83 * minute + n);
          if (n === 20) await sumAll(store, zone);
        }
        assert.ok(Object.keys(expected).length >= 3);
        const before = await costs({ by: "day" });
        assert.deepEqual({ ...before, finalDay: 0 }, { ...expected, finalDay: 0 });
        await sumAll(store, zone);
        const { finalDay, ...summed } = await costs({ by: "day" });
        assert.deepEqual(summed, expected);
        const ended = calendar.format(database.clock.get() - 5 * minute);
        assert.equal(finalDay, dayOf(ended) - 1);
      });
    }

    test("another zone counts from the next day on, and final days stay", async () => {
      const zoneOf = async () => (await store.usageSums({ by: "day", order: "name" })).timezone;
      const [first, second] = [dayOf("2026-01-31"), dayOf("2026-02-01")];
      await sumAll();
      await request(1);
      database.clock.set(utc("2026-02-01T10:00:00"));
      await sumAll(store, "America/New_York");
      assert.equal(await zoneOf(), "America/New_York");
      assert.deepEqual(await costs({ by: "day" }), { [first]: 1, finalDay: first });
      // Still the first day in New York, which is final.
      database.clock.set(utc("2026-02-01T04:59:00"));
      await request(20);
      // In New York the second day ends at five.
      database.clock.set(utc("2026-02-02T04:59:00"));
      await request(300);
      await sumAll(store, "Asia/Tokyo");
      assert.deepEqual(await costs({ by: "day" }), { [first]: 1, [second]: 320, finalDay: first });
      database.clock.set(utc("2026-02-02T05:06:00"));
      await sumAll(store, "Asia/Tokyo");
      await request(4000);
      assert.deepEqual(await costs({ by: "day" }), {
        [first]: 1,
        [second]: 320,
        [second + 1]: 4000,
        finalDay: second,
      });
      // In Tokyo the third day ends at three in the afternoon.
      database.clock.set(utc("2026-02-02T15:06:00"));
      await sumAll(store, "Asia/Tokyo");
      assert.equal((await costs({})).finalDay, second + 1);
      assert.equal(await zoneOf(), "Asia/Tokyo");
    });

    test("rows are summed by model, key, account and day, filtered, ordered and paged", async () => {
      await request(10, { model: "a" });
      await request(20, { model: "b" });
      await request(30, { model: "a", account: "bob" });
      database.clock.set(utc("2026-02-01T08:00:00"));
      await sumAll();
      await request(40, { model: "c", account: "bob" });
      const finalDay = dayOf("2026-01-31");
      assert.deepEqual(await costs({ by: "model" }), { a: 40, b: 20, c: 40, finalDay });
      assert.deepEqual(await costs({ by: "model", account: "ada" }), { a: 10, b: 20, finalDay });
      assert.deepEqual(await costs({ by: "key", model: "a" }), { "key-ada": 10, "key-bob": 30, finalDay });
      assert.deepEqual(await costs({ by: "account", key: "key-bob" }), { bob: 70, finalDay });
      assert.deepEqual(await costs({ by: "model", ...february }), { c: 40, finalDay });
      assert.deepEqual(await costs({ by: "account", from: finalDay + 2 }), { finalDay });
      const page = (query: Partial<UsageSumsQuery>) =>
        store.usageSums({ by: "model", order: "name", ...query });
      const named = async (query: Partial<UsageSumsQuery>) =>
        (await page(query)).rows.map(({ name }) => name);
      assert.deepEqual(await named({ limit: 2 }), ["a", "b"]);
      assert.deepEqual(await named({ limit: 2, after: "b" }), ["c"]);
      assert.deepEqual(await named({ order: "cost" }), ["a", "c", "b"]);
      assert.deepEqual(await named({ order: "cost", limit: 1 }), ["a"]);
      assert.equal((await page({ limit: 1, after: "b" })).total.costMicro, 100);
      assert.deepEqual(await named({ by: "day", after: String(finalDay) }), [String(finalDay + 1)]);
      const [key] = (await page({ by: "key" })).rows;
      assert.deepEqual([key?.name, key?.account, key?.baseMicro], ["key-ada", "ada", 30]);
    });

    test("the highest by cost are the first of all, with the same total", async () => {
      await request(10, { model: "a" });
      await request(45, { model: "b" });
      await request(30, { model: "a", account: "bob" });
      database.clock.set(utc("2026-02-01T08:00:00"));
      await sumAll();
      // These two are not summed yet.
      await request(40, { model: "a", account: "bob" });
      await request(40, { model: "a" });
      for (const by of ["account", "key"] as const) {
        for (const filter of [
          {},
          { model: "a" },
          { model: "b" },
          february,
          { ...february, account: "bob" },
        ]) {
          const query: UsageSumsQuery = { by, order: "cost", ...filter };
          const all = await store.usageSums(query);
          for (const limit of [1, 2, 3]) {
            const highest = { ...all, rows: all.rows.slice(0, limit) };
            assert.deepEqual(await store.usageSums({ ...query, limit }), highest, JSON.stringify(query));
          }
        }
      }
      const { rows, total } = await store.usageSums({ by: "account", order: "cost", limit: 1 });
      assert.deepEqual([rows[0]?.name, rows[0]?.costMicro, rows[0]?.requests], ["ada", 95, 3]);
      assert.deepEqual([total.costMicro, total.requests], [165, 5]);
    });

    test("sums by account have the contact of the account, and no others have one", async () => {
      await request(10);
      await request(20, { account: "bob" });
      const contact = { owner: "Ada", email: "ada@uni.example", externalId: "crm-7" };
      const options = { by: "test", dryRun: false };
      await store.putAccount({ id: "ada", plan: null, contact }, options);
      const shown = async (by: UsageSumsQuery["by"]) =>
        (await store.usageSums({ by, order: "cost" })).rows.map(({ name, owner, email, externalId }) => [
          name,
          owner,
          email,
          externalId,
        ]);
      assert.deepEqual(await shown("account"), [
        ["bob", null, null, null],
        ["ada", ...Object.values(contact)],
      ]);
      assert.deepEqual((await shown("key"))[1], ["key-ada", null, null, null]);
    });

    test("two nodes sum at once while others write, and each charge counts once", async () => {
      const other = await database.open();
      const ledgers = [new Ledger(store), new Ledger(other)];
      const write = async (round: number) => {
        const settled = Array.from({ length: 40 }, async (_, n) => {
          const id = `many-${round}-${n}`;
          const ledger = ledgers[n % 2];
          const account = n % 3 === 0 ? "bob" : "ada";
          await ledger?.apply(hold(id, 10, { account, key: `key-${account}` }));
          await ledger?.apply(settle(id, n + 1, { account }));
        });
        await Promise.all(settled);
      };
      for (let round = 0; round < 8; round += 1) {
        database.clock.advance(8 * 60 * minute);
        await Promise.all([write(round), sumAll(), sumAll(other), sumAll(), sumAll(other)]);
        const [lines] = await database.sql("select count(*) as n, sum(cost) as cost from charge");
        for (const node of [store, other]) {
          const { total } = await node.usageSums({ by: "day", order: "name" });
          assert.deepEqual([total.requests, total.costMicro], [lines?.n, lines?.cost]);
        }
      }
      const [summed] = await database.sql("select sum(requests) as n from usage_sum where unit = 'day'");
      assert.ok(Number(summed?.n) > 200, "days were summed meanwhile");
    });

    test("a charge that is dated in a final day counts on the first open day", async () => {
      await request(10);
      database.clock.set(utc("2026-02-03T00:06:00"));
      await sumAll();
      const final = dayOf("2026-02-02");
      database.clock.set(utc("2026-02-02T23:59:00"));
      await request(7);
      await sumAll();
      assert.deepEqual(await costs({ by: "day" }), {
        [dayOf("2026-01-31")]: 10,
        [final + 1]: 7,
        finalDay: final,
      });
      database.clock.set(utc("2026-02-04T00:06:00"));
      await sumAll();
      assert.deepEqual(await costs({ by: "day" }), {
        [dayOf("2026-01-31")]: 10,
        [final + 1]: 7,
        finalDay: final + 1,
      });
      await assert.rejects(
        database.sql(`update usage_sum set requests = requests + 1 where period = ${final + 1}`),
        /final days are never changed/,
      );
      await assert.rejects(database.sql("delete from usage_sum where unit = 'day'"), /never deleted/);
      await assert.rejects(database.sql("update usage_close set day = day - 1"), /never changed/);
    });

    if (backend.name === "PostgreSQL") {
      test("a charge that is committed after one with a larger number is counted", async () => {
        await request(10);
        const session = new pg.Client({ connectionString: await database.locator() });
        await session.connect();
        try {
          await session.query("begin");
          const columns = chargeTable.list();
          await session.query(
            `insert into inkwell.charge (${columns})
              select ${columns.replace(/\bid\b/, "'slow'").replace(/\bseq\b/, "seq + 100")} from inkwell.charge`,
          );
          await request(20, { account: "bob" });
          database.clock.advance(26 * 60 * minute);
          assert.equal(await store.sumUsage("UTC"), false, "the table is not free");
          assert.deepEqual(await costs({}), { ada: 10, bob: 20, finalDay: -1 });
          await session.query("commit");
        } finally {
          await session.end();
        }
        await sumAll();
        const finalDay = dayOf("2026-02-01");
        assert.deepEqual(await costs({}), { ada: 20, bob: 20, finalDay });
        // The charge has no hold, so the audit would find it.
        await database.remove();
        database = backend.create(plans);
        await database.open();
      });
    }

    test("a failure in the middle of a step changes nothing", async () => {
      await request(10);
      await request(20);
      database.clock.advance(26 * 60 * minute + 6 * minute + 10 * second);
      const before = await costs({});
      const fail =
        backend.name === "SQLite"
          ? "create trigger fail before insert on usage_close begin select raise(abort, 'no power'); end"
          : "create trigger fail before insert on usage_close for each row execute function refuse('no power')";
      await database.sql(fail);
      await assert.rejects(sumAll(), /no power/);
      const [state] = await database.sql(
        "select through, (select count(*) from usage_sum) as n from usage_summed",
      );
      assert.deepEqual({ ...state }, { through: 0, n: 0 });
      assert.deepEqual(await costs({}), before);
      await database.sql(
        backend.name === "SQLite" ? "drop trigger fail" : "drop trigger fail on usage_close",
      );
      await request(40);
      await sumAll();
      assert.deepEqual(await costs({}), { ada: 70, finalDay: dayOf("2026-02-01") });
      // The step looks for the last charge anew: the failure may have been a failover.
      const [summed] = await database.sql("select through from usage_summed");
      assert.deepEqual({ ...summed }, { through: 3 });
    });
  });
}
