/** The log of changes and the rows of operator keys, on both databases. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { changeObject } from "../../src/accounts/log-objects.ts";
import { type ChangesQuery, changeLogRow } from "../../src/store/change-log.ts";
import type { OperatorKeyRow } from "../../src/store/operator-keys.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { linkRow } from "../fixtures/link-rows.ts";
import { minute } from "../fixtures/times.ts";

const starter = planOf("starter", 100, 10);
const big = planOf("big", 200, 20);

function operatorKey(id: string): OperatorKeyRow {
  return {
    id,
    hash: id.padEnd(64, "0"),
    lastFour: "abcd",
    name: "ci",
    role: "support",
    by: "owner",
    createdMs: 5,
    expiresMs: 10,
    usedMs: null,
    endedMs: null,
  };
}

for (const backend of backends) {
  describe(`the log of changes on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(starter, big));
      store = await database.open();
    });
    afterEach(() => database.remove());

    const who = { account: "ada", by: "ann" } as const;
    async function happen(): Promise<void> {
      const next = () => database.clock.advance(minute);
      const drafts = { id: "ada", plan: "starter" };
      const options = { by: "ann", dryRun: false };
      next();
      await store.putAccount({ ...drafts, contact: { email: "ada@example.com" } }, options);
      next();
      await store.commit([{ kind: "plan", ...who, op: "p1", plan: "big", at: "refresh" }]);
      next();
      await store.commit([{ kind: "topup", ...who, payment: "inv-1", amountMicro: 5 }]);
      next();
      await store.commit([{ kind: "state", ...who, op: "s1", to: { kind: "suspend" } }]);
      next();
      await addKey(store, keyOf("key_1", "ada", { hash: "1".repeat(64), name: "laptop" }));
      next();
      const set = { name: "desk" };
      await store.commit([{ kind: "key", ...who, by: "bert", key: "key_1", op: "k1", set }]);
      next();
      const contact = { owner: "Ada" };
      await store.putAccount({ ...drafts, plan: null, contact }, { ...options, by: "bert" });
      next();
      await store.applyPlans(plansOf(starter), { force: false, by: "carl" });
    }

    async function listed(query: Partial<ChangesQuery> = {}) {
      return (await store.changes({ limit: 100, ...query })).map(changeObject.of);
    }

    test("finds the present names of keys, operator keys and links", async () => {
      await happen();
      await addKey(store, keyOf("key_2", "ada", { hash: "2".repeat(64), name: null }));
      const change = { kind: "operator_key", by: "owner", atMs: 5, before: null, after: {} } as const;
      await store.operatorKeys.add(operatorKey("opkey_1"), changeLogRow(change));
      await store.links.add(
        linkRow(1, { id: "link_1", name: "Class 1" }),
        changeLogRow({ ...change, kind: "link" }),
      );
      const names = await store.names(["key_1", "key_2", "key_3", "opkey_1", "link_1"]);
      assert.deepEqual(Object.fromEntries(names), { key_1: "desk", opkey_1: "ci", link_1: "Class 1" });
      assert.deepEqual(await store.names([]), new Map());
    });

    test("has each change with who made it and its values, newest first", async () => {
      await happen();
      const rows = (await listed()).map(({ kind, by, account, subject, amount_micro, before, after }) => [
        kind,
        by,
        account,
        subject,
        amount_micro,
        before,
        after,
      ]);
      assert.deepEqual(
        rows.filter(([kind, by]) => kind !== "key" || by === "bert"),
        [
          ["plans", "carl", null, null, null, { plans: { starter: 1, big: 1 } }, { plans: { starter: 1 } }],
          ["contact", "bert", "ada", null, null, { owner: null }, { owner: "Ada" }],
          ["key", "bert", "ada", "key_1", null, { name: "laptop" }, { name: "desk" }],
          ["suspend", "ann", "ada", null, null, { state: "active" }, { state: "suspended" }],
          ["payment", "ann", "ada", "inv-1", 5, null, null],
          [
            "plan",
            "ann",
            "ada",
            null,
            null,
            { plan: "starter", next_plan: null },
            { plan: "big", at: "refresh" },
          ],
          ["open", "ann", "ada", null, null, null, { plan: "starter" }],
          ["contact", "ann", "ada", null, null, { email: null }, { email: "ada@example.com" }],
          ["plans", "service", null, null, null, { plans: {} }, { plans: { starter: 1, big: 1 } }],
        ],
      );
    });

    test("is read in pages that leave nothing out and have nothing twice", async () => {
      await happen();
      const { atMs } = store.times();
      for (const id of ["person_1:account", "person_1:role:5:null:owner"]) {
        const person = { id, kind: "person", by: "test", atMs, before: null, after: null } as const;
        await store.logChange(changeLogRow(person));
      }
      const all = await store.changes({ limit: 100 });
      for (const limit of [1, 2, 3]) {
        const paged = [];
        for (let page = await store.changes({ limit }); page.length > 0; ) {
          paged.push(...page);
          page = await store.changes({ limit, after: page.at(-1) });
        }
        assert.deepEqual(paged, all);
      }
    });

    test("is filtered by who, kind, account and time", async () => {
      await happen();
      const kinds = async (query: Partial<ChangesQuery>) =>
        (await store.changes({ limit: 100, ...query })).map(({ kind }) => kind);
      assert.deepEqual(await kinds({ by: "bert" }), ["contact", "key"]);
      assert.deepEqual(await kinds({ by: "nobody" }), []);
      assert.deepEqual(await kinds({ kind: "payment" }), ["payment"]);
      assert.deepEqual(await kinds({ kind: "clock" }), []);
      assert.equal((await kinds({ account: "bob" })).length, 0);
      assert.ok(!(await kinds({ account: "ada" })).includes("plans"));
      const [newest, second] = await store.changes({ limit: 2 });
      assert.ok(newest !== undefined && second !== undefined && newest.atMs > second.atMs);
      assert.deepEqual(await kinds({ fromMs: newest.atMs }), ["plans"]);
      assert.ok(!(await kinds({ toMs: newest.atMs, by: "carl" })).includes("plans"));
    });

    test("keeps rows, of which only what a person is called can be erased", async () => {
      const change = { kind: "reload", by: "ann", atMs: 7, before: null, after: { x: 1 } } as const;
      await store.logChange(changeLogRow({ ...change, id: "one" }));
      await assert.rejects(store.logChange(changeLogRow({ ...change, id: "one" })));
      const [row] = await listed({ kind: "reload" });
      assert.deepEqual([row?.by, row?.before, row?.after], ["ann", null, { x: 1 }]);
    });

    test("has operator keys, which are made and end once", async () => {
      const { operatorKeys } = store;
      const [row, other] = [operatorKey("opkey_1"), operatorKey("opkey_2")];
      const change = (id: string) =>
        changeLogRow({ id, kind: "operator_key", by: "ann", atMs: 7, before: null, after: { id } });
      assert.equal(await operatorKeys.add(row, change("made")), true);
      assert.equal(await operatorKeys.add({ ...row, hash: "9".repeat(64) }, change("made")), false);
      assert.equal(await operatorKeys.add(other, change("made 2")), true);
      assert.deepEqual(await operatorKeys.find(row.hash), row);
      assert.equal(await operatorKeys.find("9".repeat(64)), null);
      await operatorKeys.use(row.id, 8);
      assert.equal(await operatorKeys.end(row.id, 9, change("ended")), true);
      assert.equal(await operatorKeys.end(row.id, 10, change("ended")), false);
      assert.deepEqual(await operatorKeys.list(), [{ ...row, usedMs: 8, endedMs: 9 }, other]);
      const ids = (await listed({ kind: "operator_key" })).map(({ after }) => after?.id);
      assert.deepEqual(ids.toSorted(), ["ended", "made", "made 2"]);
    });
  });
}
