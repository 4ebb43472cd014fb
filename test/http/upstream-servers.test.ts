/** Several upstreams for one model, stale connections, and upstreams that are cooling down. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { UpstreamEngine } from "../../src/engines/upstream/engine.ts";
import { freePort } from "../fixtures/program.ts";
import { errorOf, jsonOf, say, startService } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";
import { breakOff, charged, type Front, type Play, startFront, startUpstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const hello = [text("Hello"), text(" world"), finish(), usage(5, 2), done];
const quick = { connectMs: 1000, headersMs: 1000, idleMs: 1000 };

/** Checks that every request is settled once, for the tokens of its answer. */
async function assertChargedOnce(front: Front, requests: number): Promise<void> {
  const rows = await front.service.store.usage({ account: front.service.account, limit: 100 });
  assert.equal(rows.length, requests);
  for (const row of rows)
    assert.deepEqual([row.ending, row.promptTokens, row.completionTokens], ["stop", 5, 2]);
}

const failing: [name: string, play: Play][] = [
  ["closes every connection", (call) => call.socket.destroy()],
  ["is over its limit", (call) => call.answer(429, "{}", { "retry-after": "60" })],
  ["is restarting", (call) => call.answer(503, "{}")],
  ["is broken", (call) => call.answer(500, "{}")],
  ["has another key", (call) => call.answer(401, "{}")],
  ["hangs", () => {}],
  ["dies before its first token", breakOff(first)],
];
for (const [name, play] of failing) {
  test(`one of two upstreams ${name}: the caller does not notice, and pays once`, () =>
    unlessStalled(async () => {
      const other = await startUpstream(play);
      await using front = await startFront({ others: [other], times: quick });
      for (let n = 0; n < 4; n += 1) assert.deepEqual((await front.events()).texts, ["Hello", " world"]);
      assert.ok(other.calls.length > 0, "it was asked");
      assert.equal(front.upstream.calls.length, 4);
      await assertChargedOnce(front, 4);
    }));
}

test("uses the other of two upstreams if one is down", async () => {
  const port = await freePort();
  const there = await startUpstream();
  await using front = await startFront({ urls: [`http://127.0.0.1:${port}/v1`, there.url], others: [] });
  for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 200);
  await assertChargedOnce(front, 4);
  await there.stop();
});

test("reports the error after two upstreams have failed, without a third attempt", async () => {
  const fail: Play = (call) => call.answer(500, "{}");
  const others = [await startUpstream(fail), await startUpstream(fail)];
  await using front = await startFront({ others });
  front.upstream.play = fail;
  assert.equal((await front.chat()).status, 502);
  const calls = [front.upstream, ...others].map((each) => each.calls.length);
  assert.deepEqual(calls.sort(), [0, 1, 1]);
});

test("asks no other upstream after the first token", async () => {
  const play = breakOff(text("Hel"));
  const other = await startUpstream(play);
  await using front = await startFront({ others: [other] });
  front.upstream.play = play;
  assert.equal((await front.events()).error?.code, "upstream_error");
  assert.equal(front.upstream.calls.length + other.calls.length, 1);
});

test("asks the least busy upstream", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other] });
  const controller = new AbortController();
  const hold: Play = (call) => call.send(first, text("one"));
  front.upstream.play = hold;
  other.play = hold;
  assert.equal((await front.chat({ stream: true }, controller.signal)).status, 200);
  const [held, free] = front.upstream.calls.length === 1 ? [front.upstream, other] : [other, front.upstream];
  free.play = (call) => call.stream(...hello);
  for (let n = 0; n < 4; n += 1) {
    assert.equal((await front.chat()).status, 200);
    await until("its connection is free again", () => front.engine.load().running === 1);
  }
  assert.deepEqual([held.calls.length, free.calls.length], [1, 4]);
  controller.abort();
  await held.last().closed;
});

test("asks equally busy servers in turn, also if prompts are counted first", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other], dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":5}');
  other.playOther = front.upstream.playOther;
  for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 200);
  assert.deepEqual([front.upstream.calls.length, other.calls.length], [2, 2]);
});

test("repeats a request once over a new connection if its connection was stale", async () => {
  await using front = await startFront();
  await front.chat();
  front.upstream.play = (call) => {
    // The connection closes just before the request.
    front.upstream.play = (again) => again.stream(...hello);
    call.socket.destroy();
  };
  assert.deepEqual((await front.events()).texts, ["Hello", " world"]);
  assert.equal(front.upstream.calls.length, 3);
  assert.equal(front.upstream.connections, 2);
  await assertChargedOnce(front, 2);
  front.upstream.play = (call) => call.socket.destroy();
  assert.equal((await front.chat()).status, 502);
  assert.equal(front.upstream.calls.length, 5, "only once");
});

for (const status of ["100 Continue", "101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade"]) {
  test(`does not repeat a request that is answered ${status.slice(0, 3)}`, async () => {
    await using front = await startFront();
    await front.chat();
    front.upstream.play = (call) => void call.socket.write(`HTTP/1.1 ${status}\r\n\r\n`);
    assert.equal((await front.chat()).status, 502);
    assert.equal(front.upstream.calls.length, 2);
  });
}

test("answers model_unavailable if the upstream is down", async () => {
  await using front = await startFront({ urls: [`http://127.0.0.1:${await freePort()}/v1`] });
  await front.assertAnswer({}, { status: 503, code: "model_unavailable", costMicro: 0 });
});

