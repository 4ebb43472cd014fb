/**
 * Cuts a long text into chunks that llama.cpp can tokenize one by one.
 *
 * For most byte-pair tokenizers llama.cpp splits text into words with std::regex, which recurses
 * for each character of a word. 100,000 letters (or blanks, or signs) in a row overflow the stack
 * and end the process. With 8 MiB of stack, 26,000 overflow it and 16,000 do not
 * (ggml-org/llama.cpp#27783).
 *
 * Pure. Guarantees: the chunks join to the text, are always the same, and are at most
 * `chunkLengthMax` long. A cut lies before a blank that begins a word, because these tokenizers
 * split there anyway. In text without blanks it lies between characters of different kinds. A run
 * of one kind longer than half a chunk is cut anywhere, which may change the tokens around the
 * cut.
 */

/** In UTF-16 units. An eighth of the length that overflows a stack of 8 MiB. */
export const chunkLengthMax = 2048;

export function* chunksOf(text: string): Generator<string, void, undefined> {
  let from = 0;
  while (text.length - from > chunkLengthMax) {
    const to = cutIn(text, from + chunkLengthMax / 2, from + chunkLengthMax);
    yield text.slice(from, to);
    from = to;
  }
  if (from < text.length) yield text.slice(from);
}

/** Returns the best place after `least` and up to `most`, the last one among equals. */
function cutIn(text: string, least: number, most: number): number {
  let blank = -1;
  let change = -1;
  for (let at = most; at > least; at--) {
    const before = kindBefore(text, at);
    const after = kindAfter(text, at);
    if (before === after || after === "half") continue;
    if (after === "blank") {
      const wordBegins = text[at] === " " && kindAfter(text, at + 1) !== "blank";
      if (wordBegins && (before === "letter" || before === "digit")) return at;
      if (blank < 0) blank = at;
    } else if (before !== "blank" && change < 0) change = at;
  }
  if (blank >= 0) return blank;
  if (change >= 0) return change;
  return kindAfter(text, most) === "half" ? most - 1 : most;
}

type Kind = "blank" | "letter" | "digit" | "sign" | "half";

function kindAfter(text: string, at: number): Kind {
  const unit = text.charCodeAt(at);
  if (unit >= 0xdc00 && unit <= 0xdfff && isHigh(text.charCodeAt(at - 1))) return "half";
  return kindOf(String.fromCodePoint(text.codePointAt(at) ?? 0));
}

function kindBefore(text: string, at: number): Kind {
  const whole = at >= 2 && isHigh(text.charCodeAt(at - 2)) && kindAfter(text, at - 1) === "half";
  return kindAfter(text, whole ? at - 2 : at - 1);
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function kindOf(character: string): Kind {
  if (/\s/.test(character)) return "blank";
  // A combining mark belongs to the letter before it.
  if (/[\p{L}\p{M}]/u.test(character)) return "letter";
  return /\p{N}/u.test(character) ? "digit" : "sign";
}
