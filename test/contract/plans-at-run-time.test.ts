/**
 * Plans that change while requests run, on every store: settling, extending and expiring need no
 * plan of the configuration, and no finished work is free.
 */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Store } from "../../src/store/store.ts";
import { applyDueChanges } from "../../src/store/sweeper.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute } from "../fixtures/times.ts";

const limits = { requestsPerMinute: 100, tokensPerMinute: 1_000_000_000, concurrent: 9 };
const old = plansOf(planOf("trial", 100, 10, { limits }));
const next = plansOf(planOf("pro", 500, 0));

for (const backend of backends) {
  describe(`plans at run time on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let one: Store;
    let two: Store;
    beforeEach(async () => {
      database = backend.create(old);
      one = await database.open();
      two = await database.open();
      await one.commit([{ kind: "open", account: "ada", plan: "trial", by: "test" }]);
      await addKey(one, keyOf("key", "ada", { hash: "1".repeat(64) }));
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    const expire: Operation = { kind: "expire", account: "ada", requestId: "h1" };

    async function charges() {
      const rows = await one.usage({ account: "ada", limit: 10 });
      return rows.map(({ costMicro, shortfallMicro, ending }) => [costMicro, shortfallMicro, ending]);
    }

    test("end requests of a retired plan at their full cost, and refresh its account", async () => {
      await one.commit([hold("h1", credits(5), { ttlMs: 3 * day }), hold("h2", credits(5))]);
      // The other node has another file, in which the plan and its limits are missing.
      assert.deepEqual((await two.applyPlans(next, { force: false, by: "test" })).retired, ["trial"]);
      const outcomes = await two.commit([
        extend("h1", 1, credits(4), { ttlMs: 3 * day }),
        settle("h2", credits(3)),
        hold("h3", credits(2)),
      ]);
      assert.deepEqual(
        outcomes.map(({ kind }) => kind),
        ["extended", "settled", "held"],
      );
      await one.commit([settle("h3", credits(2))]);
      database.clock.advance(day);
      await two.commit([settle("h1", credits(8))]);
      assert.deepEqual(await charges(), [
        [credits(3), 0, "stop"],
        [credits(2), 0, "stop"],
        [credits(8), 0, "stop"],
      ]);
      const { account } = (await one.accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      assert.deepEqual(
        [account.plan, account.base?.amountMicro, freeIn(account).base],
        ["trial", credits(100), credits(100)],
      );
    });

    test("charge an expired request of a retired plan by its checkpoint", async () => {
      await one.commit([hold("h1", credits(5), { ttlMs: minute })]);
      await one.commit([extend("h1", 1, 0, { usage: tokens(10, 20), ttlMs: minute })]);
      await two.applyPlans(next, { force: false, by: "test" });
      database.clock.advance(2 * minute);
      assert.equal((await two.commit([expire]))[0]?.kind, "expired");
      assert.deepEqual(await charges(), [[30, 0, "expired"]]);
    });

    test("look up the scheduled plan from the boundary on, and commit it and an end without a request", async () => {
      await one.applyPlans(plansOf(...old.values(), ...next.values()), { force: false, by: "test" });
      const by = "test";
      await one.commit([
        { kind: "plan", account: "ada", op: "up", plan: "pro", at: "refresh", by },
        { kind: "open", account: "bob", plan: "pro", by },
      ]);
      const endsMs = database.clock.get() + hour;
      await one.commit([{ kind: "state", account: "bob", op: "end", to: { kind: "end", endsMs }, by }]);
      const planNow = async () => (await two.findKey("1".repeat(64)))?.plan?.id;
      const due = async () => await two.dueAccounts(two.times().atMs, { limit: 10 });
      assert.deepEqual([await planNow(), await due()], ["trial", []]);
      const untilMs = (await one.accountSnapshot("ada"))?.account.base?.untilMs ?? 0;
      database.clock.advance(untilMs - database.clock.get() - 1);
      assert.deepEqual([await planNow(), await due()], ["trial", ["bob"]]);
      database.clock.advance(1);
      assert.deepEqual([await planNow(), await due()], ["pro", ["ada", "bob"]]);
      assert.deepEqual(await two.dueAccounts(two.times().atMs, { after: "ada", limit: 10 }), ["bob"]);
      assert.deepEqual(await two.accounts({ plan: "pro", limit: 10 }).then((all) => all.length), 1);
      await applyDueChanges(two, new Ledger(two), () => false);
      assert.deepEqual([await planNow(), await due()], ["pro", []]);
      const listed = await one.accounts({ limit: 10 });
      assert.deepEqual(
        listed.map(({ plan, state }) => [plan, state]),
        [
          ["pro", "active"],
          ["pro", "closed"],
        ],
      );
    });

    test("a zone is part of a version, also if no window follows the calendar", async () => {
      const moved = plansOf(planOf("trial", 100, 10, { limits, timezone: "Europe/Berlin" }));
      assert.deepEqual((await one.applyPlans(moved, { force: false, by: "test" })).changed, ["trial"]);
      const caps = [{ amountMicro: credits(5), every: "P1D", align: "calendar" as const, byOperator: true }];
      const set = { kind: "key", account: "ada", key: "key", op: "b", set: { caps }, by: "test" } as const;
      assert.deepEqual(
        (await one.commit([set])).map(({ kind }) => kind),
        ["changed"],
      );
      assert.equal((await two.keyById("key"))?.caps[0]?.timezone, "Europe/Berlin");
    });

    test("count the accounts on each plan, without closed ones", async () => {
      await one.applyPlans(plansOf(...old.values(), ...next.values()), { force: false, by: "test" });
      await one.commit([
        { kind: "open", account: "bob", plan: "pro", by: "test" },
        { kind: "open", account: "cy", plan: "pro", by: "test" },
        { kind: "open", account: "dan", plan: "pro", by: "test" },
        { kind: "state", account: "dan", op: "1", to: { kind: "close" }, by: "test" },
      ]);
      assert.deepEqual([...(await two.accountsOnPlans())].sort(), [
        ["pro", 2],
        ["trial", 1],
      ]);
    });

    if (backend.name !== "PostgreSQL") return;

    test("are those of the database again if a failover has lost a section, and if the next one has its number", async () => {
      const apply = async (base: number) => {
        database.clock.advance(minute);
        await one.applyPlans(plansOf(planOf("trial", base, 10)), { force: false, by: "test" });
        database.clock.advance(minute);
      };
      /** The credits by which both nodes read the plan, and by which one opens an account. */
      const creditsOf = async (account: string) => {
        const found = await Promise.all([one, two].map((store) => store.findKey("1".repeat(64))));
        await two.commit([{ kind: "open", account, plan: "trial", by: "test" }]);
        const opened = (await two.accountSnapshot(account))?.account.base;
        return [...found.map((each) => each?.plan?.base.credits), Number(opened?.amountMicro) / credits(1)];
      };
      /** Both nodes keep the section, and it is lost. No fact may need it. */
      const keepAndLose = async (base: number) => {
        await apply(base);
        for (const store of [one, two]) {
          await store.commit([]);
          assert.equal((await store.findKey("1".repeat(64)))?.plan?.base.credits, base);
        }
        await database.sql(
          `begin; set local session_replication_role = replica; delete from plan_file where epoch = 2;
           delete from plan_version where version = 2; delete from change_log where id = 'plans:2'; commit`,
        );
      };
      await keepAndLose(200);
      assert.deepEqual(await creditsOf("bob"), [100, 100, 100]);
      await keepAndLose(300);
      await apply(400);
      assert.deepEqual(await creditsOf("cy"), [400, 400, 400]);
    });
  });
}
