/** Turns of accounts, choice of sequences, sampling parameters. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FairQueue } from "../../src/engines/fair-queue.ts";
import { isRepeatable, samplerConfig, seedOf } from "../../src/engines/llama/sampling.ts";
import { chooseSequence, newSequence, type Sequence } from "../../src/engines/llama/sequences.ts";

function drain(queue: FairQueue<string>): string[] {
  const items: string[] = [];
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) items.push(item);
  return items;
}

test("accounts take turns, an account's own items keep their order", () => {
  const queue = new FairQueue<string>(10);
  for (const item of ["a1", "a2", "a3", "b1", "c1", "b2"]) assert.ok(queue.push(item.charAt(0), item));
  assert.deepEqual(drain(queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
});

test("an account that comes back after its turn waits behind the others", () => {
  const queue = new FairQueue<string>(10);
  queue.push("a", "a1");
  queue.push("b", "b1");
  assert.equal(queue.shift(), "a1");
  queue.push("a", "a2");
  assert.deepEqual(drain(queue), ["b1", "a2"]);
});

test("a full queue has room for accounts that have nothing waiting, and for no one beyond that", () => {
  const queue = new FairQueue<string>(2);
  assert.equal(queue.push("a", "a1"), true);
  assert.equal(queue.push("a", "a2"), true);
  assert.equal(queue.push("a", "a3"), false);
  assert.equal(queue.push("b", "b1"), true);
  assert.equal(queue.push("b", "b2"), false);
  assert.equal(queue.push("c", "c1"), true);
  assert.equal(queue.push("d", "d1"), false);
  assert.equal(queue.size, 4);
});

test("an item that leaves makes room at once, one that is put back comes first", () => {
  const queue = new FairQueue<string>(2);
  queue.push("a", "a1");
  queue.push("a", "a2");
  assert.equal(queue.remove("a", "a1"), true);
  assert.equal(queue.remove("a", "a1"), false);
  assert.equal(queue.push("a", "a3"), true);
  queue.putBack("b", "b0");
  assert.equal(queue.size, 3);
  assert.deepEqual(drain(queue), ["b0", "a2", "a3"]);
  assert.equal(queue.size, 0);
});

function sequence(index: number, fields: Partial<Sequence>): Sequence {
  return { ...newSequence(index), ...fields };
}

const tokens = (length: number): number[] => Array.from({ length }, (_, index) => index + 1);
const wanted = (length: number, repeatable = false) => ({
  accountId: "anna",
  tokens: Uint32Array.from(tokens(length)),
  repeatable,
});

test("the longest prefix of the same account is kept, and at least one token is left to evaluate", () => {
  const sequences = [
    sequence(0, { accountId: "anna", tokens: tokens(10), lastUse: 9 }),
    sequence(1, { accountId: "anna", tokens: tokens(50), lastUse: 8 }),
    sequence(2, {}),
  ];
  const choice = chooseSequence(sequences, wanted(50), 32);
  assert.equal(choice?.sequence.index, 1);
  assert.equal(choice?.keep, 49);
});

test("another account's tokens are never kept, though they are the same", () => {
  const sequences = [sequence(0, { accountId: "boris", tokens: tokens(50), repeatable: 32 })];
  assert.equal(chooseSequence(sequences, wanted(50), 32)?.keep, 0);
});

test("without a prefix the choice is an empty sequence, then the one that was used longest ago, never a busy one", () => {
  const used = (index: number, lastUse: number) =>
    sequence(index, { accountId: "boris", tokens: tokens(9), lastUse });
  assert.equal(chooseSequence([used(0, 1), sequence(1, {}), used(2, 3)], wanted(5), 32)?.sequence.index, 1);
  assert.equal(chooseSequence([used(0, 2), used(1, 1), used(2, 3)], wanted(5), 32)?.sequence.index, 1);
  assert.equal(chooseSequence([used(0, 2), sequence(1, { busy: true })], wanted(5), 32)?.sequence.index, 0);
  assert.equal(chooseSequence([sequence(0, { busy: true })], wanted(5), 32), null);
});

test("a repeatable job keeps whole chunks only, and only those computed as it would compute them", () => {
  const anna = { accountId: "anna", tokens: tokens(100) };
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 96 })], wanted(100, true), 32)?.keep, 96);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 96 })], wanted(96, true), 32)?.keep, 64);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 32 })], wanted(100, true), 32)?.keep, 32);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 0 })], wanted(100, true), 32)?.keep, 0);
});

test("absent parameters have OpenAI's defaults, not the library's", () => {
  const { seed, ...config } = samplerConfig({ stop: [] }, 100);
  assert.deepEqual(config, { temperature: 1 });
  assert.ok(seed >= 0 && seed < 0xffffffff);
});

test("top_p 0 and temperature 0 are greedy, top_k 0 and top_p 1 are off", () => {
  assert.equal(samplerConfig({ stop: [], topP: 0, temperature: 2 }, 100).temperature, 0);
  assert.deepEqual(samplerConfig({ stop: [], temperature: 0, topK: 5, topP: 0.5, seed: 1 }, 100), {
    temperature: 0,
    seed: 1,
  });
  assert.deepEqual(samplerConfig({ stop: [], topK: 0, topP: 1, seed: 1 }, 100), { temperature: 1, seed: 1 });
  assert.deepEqual(samplerConfig({ stop: [], topK: 2 ** 40, topP: 0.9, seed: 1 }, 100), {
    temperature: 1,
    topK: 0x7fffffff,
    topP: 0.9,
    seed: 1,
  });
});

test("penalties are clamped to -2 to 2 and look back over the whole completion", () => {
  const config = samplerConfig({ stop: [], presencePenalty: 1e9, frequencyPenalty: -3, seed: 1 }, 100);
  assert.equal(config.repeatPenaltyPresencePenalty, 2);
  assert.equal(config.repeatPenaltyFrequencyPenalty, -2);
  assert.equal(config.repeatPenaltyMaxTokens, 100);
});

test("any integer is a seed, and none of them is llama.cpp's word for random", () => {
  assert.equal(seedOf(7), 7);
  assert.equal(seedOf(2 ** 32 + 7), 7);
  assert.equal(seedOf(-1), 0xfffffffe);
  assert.equal(seedOf(0xffffffff), 0xfffffffe);
  assert.equal(seedOf(-(2 ** 53) + 1), 1);
  assert.equal(isRepeatable({ stop: [], seed: 0 }), true);
  assert.equal(isRepeatable({ stop: [], temperature: 0 }), true);
  assert.equal(isRepeatable({ stop: [] }), false);
});
