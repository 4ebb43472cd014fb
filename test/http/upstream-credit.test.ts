/** The operator's account at a provider is empty: others take over, and nobody asks in vain. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ServiceEvents } from "../../src/events/service-events.ts";
import { errorOf } from "../fixtures/service.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";
import { type Call, type Play, startFront, startUpstream } from "../fixtures/upstream.ts";
import { event } from "../fixtures/upstream-events.ts";

const error = {
  message: "You exceeded your current quota",
  type: "insufficient_quota",
  code: "insufficient_quota",
};

const empty: [name: string, play: Play][] = [
  ["402", (call) => call.answer(402, '{"error":{"message":"Insufficient Balance"}}')],
  ["429 with the code of an empty account", (call) => call.answer(429, JSON.stringify({ error }))],
  ["an error event with that code", (call) => call.stream(event({ error }))],
];

describe("a server alone gets one request every five minutes", () => {
  for (const [name, play] of empty) {
    test(name, async () => {
      using time = stopTime();
      await using front = await startFront();
      const other = await front.other("other");
      front.upstream.play = play;
      for (const chat of [front.chat, other, front.chat]) {
        const response = await chat();
        assert.equal(response.status, 502);
        assert.equal(response.headers.get("x-should-retry"), "false");
        const said = await errorOf(response);
        assert.equal(said.code, "upstream_error");
        assert.match(said.message, /until the operator of this service acts/);
      }
      assert.equal(front.upstream.calls.length, 1);
      assert.equal(front.engine.state, "unavailable");
      assert.equal(front.engine.servers()[0]?.state, "out_of_credit");
      assert.match(front.log(), /the account at the provider has no credits; .* every 5 minutes/);
      assert.match(
        await front.service.metrics.text(),
        /inkwell_model_servers_out_of_credit\{model="big"\} 1/,
      );

      time.advance(299_000);
      await front.chat();
      assert.equal(front.upstream.calls.length, 1);
      time.advance(2000);
      assert.equal((await front.chat()).status, 502);
      assert.equal((await front.chat()).status, 502);
      assert.equal(front.upstream.calls.length, 2, "one trial");
      time.advance(301_000);
      front.upstream.play = (call) => call.answer(500, "{}");
      assert.equal((await front.chat()).headers.get("x-should-retry"), null, "now it fails in another way");
      assert.equal(front.engine.servers()[0]?.state, "resting");
    });
  }
});

test("requests at the same time are one outage", async () => {
  await using front = await startFront();
  const calls: Call[] = [];
  front.upstream.play = (call) => calls.push(call);
  const responses = [front.chat(), front.chat()];
  await until("both were sent", () => calls.length === 2);
  for (const call of calls) call.answer(402, "{}");
  for (const response of responses) assert.equal((await response).status, 502);
  const lines = front.service.log.filter(({ msg }) => String(msg).includes("has no credits; the upstream"));
  assert.equal(lines.length, 1);
});

test("a balance that pays for fewer tokens is no empty account (OpenRouter)", async () => {
  await using front = await startFront();
  const other = await front.other("other");
  const { play } = front.upstream;
  front.upstream.play = (call) => {
    const { max_tokens: asked } = call.body;
    assert.ok(typeof asked === "number");
    if (asked <= 1000) return play(call);
    const message = `This request requires more credits, or fewer max_tokens. You requested up to ${asked} tokens, but can only afford 1000.`;
    return call.answer(402, JSON.stringify({ error: { message, code: 402 } }));
  };
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.last().body.max_tokens, 1000);
  assert.equal((await front.chat({ max_tokens: 2000 })).status, 502, "the caller asked for more");
  assert.equal((await other({ max_tokens: 100 })).status, 200);
  assert.equal(front.engine.servers()[0]?.state, "ok");
});

test("a reload ends the pause at once", async () => {
  await using front = await startFront();
  const { play } = front.upstream;
  front.upstream.play = (call) => call.answer(402, "{}");
  assert.equal((await front.chat()).status, 502);
  front.upstream.play = play;
  assert.equal((await front.chat()).status, 502);
  front.engine.reloaded();
  assert.equal(front.engine.servers()[0]?.state, "ok");
  assert.equal((await front.chat()).status, 200);
});

test("another server takes over, and the empty one is not asked each time", async () => {
  const other = await startUpstream((call) => call.answer(402, "{}"));
  await using front = await startFront({ others: [other] });
  for (let n = 0; n < 8; n += 1) assert.equal((await front.chat()).status, 200);
  assert.equal(other.calls.length, 1);
  assert.equal(front.engine.state, "ready");
});

test("an event says once that the account is empty, also if the model works", async () => {
  const other = await startUpstream((call) => call.answer(402, "{}"));
  await using front = await startFront({ others: [other] });
  while (other.calls.length === 0) await front.chat();
  const added: object[] = [];
  const events = new ServiceEvents({
    catalog: front.service.catalog,
    node: "a",
    store: {
      times: () => front.service.store.times(),
      events: {
        ...front.service.store.events,
        add: async ({ type, data }) => added.push({ type, data }) > 0,
      },
    },
  });
  await events.lookAtModels();
  await events.lookAtModels();
  const server = other.url;
  assert.deepEqual(added, [{ type: "model.out_of_credit", data: { model: "big", node: "a", server } }]);
});
