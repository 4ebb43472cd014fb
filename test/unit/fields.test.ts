/** Texts of operators: every store returns them unchanged and finds them again. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { planLimits } from "../../src/accounts/plan-limits.ts";
import * as fields from "../../src/accounts/value-rules.ts";
import { journalKinds } from "../../src/actions/views.ts";
import { limitFields } from "../../src/ledger/rows.ts";

test("names of accounts and plans are plain", () => {
  for (const text of ["a", "0", "a.b-c_d", "a".repeat(64)]) assert.match(text, fields.name.pattern);
  for (const text of ["", "Alice", "a b", "-a", ".a", "../a", "a/b", "a".repeat(65), "ä", "a\n"])
    assert.doesNotMatch(text, fields.name.pattern, text);
});

test("a filter of the journal is one or more of its kinds", () => {
  for (const text of ["payment", "payment,refund,close"]) assert.match(text, journalKinds.pattern);
  for (const text of ["", "gift", "payment,gift", "payment,", " payment"])
    assert.doesNotMatch(text, journalKinds.pattern, text);
  assert.match(journalKinds.rule, /: open, window, .*, charge/);
});

test("a note is one line of text", () => {
  for (const text of [
    "a",
    "invoice 7/2027 (größer)",
    String.fromCodePoint(0x1f58b).repeat(200),
    "'\"\\;--",
  ]) {
    assert.match(text, fields.note.pattern);
  }
  for (const text of ["", "  ", "a\nb", "a\tb", "a\0b", "x".repeat(201)])
    assert.doesNotMatch(text, fields.note.pattern);
});

test("refuses characters that reverse the direction of text or separate lines, and invisible texts", () => {
  for (const code of [0x202a, 0x202e, 0x2066, 0x2069, 0x2028, 0x2029]) {
    assert.doesNotMatch(`key${String.fromCodePoint(code)}lin`, fields.label.pattern, code.toString(16));
    assert.doesNotMatch(`a${String.fromCodePoint(code)}da@example.com`, fields.email.pattern);
  }
  for (const code of [0x200b, 0xad, 0xfeff, 0x3164]) {
    const invisible = String.fromCodePoint(code);
    assert.doesNotMatch(invisible.repeat(3), fields.label.pattern, code.toString(16));
  }
  // Joiners in emoji and in Persian, and names that are written from right to left.
  for (const text of ["👩\u200d💻 laptop", "می\u200cخواهم", "מפתח"]) assert.match(text, fields.label.pattern);
});

test("refuses lone surrogates, which would make different payment ids equal", () => {
  for (const half of ["\ud800", "\udfff", "payment \ud83d", "\udd8b\ud83d"]) {
    assert.doesNotMatch(half, fields.note.pattern);
    assert.doesNotMatch(half, fields.label.pattern);
  }
});

test("each limit of the ledger has its name, label and option", () => {
  const rows = Object.values(planLimits).map(({ row }) => row);
  assert.deepEqual(rows, limitFields);
});
