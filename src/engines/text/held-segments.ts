/**
 * Joins the bytes of tokens to segments of text, and holds text that may be part of a tag or a
 * stop sequence.
 *
 * Pure. A segment is the text of one token, or of several tokens that share a character. Invalid
 * bytes become U+FFFD. A text never ends inside a character: the bytes of an unfinished character
 * at its end are left out, and their tokens count.
 */
import type { TokenLogprob } from "../../chat/engine.ts";

export interface Segment {
  text: string;
  /** Number of tokens in this text. 0 for the second part of a segment that was cut. */
  tokens: number;
  logprobs: TokenLogprob[];
}

/** Taken segments that the list keeps before it is shortened. */
const takenMin = 64;

/**
 * Held segments. The time of each operation depends on the segments that it adds or takes, not on
 * those that stay.
 */
export class HeldSegments {
  #segments: Segment[] = [];
  /** Segments before this index have been taken. */
  #first = 0;
  #length = 0;
  #tokens = 0;

  /** UTF-16 units of text. */
  get length(): number {
    return this.#length;
  }

  get tokens(): number {
    return this.#tokens;
  }

  push(segment: Segment): void {
    this.#segments.push(segment);
    this.#length += segment.text.length;
    this.#tokens += segment.tokens;
  }

  /** Takes the segments that end at or before `end`. A segment that crosses `end` stays. */
  takeWhole(end: number): Segment[] {
    const taken: Segment[] = [];
    let left = end;
    for (
      let segment = this.#next;
      segment !== undefined && segment.text.length <= left;
      segment = this.#next
    ) {
      left -= segment.text.length;
      taken.push(segment);
      this.#first += 1;
      this.#length -= segment.text.length;
      this.#tokens -= segment.tokens;
    }
    this.#dropTaken();
    return taken;
  }

  /**
   * Takes the text before `end`. A segment that crosses `end` is cut, and its first part gets the
   * tokens.
   */
  takeTo(end: number): Segment[] {
    const left = this.#length - end;
    const taken = this.takeWhole(end);
    const next = this.#next;
    if (this.#length > left && next !== undefined) {
      const cut = this.#length - left;
      taken.push({ ...next, text: next.text.slice(0, cut) });
      this.#segments[this.#first] = { text: next.text.slice(cut), tokens: 0, logprobs: [] };
      this.#length = left;
      this.#tokens -= next.tokens;
    }
    return taken;
  }

  takeAll(): Segment[] {
    return this.takeWhole(this.#length);
  }

  get #next(): Segment | undefined {
    return this.#segments[this.#first];
  }

  #dropTaken(): void {
    if (this.#first === this.#segments.length) this.#segments = [];
    else if (this.#first < takenMin || 2 * this.#first < this.#segments.length) return;
    else this.#segments = this.#segments.slice(this.#first);
    this.#first = 0;
  }
}
