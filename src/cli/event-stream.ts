/**
 * Reads server-sent events out of a byte stream, cut wherever the network cut it: the `data` of each event, as the
 * HTML standard has it (CRLF, CR or LF; comments and other fields skipped; several data lines joined; an event that
 * the end cuts short is none). Does not reconnect and keeps no event ids.
 */

/** Guards the memory of a client whose server never ends an event. */
const eventCharactersMax = 16 * 1024 * 1024;

/** A CR at the very end may be the first half of a CRLF: it waits for the next chunk. */
const lineEnd = /\r\n|\n|\r(?!$)/;

export async function* eventData(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  // Drops a byte order mark at the start, and joins characters that were cut in two.
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    if (rest.length > eventCharactersMax)
      throw new Error(`an event of more than ${eventCharactersMax} characters`);
    for (let end = lineEnd.exec(rest); end !== null; end = lineEnd.exec(rest)) {
      const line = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
      if (line === "") {
        if (data.length > 0) yield data.join("\n");
        data = [];
      } else if (line === "data") {
        data.push("");
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      }
    }
  }
  // A CR that waited was a line's end after all; only an empty line can still complete an event.
  if (rest === "\r" && data.length > 0) yield data.join("\n");
}
