/** Windows that a wrong clock opened are taken back, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { balanceOf } from "../../src/ledger/balance.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

const monthly = planOf("monthly", 300, 10, { base: { credits: 300, every: "P1M", align: "opening" } });
const weekly = planOf("weekly", 50, 10, { base: { credits: 50, every: "P7D", align: "opening" } });
const plans = plansOf(monthly, weekly);

for (const backend of backends) {
  describe(`windows of the future on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      database.clock.set(start);
      store = await database.open();
      await commit({ kind: "open", account: "ada", plan: "monthly", by: "test" });
      await commit({ kind: "open", account: "bob", plan: "monthly", by: "test" });
      await addKey(store, keyOf("key", "ada", { hash: "1".repeat(64) }));
      await commit(hold("before", credits(40)), settle("before", credits(30)));
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    async function commit(...operations: Operation[]): Promise<string[]> {
      return (await store.commit(operations)).map(({ kind }) => kind);
    }

    async function base(): Promise<{ credits: number; startsMs: number; held: number }> {
      const snapshot = await store.accountSnapshot("ada");
      assert.ok(snapshot !== null);
      const { base, heldMicro } = balanceOf(snapshot);
      return { credits: base.micro / credits(1), startsMs: base.startsMs, held: heldMicro / credits(1) };
    }

    const reverse = { kind: "reverse", account: "ada" } as const;

    test("go back to the window of the true time, with all that was spent and held since", async () => {
      await commit(hold("running", credits(20), { ttlMs: 400 * day }));
      database.clock.set(start + 180 * day);
      await commit(hold("ahead", credits(60)), settle("ahead", credits(50)));
      await commit(hold("running ahead", credits(15)));
      assert.equal((await base()).credits, 250);
      database.clock.set(start + minute);
      assert.deepEqual(await store.accountsAhead({ limit: 10 }), ["ada"]);
      assert.deepEqual(await commit(reverse, reverse), ["reversed", "nothing"]);
      assert.deepEqual(await store.accountsAhead({ limit: 10 }), []);
      assert.deepEqual(await base(), { credits: 300 - 30 - 50, startsMs: start, held: 20 + 15 });
      await assertSound(database);
      await commit(settle("running", credits(5)), settle("running ahead", credits(15)));
      assert.deepEqual(await base(), { credits: 300 - 30 - 50 - 5 - 15, startsMs: start, held: 0 });
      const [last] = (await store.journal("ada", { limit: 100 })).filter(({ kind }) => kind === "reverse");
      assert.equal(last?.kind, "reverse");
    });

    test("go back to a plan whose change was not due, and it stays scheduled", async () => {
      await commit({ kind: "plan", account: "ada", op: "p", plan: "weekly", at: "refresh", by: "test" });
      database.clock.set(start + 180 * day);
      await commit(hold("ahead", credits(10)), settle("ahead", credits(10)));
      assert.equal((await base()).credits, 40);
      database.clock.set(start + day);
      assert.deepEqual(await commit(reverse), ["reversed"]);
      assert.deepEqual(await base(), { credits: 300 - 30 - 10, startsMs: start, held: 0 });
      const [account] = await store.accounts({ limit: 1 });
      assert.deepEqual([account?.plan, account?.nextPlan], ["monthly", "weekly"]);
    });

    test("go back for the budget of a key, which counts what was charged since its start", async () => {
      const keyState = async () => {
        const [key] = await store.keys("ada");
        assert.ok(key !== undefined);
        return [key.budgetStartsMs, key.budgetEndsMs, key.budgetSpent];
      };
      const began = start + minute;
      database.clock.set(began);
      const set = { budget: { micro: credits(100), rule: { every: "P1D" } } };
      await commit({ kind: "key", account: "ada", key: "key", op: "budget", set, by: "test" });
      await commit(hold("today", credits(10)), settle("today", credits(10)));
      assert.deepEqual(await keyState(), [began, began + day, credits(10)]);
      // The windows of the account last for a month, so only the key's is of the future.
      database.clock.set(began + 3 * day);
      await commit(hold("ahead", credits(60)), settle("ahead", credits(50)));
      await commit(hold("running", credits(15)));
      assert.deepEqual(await keyState(), [began + 3 * day, began + 4 * day, credits(50)]);
      database.clock.set(began + minute);
      assert.deepEqual(await store.accountsAhead({ limit: 10 }), ["ada"]);
      assert.deepEqual(await commit(reverse, reverse), ["reversed", "nothing"]);
      assert.deepEqual(await keyState(), [began, began + day, credits(60)]);
      assert.deepEqual(await store.accountsAhead({ limit: 10 }), []);
      await assertSound(database);
      const [refused] = await store.commit([hold("too much", credits(26), { minMicro: credits(26) })]);
      assert.equal(refused?.kind === "refused" && refused.reason, "credits_reserved");
      await commit(settle("running", credits(15)));
      assert.deepEqual(await keyState(), [began, began + day, credits(75)]);
    });

    test("count what other operations of the same commit have taken and spent", async () => {
      database.clock.set(start + 180 * day);
      await commit(hold("ahead", credits(60)));
      database.clock.set(start + minute);
      const ledger = new Ledger(store);
      const outcomes = await Promise.all([
        ledger.apply(hold("running", credits(20))),
        ledger.apply(settle("ahead", credits(50))),
        ledger.apply(reverse),
        ledger.apply(settle("running", credits(5))),
      ]);
      assert.deepEqual(
        outcomes.map(({ kind }) => kind),
        ["held", "settled", "reversed", "settled"],
      );
      assert.deepEqual(await base(), { credits: 300 - 30 - 50 - 5, startsMs: start, held: 0 });
    });

    test("stay as they are if they began in the past", async () => {
      database.clock.set(start + 20 * day);
      assert.deepEqual(await commit(reverse), ["nothing"]);
      assert.deepEqual(await store.accountsAhead({ limit: 10 }), []);
    });
  });
}
