/** The measurement of event loop delay. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { watchEventLoop } from "../../src/telemetry/event-loop.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { samplesOf } from "../fixtures/samples.ts";

function blockFor(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

test("reports a block of the event loop as one long delay", async () => {
  const delaysMs: number[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  let blockedMs = 0;
  const watch = watchEventLoop((delayMs) => {
    delaysMs.push(delayMs);
    if (delaysMs.length === 1) {
      setImmediate(() => {
        const startedMs = performance.now();
        blockFor(150);
        blockedMs = performance.now() - startedMs;
      });
    }
    if (blockedMs > 0) resolve();
  });
  // The timer of the watch keeps no process alive.
  const alive = setInterval(() => {}, 1000);
  await promise;
  clearInterval(alive);
  watch.stop();
  const longestMs = delaysMs.at(-1) ?? 0;
  assert.ok(longestMs > blockedMs - 50 && longestMs > 100, `${longestMs} ms of ${blockedMs} ms`);
});

test("the metric counts delays in seconds", async () => {
  const metrics = new Metrics();
  for (const delayMs of [0, 3, 60, 170, 2000]) metrics.eventLoopDelayed(delayMs);
  const samples = samplesOf(await metrics.text());
  const name = "inkwell_event_loop_delay_seconds";
  assert.equal(samples.get(`${name}_count`), 5);
  assert.equal(samples.get(`${name}_sum`), 2.233);
  assert.equal(samples.get(`${name}_bucket{le="0.1"}`), 3);
  assert.equal(samples.get(`${name}_bucket{le="0.25"}`), 4);
});
