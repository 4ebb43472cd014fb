/** The cost of answers that do not end as their servers end them: all that is known of them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { until } from "../fixtures/until.ts";
import { balanceOf, charged, type Front, generate, startFront } from "../fixtures/upstream.ts";
import { delta, done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

/** Models that do not show their thinking. */
const hidden = { field: null, tags: null, opened: false, hidden: true };
const thoughts = Array.from({ length: 5 }, () => delta({ reasoning_content: "hm" }));

test("a stream that fails before any text was sent costs nothing, because clients repeat it", async () => {
  await using front = await startFront();
  front.upstream.play = async (call) => {
    await call.send(first, ...thoughts);
    call.socket.destroy();
  };
  const response = await front.chat({ stream: true });
  assert.equal(response.status, 502, await response.text());
  const { ending, completionTokens, promptTokens } = charged(await front.settled());
  assert.deepEqual(
    { ending, completionTokens, promptTokens },
    { ending: "engine_failed", completionTokens: 0, promptTokens: 0 },
  );
});

test("a stream that fails after its first text costs all that was generated", async () => {
  await using front = await startFront();
  front.upstream.play = async (call) => {
    await call.send(first, ...thoughts, text("Hello"));
    call.socket.destroy();
  };
  const response = await front.chat({ stream: true });
  assert.equal(response.status, 200);
  assert.match(await response.text(), /Hello.*upstream_error/s);
  assert.equal(charged(await front.settled()).completionTokens, 6);
});

test("a usage that has arrived is charged if the answer is stopped before its end", async () => {
  await using front = await startFront({ reasoning: hidden });
  front.upstream.play = async (call) => {
    // In one read.
    await call.send([first, text("a"), finish(), usage(40, 300)].join(""));
    await call.closed;
  };
  const generation = await generate(front, {});
  await generation[Symbol.asyncIterator]().next();
  await generation.stop();
  const { promptTokens, completionTokens, estimated } = generation.usage;
  assert.deepEqual([promptTokens, completionTokens, estimated], [40, 300, false]);
});

test("tokens that a server reports beyond credits that have ended meanwhile are counted as uncharged", async () => {
  await using front = await startFront(balanceOf(300, { prompt: 0, completion: 1_000_000 }));
  front.upstream.play = async (call) => {
    // The extension that these need is the last one.
    await call.send(first, ...Array.from({ length: 150 }, () => text("a ")));
    await allCreditsHeld(front);
    await call.stream(finish(), usage(3, 900), done);
  };
  await (await front.chat({ stream: true, max_tokens: 1000 })).text();
  assert.equal(charged(await front.settled()).completionTokens, 300);
  assert.equal(front.service.settled[0]?.uncharged.completionTokens, 600);
});

test("an operator who stops a request that waits for credits is on its receipt, and it costs nothing", async () => {
  const credits = balanceOf(1, { prompt: 10, completion: 30 });
  await using front = await startFront({ contextWindow: 100_000, reasoning: hidden, ...credits });
  front.upstream.play = (call) => call.send(first, text("a"));
  const holding = front.chat({ stream: true, max_tokens: 20_000 });
  await until("all credits are held", () => front.upstream.calls.length === 1);
  const waiting = front.chat({ stream: true, max_tokens: 30_000 });
  const { requests } = front.service.server;
  await until("the other one waits", () => requests.list().length === 2);
  const { requestId = "" } = requests.list()[1] ?? {};
  await until("it has a hold", async () => (await holdsOf(front)) === 2);
  requests.stopOne(requestId, "operator:ada");
  assert.equal((await waiting).status, 403);
  const { ending, by, costMicro } = await front.settled();
  assert.deepEqual({ ending, by, costMicro }, { ending: "stopped", by: "operator:ada", costMicro: 0 });
  requests.stop();
  await (await holding).text();
});

test("an answer that its server ends with length, although there are credits, is not recorded as out of credits", async () => {
  await using front = await startFront(balanceOf(300, { prompt: 0, completion: 1_000_000 }));
  front.upstream.play = async (call) => {
    await call.send(first, ...Array.from({ length: 150 }, () => text("a ")));
    await allCreditsHeld(front);
    await call.stream(finish("length"), usage(3, 200), done);
  };
  await (await front.chat({ stream: true, max_tokens: 1000 })).text();
  const { ending, completionTokens } = charged(await front.settled());
  assert.deepEqual({ ending, completionTokens }, { ending: "length", completionTokens: 200 });
});

test("long events of thinking count by their characters if the answer is stopped", async () => {
  await using front = await startFront({ reasoning: { ...hidden, hidden: false } });
  const long = "thinking about it ".repeat(200);
  front.upstream.play = async (call) => {
    await call.send(
      [first, ...Array.from({ length: 10 }, () => delta({ reasoning_content: long })), text("a")].join(""),
    );
    await call.closed;
  };
  const generation = await generate(front, { paidTokens: 10_000, maxTokens: 10_000 });
  await generation[Symbol.asyncIterator]().next();
  await generation.stop();
  assert.equal(generation.usage.completionTokens, Math.floor((10 * long.length + 1) / 8));
});

/** Of 300. The running answer knows of it. */
async function allCreditsHeld(front: Front): Promise<void> {
  await until("all credits are held", async () => {
    const balance = await front.service.store.accountSnapshot("test");
    return balance?.account.base?.heldMicro === 300_000_000;
  });
  await nextTurn();
}

async function holdsOf(front: Front): Promise<number> {
  return (await front.service.store.accountSnapshot("test"))?.account.holds ?? 0;
}
