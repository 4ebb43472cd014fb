/** All short histories of clocks (test/fixtures/small-clocks.ts). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { searchClocks } from "../fixtures/small-clocks.ts";

test("the clock does in all histories of four events what its description says", () => {
  assert.equal(searchClocks(4), 16 ** 4);
});
