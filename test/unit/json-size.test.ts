/** Measures JSON text without parsing it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { exceededSize, valuesPerKey } from "../../src/json-size.ts";
import { share } from "../fixtures/thorough.ts";

interface Size {
  keys: number;
  values: number;
}

/** Counts keys and values in the result of JSON.parse. */
function sizeOf(value: unknown): Size {
  if (typeof value !== "object" || value === null) return { keys: 0, values: 1 };
  const inside = Object.values(value).map(sizeOf);
  const isArray = Array.isArray(value);
  return {
    keys: inside.reduce((sum, each) => sum + each.keys, isArray ? 0 : inside.length),
    values: inside.reduce((sum, each) => sum + each.values, inside.length === 0 ? 2 : 1),
  };
}

function expected({ keys, values }: Size, keysMax: number) {
  if (keys > keysMax) return "keys";
  return values > valuesPerKey * keysMax ? "values" : null;
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

test("counts every key and value", () => {
  const json = fc.json({ maxDepth: 6, stringUnit: "binary" });
  fc.assert(
    fc.property(json, fc.nat({ max: 3 }), (text, indent) => {
      const value: unknown = JSON.parse(text);
      const size = sizeOf(value);
      // Longer than the counts, so that the length alone does not decide.
      const bytes = bytesOf(`${JSON.stringify(value, null, indent)}${" ".repeat(size.values + size.keys)}`);
      const limits = [size.keys - 1, size.keys, Math.ceil(size.values / valuesPerKey) - 1];
      for (const keysMax of [...limits, Math.ceil(size.values / valuesPerKey)].filter((each) => each >= 1)) {
        const found = exceededSize(bytes, keysMax);
        // If both limits are exceeded, the first in the text is reported.
        if (found === null || expected(size, keysMax) === null) assert.equal(found, expected(size, keysMax));
        else assert.ok((found === "keys" ? size.keys : size.values / valuesPerKey) > keysMax);
      }
    }),
    { numRuns: share(1000) },
  );
});

test("counts nothing inside strings", () => {
  for (const text of [String.raw`"[,{:\"[,{:\\"`, String.raw`"\\\",,,,:"`, String.raw`"\u005b,,:[["`]) {
    assert.equal(exceededSize(bytesOf(`[${text}]`), 1), null, text);
    assert.equal(exceededSize(bytesOf(`[${text},[2,3]]`), 1), "values", text);
    assert.equal(exceededSize(bytesOf(`{${text}:${text},"b":1}`), 1), "keys", text);
  }
});

test("finds the end of long strings with escapes", () => {
  const part = fc.constantFrom(
    "a",
    "a".repeat(31),
    "a".repeat(32),
    '\\"',
    "\\\\",
    "[",
    ":",
    ",",
    "\\".repeat(64),
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      const text = `["${parts.join("")}"]`;
      assert.equal(exceededSize(bytesOf(text), 1), null, text);
      assert.equal(exceededSize(bytesOf(`[${text},[2,3]]`), 1), "values", text);
    }),
    { numRuns: share(1000) },
  );
});

test("measures bytes that are not JSON", () => {
  assert.equal(exceededSize(bytesOf('"unfinished \\'), 1), null);
  assert.equal(exceededSize(bytesOf("[[[[[[[["), 1), "values");
  assert.equal(exceededSize(bytesOf("::::::"), 1), "keys");
  assert.equal(exceededSize(Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0xff), 1), null);
});
