/** Accounts that share the slots of an upstream. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../fixtures/until.ts";
import { type Call, startFront, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

/** Begins each answer with this text. Returns the calls whose answers have begun. */
function beginWith(upstream: Upstream, content: string): Call[] {
  const calls: Call[] = [];
  upstream.play = async (call) => {
    await call.send(first, text(content));
    calls.push(call);
  };
  return calls;
}

test("keeps a slot for another account beside eight long answers", async () => {
  await using front = await startFront({ parallel: 4, reserved: 1 });
  const { upstream, engine } = front;
  const other = await front.other("other");
  const long = beginWith(upstream, "long");
  const flood = Array.from({ length: 8 }, () => front.chat({ stream: true }));
  await until("three run and five wait", () => long.length === 3 && engine.load().waiting === 5);
  assert.equal(engine.load().running, 3);

  upstream.play = (call) => call.stream(first, text("short"), finish(), usage(5, 1), done);
  const response = await other();
  assert.equal(response.status, 200);
  assert.match(await response.text(), /short/);
  await until("its slot is free again", () => engine.load().running === 3);
  assert.equal(engine.load().waiting, 5);

  // The others of the flood follow as the first ones end.
  for (const call of long) void call.stream(finish(), usage(5, 1), done);
  for (const each of await Promise.all(flood)) assert.equal(each.status, 200, await each.text());
});

test("reports the wait of the oldest request and of an account without a slot", async () => {
  await using front = await startFront({ parallel: 1 });
  const { service, upstream, engine } = front;
  const other = await front.other("other");
  const calls: Call[] = [];
  upstream.play = (call) => void calls.push(call);
  const running = front.chat();
  await until("one runs", () => calls.length === 1);
  const waiting = other();
  await until("one has waited", () => (engine.load().oldestWaitMs ?? 0) > 10);
  const metrics = await service.metrics.text();
  for (const name of ["inkwell_queue_oldest_wait_seconds", "inkwell_queue_starved_seconds"]) {
    const value = new RegExp(`^${name}\\{model="big"\\} (\\S+)$`, "m").exec(metrics)?.[1];
    assert.ok(Number(value) > 0.01, `${name} is ${value}`);
  }
  upstream.play = (call) => call.stream(first, text("b"), finish(), usage(5, 1), done);
  await calls[0]?.stream(first, text("a"), finish(), usage(5, 1), done);
  for (const response of await Promise.all([running, waiting])) assert.equal(response.status, 200);
  assert.equal(engine.load().oldestWaitMs, 0);
});

test("starts an account's next request when its answer ends, even if only a reserved slot is free", async () => {
  await using front = await startFront({ parallel: 2, reserved: 1 });
  const { upstream, engine } = front;
  const other = await front.other("other");
  const calls = beginWith(upstream, "one ");
  const body = { stop: "END" };
  const others = other(body);
  await until("the other account runs", () => calls.length === 1);
  const both = [front.chat(body), front.chat(body)];
  await until("one runs and one waits", () => calls.length === 2 && engine.load().waiting === 1);
  await calls[1]?.send(text("END"));
  await until("the next one runs", () => calls.length === 3);
  for (const call of [calls[0], calls[2]]) await call?.send(text("END"));
  for (const response of await Promise.all([others, ...both])) assert.match(await response.text(), /one /);
});