test("sends waiting requests to a server as soon as it has cooled down", async (t) => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other], parallel: 1 });
  other.play = (call) => call.answer(500, "{}");
  while (other.calls.length < 5) {
    assert.equal((await front.chat()).status, 200);
    await until("both have room again", () => front.engine.load().running === 0);
  }
  const controller = new AbortController();
  front.upstream.play = (call) => call.send(first, text("one"));
  assert.equal((await front.chat({ stream: true }, controller.signal)).status, 200);
  // Half a second before the server has cooled down.
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 4500);
  other.play = (call) => call.stream(...hello);
  assert.equal((await front.chat()).status, 200);
  assert.equal(other.calls.length, 6);
  assert.equal(front.upstream.last().isClosed, false, "the long answer goes on");
  controller.abort();
  await front.upstream.last().closed;
});

test("sends an upstream no more than its parallel requests, and refuses beyond a full queue", async () => {
  await using front = await startFront({ parallel: 2, queueMax: 1 });
  const answers: (() => void)[] = [];
  front.upstream.play = (call) => answers.push(() => void call.stream(...hello));
  const running = [front.chat(), front.chat(), front.chat()];
  await until("two run and one waits", () => {
    const { running: now, waiting } = front.engine.load();
    return now === 2 && waiting === 1;
  });
  await front.assertAnswer({}, { status: 503, code: "overloaded", retryAfter: "2" });
  await until("two are asked", () => answers.length === 2);
  for (const answer of answers.splice(0)) answer();
  await until("the third is asked", () => answers.length === 1);
  for (const answer of answers.splice(0)) answer();
  for (const response of await Promise.all(running)) assert.equal(response.status, 200);
});

test("ends running and waiting answers when the engine is closed", async () => {
  await using front = await startFront({ parallel: 1 });
  front.upstream.play = (call) => call.send(first, text("one"));
  const running = front.events();
  await until("one runs", () => front.upstream.calls.length === 1);
  const waiting = front.chat();
  await until("one waits", () => front.engine.load().waiting === 1);
  await front.engine.close();
  assert.equal((await running).error?.code, "model_unavailable");
  assert.equal((await waiting).status, 503);
  assert.equal(front.engine.state, "closed");
  await front.upstream.last().closed;
});

test("ends every hold of a hundred mixed requests over two upstreams, with correct receipts", async () => {
  const ways: Play[] = [
    (call) => call.stream(first, ...hello),
    (call) => call.stream(text("Hello"), text(" world"), finish(), done),
    (call) => call.stream(text("Hello")),
    (call) => call.answer(500, "{}"),
    (call) => call.answer(429, "{}"),
    (call) => call.socket.destroy(),
    (call) => call.send(first, text("Hello")),
    () => {},
  ];
  let n = 0;
  const play: Play = (call) => {
    n += 1;
    return ways[n % ways.length]?.(call);
  };
  const other = await startUpstream(play);
  await using front = await startFront({ others: [other], parallel: 20, queueMax: 100, times: quick });
  front.upstream.play = play;
  const requests = Array.from({ length: 100 }, async (_, index) => {
    const leaving = new AbortController();
    if (index % 5 === 0) setTimeout(() => leaving.abort(), 3 * index);
    const response = await front.chat({ stream: index % 2 === 0 }, leaving.signal).catch(() => null);
    return await response?.text().catch(() => null);
  });
  await Promise.all(requests);
  await until("nothing is at work", () => front.service.server.requests.count === 0);
  const rows = await front.service.store.usage({ account: front.service.account, limit: 200 });
  for (const row of rows) {
    assert.ok(row.completionTokens <= 2 && row.shortfallMicro === 0);
    if (row.ending === "engine_failed" && row.completionTokens === 0) assert.equal(row.costMicro, 0);
  }
});

test("accepts another Inkwell as an upstream", async () => {
  await using back = await startService({
    script: { tokens: ["Hello", " wor", "ld"], reasoningTokens: 2, cachedTokens: 1 },
  });
  const engine = new UpstreamEngine({
    urls: [`${back.url}/v1`],
    key: back.key,
    model: "small",
    dialect: "compatible",
    contextWindow: 8192,
    parallel: 16,
    reserved: 0,
    queueMax: 16,
    times: { connectMs: 5000, headersMs: 60_000, idleMs: 60_000 },
    reasoning: null,
    log: back.logger,
  });
  try {
    await using front = await startService({ otherEngines: { big: engine } });
    const response = await front.chat({ model: "big", logprobs: true, top_logprobs: 2 });
    const { choices } = await jsonOf<{
      choices: { message: { content: string }; logprobs: { content: unknown[] } }[];
    }>(response);
    assert.equal(choices[0]?.message.content, "Hello world");
    assert.equal(choices[0]?.logprobs.content.length, 3);
    const row = await front.receipt(response.headers.get("x-request-id") ?? "");
    const behind = back.settled[0]?.usage;
    assert.deepEqual(charged(row), { ...behind, ending: "stop" });
    assert.deepEqual([row?.promptTokens, row?.completionTokens], [3, 5]);

    back.engine.script = () => ({ ...say("never"), refusal: { at: "generate", kind: "overloaded" } });
    const refused = await front.chat({ model: "big" });
    assert.equal(refused.status, 503);
    assert.equal((await errorOf(refused)).code, "overloaded");
  } finally {
    await engine.close();
  }
});
