/**
 * Events of one answer that its reader has not taken yet.
 *
 * Guarantees: events keep their order, and a failure comes after all of them. Nothing is yielded
 * after a close. The queue has no limit of its own: its owner limits what it pushes.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { EngineError, EngineEvent } from "../../../chat/engine.ts";

/**
 * Events that the reader may take in one turn of the event loop. Text that was held for a stop
 * sequence arrives as thousands of events at once, and writing all of them takes seconds. 64
 * events with 20 log-probabilities each take about 10 ms.
 */
const burstMax = 64;

export class EventQueue {
  #pushed: EngineEvent[] = [];
  /** The oldest events, in reverse. `pop` is fast, while `shift` moves all other events. */
  #taking: EngineEvent[] = [];
  #failure: EngineError | null = null;
  #isClosed = false;
  #wake: (() => void) | null = null;

  get length(): number {
    return this.#pushed.length + this.#taking.length;
  }

  push(event: EngineEvent): void {
    this.#pushed.push(event);
    this.#wake?.();
  }

  /** The reader gets the failure after all events. */
  fail(failure: EngineError): void {
    this.#failure = failure;
    this.#wake?.();
  }

  /** Drops all waiting events. */
  close(): void {
    this.#isClosed = true;
    this.#wake?.();
  }

  /** For one reader. `taken` is called before each event, `ended` when the reader stops. */
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

  #take(): EngineEvent | undefined {
    if (this.#taking.length === 0) {
      this.#taking = this.#pushed.reverse();
      this.#pushed = [];
    }
    return this.#taking.pop();
  }
}
