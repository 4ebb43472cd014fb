/** When an upstream server is probed. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Probe } from "../../src/engines/upstream/probe.ts";

const everyMs = 15_000;

/** A probe with a clock of the test. Each probe waits in `asked` for its answer. */
function startProbe(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let nowMs = 1000;
  t.mock.method(performance, "now", () => nowMs);
  const asked: PromiseWithResolvers<number>[] = [];
  const failures: string[] = [];
  const probe = new Probe({
    everyMs,
    limitMs: 10_000,
    ask: () => {
      const answer = Promise.withResolvers<number>();
      asked.push(answer);
      return answer.promise;
    },
    onFailure: (reason) => failures.push(reason),
    onRecovery: () => {},
  });
  t.after(() => probe.stop());
  return {
    probe,
    asked,
    failures,
    /** Answers the last probe. */
    async answer(status: number) {
      asked.at(-1)?.resolve(status);
      await new Promise(setImmediate);
    },
    async pass(ms: number) {
      nowMs += ms;
      t.mock.timers.tick(ms);
      await new Promise(setImmediate);
    },
  };
}

test("asks at once, and again after about the interval", async (t) => {
  const { asked, answer, pass } = startProbe(t);
  assert.equal(asked.length, 1);
  await answer(200);
  await pass(everyMs * 0.89);
  assert.equal(asked.length, 1);
  await pass(everyMs * 0.22);
  assert.equal(asked.length, 2);
  await answer(200);
});

test("asks nothing while the last probe is under way, however many requests fail", async (t) => {
  const { probe, asked, answer, pass } = startProbe(t);
  for (let n = 0; n < 5; n += 1) probe.doubt();
  await pass(3 * everyMs);
  assert.equal(asked.length, 1);
  await answer(500);
  probe.doubt();
  probe.doubt();
  assert.equal(asked.length, 2);
  await answer(200);
});

test("does not ask a server that answered a request lately", async (t) => {
  const { probe, asked, answer, pass } = startProbe(t);
  await answer(200);
  for (let n = 0; n < 12; n += 1) {
    await pass(everyMs / 4);
    probe.answered();
  }
  assert.equal(asked.length, 1);
  await pass(everyMs);
  await pass(everyMs);
  assert.equal(asked.length, 2);
  await answer(200);
});

test("a request that is answered during a probe counts more than the probe's failure", async (t) => {
  const { probe, failures, answer, pass } = startProbe(t);
  await pass(1);
  probe.answered();
  await answer(503);
  assert.deepEqual([probe.isDown, failures], [false, []]);
  probe.doubt();
  await answer(503);
  assert.deepEqual([probe.isDown, failures], [true, ["it answered 503"]]);
});
