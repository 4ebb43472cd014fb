/** Failures that one account causes: they take the model from nobody else. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventCharactersMax } from "../../src/engines/upstream/exchange.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";
import {
  breakOff,
  type Call,
  type Outcome,
  type Play,
  startFront,
  startUpstream,
  testAnswers,
} from "../fixtures/upstream.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const poison = { messages: [{ role: "user", content: "poison" }] };

/** Answers a poisoned prompt with `play`. */
function unlessPoisoned(play: Play): Play {
  return (call: Call) =>
    JSON.stringify(call.body).includes("poison")
      ? play(call)
      : call.stream(first, text("Hello"), finish(), usage(5, 1), done);
}

const broken: Play = (call) => call.answer(500, "{}");
const gone: Play = (call) => call.socket.destroy();

describe("five prompts that a server cannot take pause it for their account only, and a failed trial again", () => {
  const failing: [name: string, play: Play][] = [
    ...[500, 403, 503].map((status): [string, Play] => [`${status}`, (call) => call.answer(status, "{}")]),
    ["another kind of content", (call) => call.answer(200, "<html>", { "content-type": "text/html" })],
    ["an error event", (call) => call.stream(event({ error: { message: "out of memory" } }))],
    ["an ending that is a failure", (call) => call.stream(first, finish("error"), done)],
    ["an answer that ends without its end", (call) => call.stream(first)],
    ["an event that is no JSON", (call) => call.stream("data: {\n\n")],
    ["an event that is too large", (call) => call.send(`data: ${"x".repeat(eventCharactersMax + 1)}`)],
    ["an answer that breaks off", breakOff(first, text("Hel"))],
  ];
  for (const [name, play] of failing) {
    test(name, async () => {
      using time = stopTime();
      await using front = await startFront();
      const good = await front.other("good");
      front.upstream.play = unlessPoisoned(play);
      for (let n = 0; n < 5; n += 1) assert.ok((await front.chat(poison)).status >= 500);
      const asked = front.upstream.calls.length;
      const { retryAfter } = await front.assertAnswer(poison, { status: 503, code: "model_unavailable" });
      assert.ok(Number(retryAfter) <= 5);
      assert.equal(front.upstream.calls.length, asked, "it is not asked meanwhile");
      for (let n = 0; n < 3; n += 1) assert.equal((await good()).status, 200);
      assert.equal(front.engine.state, "ready");
      const [server] = front.engine.servers();
      assert.deepEqual([server?.state, server?.pausedAccounts], ["ok", 1]);
      assert.match(front.log(), /keeps failing for one account and gets none of its requests for 5 s/);
      time.advance(5500);
      assert.ok((await front.chat(poison)).status >= 500);
      time.advance(5500);
      assert.equal((await front.chat(poison)).status, 503, "the second pause is longer");
      assert.equal(
        front.upstream.calls.length,
        asked + 4,
        "one trial, and three answers of the other account",
      );
    });
  }
});

test("two paused accounts pause a server for all, and another account tries it first", async () => {
  using time = stopTime();
  await using front = await startFront();
  const [second, good] = [await front.other("second"), await front.other("good")];
  front.upstream.play = unlessPoisoned(broken);
  for (const chat of [front.chat, second]) for (let n = 0; n < 5; n += 1) await chat(poison);
  assert.equal((await good()).status, 503);
  assert.equal(front.engine.state, "unavailable");
  time.advance(5500);
  // The first account tries for itself, and its failure prolongs nobody else's pause.
  assert.equal((await front.chat(poison)).status, 502);
  assert.equal((await front.chat(poison)).status, 503);
  assert.equal((await good()).status, 200);
  assert.equal(front.engine.state, "ready");
});

test("missing answers count for all, whoever asks", async () => {
  await using front = await startFront();
  const good = await front.other("good");
  front.upstream.play = unlessPoisoned(gone);
  for (let n = 0; n < 5; n += 1) assert.equal((await front.chat(poison)).status, 502);
  assert.equal((await good()).status, 503);
});

