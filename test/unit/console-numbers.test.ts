/** Amounts and numbers of the console's pages: no rounding without a mark. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { alignedCredits, counted, shortCredits, wholeNumberIn } from "../../src/web/shared/numbers.ts";
import { newOperationId } from "../../src/web/shared/operation-id.ts";

test("aligned amounts keep all digits and fill up six decimals", () => {
  const table: [number, string, string][] = [
    [0, "0", ".000000"],
    [1, "0.000001", ""],
    [1_500_000, "1.5", "00000"],
    [-2_000_000, "-2", ".000000"],
    [1_234_567_890_123, "1,234,567.890123", ""],
  ];
  for (const [micro, digits, padding] of table) {
    assert.deepEqual(alignedCredits(micro), { digits, padding });
    assert.match(digits + padding, /\.\d{6}$/);
  }
});

test("short amounts are exact or marked as rounded", () => {
  const table: [number, string][] = [
    [0, "0"],
    [5_000_000, "5"],
    [99_999_000_000, "99,999"],
    [2_500_000, "2.5"],
    [1, "0.000001"],
    [123, "≈ 0.00012"],
    [12_345_678, "≈ 12.35"],
    [1_234_567_000_000, "≈ 1.23457M"],
    [-12_345_678, "≈ -12.35"],
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
