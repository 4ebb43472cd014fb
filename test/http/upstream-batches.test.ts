/**
 * Text of an upstream travels in batches: what one read of the network brought is taken, yielded
 * and written at once.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { EngineEvent, Generation } from "../../src/chat/engine.ts";
import { exchange } from "../fixtures/raw-http.ts";
import { until } from "../fixtures/until.ts";
import { breakOff, type Call, generate, startFront, testAnswers } from "../fixtures/upstream.ts";
import { delta, done, finish, text, usage } from "../fixtures/upstream-events.ts";

const words = (count: number) => Array.from({ length: count }, (_, n) => text(`${n} `));

function textsOf(batch: readonly EngineEvent[] | undefined): string {
  return (batch ?? [])
    .map((event) => (event.type === "text" ? event.text : `<${event.finishReason}>`))
    .join("");
}

async function batchesOf(generation: Generation): Promise<string[]> {
  const batches: string[] = [];
  for await (const batch of generation) batches.push(textsOf(batch));
  return batches;
}

async function sendOneByOne(call: Call, events: readonly string[]): Promise<void> {
  for (const event of events) {
    await call.send(event);
    await nextTurn();
  }
}

const all = (count: number) => Array.from({ length: count }, (_, n) => `${n} `).join("");

test("64 events and the end in one read are one batch", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream([...words(64), finish(), usage(5, 64), done].join(""));
  const generation = await generate(front);
  assert.deepEqual(await batchesOf(generation), [`${all(64)}<stop>`]);
  assert.equal(generation.usage.completionTokens, 64);
});

test("each batch of a stream is one write to the client", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream([...words(64), finish(), usage(5, 64), done].join(""));
  const { port, key } = front.service;
  const body = JSON.stringify({ model: "big", messages: [{ role: "user", content: "Hi" }], stream: true });
  const received = await exchange(
    port,
    `POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  // A chunk of HTTP is a write: the text, then the end when the charge is on disk.
  const chunks = received.split(/^[0-9a-f]+\r$/m).slice(1);
  assert.deepEqual(
    chunks.map((chunk) => chunk.match(/"content":"\d+ "/g)?.length ?? 0),
    [64, 0, 0],
  );
});

for (const [what, isWhole, everyMs] of [
  ["an answer that is sent as a whole", true, 20],
  ["a stream", false, 5],
] as const) {
  test(`${what} is read together after its first text, once in ${everyMs} ms`, async () => {
    await using front = await startFront();
    front.upstream.play = async (call) => {
      await call.send(text("0 "));
      await until("the first token is read", () => generation.usage.completionTokens === 1);
      await sendOneByOne(call, words(200).slice(1));
      await call.stream(finish(), usage(5, 200), done);
    };
    const generation = await generate(front, { isWhole });
    const beganMs = performance.now();
    const batches = await batchesOf(generation);
    assert.equal(batches.join(""), `${all(200)}<stop>`);
    assert.equal(batches[0], "0 ", "the first text is read at once");
    const readingsMax = 3 + (performance.now() - beganMs) / everyMs;
    assert.ok(batches.length <= readingsMax, `${batches.length} readings are more than one in ${everyMs} ms`);
  });

  test(`tokens of ${what} that wait to be read together count if it is stopped`, async () => {
    await using front = await startFront();
    const { promise: isSent, resolve: sent } = Promise.withResolvers<void>();
    front.upstream.play = async (call) => {
      await call.send(text("0 "));
      await until("the first token is read", () => generation.usage.completionTokens === 1);
      await call.send(text("1 "), text("2 "));
      sent();
    };
    const generation = await generate(front, { isWhole });
    const batches = generation[Symbol.asyncIterator]();
    assert.equal(textsOf((await batches.next()).value), "0 ");
    const waiting = batches.next();
    await isSent;
    await nextTurn();
    await generation.stop();
    await waiting;
    assert.equal(generation.usage.completionTokens, 3);
  });
}

test("tokens that arrived while the reader was busy count if the answer is stopped", async () => {
  await using front = await startFront();
  const { promise: isSent, resolve: sent } = Promise.withResolvers<void>();
  front.upstream.play = async (call) => {
    await call.send(text("0 "));
    await until("the first token is read", () => generation.usage.completionTokens === 1);
    await sendOneByOne(call, words(50).slice(1));
    // Longer than an answer is gathered.
    await sleep(50);
    sent();
    await call.closed;
  };
  const generation = await generate(front, {});
  const batches = generation[Symbol.asyncIterator]();
  assert.equal(textsOf((await batches.next()).value), "0 ");
  await isSent;
  await generation.stop();
  assert.equal(generation.usage.completionTokens, 50);
});

test("a batch with more tokens than are paid for is cut at the paid token", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream([...words(10), finish(), usage(5, 10), done].join(""));
  const made: number[] = [];
  const generation = await generate(front, { paidTokens: 3, onTokens: (tokens) => made.push(tokens) });
  const batches = generation[Symbol.asyncIterator]();
  assert.equal(textsOf((await batches.next()).value), all(3));
  const next = batches.next();
  await until("the fourth token is asked for", () => made.includes(4));
  assert.equal(generation.usage.completionTokens, 3);
  generation.extendBudget(5, false);
  assert.equal(textsOf((await next).value), "3 4 ");
  const last = batches.next();
  await nextTurn();
  generation.extendBudget(7, true);
  assert.equal(textsOf((await last).value), "5 6 <length>");
  assert.equal((await batches.next()).done, true);
  assert.equal(generation.usage.completionTokens, 7);
});

test("thinking that had to be paid for is read on when it is, though it has no text", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: null, opened: false, hidden: false },
  });
  const thoughts = Array.from({ length: 10 }, () => delta({ reasoning_content: "hm" }));
  front.upstream.play = async (call) => {
    await call.send(thoughts.join(""));
    await call.stream(text("Yes"), finish(), usage(5, 11), done);
  };
  const made: number[] = [];
  const generation = await generate(front, { paidTokens: 3, onTokens: (tokens) => made.push(tokens) });
  const answer = batchesOf(generation);
  await until("the fourth token is asked for", () => made.includes(4));
  generation.extendBudget(100, false);
  assert.equal((await answer).join(""), "Yes<stop>");
});

test("text that was held is yielded in bounded batches, and a stop between two of them is the last", async () => {
  await using front = await startFront();
  // As held for a stop sequence that it may begin, until the last word.
  front.upstream.play = (call) =>
    call.stream(Array.from({ length: 600 }, () => text("a")).join(""), text("b"), finish(), done);
  const options = { sampling: { stop: [`${"a".repeat(601)}`] } };
  const whole: number[] = [];
  for await (const batch of await generate(front, options)) whole.push(batch.length);
  assert.deepEqual(whole, [256, 256, 90]);

  const generation = await generate(front, options);
  let read = 0;
  for await (const batch of generation) {
    read += batch.length;
    void generation.stop();
  }
  assert.equal(read, 256);
});

test("a stop cancels a read that waits for the upstream, at once", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(text("a"));
  const generation = await generate(front);
  const batches = generation[Symbol.asyncIterator]();
  assert.equal(textsOf((await batches.next()).value), "a");
  const waiting = batches.next();
  await generation.stop();
  assert.equal((await waiting).done, true);
  assert.equal(generation.usage.completionTokens, 1);
  await front.upstream.last().closed;
});

test("a stop cancels a read that waits to be paid for", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(words(10).join(""));
  const generation = await generate(front, { paidTokens: 2 });
  const batches = generation[Symbol.asyncIterator]();
  assert.equal(textsOf((await batches.next()).value), all(2));
  const waiting = batches.next();
  await nextTurn();
  await generation.stop();
  assert.equal((await waiting).done, true);
  assert.equal(generation.usage.completionTokens, 2);
});

test("a stop sequence is found across batches, and nothing of it is sent", async () => {
  await using front = await startFront();
  front.upstream.play = async (call) => {
    await call.send(text("one "), text("S"));
    await until("the first batch is read", () => generation.usage.completionTokens === 2);
    await call.send([text("T"), text("OP"), text(" two"), finish()].join(""));
  };
  const generation = await generate(front, { sampling: { stop: ["STOP"] } });
  assert.deepEqual(await batchesOf(generation), ["one ", "<stop>"]);
  assert.equal(generation.usage.completionTokens, 4);
});

const error = `data: {"error":{"message":"out of memory"}}\n\n`;
testAnswers(
  [
    ["an error behind text in one read comes after the text", `${text("a") + text("b") + error}${text("c")}`],
    ["a connection that breaks behind text in one read keeps the text", text("a") + text("b")],
  ].map(([what = "", sent = ""]) => ({
    what: `${what}, and the text is charged`,
    sends: breakOff(sent),
    body: { stream: true },
    gives: { texts: ["a", "b"], code: "upstream_error", ending: "engine_failed", completionTokens: 2 },
  })),
);
