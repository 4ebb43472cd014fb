/**
 * Finds one sequence in text that arrives unit by unit (Knuth-Morris-Pratt).
 *
 * Pure. Guarantees: time is linear in the text, for any text and any sequence. The table of
 * borders grows with the longest beginning that has matched so far. A sequence of megabytes
 * therefore costs nothing before its text arrives.
 */

/** First size of the table; most stop sequences are shorter. */
const bordersMin = 16;

export class SequenceMatcher {
  readonly #sequence: string;
  /**
   * `#borders[n]`: length of the longest proper prefix of the first `n` units that is also their
   * suffix.
   */
  #borders: Uint32Array;
  /** Entries of `#borders` that are filled in. */
  #known = 2;
  #matched = 0;

  /** `sequence` has at least one unit. */
  constructor(sequence: string) {
    this.#sequence = sequence;
    this.#borders = new Uint32Array(Math.min(sequence.length, bordersMin) + 1);
  }

  get length(): number {
    return this.#sequence.length;
  }

  /** Length of the longest end of the text that begins the sequence. */
  get matched(): number {
    return this.#matched;
  }

  /**
   * Takes the next UTF-16 unit of the text. True if the sequence ends with it; the search then
   * begins anew.
   */
  push(unit: number): boolean {
    let matched = this.#matched;
    while (matched > 0 && this.#sequence.charCodeAt(matched) !== unit) matched = this.#borders[matched] ?? 0;
    if (this.#sequence.charCodeAt(matched) === unit) matched += 1;
    if (matched === this.#sequence.length) {
      this.#matched = 0;
      return true;
    }
    this.#matched = matched;
    if (matched >= this.#known) this.#learnBorder();
    return false;
  }

  reset(): void {
    this.#matched = 0;
  }

  /**
   * Fills in the next entry. `push` advances by one unit at a time, so one entry is always enough.
   */
  #learnBorder(): void {
    const next = this.#known;
    if (next >= this.#borders.length) this.#grow();
    const unit = this.#sequence.charCodeAt(next - 1);
    let border = this.#borders[next - 1] ?? 0;
    while (border > 0 && this.#sequence.charCodeAt(border) !== unit) border = this.#borders[border] ?? 0;
    if (this.#sequence.charCodeAt(border) === unit) border += 1;
    this.#borders[next] = border;
    this.#known = next + 1;
  }

  #grow(): void {
    const borders = new Uint32Array(Math.min(this.#sequence.length, 2 * this.#borders.length) + 1);
    borders.set(this.#borders);
    this.#borders = borders;
  }
}
