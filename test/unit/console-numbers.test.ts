/** Amounts and numbers of the console's pages: nothing is lost by rounding. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  counted,
  creditsWith,
  decimalsOf,
  shortCredits,
  wholeNumberIn,
} from "../../src/web/shared/numbers.ts";
import { newOperationId } from "../../src/web/shared/operation-id.ts";

test("amounts of a column keep all digits and have as many decimals as the longest", () => {
  const table: [number, number, number, string][] = [
    [0, 0, 0, "0"],
    [0, 0, 3, "0.000"],
    [1, 6, 6, "0.000001"],
    [1_500_000, 1, 3, "1.500"],
    [-2_000_000, 0, 2, "-2.00"],
    [1_234_567_890_123, 6, 2, "1,234,567.890123"],
  ];
  for (const [micro, own, decimals, text] of table) {
    assert.equal(decimalsOf(micro), own);
    assert.equal(creditsWith(micro, decimals), text);
  }
});

test("amounts of figures are whole or have two decimals, and none is rounded to zero", () => {
  const table: [number, string][] = [
    [0, "0"],
    [5_000_000, "5"],
    [99_999_000_000, "99,999"],
    [1_234_567_000_000, "1,234,567"],
    [2_500_000, "2.50"],
    [1, "< 0.01"],
    [-1, "> -0.01"],
    [12_345_678, "12.35"],
    [110_091_230_000, "110,091.23"],
    [-12_345_678, "-12.35"],
  ];
  for (const [micro, text] of table) assert.equal(shortCredits(micro), text);
});

test("reads whole numbers as people type them, and nothing else", () => {
  const table: [string, number | null][] = [
    ["500", 500],
    [" 500 ", 500],
    ["1,000", 1000],
    ["1 000 000", 1_000_000],
    ["-20", -20],
    ["1,00", null],
    ["1.5", null],
    ["1e3", null],
    ["", null],
    ["five", null],
    ["9999999999999999", null],
  ];
  for (const [text, number] of table) assert.equal(wholeNumberIn(text), number, text);
});

test("counts have the right plural", () => {
  assert.deepEqual(
    [counted(0, "key"), counted(1, "key"), counted(1200, "key")],
    ["0 keys", "1 key", "1,200 keys"],
  );
  assert.equal(counted(2, "entry", "entries"), "2 entries");
});

test("operation ids never repeat and are valid ids", () => {
  const ids = new Set(Array.from({ length: 1000 }, () => newOperationId("topup")));
  assert.equal(ids.size, 1000);
  for (const id of ids) assert.match(id, /^topup-[0-9a-f]{24}$/);
});
