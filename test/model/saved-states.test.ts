/** Memory for the states of paused jobs: its limit, its owners and its failures. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SavedStates } from "../../src/engines/llama/decode/saved-states.ts";
import { newSequence, type Sequence } from "../../src/engines/llama/decode/sequences.ts";

/** One byte for each token. */
function states(bytesMax: number, fails = false) {
  let length = 0;
  const warnings: string[] = [];
  const disposed: number[] = [];
  const saved = new SavedStates({
    bytesMax,
    warn: (message) => warnings.push(message),
    backend: {
      save: async (index) => {
        if (fails) throw new Error("out of memory");
        return { bytes: length, dispose: () => disposed.push(index) };
      },
      restore: async () => {
        if (fails) throw new Error("no such state");
        return true;
      },
    },
  });
  const keep = (index: number, account: string, tokens: number) => {
    length = tokens;
    return saved.save(sequence(index, tokens), account);
  };
  return { saved, keep, warnings, disposed };
}

function sequence(index: number, length: number): Sequence {
  return {
    ...newSequence(index),
    tokens: Array.from({ length }, (_, token) => token),
    promptTokens: 3,
    repeatable: 2,
  };
}

test("restores a state to its sequence once, with its metadata", async () => {
  const { saved, keep, disposed } = states(100);
  const kept = await keep(1, "anna", 40);
  assert.equal(saved.bytes, 40);
  const other = { ...sequence(1, 7), accountId: "boris" };
  assert.equal(await saved.restore(kept, other), true);
  assert.deepEqual(other, { ...sequence(1, 40), accountId: "anna" });
  assert.deepEqual([saved.bytes, disposed], [0, [1]]);
  assert.equal(await saved.restore(kept, other), false);
});

test("states never exceed the limit, and the largest account loses its states first", async () => {
  const { saved, keep } = states(100);
  const anna = [await keep(0, "anna", 40), await keep(1, "anna", 40)];
  const boris = await keep(2, "boris", 30);
  assert.ok(boris.state !== null);
  assert.deepEqual(
    anna.map(({ state }) => state !== null),
    [false, true],
  );
  assert.equal(saved.bytes, 70);
  const more = await keep(0, "anna", 40);
  assert.equal(more.state, null, "one that has the most takes nothing from others");
  assert.equal(more.tokens.length, 40);
  assert.equal(saved.bytes, 70);
  const carla = await keep(3, "carla", 101);
  assert.equal(carla.state, null);
  assert.equal(saved.bytes, 70, "nothing is given up for what has no room anyway");
});

test("a failed copy or restore is a warning, and the job keeps its tokens", async () => {
  const failing = states(100, true);
  const kept = await failing.keep(0, "anna", 10);
  assert.deepEqual([kept.state, kept.tokens.length], [null, 10]);
  await failing.keep(1, "anna", 10);
  assert.equal(failing.warnings.length, 1, "told once");
  assert.match(failing.warnings[0] ?? "", /out of memory/);
  const { saved, keep } = states(100);
  const whole = await keep(0, "anna", 10);
  assert.ok(whole.state !== null);
  const elsewhere = new SavedStates({
    bytesMax: 1,
    warn: (message) => failing.warnings.push(message),
    backend: { save: () => assert.fail(), restore: async () => Promise.reject(new Error("no such state")) },
  });
  assert.equal(await elsewhere.restore(whole, sequence(0, 1)), false);
  assert.match(failing.warnings[1] ?? "", /no such state/);
  assert.equal(saved.bytes, 0 + (whole.state === null ? 0 : 10));
});

test("copies no more states after a partial one", async () => {
  let saves = 0;
  const warnings: string[] = [];
  const saved = new SavedStates({
    bytesMax: 1000,
    warn: (message) => warnings.push(message),
    backend: {
      save: async () => {
        saves += 1;
        return { bytes: 1, dispose: () => {} };
      },
      restore: async () => false,
    },
  });
  const kept = await saved.save(sequence(0, 10), "anna");
  const target = sequence(0, 5);
  assert.equal(await saved.restore(kept, target), false);
  assert.deepEqual([target.tokens, target.repeatable], [[], 0]);
  assert.equal((await saved.save(sequence(1, 10), "anna")).state, null);
  assert.deepEqual([saves, warnings.length, saved.bytes], [1, 1, 0]);
});
