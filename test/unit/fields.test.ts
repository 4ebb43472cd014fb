/** Texts of operators: every store returns them unchanged and finds them again. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { labelField, noteField } from "../../src/accounts/fields.ts";

test("a note is one line of text", () => {
  for (const text of [
    "a",
    "invoice 7/2027 (größer)",
    String.fromCodePoint(0x1f58b).repeat(200),
    "'\"\\;--",
  ]) {
    assert.match(text, noteField.pattern);
  }
  for (const text of ["", "  ", "a\nb", "a\tb", "a\0b", "x".repeat(201)])
    assert.doesNotMatch(text, noteField.pattern);
});

test("refuses lone surrogates, which would make different payment ids equal", () => {
  for (const half of ["\ud800", "\udfff", "payment \ud83d", "\udd8b\ud83d"]) {
    assert.doesNotMatch(half, noteField.pattern);
    assert.doesNotMatch(half, labelField.pattern);
  }
});
