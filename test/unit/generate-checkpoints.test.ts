/** The pipeline: heartbeats and checkpoints keep a hold alive, and no engine works without one. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import { planOf } from "../fixtures/ledger-rows.ts";
import {
  accepted,
  begun,
  holdTtlMs,
  promptCost,
  queued,
  type Setup,
  setup,
  test,
  turn,
} from "../fixtures/pipeline.ts";
import { assertEnded, assertRefusal, rest } from "../fixtures/pipeline-results.ts";

/** A third of the hold's life passes, for timers and ledger alike. */
async function beat(t: TestContext, made: Setup): Promise<void> {
  made.clock.nowMs += holdTtlMs / 3;
  t.mock.timers.tick(holdTtlMs / 3);
  await turn();
}

test("extends the hold of a long answer while it runs, also for a slow reader", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events, generation } = await begun();
  for (let n = 0; n < 20; n += 1) {
    generation.token("x");
    await beat(t, made);
    const outcome = await made.apply({ kind: "expire", account: "ada", requestId: "r1" });
    assert.equal(outcome.kind, "alive");
  }
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", promptCost + 20 * 30);
});

test("a checkpoint that cannot be computed does not end the process", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events, generation } = await begun();
  generation.token("x");
  const { promptTokens } = generation.usage;
  generation.usage.promptTokens = Number.NaN;
  await beat(t, made);
  generation.usage.promptTokens = promptTokens;
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", promptCost + 30);
});

test("writes no checkpoint after the end of the request", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events } = await queued();
  await events.return();
  const commits = made.store.batches.length;
  for (let n = 0; n < 5; n += 1) await beat(t, made);
  assert.equal(made.store.batches.length, commits);
});

test("charges the last checkpoint if the process dies, and returns the rest", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, generation } = await begun();
  generation.token("x");
  await beat(t, made);
  generation.token("y");
  // Dead: no timer, no settlement.
  made.clock.nowMs += holdTtlMs;
  assert.equal((await made.apply({ kind: "expire", account: "ada", requestId: "r1" })).kind, "expired");
  assert.equal(made.spent(), 130);
});

test("charges nothing if the process dies while the request is queued", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made } = await queued();
  for (let n = 0; n < 3; n += 1) await beat(t, made);
  made.clock.nowMs += holdTtlMs;
  assert.equal((await made.apply({ kind: "expire", account: "ada", requestId: "r1" })).kind, "expired");
  assert.equal(made.spent(), 0);
});

test("stops the engine if the hold has expired, and charges the tokens late", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events, generation } = await begun();
  generation.token("x");
  await events.next();
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", requestId: "r1" });
  assert.equal(made.spent(), 0);
  const next = rest(events);
  await beat(t, made);
  const { types, error } = await next;
  assert.deepEqual(types, []);
  assertRefusal(error, "internal_error");
  await assertEnded(made, "engine_failed", 130);
});

test("charges an answer whose hold expires at its end", async () => {
  const { made, events, generation } = await queued();
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", requestId: "r1" });
  generation.begin();
  generation.token("x");
  generation.end("stop");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "stop", 130);
});

test("does not stop the answer after one failed extension", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events, generation } = await begun();
  generation.token("x");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  made.store.hooks = {};
  await beat(t, made);
  generation.end("stop");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "stop", 130);
});

test("stops an answer whose hold may have expired, even if the store does not respond", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const { made, events, generation } = await begun();
  generation.token("x");
  const gate = Promise.withResolvers<void>();
  made.store.hooks = { before: () => gate.promise };
  const end = rest(events);
  await beat(t, made);
  await beat(t, made);
  assert.ok(!generation.isStopped);
  await beat(t, made);
  assert.ok(generation.isStopped, "no engine works without an open hold");
  gate.resolve();
  const { types, error } = await end;
  assert.deepEqual(types, ["text"]);
  assertRefusal(error, "internal_error");
  await assertEnded(made, "engine_failed", 130);
});

test("ends the wait for credits of other requests when the hold may have expired", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const made = await setup(planOf("broke", 0, 0));
  await made.apply({ kind: "topup", account: "ada", payment: "p", amountMicro: 10_000, by: "test" });
  made.engine.contextWindow = 5000;
  await accepted(made.run());
  made.engine.reportsUsageLate = true;
  const events = made.run();
  const end = rest(events);
  await turn();
  assert.equal(made.store.openHolds("ada").length, 2, "it waits with a part of its credits");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  for (let ms = 0; ms < holdTtlMs; ms += 100) {
    t.mock.timers.tick(100);
    await turn();
  }
  made.store.hooks = {};
  t.mock.timers.tick(1000);
  assertRefusal((await end).error, "internal_error");
  assert.equal(made.engine.generations.length, 1);
  await turn();
  assert.deepEqual(
    made.store.openHolds("ada").map(({ id }) => id),
    ["r1"],
  );
});

test("counts the lifetime of a hold from the request for the extension", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const { made, events, generation } = await begun();
  for (let n = 0; n < 3; n += 1) await beat(t, made);
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  await beat(t, made);
  assert.ok(!generation.isStopped);
  await beat(t, made);
  assert.ok(generation.isStopped);
  made.store.hooks = {};
  assertRefusal((await rest(events)).error, "internal_error");
});

test("counts the lifetime of a new hold from the request for it, and extends one at once that came late", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  for (const isBack of [true, false]) {
    const made = await setup();
    let lateMs = 0;
    const now = performance.now.bind(performance);
    const clock = t.mock.method(performance, "now", () => now() + lateMs);
    const answered = { before: () => {} };
    const away = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
    // The answer of the store was lost, and that to the repetition comes late.
    made.store.hooks = {
      after: () => {
        lateMs = (2 / 3) * holdTtlMs;
        made.store.hooks = isBack ? answered : away;
      },
    };
    const events = made.run();
    await accepted(events);
    const generation = made.engine.last;
    generation.begin();
    await turn();
    const kinds = made.store.batches.flat().map(({ kind }) => kind);
    assert.equal(kinds.includes("extend"), isBack);
    await beat(t, made);
    assert.equal(generation.isStopped, !isBack);
    made.store.hooks = {};
    generation.end("stop");
    await rest(events);
    clock.mock.restore();
  }
});

test("decides a pending checkpoint before the settlement, and writes no other after it", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { made, events, generation } = await begun();
  const gate = Promise.withResolvers<void>();
  made.store.hooks = { before: () => gate.promise };
  await beat(t, made);
  generation.token("x");
  generation.end("stop");
  const end = rest(events);
  await turn();
  assert.deepEqual(made.receipts, [], "its end waits for the charge");
  gate.resolve();
  assert.deepEqual(await end, { types: ["text", "end"], error: null });
  await beat(t, made);
  const kinds = made.store.batches.slice(-2).map((batch) => batch.map((operation) => operation.kind));
  assert.deepEqual(kinds, [["extend"], ["settle"]]);
  await assertEnded(made, "stop", 130);
});

test("does not retry a failed checkpoint before the end of the answer", async (t) => {
  // The pause before that attempt is never over here.
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const { made, events, generation } = await begun();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  made.store.hooks = {};
  generation.end("stop");
  assert.deepEqual(await rest(events), { types: ["end"], error: null });
  await assertEnded(made, "stop", promptCost);
});
