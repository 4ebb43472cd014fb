/** Text from elsewhere, as logs, terminals and pages show it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { visibleLine, visibleText } from "../../src/visible-text.ts";
import { anyCharacter } from "../fixtures/characters.ts";

const hiddenCharacters = {
  "a reversal of direction": "\u202e",
  "an isolate": "\u2066",
  "a mark of direction": "\u200f",
  "an escape of a terminal": "\u001b",
  "the 8-bit form of that escape": "\u009b",
  "a return to the start of the line": "\r",
  "a line separator": "\u2028",
  "a space of no width": "\u200b",
  "a soft hyphen": "\u00ad",
  "a byte order mark": "\ufeff",
  "a filler that is a letter": "\u3164",
  "half a character": "\ud83d",
  "a tag": "\u{e0041}",
};
for (const [name, character] of Object.entries(hiddenCharacters)) {
  test(`writes ${name} as an escape that JSON reads as the same character`, () => {
    const text = `a${character}b`;
    for (const shown of [visibleLine(text), visibleText(text)]) {
      assert.match(shown, /^a(?:\\u[0-9a-f]{4})+b$/);
      assert.equal(JSON.parse(`"${shown}"`), text);
    }
  });
}

test("shows visible text as it is, in any script", () => {
  for (const text of [
    "invoice 7/2027 (größer) \\u",
    "👩\u200d💻 laptop ❤\ufe0f",
    "می\u200cخواهم",
    "מפתח",
    "漢字\u3000",
    "",
  ]) {
    assert.equal(visibleLine(text), text);
    assert.equal(visibleText(text), text);
  }
});

test("shows line ends and tabs of prose, and escapes them in a line", () => {
  assert.equal(visibleText("a\n\tb"), "a\n\tb");
  assert.equal(visibleLine("a\n\tb"), "a\\u000a\\u0009b");
});

test("shows a joiner that makes nothing look different as an escape", () => {
  assert.equal(visibleLine("al\u200dice"), "al\\u200dice");
  assert.equal(visibleLine("\u200d\u200d"), "\\u200d\\u200d");
});

test("changes nothing a second time, and keeps the meaning of any JSON", () => {
  fc.assert(
    fc.property(fc.string({ unit: anyCharacter }), (text) => {
      const shown = visibleLine(text);
      assert.equal(visibleLine(shown), shown);
      assert.doesNotMatch(shown, /[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
      const json = JSON.stringify({ [text]: text });
      assert.deepEqual(JSON.parse(visibleLine(json)), { [text]: text });
    }),
  );
});
