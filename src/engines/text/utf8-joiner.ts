/**
 * Joins the bytes of tokens to segments of text.
 *
 * Pure. Invalid bytes become U+FFFD. A text never ends inside a character: the bytes of an
 * unfinished character at its end are left out, and their tokens count.
 */
import type { TokenLogprob } from "../../chat/engine.ts";
import type { Segment } from "./held-segments.ts";

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

const noBytes = new Uint8Array(0);

/** Joins tokens that end inside a UTF-8 character to the one that completes it. */
export class Utf8Joiner {
  #bytes: Uint8Array = noBytes;
  #tokens = 0;
  #logprobs: TokenLogprob[] = [];

  /** Tokens that wait for the rest of a character. */
  get tokensWaiting(): number {
    return this.#tokens;
  }

  /** Returns the next segment, or null if the token ends inside a character. */
  push(bytes: Uint8Array, logprob?: TokenLogprob): Segment | null {
    const waiting = this.#bytes.length;
    const all = waiting > 0 ? Buffer.concat([this.#bytes, bytes]) : bytes;
    this.#tokens += 1;
    if (logprob !== undefined) this.#logprobs.push(logprob);
    const open = incompleteTail(all);
    // A token that completes one character and starts another passes on the complete one, so no
    // text waits indefinitely.
    const completed = waiting > 0 && all.length - open >= waiting;
    const whole = open === 0 || completed ? all.length - open : 0;
    this.#bytes = whole === 0 ? all : all.subarray(whole);
    return whole === 0 ? null : this.#take(decoder.decode(all.subarray(0, whole)));
  }

  /**
   * Returns the rest at the end of the text, without an unfinished character. Its text is empty if
   * the tokens have only a part of one.
   */
  flush(): Segment | null {
    if (this.#tokens === 0) return null;
    const rest = this.#bytes;
    this.#bytes = noBytes;
    return this.#take(decoder.decode(rest.subarray(0, rest.length - incompleteTail(rest))));
  }

  #take(text: string): Segment {
    const segment = { text, tokens: this.#tokens, logprobs: this.#logprobs };
    this.#tokens = 0;
    this.#logprobs = [];
    return segment;
  }
}

/** Returns the number of bytes at the end that start a character without completing it. */
function incompleteTail(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf5 || byte < 0xc2 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    const isStart = back === 1 || maySecond(byte, bytes[bytes.length - back + 1] ?? 0);
    return isStart && length > back ? back : 0;
  }
  return 0;
}

/** Whether a character that begins with `first` may continue with this continuation byte. */
function maySecond(first: number, second: number): boolean {
  if (first === 0xe0) return second >= 0xa0;
  if (first === 0xed) return second < 0xa0;
  if (first === 0xf0) return second >= 0x90;
  if (first === 0xf4) return second < 0x90;
  return true;
}
