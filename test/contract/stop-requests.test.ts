/** Stops of requests on another node, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { RequestStops } from "../../src/accounts/request-stops.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
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

    test("reach the node that answers the request, and no other request", async () => {
      const stopped = Promise.withResolvers<string>();
      const stopOne = (id: string) => {
        stopped.resolve(id);
        return true;
      };
      const idle = { count: 0, stopOne: () => false };
      const options = { everyMs: 10, onError: assert.fail };
      const nodes = [
        new RequestStops(one, idle, options),
        new RequestStops(two, { count: 1, stopOne }, options),
      ];
      assert.deepEqual(await nodes[0]?.stopRequest("r1"), { requestId: "r1", isStopped: false });
      assert.equal(await stopped.promise, "r1");
      for (const node of nodes) await node.stop();
    });

    test("name an open hold, and can be repeated", async () => {
      const nowMs = one.nowMs();
      assert.equal(await one.stopRequests.add("r3", nowMs), false);
      assert.equal(await one.stopRequests.add("r1", nowMs), true);
      assert.equal(await two.stopRequests.add("r1", nowMs + 1), true);
      assert.deepEqual(await two.stopRequests.since(nowMs), ["r1"]);
    });

    test("show until when a request is open, and when it has ended", async () => {
      const [held] = await one.holds({ account: "ada", limit: 1 });
      assert.deepEqual([held?.id, await two.stopRequests.openUntil("r1")], ["r1", held?.expiresMs]);
      await one.commit([settle("r1", 1)]);
      for (const id of ["r1", "r3", "ada", "\0"])
        assert.equal(await two.stopRequests.openUntil(id), null, id);
    });

    test("are forgotten after ten minutes", async () => {
      const nowMs = one.nowMs();
      await one.stopRequests.add("r1", nowMs);
      assert.deepEqual(await two.stopRequests.since(nowMs + 1), []);
      await one.stopRequests.add("r2", nowMs + 10 * minute);
      assert.deepEqual((await two.stopRequests.since(0)).toSorted(), ["r1", "r2"]);
      await one.stopRequests.add("r2", nowMs + 10 * minute + 1);
      assert.deepEqual(await two.stopRequests.since(0), ["r2"]);
    });
  });
}
