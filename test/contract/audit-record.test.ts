/** The recorded audit, on every store: all services on a database show the last one. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import type { AuditReport } from "../../src/store/audit-report.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { plansOf } from "../fixtures/ledger-rows.ts";
import { start } from "../fixtures/times.ts";

const sound: AuditReport = { checkedMs: start, journalRows: 5, broken: [] };
const unsound: AuditReport = {
  checkedMs: start + 1,
  journalRows: 7,
  broken: [
    { invariant: "the journal is the balance", rows: [{ account: "ada", base: 5 }] },
    { invariant: "every grant has its entry", rows: [] },
  ],
};

for (const backend of backends) {
  describe(`the recorded audit on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plansOf());
      store = await database.open({ thresholdPercents: [] });
    });
    afterEach(() => database.remove());

    const events = async () =>
      (await database.sql("select type, account, at_ms, data from event order by number")).map(
        ({ type, account, at_ms, data }) => [type, account, Number(at_ms), JSON.parse(String(data))],
      );

    test("is the last one in every process, and after a restart", async () => {
      const other = await database.open();
      assert.deepEqual([await store.lastAudit(), await other.lastAudit()], [null, null]);
      await store.recordAudit(sound);
      const first = { checkedMs: start, journalRows: 5, problems: 0, firstProblem: null };
      assert.deepEqual([await store.lastAudit(), await other.lastAudit()], [first, first]);
      await other.recordAudit(unsound);
      const second = {
        checkedMs: start + 1,
        journalRows: 7,
        problems: 2,
        firstProblem: "the journal is the balance",
      };
      assert.deepEqual(await store.lastAudit(), second);
      for (const each of [store, other]) await each.close();
      assert.deepEqual(await (await database.open()).lastAudit(), second);
      await (await database.open()).recordAudit(sound);
      assert.deepEqual(await (await database.open()).lastAudit(), first);
    });

    test("is an event if it found problems, once for each record", async () => {
      await store.recordAudit(sound);
      assert.deepEqual(await events(), []);
      const event = ["audit.failed", null, start, { problems: 2 }];
      await store.recordAudit(unsound);
      await store.recordAudit(unsound);
      assert.deepEqual(await events(), [event], "the same audit");
      await store.recordAudit({ ...unsound, checkedMs: start + 2 });
      assert.deepEqual(await events(), [event, event]);
      assert.deepEqual((await database.audit()).broken, []);
    });

    test("is no event without events in the configuration", async () => {
      const silent = await database.open();
      await silent.recordAudit(unsound);
      assert.deepEqual(await events(), []);
      assert.equal((await silent.lastAudit())?.problems, 2);
    });

    test("is recorded with its event, or not at all", async () => {
      await store.recordAudit(sound);
      await database.sql("alter table event rename to moved");
      await assert.rejects(store.recordAudit(unsound), /event/);
      assert.equal((await store.lastAudit())?.problems, 0);
      await database.sql("alter table moved rename to event");
      await store.recordAudit(unsound);
      assert.equal((await store.lastAudit())?.problems, 2);
      assert.equal((await events()).length, 1);
    });
  });
}
