/** Patterns of models in plans, keys and caps. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isModelOf } from "../../src/ledger/caps.ts";

test("a pattern names the models that it fits, with any characters for each *", () => {
  const rows: [pattern: string, model: string, fits: boolean][] = [
    ["*", "", true],
    ["*", "big", true],
    ["big", "big", true],
    ["big", "bigger", false],
    ["big*", "big", true],
    ["big*", "bigger", true],
    ["big*", "a-big", false],
    ["*big", "a-big", true],
    ["*big", "bigger", false],
    ["b*g", "big", true],
    ["b*g", "bg", true],
    ["b*b", "b", false],
    ["ab*ba", "aba", false],
    ["a*b*c", "a-b-b-c", true],
    ["a*b*c", "acb", false],
    ["a*b*b", "ab", false],
    ["*/*-4o", "openai/gpt-4o", true],
    ["**", "any", true],
    ["a.c", "abc", false],
    ["a.*", "a.c", true],
    ["[a]*", "a", false],
    ["a*", "a\nb", true],
  ];
  for (const [pattern, model, fits] of rows)
    assert.equal(isModelOf(pattern, model), fits, `${pattern} and ${model}`);
});

test("a pattern of many * is compared at once", () => {
  const model = "a".repeat(200);
  assert.equal(isModelOf(`${"*".repeat(199)}!`, model), false);
  assert.equal(isModelOf(`${"*a".repeat(99)}*!`, model), false);
  assert.equal(isModelOf("*a".repeat(99), model), true);
});
