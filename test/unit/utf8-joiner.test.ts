/** Text of tokens whose bytes are parts of characters. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Utf8Joiner } from "../../src/engines/text/utf8-joiner.ts";

test("holds a part of a character for its rest", () => {
  const joiner = new Utf8Joiner();
  assert.equal(joiner.push(Uint8Array.of(0xe2, 0x82)), null);
  assert.equal(joiner.push(Uint8Array.of(0xac))?.text, "€");
});

test("holds no part that nothing can complete any more", () => {
  const joiner = new Utf8Joiner();
  assert.equal(joiner.push(Uint8Array.of(0x61, 0xe2, 0x82)), null);
  const lead = Uint8Array.of(0xe2, 0x82);
  assert.equal(joiner.push(lead)?.text, "a\ufffd");
  for (let n = 0; n < 100; n += 1) assert.equal(joiner.push(lead)?.text, "\ufffd");
  assert.equal(joiner.push(Uint8Array.of(0xac))?.text, "€");
});
