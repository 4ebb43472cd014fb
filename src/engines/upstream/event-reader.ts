/**
 * Reads server-sent events out of bytes, cut wherever the network cut them: the `data` of each event, as the HTML
 * standard has it (CRLF, CR or LF; comments and other fields skipped; several data lines joined). Bounds what it
 * buffers. Does not reconnect and keeps no event ids.
 */
import { StringDecoder } from "node:string_decoder";
import { createParser } from "eventsource-parser";

const carriageReturn = 0x0d;
const byteOrderMark = "\ufeff";

export interface EventReaderOptions {
  /** Of one event; what is more ends the reading. */
  charactersMax: number;
  /** `name` is what the server called the event, if anything. */
  onEvent(data: string, name: string | undefined): void;
  onTooLarge(): void;
}

export class EventReader {
  // Joins characters that were cut in two. A TextDecoder does too, but takes four times as long for a stream.
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
   * There are no more bytes. `isLenient`: an event that lacks the empty line behind it counts, as some servers leave it
   * out; otherwise it is none, as the standard says.
   */
  end({ isLenient = false } = {}): void {
    if (this.#isOver) return;
    if (isLenient) this.#parser.feed(`${this.#decoder.end()}\n\n`);
    // It was a line's end, and not the first half of one.
    else if (this.#lastByte === carriageReturn) this.#parser.feed("\n");
    this.#isOver = true;
  }
}
