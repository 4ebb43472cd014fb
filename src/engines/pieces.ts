/**
 * From the bytes of tokens to pieces of text, and text that has to wait until it is decided what it is.
 *
 * Pure. A piece is the text of one token, or of several where only together they end on a character. No byte is
 * lost: what never becomes a character becomes U+FFFD.
 */
import type { TokenLogprob } from "../generation/engine.ts";

export interface Piece {
  text: string;
  /** The tokens that this text came from; 0 for the second part of a piece that was cut. */
  tokens: number;
  logprobs: TokenLogprob[];
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const noBytes = new Uint8Array(0);

/** Joins tokens that end inside a UTF-8 character to the one that completes it. */
export class Utf8Joiner {
  #bytes: Uint8Array = noBytes;
  #tokens = 0;
  #logprobs: TokenLogprob[] = [];

  /** Tokens that wait for the rest of their character (or for any text at all). */
  get tokensWaiting(): number {
    return this.#tokens;
  }

  /** Null while there is nothing to show for the token. */
  push(bytes: Uint8Array, logprob?: TokenLogprob): Piece | null {
    const waiting = this.#bytes.length;
    const all = waiting > 0 ? concat(this.#bytes, bytes) : bytes;
    this.#tokens += 1;
    if (logprob !== undefined) this.#logprobs.push(logprob);
    const open = incompleteTail(all);
    // A token that completes one character and begins another hands on what is complete: nothing waits for ever.
    const completed = waiting > 0 && all.length - open > waiting;
    const whole = open === 0 || completed ? all.length - open : 0;
    this.#bytes = whole === 0 ? all : all.subarray(whole);
    return whole === 0 ? null : this.#take(decoder.decode(all.subarray(0, whole)));
  }

  /** At the end of the text: what is left, its unfinished character as U+FFFD. */
  flush(): Piece | null {
    const rest = this.#bytes;
    this.#bytes = noBytes;
    if (rest.length === 0) {
      this.#tokens = 0;
      this.#logprobs = [];
      return null;
    }
    return this.#take(decoder.decode(rest));
  }

  #take(text: string): Piece {
    const piece = { text, tokens: this.#tokens, logprobs: this.#logprobs };
    this.#tokens = 0;
    this.#logprobs = [];
    return piece;
  }
}

/** How many bytes at the end begin a character that more bytes could complete. */
function incompleteTail(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf5 || byte < 0xc2 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}

function concat(left: Uint8Array, right: Uint8Array): Uint8Array {
  const all = new Uint8Array(left.length + right.length);
  all.set(left);
  all.set(right, left.length);
  return all;
}

/** Pieces whose text is not decided yet. */
export class HeldPieces {
  #text = "";
  #pieces: Piece[] = [];

  get text(): string {
    return this.#text;
  }

  get tokens(): number {
    let tokens = 0;
    for (const piece of this.#pieces) tokens += piece.tokens;
    return tokens;
  }

  push(piece: Piece): void {
    this.#text += piece.text;
    this.#pieces.push(piece);
  }

  /** Takes the pieces that end at or before `end`; one that goes beyond stays whole. */
  takeWhole(end: number): Piece[] {
    let length = 0;
    let count = 0;
    for (const piece of this.#pieces) {
      if (length + piece.text.length > end) break;
      length += piece.text.length;
      count += 1;
    }
    this.#text = this.#text.slice(length);
    return this.#pieces.splice(0, count);
  }

  /** Takes the text before `end`. A piece that goes beyond is cut: its first part takes the tokens along. */
  takeTo(end: number): Piece[] {
    const taken = this.takeWhole(end);
    const left = end - taken.reduce((length, piece) => length + piece.text.length, 0);
    const next = this.#pieces[0];
    if (left > 0 && next !== undefined) {
      taken.push({ ...next, text: next.text.slice(0, left) });
      this.#pieces[0] = { text: next.text.slice(left), tokens: 0, logprobs: [] };
      this.#text = this.#text.slice(left);
    }
    return taken;
  }

  takeAll(): Piece[] {
    this.#text = "";
    return this.#pieces.splice(0);
  }
}

/** The length of the longest end of `text` that is a beginning of one of `needles`, but not all of it. */
export function partialEnd(text: string, needles: readonly string[]): number {
  let longest = 0;
  for (const needle of needles) {
    for (let length = Math.min(needle.length - 1, text.length); length > longest; length--) {
      if (needle.startsWith(text.slice(text.length - length))) longest = length;
    }
  }
  return longest;
}
