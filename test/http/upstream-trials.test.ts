/** The trial request to an upstream that has cooled down. Every kind of failure counts. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { eventCharactersMax } from "../../src/engines/upstream/exchange.ts";
import { until } from "../fixtures/until.ts";
import { type Call, type Front, type Play, startFront } from "../fixtures/upstream.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const sayHello: Play = (call) => call.stream(first, text("Hello"), finish(), usage(5, 1), done);

const breakOff: Play = async (call) => {
  await call.send(first, text("Hel"));
  call.socket.destroy();
};

/** Stops the clock of the engine. Returns a function that advances it. */
function timeOf(t: TestContext): (laterMs: number) => void {
  const nowMs = performance.now();
  let aheadMs = 0;
  t.mock.method(performance, "now", () => nowMs + aheadMs);
  return (laterMs) => {
    aheadMs += laterMs;
  };
}

/** Makes requests fail without an answer until the upstream cools down. */
async function failOften(front: Front): Promise<void> {
  front.upstream.play = (call) => call.socket.destroy();
  for (let n = 0; n < 5; n += 1) assert.equal((await front.chat()).status, 502);
  assert.equal(front.engine.state, "unavailable");
}

describe("counts a failed trial, and sends no other request meanwhile", () => {
  const failing: [name: string, play: Play][] = [
    ["by its status", (call) => call.answer(500, "{}")],
    ["by another kind of content", (call) => call.answer(200, "<html>", { "content-type": "text/html" })],
    ["by an error event", (call) => call.send(event({ error: { message: "out of memory" } }))],
    ["by an event that is no JSON", (call) => call.send("data: {\n\n")],
    ["by an event that is too large", (call) => call.send(`data: ${"x".repeat(eventCharactersMax + 1)}`)],
    ["by an answer that ends without its end", (call) => call.stream(first)],
    ["by closing every connection", (call) => call.socket.destroy()],
  ];
  for (const [name, play] of failing) {
    test(name, async (t) => {
      const goOn = timeOf(t);
      await using front = await startFront();
      // Makes a kept connection that can become stale.
      await front.chat();
      await failOften(front);
      const before = front.upstream.calls.length;
      goOn(6000);
      const trial = Promise.withResolvers<Call>();
      front.upstream.play = trial.resolve;
      const trying = front.chat();
      const call = await trial.promise;
      const waiting = front.chat();
      await until("another waits", () => front.engine.load().waiting === 1);
      front.upstream.play = play;
      void play(call);
      assert.equal((await trying).status, 502);
      assert.equal((await waiting).status, 503);
      const isStale = name === "by closing every connection";
      assert.equal(front.upstream.calls.length - before, isStale ? 2 : 1, "only the trial was sent");
      assert.equal(front.engine.state, "unavailable");
      goOn(6000);
      assert.equal(front.engine.state, "unavailable", "the rest is longer than the first");
      goOn(6000);
      assert.equal(front.engine.state, "ready");
    });
  }
});

test("pauses an account whose answers break off, longer each time, until one is complete", async (t) => {
  const goOn = timeOf(t);
  await using front = await startFront();
  const paused = () => front.engine.servers()[0]?.pausedAccounts;
  const refused = async () => (await front.chat()).status === 503;
  front.upstream.play = breakOff;
  for (let n = 0; n < 5; n += 1) {
    assert.equal(paused(), 0);
    assert.equal((await front.events()).error?.code, "upstream_error");
  }
  assert.deepEqual([paused(), await refused()], [1, true]);
  goOn(5000);
  assert.equal((await front.events()).error?.code, "upstream_error");
  assert.ok(await refused(), "the first token of a trial does not undo its break");
  goOn(6000);
  assert.ok(await refused(), "nor make the rest a first one");
  goOn(4000);
  front.upstream.play = sayHello;
  assert.ok((await front.events()).done);
  assert.equal(paused(), 0);
  front.upstream.play = breakOff;
  for (let n = 0; n < 4; n += 1) await front.events();
  assert.equal(paused(), 0, "a whole answer begins anew");
  await front.events();
  assert.ok(await refused());
  goOn(5000);
  front.upstream.play = sayHello;
  assert.ok((await front.events()).done);
});

test("counts answers that are ended here as complete", async () => {
  await using front = await startFront();
  for (let n = 0; n < 8; n += 1) {
    front.upstream.play = breakOff;
    await front.events();
    front.upstream.play = (call) => call.send(...Array.from({ length: 9 }, () => text("x ")));
    assert.equal((await front.chat({ max_tokens: 3 })).status, 200);
    await front.upstream.last().closed;
  }
  assert.equal(front.engine.servers()[0]?.pausedAccounts, 0);
});
