/** Prices: costs are whole micro-credits, never rounded or negative. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { completionTokensFor, costAtMost, costOf } from "../../src/ledger/pricing.ts";

const made = (promptTokens: number, cachedTokens: number, completionTokens: number) => ({
  promptTokens,
  cachedTokens,
  completionTokens,
});

test("a price in credits per million tokens is the same number of micro-credits per token", () => {
  assert.equal(costOf({ prompt: 10, completion: 30 }, made(100, 0, 7)), 100 * 10 + 7 * 30);
});

test("charges a single token at one credit per million", () => {
  assert.equal(costOf({ prompt: 1, completion: 1 }, made(1, 0, 0)), 1);
});

test("cached prompt tokens have their own price if it is set", () => {
  assert.equal(costOf({ prompt: 10, completion: 30, cachedPrompt: 1 }, made(100, 60, 0)), 40 * 10 + 60);
  assert.equal(costOf({ prompt: 10, completion: 30, cachedPrompt: 0 }, made(100, 100, 0)), 0);
});

test("cached prompt tokens without a price have the price of prompt tokens", () => {
  assert.equal(costOf({ prompt: 10, completion: 30 }, made(100, 60, 0)), 1000);
});

test("a hold uses the higher of the two prompt prices (litellm#40002)", () => {
  assert.equal(costAtMost({ prompt: 10, completion: 30, cachedPrompt: 1 }, 100, 2), 1060);
  assert.equal(costAtMost({ prompt: 10, completion: 30, cachedPrompt: 12 }, 100, 2), 1260);
});

test("an amount buys whole completion tokens after the prompt", () => {
  const price = { prompt: 10, completion: 30 };
  assert.equal(completionTokensFor(price, 100, 1000), 0);
  assert.equal(completionTokensFor(price, 100, 1029), 0);
  assert.equal(completionTokensFor(price, 100, 1030), 1);
  assert.equal(completionTokensFor(price, 100, 1089), 2);
});

test("an amount below the cost of the prompt buys no tokens", () => {
  assert.equal(completionTokensFor({ prompt: 10, completion: 30 }, 100, 999), 0);
  assert.equal(completionTokensFor({ prompt: 10, completion: 0 }, 100, 999), 0);
});

test("an amount that pays the prompt buys any number of free completion tokens", () => {
  assert.equal(completionTokensFor({ prompt: 10, completion: 0 }, 100, 1000), Number.POSITIVE_INFINITY);
});

test("throws if a cost is not a whole amount (octopus#243)", () => {
  const price = { prompt: 10, completion: 30 };
  assert.throws(() => costOf(price, made(-1, 0, 0)), /invariant/);
  assert.throws(() => costOf(price, made(0.5, 0, 0.01)), /invariant/);
  assert.throws(() => costOf(price, made(Number.MAX_SAFE_INTEGER, 0, 0)), /invariant/);
  assert.throws(() => costOf(price, made(Number.NaN, 0, 0)), /invariant/);
});

const priceArb = fc.record(
  { prompt: fc.nat({ max: 1e9 }), completion: fc.nat({ max: 1e9 }), cachedPrompt: fc.nat({ max: 1e9 }) },
  { requiredKeys: ["prompt", "completion"] },
);
const countArb = fc.nat({ max: 2_000_000 });

test("property: a cost is exact, and at most the maximum cost", () => {
  fc.assert(
    fc.property(priceArb, countArb, countArb, countArb, (price, promptTokens, cached, completionTokens) => {
      const cachedTokens = Math.min(cached, promptTokens);
      const cost = costOf(price, made(promptTokens, cachedTokens, completionTokens));
      const exact =
        BigInt(promptTokens - cachedTokens) * BigInt(price.prompt) +
        BigInt(cachedTokens) * BigInt(price.cachedPrompt ?? price.prompt) +
        BigInt(completionTokens) * BigInt(price.completion);
      assert.equal(BigInt(cost), exact);
      assert.ok(cost <= costAtMost(price, promptTokens, completionTokens));
    }),
  );
});

test("property: an amount pays the tokens that it buys, and not one more", () => {
  fc.assert(
    fc.property(priceArb, countArb, fc.nat({ max: 9e15 }), (price, promptTokens, amount) => {
      fc.pre(price.completion > 0 && costAtMost(price, promptTokens, 0) <= amount);
      const bought = completionTokensFor(price, promptTokens, amount);
      const costs = (count: number) =>
        BigInt(costAtMost(price, promptTokens, 0)) + BigInt(count) * BigInt(price.completion);
      assert.ok(costs(bought) <= BigInt(amount));
      assert.ok(costs(bought + 1) > BigInt(amount));
    }),
  );
});
