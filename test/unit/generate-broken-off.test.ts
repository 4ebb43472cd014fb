/**
 * The pipeline: answers that end early. The client goes, the service stops, the engine fails: what
 * each charges.
 */
import assert from "node:assert/strict";
import { EngineError } from "../../src/chat/engine.ts";
import { Refusal } from "../../src/errors.ts";
import { begun, setup, test, turn } from "../fixtures/pipeline.ts";
import { assertEnded, assertRefusal, assertUntouched, rest } from "../fixtures/pipeline-results.ts";

// The client goes away

test("a client that is gone before the prompt is counted costs nothing and holds nothing", async () => {
  const made = await setup();
  made.abort.abort();
  made.engine.whilePreparing = (signal) => signal.throwIfAborted();
  assert.deepEqual(await rest(made.run()), { types: [], error: null });
  await assertUntouched(made);
});

test("a client that goes while the prompt is counted costs nothing, whatever the engine makes of it", async () => {
  for (const afterwards of ["answers", "throws"]) {
    const made = await setup();
    made.engine.whilePreparing = () => {
      made.abort.abort();
      if (afterwards === "throws") throw new EngineError("unavailable", "aborted");
    };
    assert.deepEqual(await rest(made.run()), { types: [], error: null });
    await assertUntouched(made);
  }
});

test("a client that goes while the hold is being written gets it back (suna#6835)", async () => {
  const made = await setup();
  made.store.hooks = { before: () => made.abort.abort() };
  assert.deepEqual(await rest(made.run()), { types: [], error: null });
  assert.equal(made.engine.generations.length, 0);
  await assertEnded(made, "refused", 0);
});

test("a client that goes when all has been made is charged as an answer that came to its end", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.end("stop");
  await turn();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "stop", 130);
});

test("a reader that returns before it has asked for anything has held nothing", async () => {
  const made = await setup();
  await made.run().return();
  await assertUntouched(made);
});

// The service stops

test("a request that the service ends before or during its hold is told why and holds nothing", async () => {
  const reason = new Refusal("shutting_down", "The service is stopping.");
  const before = await setup();
  before.abort.abort(reason);
  assert.deepEqual(await rest(before.run()), { types: [], error: reason });
  await assertUntouched(before);

  const during = await setup();
  during.store.hooks = { before: () => during.abort.abort(reason) };
  assert.deepEqual(await rest(during.run()), { types: [], error: reason });
  await assertEnded(during, "refused", 0);
});

// The engine fails

test("an engine whose queue is full refuses with retry-after, and the hold goes back", async () => {
  const made = await setup();
  made.engine.refusal = new EngineError("overloaded", "16 wait", { retryAfterSeconds: 7 });
  const { types, error } = await rest(made.run());
  assert.deepEqual(types, [], "no byte of a 200");
  assertRefusal(error, "overloaded");
  assert.equal(error.retryAfterSeconds, 7);
  await assertEnded(made, "refused", 0);
});

test("a defect of an engine that is asked comes out as it is, and the hold goes back", async () => {
  const defect = new TypeError("undefined is no function");
  const made = await setup();
  made.engine.refusal = defect;
  assert.deepEqual(await rest(made.run()), { types: [], error: defect });
  await assertEnded(made, "refused", 0);
});