test("rejections neither open a circuit nor close it", async () => {
  using time = stopTime();
  await using front = await startFront();
  const statusOf = async (play: Play) => {
    front.upstream.play = play;
    return (await front.chat()).status;
  };
  const reject: Play = (call) => call.answer(400, '{"error":{"message":"temperature is odd"}}');
  for (let n = 0; n < 8; n += 1) assert.equal(await statusOf(reject), 400);
  for (let n = 0; n < 4; n += 1) assert.equal(await statusOf(broken), 502);
  assert.equal(await statusOf(reject), 400);
  assert.equal(await statusOf(broken), 502);
  assert.equal(await statusOf(broken), 503, "the rejection between them does not count");
  time.advance(5500);
  assert.equal(await statusOf(reject), 400);
  assert.equal(front.engine.servers()[0]?.pausedAccounts, 1, "a rejected trial has no result");
});

test("a paused account is served by another server of the model", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other] });
  front.upstream.play = unlessPoisoned(broken);
  for (let n = 0; n < 12; n += 1) assert.equal((await front.chat(poison)).status, 200);
  assert.equal(front.upstream.calls.length, 5);
  assert.equal(other.calls.length, 12);
});

test("requests of a paused account that wait are refused, and those of others go on", async () => {
  await using front = await startFront({ parallel: 1 });
  const good = await front.other("good");
  const held = Promise.withResolvers<Call>();
  front.upstream.play = unlessPoisoned(broken);
  for (let n = 0; n < 4; n += 1) await front.chat(poison);
  front.upstream.play = held.resolve;
  const last = front.chat(poison);
  const call = await held.promise;
  const waiting = [front.chat(poison), front.chat(poison)];
  const served = good();
  await until("three wait", () => front.engine.load().waiting === 3);
  front.upstream.play = unlessPoisoned(broken);
  void broken(call);
  assert.equal((await last).status, 502);
  for (const response of waiting) assert.equal((await response).status, 503);
  assert.equal((await served).status, 200);
});

for (const [whose, play] of [
  ["one account", broken],
  ["all accounts", gone],
] as const) {
  test(`requests wait no longer when the trial is answered of a server that was paused for ${whose}`, async () => {
    using time = stopTime();
    await using front = await startFront();
    front.upstream.play = unlessPoisoned(play);
    for (let n = 0; n < 5; n += 1) await front.chat(poison);
    time.advance(6000);
    const trial = Promise.withResolvers<Call>();
    front.upstream.play = trial.resolve;
    const controller = new AbortController();
    const trying = front.chat({ stream: true }, controller.signal);
    const call = await trial.promise;
    const waiting = front.chat();
    await until("another waits", () => front.engine.load().waiting === 1);
    front.upstream.play = unlessPoisoned(play);
    await call.send(first, text("one"));
    assert.equal((await trying).status, 200);
    assert.equal((await waiting).status, 200);
    assert.equal(call.isClosed, false, "the trial goes on");
    controller.abort();
    await call.closed;
  });
}

const flagged = { message: "flagged", code: 403, metadata: { reasons: ["pii"], flagged_input: "12 Elm St" } };
const gives: Partial<Outcome> = {
  status: 400,
  code: "content_filter",
  param: "messages",
  ending: "refused",
  costMicro: 0,
};
const moderated = /its moderation refused the prompt/;
testAnswers([
  {
    what: "a prompt that the moderation of a server refuses is the caller's, and not in the log",
    sends: (call) => call.answer(403, JSON.stringify({ error: flagged })),
    gives,
    withholds: ["pii", "Elm"],
    calls: 2,
    logs: moderated,
    logsNo: /Elm/,
  },
  {
    what: "and so is one that is refused in an event",
    sends: [event({ error: { ...flagged, code: null } })],
    gives,
    withholds: ["pii", "Elm"],
    calls: 2,
    logs: moderated,
    logsNo: /Elm/,
  },
]);

test("moderated prompts are refused work, and pause nothing", async () => {
  await using front = await startFront();
  front.upstream.play = unlessPoisoned((call) => call.answer(403, JSON.stringify({ error: flagged })));
  for (let n = 0; n < 8; n += 1) assert.equal((await front.chat(poison)).status, 400);
  assert.ok(front.service.finished.every(({ refused }) => refused !== null));
  assert.equal((await front.chat()).status, 200);
});
