/**
 * Receives the answer to one HTTP request. Its owner takes the events that have arrived, all at
 * once.
 *
 * Guarantees: events are whole, wherever the network cut them, and none is larger than
 * `eventCharactersMax` and a window. The head of an answer, or a whole error response, arrives
 * within `headersMs`, or the exchange fails. At most a window and one read of the connection wait
 * to be taken. The connection is then paused, and the upstream's idle time does not run. After
 * `abort` the connection is closed and nothing more arrives. The exchange knows HTTP and
 * server-sent events, and not the contents of events.
 *
 * A slot is given to another request only when its owner has seen how the answer ended:
 * 1. The owner calls `holdSlot` and waits for `changed`.
 * 2. The connection closes. The exchange calls `changed`, and the slot stays taken.
 * 3. The owner takes the events and sees the ending.
 * 4. The owner calls `releaseSlot`, `abort` or `release`. The exchange calls `freed`.
 */

import { StringDecoder } from "node:string_decoder";
import { createParser } from "eventsource-parser";
import { type Dispatcher, errors } from "undici";
import { messageOf } from "../../errors.ts";
import {
  brokenAnswer,
  failureOfConnection,
  failureOfNamedError,
  failureOfStatus,
  UpstreamFailure,
} from "./failure.ts";

/** An event with the log-probabilities of a burst of tokens has tens of thousands. */
export const eventCharactersMax = 1024 * 1024;
export const doneData = "[DONE]";
/** Some 400 events of ordinary tokens, which take a millisecond to read. */
const windowBytes = 65_536;
/** Limit for the body of an error response. */
const errorCharactersMax = 16 * 1024;
/** Time for the connection to become idle after the last event, so that it can be used again. */
const drainMs = 1000;

