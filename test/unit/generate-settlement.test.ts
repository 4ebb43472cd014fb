/**
 * The pipeline: a charge that the store does not take is never lost quietly, and keeps nobody
 * waiting.
 */
import assert from "node:assert/strict";
import { EngineError } from "../../src/chat/engine.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { begun, holdTtlMs, queued, setup, test, turn } from "../fixtures/pipeline.ts";
import { assertEnded, assertRefusal, rest } from "../fixtures/pipeline-results.ts";

test("sends the end while the store is unavailable, and charges the answer when it is back", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.end("stop");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  assert.equal(made.receipts.length, 0);
  assert.equal(made.ledger.late, 1);
  assert.equal(made.store.openHolds("ada").length, 1);
  // So long that the hold is gone when the store is back: what its checkpoint had not is charged.
  made.clock.nowMs += holdTtlMs;
  made.store.hooks = {};
  await made.apply({ kind: "expire", account: "ada", requestId: "r1" });
  await made.ledger.close(10_000);
  await assertEnded(made, "stop", 130);
  assert.equal(made.receipts[0]?.isLate, true);
});

test("gives up a waiting charge when the ledger closes; the last checkpoint counts", async () => {
  const { made, events, generation } = await begun();
  generation.end("stop");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  assert.deepEqual(await rest(events), { types: ["end"], error: null });
  await made.ledger.close(1);
  await turn();
  assert.deepEqual(
    made.unsettled.map(({ requestId }) => requestId),
    ["r1"],
  );
  made.store.hooks = {};
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", requestId: "r1" });
});

test("charges a client that left before the store was back", async () => {
  const { made, events } = await begun();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  made.abort.abort();
  assert.deepEqual(await rest(events), { types: [], error: null });
  made.store.hooks = {};
  await made.ledger.close(10_000);
  await assertEnded(made, "client_gone", 100);
});

test("reports the failure of the engine if the settlement fails too", async () => {
  const { made, events, generation } = await queued();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  generation.fail(new EngineError("failed", "exit code 134"));
  assertRefusal((await rest(events)).error, "upstream_error");
  made.store.hooks = {};
  await made.ledger.close(10_000);
  await assertEnded(made, "engine_failed", 0);
});

test("charges an answer whose plan was lost in the database during its request", async () => {
  const { made, events, generation } = await begun();
  generation.end("stop");
  made.store.losePlans();
  assert.equal((await rest(events)).error, null);
  await assertEnded(made, "stop", 100);
});

test("reports an account that became invalid during its request to the operator", async () => {
  const { made, events, generation } = await begun();
  generation.end("stop");
  made.store.damage("ada", { holds: 0.5 });
  assertRefusal((await rest(events)).error, "internal_error");
  assert.equal(made.unsettled.length, 1);
});

for (const isGone of [false, true]) {
  test(`refuses a request whose hold is unknown, charges nothing and returns the hold${isGone ? ", if its client has left too" : ""}`, async () => {
    const made = await setup();
    made.store.hooks = {
      after: () => {
        made.store.hooks = {};
        if (isGone) made.abort.abort();
        return Promise.reject(new StoreUnavailableError("the connection is cut"));
      },
    };
    const { types, error } = await rest(made.run());
    assert.deepEqual(types, []);
    assert.ok(error instanceof StoreUnavailableError);
    assert.equal(made.store.openHolds("ada").length, 1);
    await made.ledger.close(10_000);
    assert.deepEqual(made.store.openHolds("ada"), []);
    assert.equal(made.spent(), 0);
    assert.equal(made.engine.generations.length, 0);
    assert.equal(made.store.receipt("ada", "r1")?.ending, "refused");
  });
}
