/**
 * What an engine has made of one answer and its reader has not taken yet.
 *
 * Guarantees: events come out in the order in which they went in, a failure after all of them, and nothing once the
 * queue is closed. Holds no bound of its own: each engine holds up its source by `length` or by what is taken.
 */
import type { EngineError, EngineEvent } from "../generation/engine.ts";

export class EventQueue {
  readonly #events: EngineEvent[] = [];
  #failure: EngineError | null = null;
  #isClosed = false;
  #wake: (() => void) | null = null;

  get length(): number {
    return this.#events.length;
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
  ): AsyncGenerator<EngineEvent, void, undefined> {
    try {
      while (!this.#isClosed) {
        const event = this.#events.shift();
        if (event !== undefined) {
          taken(event);
          yield event;
          if (event.type === "end") return;
        } else if (this.#failure !== null) {
          throw this.#failure;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      await ended();
    }
  }
}
