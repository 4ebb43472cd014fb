/** Crashes, and several processes on one database, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { addKey, credits, freeIn, keyOf } from "../fixtures/ledger-rows.ts";
import { childPlans, paidEach, spentEach, startStoreChild } from "../fixtures/store-child.ts";
import { isThorough, share } from "../fixtures/thorough.ts";

const crashes = isThorough ? 3 : 1;

for (const backend of backends) {
  describe(`durability on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    beforeEach(async () => {
      database = backend.create(childPlans);
      // The children use the machine's clock, and no window may end in between.
      database.clock.set(Date.now());
      const store = await database.open();
      await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
      await store.close();
    });
    afterEach(() => database.remove());

    async function paidIds(): Promise<Set<string>> {
      const rows = await database.sql("select subject from journal where kind = 'payment'");
      return new Set(rows.map(({ subject }) => String(subject)));
    }

    async function chargedIds(): Promise<Set<string>> {
      const rows = await database.sql("select id from charge");
      return new Set(rows.map(({ id }) => String(id)));
    }

    test("after kill -9 every acknowledged operation exists once (maximhq/bifrost#3548)", async () => {
      const acknowledged: string[] = [];
      const locator = await database.locator();
      for (let crash = 1; crash <= crashes; crash += 1) {
        const child = startStoreChild(locator, `run${crash}`, 1_000_000);
        await child.printed(40 * crash);
        child.kill();
        await child.ended;
        acknowledged.push(...child.acknowledged);
        // Opens the file like the next start, before anything else reads it.
        await (await database.open()).close();
        await assertSound(database);
        const paid = await paidIds();
        const spent = await chargedIds();
        for (const line of acknowledged) {
          const [kind, id = ""] = line.split(" ");
          assert.ok((kind === "payment" ? paid : spent).has(id), `${line} was acknowledged and is gone`);
        }
        // Operations written but not acknowledged at the kill: at most one of each caller.
        assert.ok(paid.size + spent.size <= acknowledged.length + 4 * crash);
      }
    });

    test("several processes on one database lose and repeat no operation", async () => {
      const rounds = share(50);
      const names = ["one", "two", "three"];
      const locator = await database.locator();
      const children = names.map((name) => startStoreChild(locator, name, rounds));
      for (const child of children) {
        assert.deepEqual(await child.ended, { code: 0, stderr: "" });
        assert.equal(child.acknowledged.length, 2 * 4 * rounds);
      }
      await assertSound(database);
      const done = names.length * 4 * rounds;
      assert.equal((await paidIds()).size, done);
      assert.equal((await chargedIds()).size, done);
      const { account } = (await (await database.open()).accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      assert.deepEqual(freeIn(account), {
        base: credits(100) - done * spentEach,
        overage: credits(10),
        additional: done * paidEach,
      });
      // The account was opened with two windows and a key. Then: payments and charges.
      assert.deepEqual([account.seq, account.holds], [4 + 2 * done, 0]);
    });
  });
}
