/**
 * One request to one upstream: its events as they come, and exactly one end.
 *
 * Guarantees: an event is handed on whole however the network cut it, and none is larger than `eventCharactersMax`;
 * after `pause` no more is read than what the connection had delivered already; after `abort` the connection is closed
 * and nothing more is told. Knows HTTP and server-sent events, and nothing of what the events say.
 */
import type { Dispatcher } from "undici";
import { EventReader } from "./event-reader.ts";
import { brokenAnswer, failureOfConnection, failureOfStatus, type UpstreamFailure } from "./failure.ts";

/** An event with the log-probabilities of a burst of tokens has some ten thousand. */
export const eventCharactersMax = 1024 * 1024;
/** Of an error's body; enough for what it says. */
const errorCharactersMax = 16 * 1024;
/** After the last event, for the connection to come to its end and be used again. */
const drainMs = 1000;

export interface ExchangeReader {
  /** The upstream has a connection and is being sent the request. */
  begun(): void;
  /** `isError`: the server named the event so. */
  event(data: string, isError: boolean): void;
  /** The body ended as HTTP has it. */
  ended(): void;
  failed(failure: UpstreamFailure): void;
}

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #reader: ExchangeReader;
  readonly #over: () => void;
  readonly #events = new EventReader({
    charactersMax: eventCharactersMax,
    onEvent: (data, name) => {
      if (!this.#isDone) this.#reader.event(data, name === "error");
    },
    onTooLarge: () => this.#break(brokenAnswer(`an event has more than ${eventCharactersMax} characters`)),
  });
  #controller: Dispatcher.DispatchController | null = null;
  #answered = false;
  /** Nobody is to be told anything more. */
  #isDone = false;
  #isClosed = false;
  #isAborted = false;
  #error: ErrorAnswer | null = null;
  #draining: NodeJS.Timeout | undefined;

  /** `over` is called once, after all else, when the connection is free again or gone. */
  constructor(reader: ExchangeReader, over: () => void) {
    this.#reader = reader;
    this.#over = over;
  }

  pause(): void {
    if (!this.#isClosed) this.#controller?.pause();
  }

  resume(): void {
    if (!this.#isClosed && this.#controller?.paused === true) this.#controller.resume();
  }

  /** Nobody reads any more; the connection is closed at once. */
  abort(): void {
    this.#isDone = true;
    this.#cut();
  }

  /** All that was wanted has come; what is left of the answer may go by, so that the connection can be used again. */
  release(): void {
    if (this.#isClosed || this.#isDone) return;
    this.#isDone = true;
    this.resume();
    this.#draining = setTimeout(() => this.#cut(), drainMs);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isAborted) controller.abort(new Error("aborted"));
    else if (!this.#isDone) this.#reader.begun();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    this.#answered = true;
    if (status < 200) return;
    const contentType = headerOf(headers, "content-type") ?? "no content-type";
    if (status !== 200) {
      this.#error = { status, retryAfter: headerOf(headers, "retry-after"), body: "" };
    } else if (!/^text\/event-stream\b/i.test(contentType)) {
      this.#break(brokenAnswer(`it answered with ${contentType.slice(0, 80)}, not with an event stream`));
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Buffer): void {
    if (this.#isDone) return;
    if (this.#error === null) this.#events.push(bytes);
    else {
      this.#error.body += bytes.toString("utf8");
      if (this.#error.body.length > errorCharactersMax) this.#break(failureOfAnswer(this.#error));
    }
  }

  onResponseEnd(): void {
    this.#end();
    this.#close();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    // A status says more than the connection that broke behind it.
    if (this.#error !== null) this.#fail(failureOfAnswer(this.#error));
    else
      this.#fail(failureOfConnection(error, { begun: this.#controller !== null, answered: this.#answered }));
    this.#close();
  }

  #end(): void {
    if (this.#error !== null) this.#fail(failureOfAnswer(this.#error));
    // Some servers leave out the empty line after their last event.
    if (!this.#isDone) this.#events.end({ isLenient: true });
    if (this.#isDone) return;
    this.#isDone = true;
    this.#reader.ended();
  }

  #fail(failure: UpstreamFailure): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#reader.failed(failure);
  }

  /** Ends it from this side. */
  #break(failure: UpstreamFailure): void {
    if (this.#isDone) return;
    this.#fail(failure);
    this.#cut();
  }

  #cut(): void {
    this.#isAborted = true;
    if (!this.#isClosed) this.#controller?.abort(new Error("aborted"));
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#draining);
    this.#over();
  }
}

interface ErrorAnswer {
  status: number;
  retryAfter: string | undefined;
  body: string;
}

function failureOfAnswer({ status, retryAfter, body }: ErrorAnswer): UpstreamFailure {
  return failureOfStatus(status, retryAfter, body);
}

function headerOf(headers: Record<string, string | string[] | undefined>, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}
