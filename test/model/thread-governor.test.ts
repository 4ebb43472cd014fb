/** The number of threads follows the duration of decodes. Artificial times, no model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ThreadGovernor } from "../../src/engines/llama/decode/thread-governor.ts";

const baseline = 1;
const boosted = 2;

/** Runs decodes of the duration that `took` returns, and counts the boosted ones. */
class Machine {
  readonly governor = new ThreadGovernor(baseline, boosted);
  nowMs = 0;

  run(
    decodes: number,
    took: (threads: number) => number,
    tokens = 1,
    fixed = false,
  ): { boosted: number; ms: number } {
    const startMs = this.nowMs;
    let boostedDecodes = 0;
    for (let count = 0; count < decodes; count++) {
      const threads = this.governor.choose(tokens, fixed, this.nowMs);
      if (threads === boosted) boostedDecodes += 1;
      const ms = took(threads);
      this.nowMs += ms;
      this.governor.record(tokens, threads, ms, this.nowMs);
    }
    return { boosted: boostedDecodes, ms: this.nowMs - startMs };
  }
}

const quiet = (threads: number): number => (threads === boosted ? 6 : 10);
/** Another program takes one of two cores. */
const busy = (threads: number): number => (threads === boosted ? 50 : 10);

test("on an idle machine nearly every decode gets all cores", () => {
  const { boosted: decodes } = new Machine().run(1000, quiet);
  assert.ok(decodes > 950 && decodes < 1000, `${decodes} of 1000`);
});

test("each kind of batch runs at the baseline first, to have a comparison", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  assert.equal(machine.governor.choose(64, false, machine.nowMs), baseline);
  machine.run(3, (threads) => 40 * quiet(threads), 64);
  assert.equal(machine.governor.choose(64, false, machine.nowMs), boosted);
  assert.equal(machine.governor.choose(65, false, machine.nowMs), boosted, "much the same size");
});

test("on a busy machine trials are few, become rarer and cost little", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  const first = machine.run(1000, busy);
  assert.ok(first.boosted <= 8, `${first.boosted} of the first 1000`);
  assert.ok(first.ms < 1.05 * 10_000, `${first.ms} ms`);
  machine.run(10_000, busy);
  const later = machine.run(30_000, busy);
  assert.ok(later.boosted >= 4 && later.boosted <= 6, `${later.boosted} in five minutes`);
});

test("detects that a machine is idle again", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  machine.run(1000, busy);
  machine.run(2000, quiet);
  assert.ok(machine.run(1000, quiet).boosted > 950);
});

test("one slow decode does not end a trial; several, or a very slow one, do", () => {
  const machine = new Machine();
  machine.run(110, quiet);
  machine.run(1, (threads) => 4 * quiet(threads));
  assert.equal(machine.run(1, quiet).boosted, 1);
  machine.run(20, (threads) => (threads === boosted ? 15 : 10));
  assert.equal(machine.run(1, quiet).boosted, 0);
  const other = new Machine();
  other.run(110, quiet);
  assert.equal(other.run(1, () => 80).boosted, 1);
  assert.equal(other.run(1, quiet).boosted, 0);
});

test("trials end if all cores are not faster", () => {
  const machine = new Machine();
  const { boosted: decodes } = machine.run(10_000, (threads) => (threads === boosted ? 12 : 10));
  assert.ok(decodes < 500, `${decodes} of 10000`);
});

test("compares decodes with recent ones, because texts grow", () => {
  const machine = new Machine();
  let texts = 1;
  const { boosted: decodes } = machine.run(4000, (threads) => {
    texts += 0.001;
    return quiet(threads) * texts;
  });
  assert.ok(decodes > 3800, `${decodes} of 4000`);
});

test("the cooldown after a failed trial is longer with a slow model", () => {
  const machine = new Machine();
  machine.run(100, (threads) => 100 * quiet(threads));
  const { ms } = machine.run(500, (threads) => 100 * busy(threads));
  assert.ok(ms < 1.05 * 500 * 1000, `${ms} ms`);
});

test("decodes whose result depends on the number of threads run at the baseline", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  assert.equal(machine.run(100, quiet, 1, true).boosted, 0);
  assert.ok(machine.run(100, quiet).boosted > 90, "the other ones still get all cores");
});
