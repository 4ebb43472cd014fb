/** Stops of requests on another node, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { RequestStops, stopElsewhere } from "../../src/accounts/request-stops.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { minute } from "../fixtures/times.ts";

const plan = planOf("one", 1, 0);

for (const backend of backends) {
  describe(`stops of requests on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let one: Store;
    let two: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(plan));
      one = await database.open();
      two = await database.open();
      await one.commit([{ kind: "open", account: "ada", plan: plan.id, by: "test" }]);
      await addKey(one, keyOf("key", "ada", { hash: "1".repeat(64) }));
      await one.commit([hold("r1", 10), hold("r2", 10)]);
    });
    afterEach(async () => {
      await database.remove();
    });

    function depsOf(store: Store) {
      return { store, ledger: new Ledger(store) };
    }

    test("reach the node that answers the request, and no other request", async () => {
      const stopped = Promise.withResolvers<[string, string]>();
      const stopOne = (id: string, by: string) => {
        stopped.resolve([id, by]);
        void one.commit([settle(id, 3, { ending: "stopped", by })]);
        return true;
      };
      const idle = { count: 0, stopOne: () => false };
      const options = { jobs: testJobs(), everyMs: 10, onError: assert.fail };
      const nodes = [
        new RequestStops(depsOf(one), idle, options),
        new RequestStops(depsOf(two), { count: 1, stopOne }, options),
      ];
      assert.deepEqual(await nodes[0]?.stopRequest({ id: "r1", by: "ann" }), {
        requestId: "r1",
        isStopped: false,
      });
      assert.deepEqual(await stopped.promise, ["r1", "ann"]);
      for (const node of nodes) await node.close();
    });

    test("name an open hold, and can be repeated", async () => {
      const nowMs = one.times().nowMs;
      assert.equal(await one.stopRequests.add({ id: "r3", by: "ann" }, nowMs), false);
      assert.equal(await one.stopRequests.add({ id: "r1", by: "ann" }, nowMs), true);
      assert.equal(await two.stopRequests.add({ id: "r1", by: "ann" }, nowMs + 1), true);
      assert.deepEqual(await two.stopRequests.since(nowMs), [{ id: "r1", by: "ann" }]);
    });

    test("show whether a request is open, of which account and key", async () => {
      assert.deepEqual(await two.stopRequests.holdOf("r1"), { account: "ada", key: "key" });
      await one.commit([settle("r1", 1)]);
      for (const id of ["r1", "r3", "ada", "\0"]) assert.equal(await two.stopRequests.holdOf(id), null, id);
    });

    test("end the hold of a process that is gone at its last checkpoint, at once", async () => {
      await one.commit([extend("r1", 1, 0, { usage: tokens(1, 4) })]);
      const times = { everyMs: 5, waitMsMax: 50 };
      const stop = await stopElsewhere(depsOf(two), { id: "r1", by: "ann" }, times);
      assert.equal(stop.outcome, "stopped");
      assert.partialDeepStrictEqual(stop.receipt, { id: "r1", costMicro: 5, ending: "expired", by: "ann" });
      assert.equal(await one.stopRequests.holdOf("r1"), null);
      assert.deepEqual(await one.stopRequests.holdOf("r2"), { account: "ada", key: "key" });
      // A process that was only slow adds the rest.
      await one.commit([settle("r1", 7, { usage: tokens(1, 7) })]);
      const costs = (await one.usage({ id: "r1", limit: 10 })).map(({ costMicro, late }) => [
        costMicro,
        late,
      ]);
      assert.deepEqual(costs, [
        [5, false],
        [3, true],
      ]);
      await assert.rejects(stopElsewhere(depsOf(two), { id: "r1", by: "ann" }, times), {
        code: "request_not_found",
      });
    });

    test("are forgotten after ten minutes", async () => {
      const nowMs = one.times().nowMs;
      await one.stopRequests.add({ id: "r1", by: "ann" }, nowMs);
      assert.deepEqual(await two.stopRequests.since(nowMs + 1), []);
      await one.stopRequests.add({ id: "r2", by: "ann" }, nowMs + 10 * minute);
      assert.deepEqual((await two.stopRequests.since(0)).map(({ id }) => id).toSorted(), ["r1", "r2"]);
      await one.stopRequests.add({ id: "r2", by: "ann" }, nowMs + 10 * minute + 1);
      assert.deepEqual(await two.stopRequests.since(0), [{ id: "r2", by: "ann" }]);
    });
  });
}
