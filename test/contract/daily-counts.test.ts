/** Counts that have a limit for each day, on both databases. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

for (const backend of backends) {
  describe(`daily counts on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let other: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(planOf("starter", 100, 10)));
      store = await database.open();
      other = await database.open();
    });
    afterEach(() => database.remove());

    const limit = { most: 50, atMs: start };

    test("are counted up to the limit of a day, for each name", async () => {
      const { dailyCounts } = store;
      assert.equal(await dailyCounts.count("ann", 51, limit), false);
      assert.equal(await dailyCounts.count("ann", 30, limit), true);
      assert.equal(await other.dailyCounts.count("ann", 21, limit), false);
      assert.equal(await other.dailyCounts.count("ann", 20, limit), true);
      assert.equal(await dailyCounts.count("bert", 50, limit), true);
      assert.equal(await dailyCounts.count("ann", 1, limit), false);
      assert.equal(await dailyCounts.count("ann", 50, { ...limit, atMs: start + day }), true);
    });

    test("that were not given can be given again", async () => {
      const { dailyCounts } = store;
      assert.equal(await dailyCounts.count("ann", 40, limit), true);
      await dailyCounts.uncount("ann", 40, start);
      assert.equal(await dailyCounts.count("ann", 50, limit), true);
    });

    test("never exceed the limit, whoever counts at the same time", async () => {
      const counts = Array.from({ length: 20 }, (_, n) =>
        (n % 2 === 0 ? store : other).dailyCounts.count("ann", 7, limit),
      );
      assert.equal((await Promise.all(counts)).filter(Boolean).length, 7);
    });

    test("of an operation in the journal are known", async () => {
      const promote = { kind: "promote", account: "ada", op: "g1", amountMicro: 5, untilMs: null } as const;
      await store.commit([
        { kind: "open", account: "ada", plan: "starter", by: "test" },
        { ...promote, reason: "sorry", requestId: null, by: "test" },
      ]);
      assert.equal(await other.dailyCounts.isDone("operation:g1"), true);
      assert.equal(await other.dailyCounts.isDone("operation:g2"), false);
    });
  });
}
