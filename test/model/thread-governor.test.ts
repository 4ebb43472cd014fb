/** How the number of threads follows what decodes take. Made-up times, no model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ThreadGovernor } from "../../src/engines/llama/decode/thread-governor.ts";

const calm = 1;
const eager = 2;

/** Decodes one after another on a machine whose decodes take as long as `took` says; counts what was chosen. */
class Machine {
  readonly governor = new ThreadGovernor(calm, eager);
  nowMs = 0;

  run(
    decodes: number,
    took: (threads: number) => number,
    tokens = 1,
    repeatable = false,
  ): { eager: number; ms: number } {
    const startMs = this.nowMs;
    let eagerly = 0;
    for (let count = 0; count < decodes; count++) {
      const threads = this.governor.choose(tokens, repeatable, this.nowMs);
      if (threads === eager) eagerly += 1;
      const ms = took(threads);
      this.nowMs += ms;
      this.governor.record(tokens, threads, ms, this.nowMs);
    }
    return { eager: eagerly, ms: this.nowMs - startMs };
  }
}

const quiet = (threads: number): number => (threads === eager ? 6 : 10);
/** Another program takes one of two cores. */
const busy = (threads: number): number => (threads === eager ? 50 : 10);

test("on a quiet machine nearly every decode gets all cores", () => {
  const { eager: eagerly } = new Machine().run(1000, quiet);
  assert.ok(eagerly > 950 && eagerly < 1000, `${eagerly} of 1000`);
});

test("each kind of batch is decoded calmly first: there is nothing to compare it with", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  assert.equal(machine.governor.choose(64, false, machine.nowMs), calm);
  machine.run(3, (threads) => 40 * quiet(threads), 64);
  assert.equal(machine.governor.choose(64, false, machine.nowMs), eager);
  assert.equal(machine.governor.choose(65, false, machine.nowMs), eager, "much the same size");
});

test("on a busy machine trials are few, ever rarer, and cost little", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  const first = machine.run(1000, busy);
  assert.ok(first.eager <= 8, `${first.eager} of the first 1000`);
  assert.ok(first.ms < 1.05 * 10_000, `${first.ms} ms`);
  machine.run(10_000, busy);
  const later = machine.run(30_000, busy);
  assert.ok(later.eager >= 4 && later.eager <= 6, `${later.eager} in five minutes`);
});

test("a machine that is quiet again is noticed", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  machine.run(1000, busy);
  machine.run(2000, quiet);
  assert.ok(machine.run(1000, quiet).eager > 950);
});

test("one decode that is held up is no reason; several, or one of many times its time, are", () => {
  const machine = new Machine();
  machine.run(110, quiet);
  machine.run(1, (threads) => 4 * quiet(threads));
  assert.equal(machine.run(1, quiet).eager, 1);
  machine.run(20, (threads) => (threads === eager ? 15 : 10));
  assert.equal(machine.run(1, quiet).eager, 0);
  const other = new Machine();
  other.run(110, quiet);
  assert.equal(other.run(1, () => 80).eager, 1);
  assert.equal(other.run(1, quiet).eager, 0);
});

test("where all cores are no quicker, trials end too", () => {
  const machine = new Machine();
  const { eager: eagerly } = machine.run(10_000, (threads) => (threads === eager ? 12 : 10));
  assert.ok(eagerly < 500, `${eagerly} of 10000`);
});

test("decodes that grow with their texts are compared with others of their time", () => {
  const machine = new Machine();
  let texts = 1;
  const { eager: eagerly } = machine.run(4000, (threads) => {
    texts += 0.001;
    return quiet(threads) * texts;
  });
  assert.ok(eagerly > 3800, `${eagerly} of 4000`);
});

test("with a slow model the rest after a failed trial is longer, so that it stays cheap", () => {
  const machine = new Machine();
  machine.run(100, (threads) => 100 * quiet(threads));
  const { ms } = machine.run(500, (threads) => 100 * busy(threads));
  assert.ok(ms < 1.05 * 500 * 1000, `${ms} ms`);
});

test("what must be repeatable is decoded calmly token by token, however free the cores are; a prompt's part is not", () => {
  const machine = new Machine();
  machine.run(100, quiet);
  assert.equal(machine.run(100, quiet, 1, true).eager, 0);
  assert.ok(machine.run(100, (threads) => 40 * quiet(threads), 64, true).eager > 90);
});
