/** What credits cost in money. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { moneyOf } from "../../src/accounts/money.ts";

test("money is exact, rounded once, with the decimals of the currency", () => {
  const cases = [
    ["0.00", 0, "EUR", 2_500_000],
    ["2.50", 1_000_000_000, "EUR", 2_500_000],
    // 0.005 EUR is a half.
    ["0.01", 2_000_000, "EUR", 2_500_000],
    ["0.00", 1_999_999, "EUR", 2_500_000],
    ["3", 1_000_000_000, "JPY", 2_500_000],
    ["0.003", 1_000_000, "KWD", 2_500_000],
    ["0.00", 1, "EUR", 1],
    // A double would lose the last digits.
    ["22517998.14", 9_007_199_254_740_991, "EUR", 2_500_000],
    ["9007199254740.99", 9_007_199_254_740_991, "EUR", 1_000_000_000_000],
  ] as const;
  for (const [text, micro, code, priceMicro] of cases)
    assert.equal(moneyOf(micro, { code, priceMicro }), text);
});
