/** Long texts in chunks. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chunkLengthMax, chunksOf } from "../../src/engines/llama/prompt/chunker.ts";

test("chunks join to the text, are short enough and never split a character", () => {
  const unit = fc.constantFrom(
    "a",
    "B",
    "7",
    " ",
    "\n",
    ".",
    "\r\n",
    "漢",
    "é",
    "e\u0301",
    "😀",
    "👩‍🚀",
    "\ud800",
  );
  const run = fc.tuple(unit, fc.integer({ min: 1, max: 3000 })).map(([text, times]) => text.repeat(times));
  fc.assert(
    fc.property(fc.array(run, { maxLength: 5 }), (runs) => {
      const text = runs.join("");
      const chunks = [...chunksOf(text)];
      assert.equal(chunks.join(""), text);
      for (const [index, chunk] of chunks.entries()) {
        assert.ok(chunk.length > 0 && chunk.length <= chunkLengthMax);
        if (index > 0 && text.isWellFormed()) assert.ok(chunk.isWellFormed());
        assert.ok(index === chunks.length - 1 || chunk.length > chunkLengthMax / 2 - 2);
      }
    }),
    { numRuns: 300 },
  );
});

test("returns a text of usual length as one chunk", () => {
  assert.deepEqual([...chunksOf("")], []);
  const text = "a".repeat(chunkLengthMax);
  assert.deepEqual([...chunksOf(text)], [text]);
});

test("cuts prose only before a blank that begins a word", () => {
  const chunks = [...chunksOf("It is 7 o'clock. Well,\n\nthe  ink is dry. ".repeat(500))];
  assert.ok(chunks.length > 5);
  for (const chunk of chunks.slice(1)) assert.match(chunk, /^ [^ ]/);
  for (const chunk of chunks.slice(0, -1)) assert.match(chunk, /[a-z0-9]$/);
});

test("otherwise cuts before another blank, between kinds of characters, or anywhere", () => {
  for (const chunk of [...chunksOf(`${"x".repeat(40)}.\n`.repeat(200))].slice(1)) assert.match(chunk, /^\n/);
  for (const chunk of [...chunksOf("墨水在井里是黑的。".repeat(500))].slice(1))
    assert.match(chunk, /^[。墨]/);
  assert.deepEqual(
    [...chunksOf("a".repeat(chunkLengthMax + 5))].map((chunk) => chunk.length),
    [chunkLengthMax, 5],
  );
});
