/** Probes of upstream servers: operators see that a server is away before a caller meets it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, listOf, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { freePort } from "../fixtures/program.ts";
import { samplesOf } from "../fixtures/samples.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";
import { type Front, type Play, secretKey, startFront, startUpstream } from "../fixtures/upstream.ts";
import { first, text } from "../fixtures/upstream-events.ts";

const times = { connectMs: 200, headersMs: 60_000, idleMs: 60_000 };
const answering =
  (status: number): Play =>
  (call) =>
    call.answer(status, "{}");

/** Returns the state of the model in each report. */
async function reports(operator: TestOperator) {
  const { status, body } = await operator.get("/readyz");
  const [, model] = listOf((await operator.get("/admin/models")).body.data);
  const overview = (await operator.get("/admin/overview")).body;
  const samples = samplesOf((await operator.get("/metrics")).text);
  return {
    status,
    readyz: fieldsOf(body.models).big,
    warnings: body.warnings,
    model: model?.state,
    server: listOf(model?.servers)[0],
    overview: listOf(overview.models)[1]?.state,
    gauge: samples.get('inkwell_model_ready{model="big"}'),
    failing: samples.get('inkwell_model_failing_servers{model="big"}'),
  };
}

async function assertReported(front: Front, operator: TestOperator, state: "ready" | "unavailable") {
  await until(`the model is ${state}`, () => front.engine.state === state);
  // The overview has a snapshot a second.
  await until("the overview follows", async () => {
    const { body } = await operator.get("/admin/overview");
    return listOf(body.models)[1]?.state === state;
  });
  const { server, ...found } = await reports(operator);
  const isReady = state === "ready";
  const sentence = 'The model "big" is unavailable: none of its servers works.';
  assert.deepEqual(found, {
    status: 200,
    readyz: state,
    warnings: isReady ? [] : [sentence],
    model: state,
    overview: state,
    gauge: isReady ? 1 : 0,
    failing: isReady ? 0 : 1,
  });
  assert.equal(server?.state, isReady ? "ok" : "down");
  return String(Object(server?.last_error).message);
}

test("reports a server that is down, comes up, hangs, fails and refuses the key, without a request", () =>
  unlessStalled(async () => {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}/v1`;
    await using front = await startFront({ urls: [url], times, probeEveryMs: 50 });
    await using operator = await startOperator(front.service);
    assert.match(await assertReported(front, operator, "unavailable"), /cannot be reached: .*ECONNREFUSED/);

    await using upstream = await startUpstream(undefined, port);
    upstream.playOther = answering(200);
    await assertReported(front, operator, "ready");
    const [probe] = upstream.asked;
    assert.equal(probe?.path, "/v1/models");
    assert.equal(probe?.headers.authorization, `Bearer ${secretKey}`);

    upstream.playOther = () => {};
    assert.match(await assertReported(front, operator, "unavailable"), /did not respond within 0\.4 s/);
    upstream.playOther = answering(404);
    await assertReported(front, operator, "ready");
    upstream.playOther = answering(503);
    assert.match(await assertReported(front, operator, "unavailable"), /it answered 503/);
    upstream.playOther = answering(401);
    await assertReported(front, operator, "ready");

    assert.equal(upstream.calls.length, 0, "no probe costs a token");
    assert.match(front.log(), /an upstream does not respond.*an upstream responds again/);
    assert.ok(!front.log().includes(secretKey));
  }));

test("a request that fails makes the state right at once, and so does one that is answered", async () => {
  await using front = await startFront({ times, probeEveryMs: 3_600_000 });
  const { upstream } = front;
  await until("the first probe is answered", () => upstream.asked.length === 1);
  assert.equal((await front.chat()).status, 200);
  upstream.play = (call) => call.socket.destroy();
  upstream.playOther = (call) => call.socket.destroy();
  assert.equal((await front.chat()).status, 502);
  await until("the model is unavailable", () => front.engine.state === "unavailable");
  upstream.play = (call) => call.answer(400, '{"error":{"message":"no"}}');
  await (await front.chat()).text();
  assert.equal(front.engine.state, "ready", "a server that refuses a request is alive");
});

test("a part of a running answer shows that the server responds", async () => {
  await using front = await startFront({ times, probeEveryMs: 3_600_000 });
  const { upstream } = front;
  upstream.play = (call) => call.send(first, text("one"));
  const controller = new AbortController();
  assert.equal((await front.chat({ stream: true }, controller.signal)).status, 200);
  const running = upstream.last();
  upstream.play = (call) => call.socket.destroy();
  upstream.playOther = answering(503);
  assert.equal((await front.chat()).status, 502);
  await until("the model is unavailable", () => front.engine.state === "unavailable");
  await running.send(text("two"));
  await until("the model is ready", () => front.engine.state === "ready");
  controller.abort();
  await running.closed;
});

test("a probe refuses no request: a server that fails probes but answers is used", async () => {
  await using front = await startFront({ times, probeEveryMs: 50 });
  front.upstream.playOther = answering(500);
  await until("the model is unavailable", () => front.engine.state === "unavailable");
  for (let n = 0; n < 6; n += 1) assert.equal((await front.chat()).status, 200);
});

test("sends requests to the servers that respond, and reports that one does not", () =>
  unlessStalled(async () => {
    const dead = `http://127.0.0.1:${await freePort()}/v1`;
    await using alive = await startUpstream();
    await using front = await startFront({ urls: [dead, alive.url], times, probeEveryMs: 50 });
    await using operator = await startOperator(front.service);
    await until("the dead one is known", () => front.engine.servers()[0]?.state === "down");
    for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 200);
    assert.doesNotMatch(front.log(), /goes to another one/);
    const { readyz, warnings, gauge, failing } = await reports(operator);
    const sentence = 'Not all servers of the model "big" work.';
    assert.deepEqual([readyz, warnings, gauge, failing], ["ready", [sentence], 1, 1]);
  }));

test("an engine that closes ends its probes", async () => {
  await using front = await startFront({ times: { ...times, connectMs: 60_000 }, probeEveryMs: 50 });
  front.upstream.playOther = () => {};
  await until("a probe waits", () => front.upstream.asked.length > 0);
  const [probe] = front.upstream.asked;
  await front.engine.close();
  await probe?.closed;
  assert.doesNotMatch(front.log(), /does not respond/);
});
