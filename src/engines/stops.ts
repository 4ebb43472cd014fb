/**
 * Finds stop sequences in text that comes in pieces.
 *
 * Pure. Guarantees: nothing of a stop sequence is ever passed on; text that may begin one waits, and goes on in
 * the pieces in which it came once it is clear that it does not. Of several stop sequences the one that is
 * complete first ends the text; of those, the one that began first.
 */
import { HeldPieces, type Piece, partialEnd } from "./pieces.ts";

export class StopFinder {
  readonly #stops: readonly string[];
  readonly #held = new HeldPieces();

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "");
  }

  /** What may be passed on, and whether a stop sequence ends the text there. */
  push(piece: Piece): { pieces: Piece[]; stopped: boolean } {
    if (this.#stops.length === 0) return { pieces: [piece], stopped: false };
    this.#held.push(piece);
    const found = this.#firstComplete();
    if (found !== undefined) {
      const pieces = this.#held.takeTo(found);
      this.#held.takeAll();
      return { pieces, stopped: true };
    }
    const text = this.#held.text;
    return { pieces: this.#held.takeWhole(text.length - partialEnd(text, this.#stops)), stopped: false };
  }

  /** At the end of the text nothing can begin a stop sequence any more. */
  flush(): Piece[] {
    return this.#held.takeAll();
  }

  #firstComplete(): number | undefined {
    const text = this.#held.text;
    let begin: number | undefined;
    let end = Number.POSITIVE_INFINITY;
    for (const stop of this.#stops) {
      const at = text.indexOf(stop);
      if (at < 0) continue;
      const stopEnd = at + stop.length;
      if (stopEnd < end || (stopEnd === end && at < (begin ?? at))) {
        begin = at;
        end = stopEnd;
      }
    }
    return begin;
  }
}
