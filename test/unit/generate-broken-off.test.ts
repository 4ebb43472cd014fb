/**
 * The pipeline: answers that end early. The client goes, the service stops, the engine fails: what
 * each charges.
 */
import assert from "node:assert/strict";
import { EngineError } from "../../src/chat/engine.ts";
import { Refusal } from "../../src/errors.ts";
import { accepted, begun, promptCost, queued, setup, test, turn } from "../fixtures/pipeline.ts";
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

test("a client that goes while the request is queued pays nothing", async () => {
  const { made, events } = await queued();
  made.abort.abort();
  assert.deepEqual(await rest(events), { types: [], error: null });
  await assertEnded(made, "client_gone", 0);
});

test("a client that goes before the first token, the engine at work, pays the prompt (litellm#31499)", async () => {
  const { made, events } = await begun();
  const next = events.next();
  await turn();
  made.abort.abort();
  assert.equal((await next).done, true);
  await assertEnded(made, "client_gone", promptCost);
});

test("a client that goes in mid-stream pays the prompt and every token made, read or not (llmgateway#3331, litellm#33736, new-api#5235)", async () => {
  const { made, events, generation } = await begun();
  for (let n = 0; n < 5; n += 1) generation.token("x");
  await events.next();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "client_gone", promptCost + 5 * 30);
});

test("a client that goes while only thinking was made pays for the thinking", async () => {
  const { made, events, generation } = await begun();
  generation.think();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "client_gone", 130);
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

test("a reader that returns instead of aborting ends the request just so", async () => {
  const queued = await setup();
  const first = queued.run();
  await accepted(first);
  await first.return();
  await assertEnded(queued, "client_gone", 0);

  const atWork = await setup();
  const second = atWork.run();
  await accepted(second);
  atWork.engine.last.begin();
  await second.return();
  await assertEnded(atWork, "client_gone", promptCost);

  const midStream = await setup();
  for await (const event of midStream.run()) {
    if (event.type === "accepted") {
      midStream.engine.last.begin();
      midStream.engine.last.token("x");
      midStream.engine.last.token("y");
    } else break;
  }
  await assertEnded(midStream, "client_gone", 160);
});

test("a reader that returns before it has asked for anything has held nothing", async () => {
  const made = await setup();
  await made.run().return();
  await assertUntouched(made);
});

// The service stops

test("a request that the service ends is charged for what was made, and told why", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  await events.next();
  const reason = new Refusal("shutting_down", "The service is stopping.");
  made.abort.abort(reason);
  assert.deepEqual(await rest(events), { types: [], error: reason });
  await assertEnded(made, "shutdown", 130);
});

test("a request that the service ends while it is queued costs nothing", async () => {
  const { made, events } = await queued();
  const reason = new Refusal("shutting_down", "The service is stopping.");
  made.abort.abort(reason);
  assert.deepEqual(await rest(events), { types: [], error: reason });
  await assertEnded(made, "shutdown", 0);
});

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

test("an engine that fails before the first token charges nothing, begun or not (otari#128, new-api#4168)", async () => {
  for (const isBegun of [false, true]) {
    const { made, events, generation } = await queued();
    if (isBegun) generation.begin();
    generation.fail(new EngineError("failed", "exit code 134"));
    const { types, error } = await rest(events);
    assert.deepEqual(types, []);
    assertRefusal(error, "upstream_error");
    await assertEnded(made, "engine_failed", 0);
  }
});

test("an engine that fails in mid-stream charges the prompt and every token made", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.token("y");
  generation.fail(new EngineError("timeout", "no token for 60 s"));
  const { types, error } = await rest(events);
  assert.deepEqual(types, ["text", "text"]);
  assertRefusal(error, "upstream_timeout");
  await assertEnded(made, "engine_failed", 160);
});

test("an answer that is not streamed and breaks off costs nothing: nothing of it was delivered", async () => {
  const endings = [
    { ending: "engine_failed", cost: 0, provoke: "fail" },
    { ending: "shutdown", cost: 0, provoke: "stop" },
    { ending: "client_gone", cost: 160, provoke: "leave" },
  ] as const;
  for (const { ending, cost, provoke } of endings) {
    const { made, events, generation } = await begun({ ask: { stream: false } });
    generation.token("x");
    generation.token("y");
    if (provoke === "fail") generation.fail(new EngineError("timeout", "no token for 60 s"));
    else if (provoke === "stop") made.abort.abort(new Refusal("shutting_down", ""));
    else made.abort.abort();
    await rest(events);
    await assertEnded(made, ending, cost);
  }
});

test("a defect in an engine comes out as it is, and the hold goes back", async () => {
  const { made, events, generation } = await begun();
  const defect = new TypeError("undefined is no function");
  generation.fail(defect);
  assert.deepEqual(await rest(events), { types: [], error: defect });
  await assertEnded(made, "engine_failed", 0);

  const early = await setup();
  early.engine.refusal = defect;
  assert.deepEqual(await rest(early.run()), { types: [], error: defect });
  await assertEnded(early, "refused", 0);
});

test("a generation that just ends is a failure, not a complete answer", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.break();
  const { types, error } = await rest(events);
  assert.deepEqual(types, ["text"]);
  assertRefusal(error, "upstream_error");
  await assertEnded(made, "engine_failed", 130);
});
