/** The trial request to an upstream that has cooled down, and answers that break off. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";
import { breakOff, type Call, type Play, startFront } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const sayHello: Play = (call) => call.stream(first, text("Hello"), finish(), usage(5, 1), done);
const gone: Play = (call) => call.socket.destroy();
const breaking = breakOff(first, text("Hel"));

for (const [name, play, calls] of [
  ["by its status", (call: Call) => call.answer(500, "{}"), 1],
  ["by closing every connection, of which the first one was stale", gone, 2],
] as const) {
  test(`counts a trial that fails ${name}, sends no other request meanwhile, and works again`, async () => {
    using time = stopTime();
    await using front = await startFront();
    // Makes a kept connection that can become stale.
    await front.chat();
    front.upstream.play = gone;
    for (let n = 0; n < 5; n += 1) assert.equal((await front.chat()).status, 502);
    assert.equal(front.engine.state, "unavailable");
    const before = front.upstream.calls.length;
    const { retryAfter } = await front.assertAnswer({}, { status: 503, code: "model_unavailable" });
    assert.ok(Number(retryAfter) >= 1 && Number(retryAfter) <= 5, `${retryAfter} s`);
    assert.match(front.log(), /keeps failing and gets no requests/);
    time.advance(6000);
    assert.equal(front.engine.state, "ready");
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
    assert.equal(front.upstream.calls.length - before, calls, "only the trial was sent");
    assert.equal(front.engine.state, "unavailable");
    time.advance(6000);
    assert.equal(front.engine.state, "unavailable", "the rest is longer than the first");
    time.advance(6000);
    front.upstream.play = sayHello;
    assert.equal((await front.chat()).status, 200);
    assert.equal(front.engine.state, "ready");
    assert.match(front.log(), /responds again/);
  });
}

test("pauses an account whose answers break off, longer each time, until one is complete", async () => {
  using time = stopTime();
  await using front = await startFront();
  const paused = () => front.engine.servers()[0]?.pausedAccounts;
  const refused = async () => (await front.chat()).status === 503;
  front.upstream.play = breaking;
  for (let n = 0; n < 5; n += 1) {
    assert.equal(paused(), 0);
    assert.equal((await front.events()).error?.code, "upstream_error");
  }
  assert.deepEqual([paused(), await refused()], [1, true]);
  time.advance(5000);
  assert.equal((await front.events()).error?.code, "upstream_error");
  assert.ok(await refused(), "the first token of a trial does not undo its break");
  time.advance(6000);
  assert.ok(await refused(), "nor make the rest a first one");
  time.advance(4000);
  front.upstream.play = sayHello;
  assert.ok((await front.events()).done);
  assert.equal(paused(), 0);
  front.upstream.play = breaking;
  for (let n = 0; n < 4; n += 1) await front.events();
  assert.equal(paused(), 0, "a whole answer begins anew");
  await front.events();
  assert.ok(await refused());
  time.advance(5000);
  front.upstream.play = sayHello;
  assert.ok((await front.events()).done);
});

test("counts answers that are ended here as complete", async () => {
  await using front = await startFront();
  for (let n = 0; n < 8; n += 1) {
    front.upstream.play = breaking;
    await front.events();
    front.upstream.play = (call) => call.send(...Array.from({ length: 9 }, () => text("x ")));
    assert.equal((await front.chat({ max_tokens: 3 })).status, 200);
    await front.upstream.last().closed;
  }
  assert.equal(front.engine.servers()[0]?.pausedAccounts, 0);
});
