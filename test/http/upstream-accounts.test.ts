/** Failures that one account causes: they take the model from nobody else. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { errorOf } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";
import { type Call, type Play, startFront, startUpstream } from "../fixtures/upstream.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const poison = { messages: [{ role: "user", content: "poison" }] };

/** Answers a poisoned prompt with `play`. */
function unlessPoisoned(play: Play): Play {
  return (call: Call) =>
    JSON.stringify(call.body).includes("poison")
      ? play(call)
      : call.stream(first, text("Hello"), finish(), usage(5, 1), done);
}

describe("five prompts that a server cannot take pause it for their account only", () => {
  const failing: [name: string, play: Play][] = [
    ["500", (call) => call.answer(500, '{"error":{"message":"internal error"}}')],
    ["403", (call) => call.answer(403, "{}")],
    ["503", (call) => call.answer(503, "{}")],
    ["an error event", (call) => call.stream(event({ error: { message: "out of memory" } }))],
    ["an ending that is a failure", (call) => call.stream(first, finish("error"), done)],
    ["an answer that ends without its end", (call) => call.stream(first)],
    ["an event that is no JSON", (call) => call.stream("data: {\n\n")],
    [
      "an answer that breaks off",
      async (call) => {
        await call.send(first, text("Hel"));
        call.socket.destroy();
      },
    ],
  ];
  for (const [name, play] of failing) {
    test(name, async () => {
      await using front = await startFront();
      const good = await front.other("good");
      front.upstream.play = unlessPoisoned(play);
      for (let n = 0; n < 5; n += 1) assert.ok((await front.chat(poison)).status >= 500);
      const asked = front.upstream.calls.length;
      const refused = await front.chat(poison);
      assert.equal(refused.status, 503);
      assert.equal((await errorOf(refused)).code, "model_unavailable");
      assert.ok(Number(refused.headers.get("retry-after")) <= 5);
      assert.equal(front.upstream.calls.length, asked, "it is not asked meanwhile");
      for (let n = 0; n < 3; n += 1) assert.equal((await good()).status, 200);
      assert.equal(front.engine.state, "ready");
      const [server] = front.engine.servers();
      assert.deepEqual([server?.state, server?.pausedAccounts], ["ok", 1]);
      assert.match(front.log(), /keeps failing for one account and gets none of its requests for 5 s/);
    });
  }
});

test("two paused accounts pause a server for all, and another account tries it first", async (t) => {
  await using front = await startFront();
  const [second, good] = [await front.other("second"), await front.other("good")];
  front.upstream.play = unlessPoisoned((call) => call.answer(500, "{}"));
  for (const chat of [front.chat, second]) for (let n = 0; n < 5; n += 1) await chat(poison);
  assert.equal((await good()).status, 503);
  assert.equal(front.engine.state, "unavailable");
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 5500);
  // The first account tries for itself, and its failure prolongs nobody else's pause.
  assert.equal((await front.chat(poison)).status, 502);
  assert.equal((await front.chat(poison)).status, 503);
  assert.equal((await good()).status, 200);
  assert.equal(front.engine.state, "ready");
});

test("missing answers count for all, whoever asks", async () => {
  await using front = await startFront();
  const good = await front.other("good");
  front.upstream.play = unlessPoisoned((call) => call.socket.destroy());
  for (let n = 0; n < 5; n += 1) assert.equal((await front.chat(poison)).status, 502);
  assert.equal((await good()).status, 503);
});

test("rejections neither open a circuit nor close it", async (t) => {
  await using front = await startFront();
  const reject: Play = (call) => call.answer(400, '{"error":{"message":"temperature is odd"}}');
  front.upstream.play = reject;
  for (let n = 0; n < 8; n += 1) assert.equal((await front.chat()).status, 400);
  front.upstream.play = (call) => call.answer(500, "{}");
  for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 502);
  front.upstream.play = reject;
  assert.equal((await front.chat()).status, 400);
  front.upstream.play = (call) => call.answer(500, "{}");
  assert.equal((await front.chat()).status, 502);
  assert.equal((await front.chat()).status, 503, "the rejection between them does not count");
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 5500);
  front.upstream.play = reject;
  assert.equal((await front.chat()).status, 400);
  assert.equal(front.engine.servers()[0]?.pausedAccounts, 1, "a rejected trial has no result");
});

