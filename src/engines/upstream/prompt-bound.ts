/**
 * The most tokens that a prompt can have, by arithmetic alone.
 *
 * Pure, linear in the text, and without a call to `normalize` on it: Unicode normalisation of a
 * text takes minutes if a caller sends a million combining marks.
 *
 * Guarantees (docs/decisions/0042-prompts-are-held-for-in-full.md): no tokenizer with a byte or
 * character fallback makes more tokens of the texts, in any of the four normal forms.
 */
import type { Message } from "../../chat/engine.ts";

/** Marks of the template around a message, its role and line ends. Measured: 5 to 10. */
export const messageTokens = 16;

/**
 * Tokens that a template adds to a prompt as a whole. Some templates have a default system prompt
 * of several hundred tokens.
 */
export const templateTokensDefault = 512;

/** Returns the bound. `templateTokens`: the most that the template adds to a prompt as a whole. */
export function promptBound(messages: readonly Message[], templateTokens: number): number {
  let tokens = templateTokens;
  for (const { content } of messages) tokens += messageTokens + textBound(content);
  return tokens;
}

/**
 * Returns the most tokens of a text: its UTF-8 bytes in its longest normal form. A token of a
 * byte-level or character-level vocabulary covers at least one byte.
 */
export function textBound(text: string): number {
  const bytes = Buffer.byteLength(text);
  if (bytes === text.length) return bytes;
  let bound = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) bound += 1;
    else {
      const point = text.codePointAt(at) ?? unit;
      if (point > 0xffff) at += 1;
      bound += longest[point] || learnLongest(point);
    }
  }
  return bound;
}

/** UTF-8 bytes of the longest normal form of each code point; 0 if it is not known yet. */
const longest = new Uint8Array(0x11_0000);

/**
 * A composed form is never longer than the decomposed one. Composition may fail (a mark between
 * two others), so the decomposed form counts. Hangul always composes.
 */
function learnLongest(point: number): number {
  // Half a character is sent as U+FFFD.
  const isHalf = point >= 0xd800 && point <= 0xdfff;
  const text = isHalf ? "\ufffd" : String.fromCodePoint(point);
  const forms = isPlain(point) ? [text] : [text, text.normalize("NFD"), text.normalize("NFKD")];
  const bytes = Math.max(...forms.map((form) => Buffer.byteLength(form)));
  longest[point] = bytes;
  return bytes;
}

/** Hangul, Han, and planes without decompositions: most of all code points, which saves time. */
function isPlain(point: number): boolean {
  return (
    (point >= 0x3400 && point <= 0x9fff) ||
    (point >= 0xac00 && point <= 0xd7a3) ||
    (point >= 0x2_0000 && point <= 0x2_f7ff) ||
    point >= 0x3_0000
  );
}
