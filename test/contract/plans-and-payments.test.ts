/** Plans, payments, grants and changes of keys, as several nodes share them, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

const daily = planOf("daily", 100, 10);
const monthly = planOf("monthly", 300, 10, { base: { credits: 300, every: "P1M", align: "opening" } });
const plans = plansOf(daily, monthly);
const larger = plansOf(planOf("daily", 200, 10), monthly);

for (const backend of backends) {
  describe(`nodes on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let one: Store;
    let two: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      one = await database.open();
      two = await database.open();
      await one.commit([
        { kind: "open", account: "ada", plan: "daily", by: "test" },
        { kind: "open", account: "bob", plan: "daily", by: "test" },
      ]);
      await addKey(one, keyOf("key", "ada", { hash: "1".repeat(64) }));
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    function topups(account: string, ids: readonly string[]): Operation[] {
      return ids.map((payment) => ({ kind: "topup", account, payment, amountMicro: 1, by: "test" }));
    }

    test("credit a payment once, to one account, whichever of them is first", async () => {
      const ledgers = [new Ledger(one), new Ledger(two)];
      for (let round = 0; round < 10; round += 1) {
        const ids = ["a", "b", "c"].map((id) => `${id}-${round}`);
        // In opposite orders, so that each could wait for the other.
        const outcomes = await Promise.all([
          ...topups("ada", ids).map((operation) => ledgers[0]?.apply(operation)),
          ...topups("bob", ids.toReversed()).map((operation) => ledgers[1]?.apply(operation)),
        ]);
        const kinds = outcomes.map((outcome) => outcome?.kind);
        assert.equal(kinds.filter((kind) => kind === "added").length, 3, kinds.join());
        assert.equal(kinds.filter((kind) => kind === "payment_used").length, 3);
      }
      const [paid] = await database.sql(
        "select count(*) as n, sum(amount) as micro from credit_grant where payment is not null",
      );
      assert.deepEqual({ ...paid }, { n: 30, micro: 30 });
      const [ada, bob] = await one.accounts({ limit: 2 });
      assert.ok(ada !== undefined && bob !== undefined);
      assert.equal(freeIn(ada).additional + freeIn(bob).additional, 30);
    });

    test("credit a payment once, also in the commit that opens the other account", async () => {
      await one.commit([{ kind: "topup", account: "ada", payment: "p1", amountMicro: 10, by: "test" }]);
      const outcomes = await one.commit([
        { kind: "open", account: "eve", plan: "daily", by: "test" },
        { kind: "topup", account: "eve", payment: "p1", amountMicro: 10, by: "test" },
      ]);
      assert.deepEqual(outcomes[1], { kind: "payment_used", payment: "p1", account: "ada" });
    });

    test("name the account that a payment was credited to, and count all refunds of it", async () => {
      await one.commit([{ kind: "topup", account: "ada", payment: "p1", amountMicro: 10, by: "test" }]);
      const refund = { kind: "refund", account: "ada", payment: "p1", by: "test" } as const;
      assert.deepEqual(
        await two.commit([{ kind: "topup", account: "bob", payment: "p1", amountMicro: 10, by: "test" }]),
        [{ kind: "payment_used", payment: "p1", account: "ada" }],
      );
      const [first] = await one.commit([{ ...refund, refund: "r1", amountMicro: 3 }]);
      assert.partialDeepStrictEqual(first, { kind: "refunded", amountMicro: 3, additionalMicro: 7 });
      const [second] = await two.commit([{ ...refund, refund: "r2", amountMicro: 4 }]);
      assert.partialDeepStrictEqual(second, { kind: "refunded", amountMicro: 4, additionalMicro: 3 });
      assert.deepEqual(await one.commit([{ ...refund, refund: "r3", amountMicro: 4 }]), [
        { kind: "refund_too_large", payment: "p1", refundableMicro: 3 },
      ]);
      assert.partialDeepStrictEqual((await two.commit([{ ...refund, refund: "r1", amountMicro: 3 }]))[0], {
        kind: "refunded",
        replayed: true,
      });
      await two.commit([{ kind: "topup", account: "bob", payment: "p2", amountMicro: 10, by: "test" }]);
      const elsewhere = { ...refund, account: "bob", payment: "p2", refund: "r1", amountMicro: 3 };
      assert.partialDeepStrictEqual(await two.commit([elsewhere]), [
        { kind: "refund_used", entry: { account: "ada" } },
      ]);
    });

    test("name the account of an operation id, whichever operation it was", async () => {
      await addKey(one, keyOf("key-of-bob", "bob", { hash: "2".repeat(64) }));
      const row = { ...keyOf("new", "ada", { hash: "3".repeat(64) }) };
      const issue = { kind: "issue", row, caps: [], keysMax: null, creator: null } as const;
      const operations = (account: string, key: string): Operation[] => {
        const common = { account, by: "test" };
        const promoting = { reason: "a test", untilMs: null, requestId: null };
        return [
          { ...common, kind: "promote", op: "promoted", amountMicro: 5, ...promoting },
          { ...common, kind: "adjust", op: "adjusted", amountMicro: 1, grant: null, reason: "a test" },
          { ...common, kind: "plan", op: "planned", plan: "daily", at: "refresh" },
          { ...common, kind: "state", op: "ended", to: { kind: "end", endsMs: start + 900 * day } },
          { ...common, kind: "key", op: "changed", key, set: { name: "new" } },
          {
            ...common,
            ...issue,
            op: "issued",
            key: `new-${account}`,
            row: { ...row, id: `new-${account}`, account },
          },
        ];
      };
      const changed = await one.commit(operations("ada", "key"));
      assert.deepEqual(
        changed.map(({ kind }) => kind),
        ["added", "adjusted", "changed", "changed", "changed", "issued"],
      );
      await two.commit([{ kind: "topup", account: "bob", payment: "p2", amountMicro: 10, by: "test" }]);
      const facts = async () => (await two.journal("bob", { limit: 100 })).length;
      const before = await facts();
      for (const operation of operations("bob", "key-of-bob")) {
        assert.partialDeepStrictEqual(
          await two.commit([operation]),
          [{ kind: "operation_differs", account: "bob", entry: { account: "ada" } }],
          operation.kind,
        );
      }
      assert.equal(await facts(), before);
    });

    test("use an operation id once, if two of them use it at the same time on two accounts", async () => {
      const ledgers = [new Ledger(one), new Ledger(two)] as const;
      const planning = { kind: "plan", plan: "daily", at: "refresh", by: "test" } as const;
      for (let round = 0; round < 5; round += 1) {
        const adding = (account: string) => {
          const amount = { amountMicro: 1, untilMs: null, requestId: null };
          return {
            kind: "promote",
            account,
            op: `op-${round}`,
            ...amount,
            reason: "a test",
            by: "test",
          } as const;
        };
        const issuing = (account: string) => {
          const id = `${account}-${round}`;
          const row = keyOf(id, account);
          const conditions = { caps: [], keysMax: null, creator: null };
          return {
            kind: "issue",
            account,
            key: id,
            op: `op-${round}`,
            row,
            ...conditions,
            by: "test",
          } as const;
        };
        const outcomes = await Promise.all([
          ledgers[0].apply(adding("ada")),
          ledgers[1].apply(adding("bob")),
          ledgers[0].apply(issuing("ada")),
          ledgers[1].apply(issuing("bob")),
          ledgers[1].apply({ ...planning, account: "bob", op: `op-${round}` }),
        ]);
        const done = outcomes.filter(({ kind }) => ["added", "issued", "changed"].includes(kind));
        assert.equal(done.length, 1, JSON.stringify(outcomes));
        const refused = outcomes.filter(({ kind }) => kind === "operation_differs");
        assert.equal(refused.length, 4, JSON.stringify(outcomes));
      }
    });

    test("apply a plans section once, if all of them do at the same time", async () => {
      const stores = [one, two, await database.open()];
      const applied = await Promise.all(
        stores.map((store) => store.applyPlans(larger, { force: false, by: "test" })),
      );
      assert.deepEqual(applied.map(({ kind }) => kind).sort(), ["applied", "unchanged", "unchanged"]);
      for (const store of stores) {
        const { epoch, offered, versions } = await store.plans();
        assert.deepEqual([epoch, offered], [2, ["daily", "monthly"]]);
        assert.deepEqual(
          versions.get("daily")?.map(({ version, base }) => [version, base.credits]),
          [
            [1, 100],
            [2, 200],
          ],
        );
        assert.equal(versions.get("monthly")?.length, 1);
      }
    });

    test("use a new section from the next commit on, and never one that was superseded", async () => {
      database.clock.advance(minute);
      await two.commit([]);
      await one.applyPlans(plansOf(planOf("daily", 200, 10, { limits: { concurrent: 1 } })), {
        force: false,
        by: "test",
      });
      const outcomes = await two.commit([
        { kind: "open", account: "cy", plan: "daily", by: "test" },
        { kind: "open", account: "dan", plan: "monthly", by: "test" },
        hold("h1", credits(1)),
        hold("h2", credits(1)),
      ]);
      assert.deepEqual(
        outcomes.map((outcome) => ("reason" in outcome ? outcome.reason : outcome.kind)),
        ["opened", "retired_plan", "held", "concurrency_limit_exceeded"],
      );
      assert.equal((await two.accountSnapshot("cy"))?.account.base?.amountMicro, credits(200));
      assert.equal((await two.accountSnapshot("ada"))?.account.base?.amountMicro, credits(100));
      assert.equal((await two.findKey("1".repeat(64)))?.plan?.version, 2);
      // The version of a window's start is what the window gets.
      database.clock.advance(day);
      await two.commit([settle("h1", 0)]);
      assert.equal((await two.accountSnapshot("ada"))?.account.base?.amountMicro, credits(200));

      assert.equal((await two.applyPlans(plans, { force: false, by: "test" })).kind, "superseded");
      assert.equal((await one.plans()).epoch, 2);
      assert.equal((await two.applyPlans(plans, { force: true, by: "test" })).kind, "applied");
      assert.deepEqual((await one.plans()).offered, ["daily", "monthly"]);
    });

    test("have plan versions with everything that the section says", async () => {
      const full = planOf("full", 1, 2, {
        base: { credits: 1, every: "PT5H", align: "opening" },
        overage: { credits: 2, every: "P1W", align: "opening" },
        limits: { requestsPerMinute: 3, tokensPerMinute: 4, concurrent: 5 },
        models: ["small", 'qu"ote', "größer, {}"],
        timezone: "UTC",
      });
      database.clock.advance(minute);
      await one.applyPlans(plansOf(daily, full), { force: false, by: "test" });
      const read = (await two.plans()).versions.get("full");
      assert.deepEqual(read, [{ ...full, version: 1, createdMs: start + minute }]);
      assert.deepEqual((await two.plans()).offered, ["daily", "full"]);
    });

    test("keep what a hold took from each grant, of windows that have closed too", async () => {
      await one.commit([hold("h1", credits(40), { ttlMs: 3 * day })]);
      const change = { kind: "plan", account: "ada", plan: "monthly", by: "test" } as const;
      const [refused] = await one.commit([{ ...change, op: "1", at: "now" }]);
      assert.deepEqual(refused, {
        kind: "window_differs",
        plan: "monthly",
        buckets: ["base"],
        refreshMs: start + day,
      });
      await one.commit([
        { ...change, op: "2", at: "new_window" },
        extend("h1", 1, credits(5), { ttlMs: 3 * day }),
      ]);
      const inNew = (await two.accountSnapshot("ada"))?.account;
      assert.ok(inNew !== undefined);
      // Nothing was spent in the old window, and what is held of it stays with its grant.
      assert.partialDeepStrictEqual(inNew.base, {
        amountMicro: credits(300),
        spentMicro: 0,
        heldMicro: credits(5),
        plan: "monthly",
        version: 1,
        fromMs: start,
        untilMs: start + 31 * day,
      });
      const takingsOf = async (store: Store) => {
        const [row] = await store.holds({ account: "ada", limit: 10 });
        return row?.takings.map(({ bucket, amountMicro }) => [bucket, amountMicro]);
      };
      assert.deepEqual(await takingsOf(two), [
        ["base", credits(40)],
        ["base", credits(5)],
      ]);
      database.clock.advance(2 * day);
      await two.commit([extend("h1", 2, 0, { ttlMs: 60 * day })]);
      database.clock.advance(29 * day);
      await two.commit([extend("h1", 3, credits(7), { ttlMs: 60 * day })]);
      // The other node decides with the rows as they are in the database.
      assert.deepEqual(await takingsOf(one), [
        ["base", credits(40)],
        ["base", credits(5)],
        ["base", credits(7)],
      ]);
      // The closed grants pay first: 40 and 5. The rest of 5 is of the open one.
      await one.commit([settle("h1", credits(50))]);
      const [receipt] = await two.usage({ account: "ada", limit: 10 });
      assert.deepEqual(
        receipt?.paid.map(({ amountMicro }) => amountMicro),
        [credits(40), credits(5), credits(5)],
      );
      const { account } = (await two.accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      assert.deepEqual(freeIn(account).base, credits(300 - 5));
    });

    test("see every change of a key in the next commit", async () => {
      const caps = [{ amountMicro: 100, every: "P1M", models: ["mod*"], byOperator: true }];
      const rotation = { hash: "2".repeat(64), lastFour: "wxyz", overlap: "P1D" };
      const set = { name: 'la"ptop', models: ["small", "b"], concurrent: 2, caps, rotation };
      const [changed, held] = await one.commit([
        { kind: "key", account: "ada", key: "key", op: "change", set, by: "test" },
        hold("h1", 60),
      ]);
      assert.equal(changed?.kind, "changed");
      assert.equal(held?.kind, "held");
      assert.partialDeepStrictEqual(await two.keyById("key"), {
        name: 'la"ptop',
        models: ["small", "b"],
        concurrent: 2,
        caps: [
          {
            ...{ name: "P1M", amountMicro: 100, every: "P1M", align: "opening", timezone: "UTC" },
            ...{ models: ["mod*"], sinceMs: start, byOperator: true },
          },
        ],
        counters: [],
        running: [{ model: "model", heldMicro: 60, costMicro: 0 }],
        hash: rotation.hash,
        oldHash: "1".repeat(64),
        oldUntilMs: start + day,
        lastFour: "wxyz",
      });
      assert.equal((await two.findKey("1".repeat(64)))?.key.id, "key");
      assert.equal((await two.findKey("2".repeat(64)))?.key.id, "key");
      const [over] = await two.commit([hold("h2", 50, { minMicro: 41 })]);
      assert.equal(over?.kind, "credits_reserved");
      await two.commit([settle("h1", 60)]);
      const [spent] = await one.commit([hold("h3", 50, { minMicro: 41 })]);
      assert.equal(spent?.kind, "cap_reached");
    });
  });
}
