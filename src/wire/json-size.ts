/**
 * Measures a JSON text before it is parsed, so that a body of a million tiny parts is refused instead of built.
 *
 * Pure and linear in the bytes. The number of keys and values decides what JSON.parse costs, not the number of bytes: 4 MiB
 * take 2 ms as one long string, 0.2 s as 380,000 distinct keys and 0.2 to 0.5 s as two million nested arrays.
 */

/** A value without a key costs JSON.parse less than a fourth of a value with a key. */
export const valuesPerKey = 4;

const quote = 0x22;
const backslash = 0x5c;
const colon = 0x3a;
const comma = 0x2c;
const openBracket = 0x5b;
const openBrace = 0x7b;

/**
 * Returns what the text has more of than it may: `keysMax` keys, or `valuesPerKey` times as many values (objects, arrays,
 * strings, numbers and literals; an empty object or array counts twice). Null if neither. Bytes that are not JSON are
 * measured as if they were.
 */
export function exceededSize(bytes: Uint8Array, keysMax: number): "keys" | "values" | null {
  // Each further key or value takes a byte at least.
  if (bytes.length <= keysMax) return null;
  const valuesMax = valuesPerKey * keysMax;
  let keys = 0;
  let values = 1;
  let isString = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (isString) {
      if (byte === quote) isString = false;
      else if (byte === backslash) at += 1;
    } else if (byte === quote) {
      isString = true;
    } else if (byte === colon) {
      keys += 1;
      if (keys > keysMax) return "keys";
    } else if (byte === comma || byte === openBracket || byte === openBrace) {
      values += 1;
      if (values > valuesMax) return "values";
    }
  }
  return null;
}