test("a paused account is served by another server of the model", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other] });
  front.upstream.play = unlessPoisoned((call) => call.answer(500, "{}"));
  for (let n = 0; n < 12; n += 1) assert.equal((await front.chat(poison)).status, 200);
  assert.equal(front.upstream.calls.length, 5);
  assert.equal(other.calls.length, 12);
});

test("requests of a paused account that wait are refused, and those of others go on", async () => {
  await using front = await startFront({ parallel: 1 });
  const good = await front.other("good");
  const held = Promise.withResolvers<Call>();
  const failing: Play = (call) => call.answer(500, "{}");
  front.upstream.play = unlessPoisoned(failing);
  for (let n = 0; n < 4; n += 1) await front.chat(poison);
  front.upstream.play = held.resolve;
  const last = front.chat(poison);
  const call = await held.promise;
  const waiting = [front.chat(poison), front.chat(poison)];
  const served = good();
  await until("three wait", () => front.engine.load().waiting === 3);
  front.upstream.play = unlessPoisoned(failing);
  void failing(call);
  assert.equal((await last).status, 502);
  for (const response of waiting) assert.equal((await response).status, 503);
  assert.equal((await served).status, 200);
});

test("requests of an account wait no longer when its trial is answered", async (t) => {
  await using front = await startFront();
  front.upstream.play = unlessPoisoned((call) => call.answer(500, "{}"));
  for (let n = 0; n < 5; n += 1) await front.chat(poison);
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 5500);
  const trial = Promise.withResolvers<Call>();
  front.upstream.play = trial.resolve;
  const controller = new AbortController();
  const trying = front.chat({ stream: true }, controller.signal);
  const call = await trial.promise;
  const waiting = front.chat();
  await until("another waits", () => front.engine.load().waiting === 1);
  front.upstream.play = unlessPoisoned(() => {});
  await call.send(first, text("one"));
  assert.equal((await trying).status, 200);
  assert.equal((await waiting).status, 200);
  assert.equal(call.isClosed, false, "the trial goes on");
  controller.abort();
  await call.closed;
});

test("a moderated prompt is not in the log", async () => {
  await using front = await startFront();
  const error = { message: "flagged", code: 403, metadata: { reasons: ["pii"], flagged_input: "12 Elm St" } };
  front.upstream.play = (call) => call.answer(403, JSON.stringify({ error }));
  const messages = [{ role: "user", content: "I am John Q. Doe and live at 12 Elm St in a town." }];
  assert.equal((await front.chat({ messages })).status, 400);
  front.upstream.play = (call) => call.stream(event({ error: { ...error, code: null } }));
  assert.equal((await errorOf(await front.chat({ messages }))).code, "content_filter");
  assert.match(front.log(), /its moderation refused the prompt: 403/);
  assert.ok(!front.log().includes("Elm"));
});

test("a prompt that the moderation of a server refuses is the caller's, and counts as refused work", async () => {
  await using front = await startFront();
  const flagged = { message: "flagged for violence", code: 403, metadata: { reasons: ["violence"] } };
  front.upstream.play = unlessPoisoned((call) => call.answer(403, JSON.stringify({ error: flagged })));
  for (let n = 0; n < 8; n += 1) {
    const response = await front.chat(poison);
    assert.equal(response.status, 400);
    const error = await errorOf(response);
    assert.deepEqual(
      [error.type, error.code, error.param],
      ["invalid_request_error", "content_filter", "messages"],
    );
    assert.ok(!error.message.includes("violence"));
    const row = await front.receipt(response);
    assert.deepEqual([row?.ending, row?.costMicro], ["refused", 0]);
  }
  assert.ok(front.service.finished.every(({ refused }) => refused !== null));
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.calls.length, 9, "each is sent once");
});
