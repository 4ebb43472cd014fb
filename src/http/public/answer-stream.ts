/**
 * Writes the events of one streamed answer to its connection, no faster than the client reads.
 * Sends a comment after each keep-alive time without an event, and drops a client that reads
 * nothing for the idle time.
 *
 * Nothing is sent before `open` is called. The headers are sent with the first event or comment.
 * All events of one turn of the event loop go out in one write, because a write costs more than
 * all other work for a token. Events share one timer.
 */
import type { ServerResponse } from "node:http";
import { dropIfIdle } from "../connections.ts";
import { keepAliveComment } from "../openai-format/response.ts";

/**
 * Longer pending text is written at once, so that a burst of events is not buffered before the
 * client's speed is known.
 */
const pendingCharactersMax = 16_384;

export interface StreamTimes {
  /** Time without a byte after which a comment is sent. */
  keepAliveMs: number;
  /** Time after which a client that reads nothing is dropped. */
  streamIdleMs: number;
}

export class AnswerStream {
  readonly #response: ServerResponse;
  readonly #sendHeaders: () => void;
  readonly #times: StreamTimes;
  readonly #signal: AbortSignal;
  #begun = false;
  /** Events that have not been written yet. */
  #pending = "";
  #quiet: NodeJS.Timeout | null = null;

  /** `sendHeaders` is called once, before the first byte of the body. */
  constructor(response: ServerResponse, sendHeaders: () => void, times: StreamTimes, signal: AbortSignal) {
    this.#response = response;
    this.#sendHeaders = sendHeaders;
    this.#times = times;
    this.#signal = signal;
  }

  /** True once the headers have been sent. From then on a failure must be an error event. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Starts the keep-alive clock. */
  open(): void {
    this.#quiet = setTimeout(() => this.#breakSilence(), this.#times.keepAliveMs);
  }

  /** Sends complete events. Await `room` before sending more. */
  send(events: string): void {
    this.#begin();
    if (this.#pending === "") process.nextTick(this.#write);
    this.#pending += events;
    if (this.#pending.length >= pendingCharactersMax) this.#write();
    this.#quiet?.refresh();
  }

  readonly #write = (): void => {
    const events = this.#pending;
    this.#pending = "";
    if (events !== "" && !this.#response.destroyed) this.#response.write(events);
  };

  /**
   * Returns null if the client keeps up, otherwise a promise that resolves when it has caught up
   * or left.
   */
  room(): Promise<void> | null {
    // The response is checked each time, because it may fill after a call and drain before the
    // next one.
    if (!this.#response.writableNeedDrain || this.#signal.aborted) return null;
    return new Promise((resolve) => {
      const { socket } = this.#response;
      const done = () => {
        this.#response.off("drain", done);
        this.#signal.removeEventListener("abort", done);
        socket?.setTimeout(0);
        resolve();
      };
      this.#response.once("drain", done);
      this.#signal.addEventListener("abort", done, { once: true });
      // Node destroys the socket only if no part of the pending write has been sent in this time.
      socket?.setTimeout(this.#times.streamIdleMs);
    });
  }

  /** Sends the last events and ends the answer. */
  end(events: string): void {
    this.#begin();
    this.close();
    this.#response.end(this.#pending + events);
    this.#pending = "";
    dropIfIdle(this.#response, this.#times.streamIdleMs);
  }

  /** Stops the clock. Idempotent. */
  close(): void {
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    this.#quiet = null;
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#sendHeaders();
  }

  #breakSilence(): void {
    // With a full buffer the stream is not silent: the client still has data to read.
    if (this.#response.writableNeedDrain) this.#quiet?.refresh();
    else if (!this.#signal.aborted) this.send(keepAliveComment);
  }
}
