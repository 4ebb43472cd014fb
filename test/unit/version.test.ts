/** The version and its release date. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import { requirePossibleClock } from "../../src/version.ts";
import { day } from "../fixtures/times.ts";

test("a clock before the release of the program is refused, and a later one is not", () => {
  requirePossibleClock(Date.now());
  requirePossibleClock(Date.now() + 1000 * day);
  assert.throws(
    () => requirePossibleClock(0),
    (error) =>
      error instanceof OperatorError &&
      /^The clock shows 1970-01-01T00:00:00\.000Z, but Inkwell \S+ was released on \d{4}-\d\d-\d\d\. Set the clock/.test(
        error.message,
      ),
  );
});
