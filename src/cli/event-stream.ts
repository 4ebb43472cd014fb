/**
 * Server-sent events of a response, read with eventsource-parser. Bounds the memory for an event
 * that never ends.
 */
import { type EventSourceMessage, EventSourceParserStream } from "eventsource-parser/stream";

const eventCharactersMax = 16 * 1024 * 1024;

export function eventsOf(bytes: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncIterable<EventSourceMessage> {
  return bytes
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(lastLineEnd())
    .pipeThrough(new EventSourceParserStream({ maxBufferSize: eventCharactersMax }));
}

/**
 * Completes a CR at the end of the stream: the parser would wait for an LF behind it, and drop the
 * event.
 */
function lastLineEnd(): TransformStream<string, string> {
  let last = "";
  return new TransformStream({
    transform(text, controller) {
      last = text.at(-1) ?? last;
      controller.enqueue(text);
    },
    flush(controller) {
      if (last === "\r") controller.enqueue("\n");
    },
  });
}
