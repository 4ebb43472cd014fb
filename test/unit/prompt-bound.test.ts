/** The bound of a prompt is never below the bytes of its texts, in any normal form. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { promptBound, textBound } from "../../src/engines/upstream/prompt-counter.ts";
import { costAtMost } from "../../src/ledger/pricing.ts";
import { anyCharacter } from "../fixtures/characters.ts";
import { assertLinear } from "../fixtures/processor-time.ts";
import { isThorough, share } from "../fixtures/thorough.ts";

/** Planes without characters so far, and those of private characters. */
const isEmptyPlane = (point: number) => point >= 0x4_0000 && !(point >= 0xe_0000 && point < 0xf_0000);

const bytesOf = (text: string) => Buffer.byteLength(text);

test("counts a byte of ASCII as a token", () => {
  assert.equal(textBound("Hello there"), 11);
  assert.equal(textBound(""), 0);
});

test("covers every code point in every normal form, and counts those without one as they are", () => {
  for (let point = 0; point < 0x11_0000; point += isEmptyPlane(point) && !isThorough ? 31 : 1) {
    if (point >= 0xd800 && point <= 0xdfff) continue;
    const text = String.fromCodePoint(point);
    const bound = textBound(text);
    const isHangul = point >= 0xac00 && point <= 0xd7a3;
    for (const form of ["NFC", "NFKC", ...(isHangul ? [] : ["NFD", "NFKD"])]) {
      const bytes = bytesOf(text.normalize(form));
      assert.ok(bound >= bytes, `U+${point.toString(16)} ${form}: ${bound} of ${bytes}`);
    }
    if (text.normalize("NFD") === text && text.normalize("NFKD") === text) {
      assert.equal(bound, bytesOf(text), `U+${point.toString(16)}`);
    }
  }
});

test("covers texts whose normal form is longer than those of their characters", () => {
  // The dot below moves in front of the diaeresis, and \u01d6 falls apart into 5 bytes and 2.
  const text = "\u01d6\u0323";
  assert.ok(bytesOf(text.normalize("NFC")) > bytesOf(text));
  assert.ok(textBound(text) >= bytesOf(text.normalize("NFC")));
  const marks = fc.constantFrom(
    "\u01d6",
    "\u0323",
    "\u0301",
    "\u1ec7",
    "\u212b",
    "\u0344",
    "\u{1d160}",
    "a",
    "\ufdfa",
  );
  const anything = fc.array(fc.oneof(marks, fc.string({ unit: anyCharacter })), { maxLength: 40 });
  fc.assert(
    fc.property(anything, (parts) => {
      const text = parts.join("");
      for (const form of ["NFC", "NFKC"]) assert.ok(textBound(text) >= bytesOf(text.normalize(form)));
    }),
    { numRuns: share(2000) },
  );
});

test("counts half a character as the replacement character", () => {
  assert.equal(textBound("\ud83d"), 3);
  assert.equal(textBound("a\udc00b"), 5);
});

test("takes linear time for texts that take minutes to normalise", () =>
  assertLinear(1_000_000, (count) => {
    assert.equal(textBound(`a${"\u0301\u0323".repeat(count)}`), 4 * count + 1);
  }));

test("is at most the largest window, whose cost is a safe integer at any price", () => {
  const messages = [{ role: "user", content: "\ufdfa".repeat(600_000) }] as const;
  const bound = promptBound(messages, 512);
  assert.equal(bound, 16_777_216);
  assert.ok(Number.isSafeInteger(costAtMost({ prompt: 100_000_000, completion: 100_000_000 }, bound, bound)));
});

test("adds 16 tokens for each message, and the tokens of the template", () => {
  const messages = [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "" },
  ] as const;
  assert.equal(promptBound(messages, 512), 512 + 2 * 16 + 2);
});
