/** Server-sent events, read from streams that are cut in every possible place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { eventsOf } from "../../src/cli/event-stream.ts";

async function* chunksOf(
  bytes: Uint8Array<ArrayBuffer>,
  cuts: readonly number[],
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let from = 0;
  for (const cut of [...cuts.filter((at) => at < bytes.length).toSorted((a, b) => a - b), bytes.length]) {
    yield bytes.subarray(from, cut);
    from = cut;
  }
}

async function all(chunks: AsyncIterable<Uint8Array<ArrayBuffer>>): Promise<string[]> {
  const list: string[] = [];
  for await (const { data } of eventsOf(ReadableStream.from(chunks))) list.push(data);
  return list;
}

async function read(text: string, cuts: readonly number[] = []): Promise<string[]> {
  return await all(chunksOf(new TextEncoder().encode(text), cuts));
}

const table: [sentence: string, text: string, events: string[]][] = [
  ["reads the data of each event", "data: a\n\ndata: b\n\n", ["a", "b"]],
  ["accepts CRLF and CR as line ends", "data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", ["a", "b", "c"]],
  ["ends an event at a CR that is the last byte", "data: a\n\r", ["a"]],
  [
    "skips comments and fields that are not data",
    ": keep-alive\n\nevent: x\nid: 1\ndata: a\nretry: 3\n\n",
    ["a"],
  ],
  ["removes one leading space only", "data:a\n\ndata:  b\n\n", ["a", " b"]],
  ["joins several lines of data", "data: a\ndata\ndata: b\n\n", ["a\n\nb"]],
  ["joins lines that end in CRLF", "data: a\r\ndata: b\r\n\r\n", ["a\nb"]],
  ["drops an event that the end cuts short", "data: a\n\ndata: b\n", ["a"]],
  ["skips a byte order mark", "\uFEFFdata: a\n\n", ["a"]],
  ["leaves Unicode line separators in the data", "data: a\u2028b\u0085c\n\n", ["a\u2028b\u0085c"]],
];
for (const [sentence, text, events] of table) {
  test(sentence, async () => assert.deepEqual(await read(text), events));
  test(`${sentence}, byte by byte`, async () => {
    const everywhere = Array.from({ length: new TextEncoder().encode(text).length }, (_, i) => i);
    assert.deepEqual(await read(text, everywhere), events);
  });
}

test("reads the same events wherever the stream is cut", async () => {
  const lineEnd = fc.constantFrom("\n", "\r\n", "\r");
  const line = fc.string({ unit: "grapheme" }).map((text) => text.replace(/[\r\n]/g, ""));
  const events = fc.array(fc.tuple(line, lineEnd), { maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(events, fc.array(fc.nat(200)), async (list, cuts) => {
      // A CR that ends an event and a LF that begins the next line would be one line end: begin
      // each with a comment.
      const text = list.map(([data, end]) => `:${end}data: ${data}${end}${end}`).join("");
      assert.deepEqual(
        await read(text, cuts),
        list.map(([data]) => data),
      );
    }),
  );
});

test("refuses an event that never ends", async () => {
  async function* endless() {
    const chunk = new Uint8Array(1024 * 1024).fill(0x61);
    yield new TextEncoder().encode("data:");
    for (let i = 0; i < 17; i++) yield chunk;
  }
  await assert.rejects(all(endless()), /exceeded max buffer size of 16777216 characters/);
});
