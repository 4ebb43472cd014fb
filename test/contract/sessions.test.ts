/** Rows of sessions and codes, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { rowsPerOwnerMax, type SessionRow } from "../../src/store/sessions.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));

function rowOf(n: number, change: Partial<SessionRow> = {}): SessionRow {
  return {
    hash: n.toString(16).padStart(64, "0"),
    kind: "operator",
    owner: "operator",
    createdMs: start,
    usedMs: start,
    idleMs: 1000,
    endsMs: start + 5000,
    endedMs: null,
    sealed: null,
    checkedMs: null,
    authenticatedMs: null,
    ...change,
  };
}

for (const backend of backends) {
  describe(`sessions on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let other: Store;
    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      other = await database.open();
    });
    after(() => database.remove());
    const found = async (...rows: SessionRow[]) => await other.sessions(rows.map(({ hash }) => hash));

    test("are found by their hash on another node, as they were written", async () => {
      const [one, two] = [rowOf(1), rowOf(2, { kind: "portal", owner: "key_1", endedMs: start + 1 })];
      await store.addSession(one);
      await store.addSession(two);
      const rows = await found(two, one, rowOf(3));
      assert.deepEqual(
        rows.toSorted((a, b) => (a.hash < b.hash ? -1 : 1)),
        [one, two],
      );
      assert.deepEqual(await found(), []);
    });

    test("are written once under one hash", async () => {
      await store.addSession(rowOf(10));
      await assert.rejects(other.addSession(rowOf(10)));
    });

    test("record later uses only, and none after their end", async () => {
      const row = rowOf(20);
      await store.addSession(row);
      await store.useSession(row.hash, start + 500);
      await other.useSession(row.hash, start + 400);
      assert.equal((await found(row))[0]?.usedMs, start + 500);
      assert.equal(await store.endSession(row.hash, start + 600), true);
      await store.useSession(row.hash, start + 700);
      assert.deepEqual(await found(row), [{ ...row, usedMs: start + 500, endedMs: start + 600 }]);
    });

    test("end once, even if two nodes end them at the same time", async () => {
      const row = rowOf(30);
      await store.addSession(row);
      const ended = await Promise.all(
        [store, other, store, other].map((node) => node.endSession(row.hash, start + 1)),
      );
      assert.deepEqual(ended.toSorted(), [false, false, false, true]);
      assert.equal(await store.endSession(rowOf(31).hash, start), false);
    });

    test("cannot be ended after their idle limit or their last time", async () => {
      const [idle, old] = [rowOf(40), rowOf(41, { idleMs: 9000 })];
      await store.addSession(idle);
      await store.addSession(old);
      assert.equal(await store.endSession(idle.hash, start + 1000), false);
      assert.equal(await store.endSession(old.hash, start + 5000), false);
      assert.equal(await store.endSession(idle.hash, start + 999), true);
      assert.equal(await store.endSession(old.hash, start + 4999), true);
    });

    test("are removed when their idle limit has passed since the last use", async () => {
      const [used, unused] = [rowOf(50), rowOf(51)];
      await store.addSession(used);
      await store.addSession(unused);
      await store.useSession(used.hash, start + 10);
      await other.removeSessions(start + 1000);
      assert.deepEqual(await found(unused), []);
      assert.equal((await found(used)).length, 1);
      await other.removeSessions(start + 1010);
      assert.deepEqual(await found(used), []);
    });

    test("are limited for each owner and kind: the oldest go", async () => {
      const later = (n: number) =>
        rowOf(n, { createdMs: start + n, usedMs: start + n, endsMs: start + 9000 });
      const others = [rowOf(90, { kind: "operator_code" }), rowOf(91, { kind: "portal", owner: "key_2" })];
      for (const row of others) await store.addSession(row);
      for (let n = 100; n <= 100 + rowsPerOwnerMax; n += 1) await store.addSession(later(n));
      assert.deepEqual(await found(later(100)), []);
      assert.equal((await found(later(101))).length, 1);
      assert.equal((await found(later(100 + rowsPerOwnerMax))).length, 1);
      assert.equal((await found(...others)).length, 2);
    });

    test("are limited also if many start at the same time", async () => {
      const rows = Array.from({ length: rowsPerOwnerMax + 20 }, (_, n) =>
        rowOf(300 + n, { kind: "portal", owner: "person_1", createdMs: start + n, usedMs: start + n }),
      );
      await Promise.all(rows.map((row, n) => (n % 2 === 0 ? store : other).addSession(row)));
      assert.equal((await found(...rows)).length, rowsPerOwnerMax);
    });
  });
}
