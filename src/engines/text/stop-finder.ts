/**
 * Finds stop sequences in text that arrives in segments.
 *
 * Pure. Guarantees: no part of a stop sequence is passed on. Text that may begin a stop sequence
 * is held, and goes on in its original segments once it turns out not to. Of several stop
 * sequences, the first to be complete ends the text; if two end together, the longer one. Time is
 * linear in the text, however long the stop sequences are.
 */
import { HeldSegments, type Segment } from "./held-segments.ts";
import { SequenceMatcher } from "./sequence-matcher.ts";

export class StopFinder {
  readonly #matchers: readonly SequenceMatcher[];
  readonly #held = new HeldSegments();

  constructor(stops: readonly string[]) {
    this.#matchers = stops.filter((stop) => stop !== "").map((stop) => new SequenceMatcher(stop));
  }

  /**
   * Returns the segments that may be passed on, and whether a stop sequence ends the text there.
   */
  push(segment: Segment): { segments: Segment[]; stopped: boolean } {
    if (this.#matchers.length === 0) return { segments: [segment], stopped: false };
    this.#held.push(segment);
    const { text } = segment;
    for (let at = 0; at < text.length; at++) {
      const stopLength = this.#completedBy(text.charCodeAt(at));
      if (stopLength === 0) continue;
      const after = text.length - at - 1;
      const segments = this.#held.takeTo(this.#held.length - after - stopLength);
      this.#held.takeAll();
      return { segments, stopped: true };
    }
    let partial = 0;
    for (const matcher of this.#matchers) partial = Math.max(partial, matcher.matched);
    return { segments: this.#held.takeWhole(this.#held.length - partial), stopped: false };
  }

  /** Returns what is held: at the end of the text nothing can begin a stop sequence any more. */
  flush(): Segment[] {
    return this.#held.takeAll();
  }

  /** Length of the longest stop sequence that ends with this unit; 0 if none does. */
  #completedBy(unit: number): number {
    let longest = 0;
    for (const matcher of this.#matchers) {
      if (matcher.push(unit)) longest = Math.max(longest, matcher.length);
    }
    return longest;
  }
}
