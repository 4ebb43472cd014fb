/** The audit as a job of the database, on every store: one at a time, and the last result. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { type AuditJob, auditJobOf } from "../../src/store/audit-job.ts";
import { AuditRunner } from "../../src/store/audit-runner.ts";
import type { Store } from "../../src/store/store.ts";
import { backends } from "../fixtures/backends.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { plansOf } from "../fixtures/ledger-rows.ts";
import { until } from "../fixtures/until.ts";

async function jobOf(store: Store): Promise<AuditJob> {
  return auditJobOf(await store.auditJobs.read(), store.times().nowMs);
}

for (const backend of backends) {
  describe(`the audit job on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    test("runs once at a time on a database, and its result is there after a restart", async () => {
      await using at = await opened(backend);
      await using started = new AsyncDisposableStack();
      const results: number[] = [];
      // The first audit must not end before the second runner has asked.
      const asked = Promise.withResolvers<void>();
      const runners = at.stores.map((store) => {
        const audit = () => asked.promise.then(() => store.audit());
        const runner = runnerOn({ ...store, audit }, results);
        started.defer(() => runner.stop());
        return runner;
      });
      const jobs = await Promise.all(runners.map((runner) => runner.start()));
      asked.resolve();
      assert.equal(new Set(jobs.map(({ running }) => running?.startedMs)).size, 1);
      await until("both know the result", () => results.length === 2);
      const [one, two] = await Promise.all(runners.map((runner) => runner.job()));
      assert.deepEqual(one, two);
      assert.deepEqual([one?.running, one?.last?.broken, one?.failed], [null, [], null]);
      for (const runner of runners) await runner.stop();
      const [third] = [await at.open()];
      assert.deepEqual((await jobOf(third)).last, one?.last);
    });

    test("two claims at the same moment give one audit", async () => {
      await using at = await opened(backend);
      const claims = at.stores.map((store, n) => store.auditJobs.begin(`run ${n}`, store.times().nowMs));
      assert.deepEqual((await Promise.all(claims)).toSorted(), [false, true]);
    });

    test("an audit without a sign of life is replaced, and its late result is dropped", async () => {
      await using at = await opened(backend);
      const [store] = at.stores;
      assert.ok(store);
      const { auditJobs } = store;
      const nowMs = 1_800_000_000_000;
      assert.equal(await auditJobs.begin("dead", nowMs), true);
      await auditJobs.refresh("dead", nowMs + 5_000);
      assert.equal(await auditJobs.begin("next", nowMs + 25_000), false);
      assert.equal(auditJobOf(await auditJobs.read(), nowMs + 25_000).running?.startedMs, nowMs);
      assert.equal(auditJobOf(await auditJobs.read(), nowMs + 25_001).running, null);
      assert.equal(await auditJobs.begin("next", nowMs + 25_001), true);
      const report = { checkedMs: nowMs, journalRows: 0, broken: [] };
      await auditJobs.finish("dead", { ...report, startedMs: nowMs, endedMs: nowMs });
      await auditJobs.fail("dead", nowMs, "late");
      const job = auditJobOf(await auditJobs.read(), nowMs + 25_001);
      assert.deepEqual([job.running?.startedMs, job.last, job.failed], [nowMs + 25_001, null, null]);
    });

    test("the end of the process ends its audit", async () => {
      await using at = await opened(backend);
      const [store] = at.stores;
      assert.ok(store);
      const endless = { ...store, audit: () => new Promise<never>(() => {}) };
      const runner = runnerOn(endless, []);
      assert.notEqual((await runner.start()).running, null);
      await runner.stop();
      const { running, failed } = await jobOf(store);
      assert.equal(running, null);
      assert.match(failed?.reason ?? "", /was stopped/);
    });
  });
}

function runnerOn(store: Store, results: number[]): AuditRunner {
  return new AuditRunner(store, {
    ...{ jobs: testJobs(), everyMs: 20 },
    onResult: async (problems) => void results.push(problems),
    onError: (error) => assert.fail(String(error)),
  });
}

async function opened(backend: (typeof backends)[number]) {
  const database = backend.create(plansOf());
  after(() => database.remove());
  const stores = [await database.open(), await database.open()];
  return {
    stores,
    async open() {
      const store = await database.open();
      stores.push(store);
      return store;
    },
    async [Symbol.asyncDispose]() {
      for (const store of stores) await store.close();
    },
  };
}