export interface ExchangeOwner {
  /** Something has arrived, or nothing more will. */
  changed(): void;
  /** The connection is free again or closed. Called once. */
  freed(): void;
}

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #owner: ExchangeOwner;
  readonly #headersMs: number;
  readonly #reader = new EventReader({
    onEvent: (data, name) => this.#receive(data, name),
    onTooLarge: () => this.#break(brokenAnswer(`it sent ${eventCharactersMax} characters without an event`)),
  });
  #controller: Dispatcher.DispatchController | null = null;
  /** Bytes of the answer that have not been taken. */
  #bytes: Buffer[] = [];
  #byteCount = 0;
  #events: string[] = [];
  #hasBegun = false;
  #hasAnswered = false;
  #hasHead = false;
  #error: ErrorAnswer | null = null;
  #ending: "ended" | UpstreamFailure | null = null;
  /** The owner needs nothing more. */
  #isReleased = false;
  /** An event was malformed. Later events are ignored. */
  #isBroken = false;
  #isAborted = false;
  #isClosed = false;
  #isFreed = false;
  #isSlotHeld = false;
  #draining: NodeJS.Timeout | undefined;
  #awaitingHead: NodeJS.Timeout | undefined;

  constructor(owner: ExchangeOwner, headersMs: number) {
    this.#owner = owner;
    this.#headersMs = headersMs;
  }

  /** True once the upstream is being sent the request, unless it responds with an error. */
  get hasBegun(): boolean {
    return this.#hasBegun && this.#error === null;
  }

  /** True once the head of the answer has arrived. */
  get hasHead(): boolean {
    return this.#hasHead;
  }

  /** How the answer ended, once all its events have been taken; null before. */
  get ending(): "ended" | UpstreamFailure | null {
    return this.hasArrived ? null : this.#ending;
  }

  /** True if bytes wait to be taken. */
  get hasArrived(): boolean {
    return this.#bytes.length > 0;
  }

  /** True if more bytes can arrive before those that wait are taken. */
  get isFilling(): boolean {
    return this.#ending === null && this.#controller?.paused === false;
  }

  /** Returns the data of the events that have arrived since the last call, and reads on. */
  takeEvents(): string[] {
    const events: string[] = [];
    const bytes = this.#bytes;
    this.#events = events;
    this.#bytes = [];
    this.#byteCount = 0;
    // More bytes may arrive at once. They wait for the next call.
    if (!this.#isClosed && this.#controller?.paused === true) this.#controller.resume();
    const [first] = bytes;
    if (first !== undefined) this.#reader.push(bytes.length === 1 ? first : Buffer.concat(bytes));
    if (this.#ending === "ended" && !this.hasArrived) this.#reader.end();
    return events;
  }

  /** No more is read than the connection has delivered already, until the next `takeEvents`. */
  pause(): void {
    if (!this.#isClosed) this.#controller?.pause();
  }

  /** Keeps the slot, although the connection may close, until `releaseSlot`. */
  holdSlot(): void {
    this.#isSlotHeld = true;
  }

  /** The owner has seen what had changed. Frees the slot if the connection has closed. */
  releaseSlot(): void {
    this.#isSlotHeld = false;
    if (this.#isClosed) this.#free();
  }

  /** Closes the connection at once. Nothing more arrives. */
  abort(): void {
    this.#isReleased = true;
    this.#bytes = [];
    this.#cut();
    this.releaseSlot();
  }

  /** True after `abort` and after a malformed answer. */
  get isAborted(): boolean {
    return this.#isAborted;
  }

  /** The request has not been sent, and will not be. */
  drop(): void {
    this.#close();
  }

  /** The request could not be written, by a defect of this program. */
  fail(error: unknown): void {
    this.#end(new UpstreamFailure("failed", `the request could not be written: ${messageOf(error)}`));
    this.#close();
  }

  /** The rest of the answer is skipped, so that the connection can be used again. */
  release(): void {
    this.#isReleased = true;
    if (!this.#isClosed && this.#controller?.paused === true) this.#controller.resume();
    if (!this.#isClosed) this.#draining = setTimeout(() => this.#cut(), drainMs);
    this.releaseSlot();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isAborted) {
      controller.abort(new Error("aborted"));
      return;
    }
    this.#hasBegun = true;
    // The timeout of undici starts again with each informational response (1xx).
    const expire = () => controller.abort(new errors.HeadersTimeoutError());
    this.#awaitingHead = setTimeout(expire, this.#headersMs);
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    this.#hasAnswered = true;
    if (status < 200) return;
    // An error answer must end before the time, too.
    if (status === 200) clearTimeout(this.#awaitingHead);
    this.#hasHead = status === 200;
    const contentType = headerOf(headers, "content-type") ?? "no content-type";
    const coding = headerOf(headers, "content-encoding")?.trim() ?? "";
    if (coding !== "" && coding.toLowerCase() !== "identity") {
      const what = `it answered ${status} in the coding ${coding.slice(0, 80)}`;
      this.#break(brokenAnswer(`${what}, although Inkwell asks for none (accept-encoding: identity)`));
    } else if (status !== 200) {
      const decoder = new StringDecoder("utf8");
      this.#error = { status, retryAfter: retryAfterOf(headers), body: "", decoder };
    } else if (!/^text\/event-stream\b/i.test(contentType)) {
      this.#break(brokenAnswer(`it answered with ${contentType.slice(0, 80)}, not with an event stream`));
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Buffer): void {
    if (this.#isReleased || this.#ending !== null) return;
    if (this.#error !== null) {
      this.#error.body += this.#error.decoder.write(bytes);
      if (this.#error.body.length > errorCharactersMax) this.#break(failureOfAnswer(this.#error));
      return;
    }
    this.#bytes.push(bytes);
    this.#byteCount += bytes.length;
    const isFull = this.#byteCount >= windowBytes;
    if (isFull) this.pause();
    if (isFull || this.#bytes.length === 1) this.#owner.changed();
  }

  onResponseEnd(): void {
    this.#end(this.#error === null ? "ended" : failureOfAnswer(this.#error));
    this.#close();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const state = { begun: this.#controller !== null, answered: this.#hasAnswered };
    // A status says more than the connection that broke behind it.
    this.#end(this.#error === null ? failureOfConnection(error, state) : failureOfAnswer(this.#error));
    this.#close();
  }

  #receive(sent: string, name: string | undefined): void {
    if (this.#isReleased || this.#isBroken) return;
    const data = sent.startsWith(doneData) ? sent.trim() : sent;
    if (name === "error" && data !== doneData) this.#break(failureOfNamedError(data));
    // Gateways send events without data as a sign of life.
    else if (data.trim() !== "") this.#events.push(data);
  }

  #end(ending: "ended" | UpstreamFailure): void {
    if (this.#isReleased || this.#ending !== null) return;
    this.#ending = ending;
    this.#owner.changed();
  }

  /** Ends the exchange from this side. Later events are ignored. */
  #break(failure: UpstreamFailure): void {
    if (this.#isReleased || this.#isBroken) return;
    this.#isBroken = true;
    this.#ending = failure;
    this.#owner.changed();
    this.#cut();
  }

  #cut(): void {
    this.#isAborted = true;
    if (!this.#isClosed) this.#controller?.abort(new Error("aborted"));
  }

  #close(): void {
    this.#isClosed = true;
    clearTimeout(this.#draining);
    clearTimeout(this.#awaitingHead);
    if (!this.#isSlotHeld) this.#free();
  }

  #free(): void {
    if (this.#isFreed) return;
    this.#isFreed = true;
    this.#owner.freed();
  }
}

interface ErrorAnswer {
  status: number;
  retryAfter: string | undefined;
  body: string;
  /** Joins characters that the network cut in two. */
  decoder: StringDecoder;
}

function failureOfAnswer({ status, retryAfter, body }: ErrorAnswer): UpstreamFailure {
  return failureOfStatus(status, retryAfter, body);
}

/** Milliseconds count first, as for the SDKs of OpenAI. */
function retryAfterOf(headers: Record<string, string | string[] | undefined>): string | undefined {
  const ms = headerOf(headers, "retry-after-ms")?.trim() ?? "";
  return /^\d+(\.\d+)?$/.test(ms) ? String(Number(ms) / 1000) : headerOf(headers, "retry-after");
}

function headerOf(headers: Record<string, string | string[] | undefined>, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

interface EventReaderOptions {
  /** `name` is the event's `event` field, if any. */
  onEvent(data: string, name: string | undefined): void;
  /** An event has more than `eventCharactersMax`. The reading has ended. */
  onTooLarge(): void;
}

/**
 * Reads the `data` of server-sent events from bytes, as the HTML standard defines them. The
 * network may cut the bytes anywhere. Comments and other fields are skipped. The reader does not
 * reconnect and keeps no event ids.
 *
 * Linear in the bytes, in any mix of line ends. The library makes an `Error` for each line that is
 * no field if it has an `onError`: 130 ms for a window of such lines. So its buffer is bounded
 * here.
 */
class EventReader {
  // Joins characters that were cut in two. A TextDecoder does too, but takes four times as long
  // for a stream.
  readonly #decoder = new StringDecoder("utf8");
  readonly #parser: ReturnType<typeof createParser>;
  readonly #onTooLarge: () => void;
  /** Since the end of the last event. */
  #characters = 0;
  #isOver = false;

  constructor({ onEvent, onTooLarge }: EventReaderOptions) {
    this.#onTooLarge = onTooLarge;
    this.#parser = createParser({
      onEvent: ({ data, event }) => {
        this.#characters = 0;
        onEvent(data, event);
      },
    });
  }

  push(bytes: Uint8Array): void {
    if (this.#isOver) return;
    const text = this.#decoder.write(bytes);
    this.#characters += text.length;
    this.#parser.feed(text);
    if (this.#characters <= eventCharactersMax) return;
    this.#isOver = true;
    this.#onTooLarge();
  }

  /**
   * Ends the input. Accepts a last event without the empty line that should follow it: the
   * standard drops such an event, but some servers send it.
   */
  end(): void {
    if (this.#isOver) return;
    this.#parser.feed(`${this.#decoder.end()}\n\n`);
    this.#isOver = true;
  }
}
