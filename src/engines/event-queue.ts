/**
 * Events of one answer that its reader has not taken yet.
 *
 * Guarantees: events come out in the order in which they went in, a failure after all of them, and nothing once the
 * queue is closed. Holds no bound of its own: each engine holds up its source by `length` or by what is taken.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { EngineError, EngineEvent } from "../chat/engine.ts";

/**
 * Events that the reader may take in one turn of the event loop. Text that was held for a stop sequence comes as thousands
 * of events at once, and writing all of them takes seconds. 64 of them with 20 log-probabilities each take about 10 ms.
 */
const burstMax = 64;
/** Places of taken events, before the others are moved up. */
const takenMin = 64;

export class EventQueue {
  readonly #events: (EngineEvent | undefined)[] = [];
  /** Those before it have been taken and are there no more. */
  #next = 0;
  #failure: EngineError | null = null;
  #isClosed = false;
  #wake: (() => void) | null = null;

  get length(): number {
    return this.#events.length - this.#next;
  }

  push(event: EngineEvent): void {
    this.#events.push(event);
    this.#wake?.();
  }

  /** What the reader gets when it has taken all there is. */
  fail(failure: EngineError): void {
    this.#failure = failure;
    this.#wake?.();
  }

  /** Nothing more is yielded, not even what is there. */
  close(): void {
    this.#isClosed = true;
    this.#wake?.();
  }

  /** For one reader, once. `taken` is called with each event before it is yielded, `ended` however the reading ends. */
  async *drain(
    taken: (event: EngineEvent) => void,
    ended: () => Promise<void>,
  ): AsyncGenerator<EngineEvent[], void, undefined> {
    let burst = 0;
    try {
      while (!this.#isClosed) {
        if (burst === burstMax) {
          burst = 0;
          await nextTurn();
          continue;
        }
        const event = this.#take();
        if (event !== undefined) {
          burst += 1;
          taken(event);
          yield [event];
          if (event.type === "end") return;
        } else if (this.#failure !== null) {
          throw this.#failure;
        } else {
          burst = 0;
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      await ended();
    }
  }

  /** Not `shift`, which moves all the others where there are some ten thousand: 14 s for all of 130,000. */
  #take(): EngineEvent | undefined {
    const event = this.#events[this.#next];
    if (event === undefined) return undefined;
    this.#events[this.#next] = undefined;
    this.#next += 1;
    if (this.#next >= takenMin && 2 * this.#next >= this.#events.length) {
      this.#events.splice(0, this.#next);
      this.#next = 0;
    }
    return event;
  }
}
