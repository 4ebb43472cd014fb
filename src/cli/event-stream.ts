/**
 * Server-sent events of a response, read with eventsource-parser. Bounds the memory for an event
 * that never ends.
 */
import { type EventSourceMessage, EventSourceParserStream } from "eventsource-parser/stream";

const eventCharactersMax = 16 * 1024 * 1024;

export function eventsOf(bytes: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncIterable<EventSourceMessage> {
  return bytes
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream({ maxBufferSize: eventCharactersMax }));
}
