/**
 * The portal relies on three things in every store. A key is added only while its creator has the
 * checked authority. A key changes only as it was seen. Hours of one key are summed.
 */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { newKeyOf } from "../../src/ledger/key-facts.ts";
import type { KeyOperation } from "../../src/ledger/operations.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { hour, start } from "../fixtures/times.ts";

const creator = keyOf("creator", "ada", {
  hash: "1".repeat(64),
  portal: "account",
  models: ["small", "large"],
  requestsPerMinute: 10,
  expiresMs: start + 100 * hour,
});

for (const backend of backends) {
  describe(`keys of the portal on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(planOf("daily", 1000, 1000)));
      store = await database.open();
      await store.commit([{ kind: "open", account: "ada", plan: "daily", by: "test" }]);
      await addKey(store, creator);
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    async function added(n: number, conditions: { creator: KeyRow; keysMax: number }) {
      const id = `key-${n}`;
      const row = keyOf(id, "ada", { hash: String(n).repeat(64) });
      const operation = { kind: "issue", account: "ada", key: id, row, caps: [], by: "test" } as const;
      const [outcome] = await store.commit([{ ...operation, ...conditions }]);
      return outcome?.kind;
    }

    async function set(change: KeyOperation["set"], op: string, seen?: KeyRow) {
      const operation = { kind: "key", account: "ada", key: "creator", op, set: change, by: "test" } as const;
      const [outcome] = await store.commit([seen === undefined ? operation : { ...operation, seen }]);
      return outcome?.kind;
    }

    test("adds a key while its creator is as it was seen, up to the most keys", async () => {
      assert.equal(await added(2, { creator, keysMax: 3 }), "issued");
      assert.equal(await added(3, { creator, keysMax: 3 }), "issued");
      assert.equal(await added(4, { creator, keysMax: 3 }), "too_many_keys");
      assert.deepEqual(
        (await store.keys("ada")).map(({ id }) => id),
        ["creator", "key-2", "key-3"],
      );
    });

    test("of keys that have expired, as many work again as may, in one commit and in several", async () => {
      for (const n of [2, 3, 4]) {
        const row = keyOf(`key-${n}`, "ada", { hash: String(n).repeat(64), expiresMs: start + hour });
        await addKey(store, row);
      }
      const later = (key: string, op: string, expiresMs = start + 50 * hour): KeyOperation => ({
        kind: "key",
        account: "ada",
        key,
        op,
        set: { expiresMs },
        by: "test",
        workingMax: 2,
      });
      const kinds = async (...operations: Parameters<Store["commit"]>[0]) =>
        (await store.commit(operations)).map(({ kind }) => kind);
      assert.deepEqual(await kinds(later("key-2", "a", start + 2 * hour)), ["changed"], "it works");
      database.clock.advance(3 * hour);
      assert.deepEqual(await kinds(later("key-3", "b"), later("key-2", "c")), ["changed", "too_many_keys"]);
      assert.deepEqual(await kinds(later("key-4", "d")), ["too_many_keys"]);
      assert.deepEqual(await kinds(later("key-3", "e")), ["changed"], "it works already");
      const row = newKeyOf(keyOf("key-5", "ada", { hash: "5".repeat(64) }));
      const issue = { kind: "issue", account: "ada", key: row.id, row, caps: [], by: "test" } as const;
      const limited = { ...issue, creator: null, keysMax: null, workingMax: 2 };
      assert.deepEqual(await kinds(limited), ["too_many_keys"]);
      await revokeKey(store, "key-3");
      assert.deepEqual(await kinds(limited, later("key-4", "f")), ["issued", "too_many_keys"]);
    });

    test("adds no key after its creator was revoked", async () => {
      await revokeKey(store, "creator");
      assert.equal(await added(2, { creator, keysMax: 10 }), "key_changed");
    });

    for (const [what, change] of Object.entries({
      models: { models: ["small"] },
      "fewer requests": { requestsPerMinute: 5 },
      "a limit of tokens": { tokensPerMinute: 5 },
      "a limit of requests at a time": { concurrent: 5 },
      "an earlier expiry": { expiresMs: start + hour },
      "a cap": { caps: [{ amountMicro: 5, every: "P1D", byOperator: true }] },
      "the right `own`": { portal: "own" },
      "another secret": { rotation: { hash: "9".repeat(64), lastFour: "9999", overlap: "P1D" } },
    } satisfies Record<string, KeyOperation["set"]>)) {
      test(`adds and changes no key by what a key could do before it got ${what}`, async () => {
        assert.equal(await set(change, "change"), "changed");
        assert.equal(await added(2, { creator, keysMax: 10 }), "key_changed");
        assert.equal(await set({ name: "renamed" }, "rename", creator), "key_changed");
        const now = await store.keyById("creator");
        assert.ok(now !== null && now.name === null);
        assert.equal(await added(2, { creator: now, keysMax: 10 }), "issued");
        assert.equal(await set({ name: "renamed" }, "rename", now), "changed");
        // A repetition finds the change, whatever the key is like now.
        assert.equal(await set({ name: "renamed" }, "rename", creator), "changed");
      });
    }

    test("requests and names do not change the authority of a key", async () => {
      await store.commit([hold("h1", 10, { key: "creator" }), settle("h1", 1)]);
      assert.equal(await set({ name: "renamed" }, "rename", creator), "changed");
      assert.equal(await added(2, { creator, keysMax: 10 }), "issued");
    });

    test("sums the hours of one key, before and after charges are summed", async () => {
      await added(2, { creator, keysMax: 10 });
      let n = 0;
      for (const [key, model, tokens] of [
        ["creator", "small", 1],
        ["key-2", "small", 20],
        ["creator", "large", 300],
      ] as const) {
        n += 1;
        await store.commit([
          hold(`h${n}`, tokens, { key, model, account: "ada" }),
          settle(`h${n}`, tokens, { account: "ada" }),
        ]);
        database.clock.advance(hour);
      }
      const first = Math.floor(start / hour);
      const costs = async (query: {
        key?: string;
        model?: string;
        from?: number;
        to?: number;
        byModel?: boolean;
      }) => {
        const wanted = { account: "ada", from: first, to: first + 3, byModel: false, ...query };
        return (await store.usageHours(wanted)).map(({ hour, model, costMicro }) => [
          hour - first,
          model,
          costMicro,
        ]);
      };
      for (const _ of ["before", "after"]) {
        assert.deepEqual(await costs({ key: "creator" }), [
          [0, null, 1],
          [2, null, 300],
        ]);
        assert.deepEqual(await costs({ key: "key-2" }), [[1, null, 20]]);
        assert.deepEqual(await costs({ key: "creator", byModel: true, model: "large" }), [[2, "large", 300]]);
        assert.deepEqual(await costs({ key: "creator", from: first + 1, to: first + 2 }), []);
        assert.deepEqual(await costs({ key: "nothing" }), []);
        while (await store.sumUsage("UTC"));
      }
    });
  });
}
