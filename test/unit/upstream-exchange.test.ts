/** One HTTP request to an upstream, over a connection that the test plays. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Exchange } from "../../src/engines/upstream/exchange.ts";

/** A connection that delivers the rest of the answer as soon as it is resumed. */
function connect(rest: string[] = []) {
  const seen = { changes: 0, freed: 0 };
  const exchange = new Exchange({ changed: () => (seen.changes += 1), freed: () => (seen.freed += 1) });
  const controller = {
    paused: false,
    aborted: false,
    reason: null,
    rawHeaders: null,
    rawTrailers: null,
    pause() {
      controller.paused = true;
    },
    resume() {
      controller.paused = false;
      for (const data of rest.splice(0)) exchange.onResponseData(controller, Buffer.from(data));
      exchange.onResponseEnd();
    },
    abort() {},
  };
  exchange.onRequestStart(controller);
  exchange.onResponseStart(controller, 200, { "content-type": "text/event-stream" });
  const send = (data: string) => exchange.onResponseData(controller, Buffer.from(data));
  return { exchange, controller, seen, send };
}

test("pauses at a full window, and reads on when it is taken", () => {
  const { exchange, controller, seen, send } = connect(["data: b\n\n", "data: c"]);
  send(`data: ${"a".repeat(65_000)}\n\n`);
  assert.equal(controller.paused, false);
  send(`data: ${"a".repeat(1000)}\n\n`);
  assert.equal(controller.paused, true);
  assert.equal(seen.changes, 1, "the owner is told once for what it has not taken");
  assert.deepEqual(
    exchange.takeEvents().map(({ length }) => length),
    [65_000, 1000],
  );
  assert.equal(controller.paused, false);
  assert.equal(exchange.hasArrived, true, "the connection delivered more at once");
  assert.equal(exchange.ending, null, "the end comes after all events");
  assert.deepEqual(exchange.takeEvents(), ["b", "c"]);
  assert.equal(exchange.ending, "ended");
});

test("frees the connection at its end, or when an owner that waits has seen the end", () => {
  const early = connect();
  early.exchange.onResponseEnd();
  assert.equal(early.seen.freed, 1);
  const awaited = connect();
  awaited.exchange.holdPlace();
  awaited.exchange.onResponseEnd();
  assert.equal(awaited.seen.freed, 0);
  awaited.exchange.releasePlace();
  awaited.exchange.abort();
  assert.equal(awaited.seen.freed, 1);
});

test("keeps the events before a malformed one, and none after it", () => {
  const { exchange, send } = connect();
  send(`data: a\n\nevent: error\ndata: oops\n\ndata: b\n\n`);
  assert.deepEqual(exchange.takeEvents(), ["a"]);
  assert.match(String(exchange.ending), /oops/);
});
