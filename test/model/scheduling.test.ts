/** Turns of accounts, choice of sequences, sampling parameters. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FairQueue } from "../../src/collections.ts";
import { isRepeatable, samplerConfig, seedOf } from "../../src/engines/llama/decode/sampling.ts";
import { chooseSequence, newSequence, type Sequence } from "../../src/engines/llama/decode/sequences.ts";

function drain(queue: FairQueue<string>): string[] {
  const items: string[] = [];
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) items.push(item);
  return items;
}

test("accounts take turns, and an account's items keep their order", () => {
  const queue = new FairQueue<string>(10);
  for (const item of ["a1", "a2", "a3", "b1", "c1", "b2"]) assert.ok(queue.push(item.charAt(0), item));
  assert.deepEqual(drain(queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
});

test("an account that returns after its turn waits behind the others", () => {
  const queue = new FairQueue<string>(10);
  queue.push("a", "a1");
  queue.push("b", "b1");
  assert.equal(queue.shift(), "a1");
  queue.push("a", "a2");
  assert.deepEqual(drain(queue), ["b1", "a2"]);
});

test("a full queue has room for one item of each other account, up to twice its size", () => {
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

test("a removed item makes room at once, and an item that is put back is first", () => {
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

/**
 * Idle; what it holds is the prompt of the last request, unless `fields` say that some of it is an
 * answer.
 */
function sequence(index: number, fields: Partial<Sequence>): Sequence {
  const tokens = fields.tokens ?? [];
  return { ...newSequence(index), tokens, promptTokens: tokens.length, ...fields };
}

const tokens = (length: number): number[] => Array.from({ length }, (_, index) => index + 1);
/** The first `common` tokens as `tokens` has them, and others behind. */
const forked = (common: number, others: number): number[] => [
  ...tokens(common),
  ...Array.from({ length: others }, (_, index) => -index - 1),
];
const wants = (prompt: number[], repeatable = false) => ({
  accountId: "anna",
  tokens: Uint32Array.from(prompt),
  repeatable,
});
const wanted = (length: number, repeatable = false) => wants(tokens(length), repeatable);

function choose(
  sequences: Sequence[],
  prompt: number[],
): { index: number | undefined; keep: number | undefined } {
  const choice = chooseSequence(sequences, wants(prompt), 32);
  return { index: choice?.sequence.index, keep: choice?.keep };
}

test("keeps the longest prefix of the same account, and evaluates at least one token", () => {
  const sequences = [
    sequence(0, { accountId: "anna", tokens: tokens(10), lastUse: 9 }),
    sequence(1, { accountId: "anna", tokens: tokens(50), lastUse: 8 }),
    sequence(2, {}),
  ];
  const choice = chooseSequence(sequences, wanted(50), 32);
  assert.equal(choice?.sequence.index, 1);
  assert.equal(choice?.keep, 49);
});

test("never keeps equal tokens of another account", () => {
  const sequences = [sequence(0, { accountId: "boris", tokens: tokens(50), repeatable: 32 })];
  assert.equal(chooseSequence(sequences, wanted(50), 32)?.keep, 0);
});

test("without a prefix chooses an empty sequence, then the least recently used one, never a busy one", () => {
  const used = (index: number, lastUse: number) =>
    sequence(index, { accountId: "boris", tokens: tokens(9), lastUse });
  assert.equal(chooseSequence([used(0, 1), sequence(1, {}), used(2, 3)], wanted(5), 32)?.sequence.index, 1);
  assert.equal(chooseSequence([used(0, 2), used(1, 1), used(2, 3)], wanted(5), 32)?.sequence.index, 1);
  assert.equal(chooseSequence([used(0, 2), sequence(1, { busy: true })], wanted(5), 32)?.sequence.index, 0);
  assert.equal(chooseSequence([sequence(0, { busy: true })], wanted(5), 32), null);
});

test("among equal sequences takes one beside busy ones, but never one of the third used last", () => {
  const used = (index: number, lastUse: number) =>
    sequence(index, { accountId: "boris", tokens: tokens(9), lastUse });
  const busy = (index: number) => sequence(index, { busy: true });
  const chosen = (...sequences: Sequence[]) => choose(sequences, tokens(5)).index;
  assert.equal(chosen(used(0, 1), used(1, 4), used(2, 2), busy(3), used(4, 3)), 2);
  assert.equal(chosen(used(0, 1), used(1, 2), used(2, 3), busy(3)), 0, "the neighbour is newer");
  assert.equal(chosen(used(0, 1), busy(1), used(2, 2), busy(3), used(4, 3), used(5, 4)), 2, "fills a gap");
  assert.equal(chosen(sequence(0, {}), sequence(1, {}), sequence(2, {}), busy(3)), 2, "all empty");
  assert.equal(chosen(used(0, 1), busy(1), sequence(2, {}), sequence(3, {}), used(4, 2)), 2, "empty first");
});

test("without busy sequences takes one with room beside it for the next answers", () => {
  const used = (index: number, lastUse: number) =>
    sequence(index, { accountId: "boris", tokens: tokens(9), lastUse });
  const sequences = [used(0, 1), used(1, 9), used(2, 2), used(3, 3), used(4, 8)];
  assert.equal(choose(sequences, tokens(5)).index, 2);
});

