/**
 * Spreads the work on large messages over turns of the event loop: one of them in each turn.
 *
 * A conversation of 4 MB takes about 10 ms to encode as JSON, and as long again to write to the
 * connection. Twenty of them in one turn would block the event loop for half a second.
 */
import { setImmediate as nextTurn } from "node:timers/promises";

/** A smaller message takes less than a millisecond and needs no turn of its own. */
const largeCharacters = 131_072;

export class LargeTurns {
  #last: Promise<unknown> = Promise.resolve();

  /** Calls `work` at once if the message is small, otherwise in a turn of its own. */
  run(characters: number, work: () => void): void {
    if (characters < largeCharacters) work();
    else void this.wait(characters).then(work);
  }

  /** Resolves in a turn of its own if the message is large. */
  wait(characters: number): Promise<unknown> {
    if (characters < largeCharacters) return Promise.resolve();
    this.#last = this.#last.then(() => nextTurn());
    return this.#last;
  }
}
