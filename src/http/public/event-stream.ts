/**
 * Writes the events of one streamed answer to its connection: no faster than the client reads, never silent for
 * longer than the keep-alive time, and no longer than the idle time to a client that takes nothing.
 *
 * Nothing is sent before `open` has been called; then the first event, or the keep-alive time without one, sends
 * the headers. Costs no timer per event. What is handed over in one turn of the event loop goes out in one write: an
 * upstream's events often come several at once, and a write costs more than all else that is done for a token.
 */
import type { ServerResponse } from "node:http";
import { keepAliveComment } from "../openai-format/chunks.ts";

/** Written at once, so that a burst of events is not all in memory before the client's pace is known. */
const pendingCharactersMax = 16_384;

export interface StreamTimes {
  /** A comment is sent after so long without a byte. */
  keepAliveMs: number;
  /** A client that takes nothing for so long is dropped. */
  streamIdleMs: number;
}

export class EventStream {
  readonly #response: ServerResponse;
  readonly #sendHeaders: () => void;
  readonly #times: StreamTimes;
  readonly #signal: AbortSignal;
  #begun = false;
  /** Handed over, and not yet written. */
  #pending = "";
  #quiet: NodeJS.Timeout | null = null;

  /** `sendHeaders` is called once, before the first byte of the body. */
  constructor(response: ServerResponse, sendHeaders: () => void, times: StreamTimes, signal: AbortSignal) {
    this.#response = response;
    this.#sendHeaders = sendHeaders;
    this.#times = times;
    this.#signal = signal;
  }

  /** Whether the headers are out, so that a failure can only be told in the stream. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Starts the keep-alive clock. */
  open(): void {
    this.#quiet = setTimeout(() => this.#breakSilence(), this.#times.keepAliveMs);
  }

  /** Hands over whole events. The caller awaits `room` before the next one. */
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

  /** Null when the client keeps up; else resolves when it has caught up or gone. */
  room(): Promise<void> | null {
    // Asked of the response each time: it may have filled after the last answer, and drained with nobody waiting.
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
      // Node asks the socket whether any of the pending write got through before it calls it idle, then destroys it.
      socket?.setTimeout(this.#times.streamIdleMs);
    });
  }

  /** Hands over the last events and ends the answer. */
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
    // A full buffer is no silence on our side: the client has yet to read what is there.
    if (this.#response.writableNeedDrain) this.#quiet?.refresh();
    else if (!this.#signal.aborted) this.send(keepAliveComment);
  }
}

/** For an answer that has been ended but may not have been read. Once it is flushed, Node sets its own time-out. */
export function dropIfIdle(response: ServerResponse, streamIdleMs: number): void {
  if (!response.writableFinished) response.socket?.setTimeout(streamIdleMs);
}
