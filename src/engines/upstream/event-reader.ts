/**
 * Reads the `data` of server-sent events from bytes, as the HTML standard defines them. The
 * network may cut the bytes anywhere. Line ends are CRLF, CR or LF. Comments and other fields are
 * skipped, and several data lines are joined. The buffer is bounded. The reader does not reconnect
 * and keeps no event ids.
 */
import { StringDecoder } from "node:string_decoder";
import { createParser } from "eventsource-parser";

const carriageReturn = 0x0d;
const byteOrderMark = "\ufeff";

export interface EventReaderOptions {
  /** Limit for one event. A larger event ends the reading. */
  charactersMax: number;
  /** `name` is the event's `event` field, if any. */
  onEvent(data: string, name: string | undefined): void;
  onTooLarge(): void;
}

export class EventReader {
  // Joins characters that were cut in two. A TextDecoder does too, but takes four times as long
  // for a stream.
  readonly #decoder = new StringDecoder("utf8");
  readonly #parser: ReturnType<typeof createParser>;
  #lastByte: number | undefined;
  #isFirst = true;
  #isOver = false;

  constructor({ charactersMax, onEvent, onTooLarge }: EventReaderOptions) {
    this.#parser = createParser({
      maxBufferSize: charactersMax,
      onEvent: ({ data, event }) => onEvent(data, event),
      onError: (error) => {
        if (error.type !== "max-buffer-size-exceeded") return;
        this.#isOver = true;
        onTooLarge();
      },
    });
  }

  push(bytes: Uint8Array): void {
    if (this.#isOver) return;
    this.#lastByte = bytes.at(-1);
    const text = this.#decoder.write(bytes);
    if (text === "") return;
    const hasMark = this.#isFirst && text.startsWith(byteOrderMark);
    this.#isFirst = false;
    this.#parser.feed(hasMark ? text.slice(1) : text);
  }

  /**
   * Ends the input. `isLenient`: accept a last event without the empty line that should follow it.
   * The standard drops such an event, but some servers send it.
   */
  end({ isLenient = false } = {}): void {
    if (this.#isOver) return;
    if (isLenient) this.#parser.feed(`${this.#decoder.end()}\n\n`);
    // It was a line's end, and not the first half of one.
    else if (this.#lastByte === carriageReturn) this.#parser.feed("\n");
    this.#isOver = true;
  }
}