test("a continued conversation keeps its sequence, also if the template leaves out the thinking", () => {
  const held = { accountId: "anna", promptTokens: 100, lastUse: 5 };
  const whole = sequence(0, { ...held, tokens: tokens(300) });
  assert.deepEqual(choose([whole, sequence(1, {})], tokens(400)), { index: 0, keep: 300 });
  const thought = sequence(0, { ...held, tokens: forked(100, 900) });
  assert.deepEqual(choose([thought, sequence(1, {})], tokens(200)), { index: 0, keep: 100 });
  const opened = sequence(0, { ...held, tokens: forked(96, 900) });
  assert.deepEqual(choose([opened, sequence(1, {})], tokens(200)), { index: 0, keep: 96 });
  const again = sequence(0, { ...held, tokens: tokens(1000) });
  assert.deepEqual(choose([again, sequence(1, {})], tokens(100)), { index: 0, keep: 99 }, "asked for again");
});

test("a conversation with a changed last turn keeps its sequence", () => {
  const held = sequence(0, { accountId: "anna", tokens: tokens(500), promptTokens: 480, lastUse: 5 });
  assert.deepEqual(choose([held, sequence(1, {})], forked(400, 60)), { index: 0, keep: 400 });
});

test("another conversation of the account takes an empty sequence first", () => {
  const held = sequence(0, { accountId: "anna", tokens: tokens(900), promptTokens: 700, lastUse: 5 });
  for (const common of [1, 20, 300, 600])
    assert.deepEqual(choose([held, sequence(1, {})], forked(common, 50)), { index: 1, keep: 0 }, `${common}`);
});

test("another conversation takes a spare sequence of any account before a recent one", () => {
  const inUse = sequence(0, { accountId: "anna", tokens: tokens(900), promptTokens: 700, lastUse: 100 });
  const idle = (lastUse: number) =>
    sequence(1, { accountId: "boris", tokens: tokens(2000), promptTokens: 1000, lastUse });
  assert.deepEqual(choose([inUse, idle(100 - 16)], forked(600, 50)), { index: 1, keep: 0 });
  assert.deepEqual(choose([inUse, idle(100 - 15)], forked(600, 50)), { index: 0, keep: 600 });
});

test("keeps the best prefix among recent sequences, unless it is a small part", () => {
  const used = (index: number, held: number, lastUse: number) =>
    sequence(index, { accountId: "anna", tokens: tokens(held), lastUse });
  const boris = sequence(2, { accountId: "boris", tokens: tokens(50), lastUse: 1 });
  assert.deepEqual(choose([used(0, 900, 4), used(1, 700, 3), boris], forked(400, 100)), {
    index: 1,
    keep: 400,
  });
  assert.deepEqual(choose([used(0, 900, 4), used(1, 700, 3), boris], forked(400, 1300)), {
    index: 2,
    keep: 0,
  });
  assert.deepEqual(choose([used(0, 2100, 4), boris], forked(400, 100)), { index: 2, keep: 0 });
});

test("a repeatable job keeps only whole chunks that were computed alone", () => {
  const anna = { accountId: "anna", tokens: tokens(100) };
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 96 })], wanted(100, true), 32)?.keep, 96);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 96 })], wanted(96, true), 32)?.keep, 64);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 32 })], wanted(100, true), 32)?.keep, 32);
  assert.equal(chooseSequence([sequence(0, { ...anna, repeatable: 0 })], wanted(100, true), 32)?.keep, 0);
});

test("missing parameters get OpenAI's defaults, not the library's", () => {
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

test("a temperature too small to distinguish tokens is greedy and repeatable", () => {
  for (const temperature of [1e-300, 1e-40, 1e-38, 9e-7]) {
    assert.deepEqual(samplerConfig({ stop: [], temperature, seed: 1 }, 100), { temperature: 0, seed: 1 });
    assert.equal(isRepeatable({ stop: [], temperature }), true);
  }
  assert.equal(samplerConfig({ stop: [], temperature: 1e-6 }, 100).temperature, 1e-6);
  assert.equal(isRepeatable({ stop: [], temperature: 1e-6 }), false);
});

test("penalties are clamped to -2 to 2 and look back over the whole completion", () => {
  const config = samplerConfig({ stop: [], presencePenalty: 1e9, frequencyPenalty: -3, seed: 1 }, 100);
  assert.equal(config.repeatPenaltyPresencePenalty, 2);
  assert.equal(config.repeatPenaltyFrequencyPenalty, -2);
  assert.equal(config.repeatPenaltyMaxTokens, 100);
});

test("accepts any integer as a seed, and never passes llama.cpp's random seed", () => {
  assert.equal(seedOf(7), 7);
  assert.equal(seedOf(2 ** 32 + 7), 7);
  assert.equal(seedOf(-1), 0xfffffffe);
  assert.equal(seedOf(0xffffffff), 0xfffffffe);
  assert.equal(seedOf(-(2 ** 53) + 1), 1);
  assert.equal(isRepeatable({ stop: [], seed: 0 }), true);
  assert.equal(isRepeatable({ stop: [], temperature: 0 }), true);
  assert.equal(isRepeatable({ stop: [] }), false);
});
