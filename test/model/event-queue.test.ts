/** Events that wait for the reader of an answer. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EngineError } from "../../src/chat/engine.ts";
import { EventQueue } from "../../src/engines/llama/process/event-queue.ts";
import { eventsOf } from "../fixtures/batches.ts";
import { assertLinear } from "../fixtures/processor-time.ts";
import { releaseTest } from "../fixtures/thorough.ts";

function text(index: number) {
  return { type: "text", text: `${index}` } as const;
}

function drain(queue: EventQueue) {
  let endings = 0;
  const taken: string[] = [];
  const reader = eventsOf(
    queue.drain(
      (event) => taken.push(event.type === "text" ? event.text : event.finishReason),
      async () => {
        endings += 1;
      },
    ),
  );
  return { reader, taken, endings: () => endings };
}

test("yields events in order and counts waiting ones", async () => {
  const queue = new EventQueue();
  const { reader, taken, endings } = drain(queue);
  let pushed = 0;
  for (const [more, read] of [
    [1, 1],
    [500, 100],
    [3, 300],
    [0, 103],
    [70, 63],
    [1, 8],
  ] as const) {
    for (let index = 0; index < more; index++) queue.push(text(pushed++));
    for (let index = 0; index < read; index++) await reader.next();
    assert.equal(queue.length, pushed - taken.length);
  }
  const waiting = reader.next();
  queue.push({ type: "end", finishReason: "stop" });
  assert.deepEqual((await waiting).value, { type: "end", finishReason: "stop" });
  assert.equal((await reader.next()).done, true);
  assert.deepEqual(taken, [...Array.from({ length: pushed }, (_, index) => `${index}`), "stop"]);
  assert.equal(endings(), 1);
});

test("yields all events before a failure, and none after a close", async () => {
  const failing = new EventQueue();
  failing.push(text(0));
  failing.fail(new EngineError("failed", "gone"));
  const { reader, endings } = drain(failing);
  assert.equal((await reader.next()).done, false);
  await assert.rejects(reader.next(), EngineError);
  assert.equal(endings(), 1);

  const closing = new EventQueue();
  for (let index = 0; index < 3; index++) closing.push(text(index));
  const closed = drain(closing);
  await closed.reader.next();
  closing.close();
  assert.equal((await closed.reader.next()).done, true);
  assert.deepEqual(closed.taken, ["0"]);
  assert.equal(closed.endings(), 1);
});

// In quadratic time if each event that is taken moves all the others. engine.test.ts has the limit
// of events that wait.
releaseTest("reads 80,000 events in linear time", () =>
  assertLinear(80_000, async (count) => {
    const queue = new EventQueue();
    for (let index = 0; index < count; index++) queue.push(text(index));
    queue.push({ type: "end", finishReason: "length" });
    const { reader, taken } = drain(queue);
    for (let next = await reader.next(); next.done !== true; ) next = await reader.next();
    assert.equal(taken.length, count + 1);
  }),
);

test("reads a burst over several turns of the event loop", async () => {
  const queue = new EventQueue();
  for (let index = 0; index < 1000; index++) queue.push(text(index));
  queue.push({ type: "end", finishReason: "stop" });
  const { reader, taken } = drain(queue);
  const readAtTurn: number[] = [];
  let isRead = false;
  const reading = (async () => {
    for await (const _ of reader);
    isRead = true;
  })();
  while (!isRead) {
    readAtTurn.push(taken.length);
    await new Promise((resolve) => setImmediate(resolve));
  }
  readAtTurn.push(taken.length);
  await reading;
  assert.equal(taken.length, 1001);
  const steps = readAtTurn.slice(1).map((count, index) => count - (readAtTurn[index] ?? 0));
  assert.ok(Math.max(...steps) <= 64, `${Math.max(...steps)} events in one turn`);
});
