/** The data of each server-sent event of a byte stream, one after the other. */
import { EventReader } from "../engines/upstream/event-reader.ts";

/** Guards the memory of a client whose server never ends an event. */
const eventCharactersMax = 16 * 1024 * 1024;

export async function* eventData(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let come: string[] = [];
  const reader = new EventReader({
    charactersMax: eventCharactersMax,
    onEvent: (data) => come.push(data),
    onTooLarge: () => {
      throw new Error(`an event of more than ${eventCharactersMax} characters`);
    },
  });
  for await (const chunk of chunks) {
    reader.push(chunk);
    yield* come;
    come = [];
  }
  reader.end();
  yield* come;
}
