/** The writes of a streamed answer, over a real connection. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AnswerStream, type StreamTimes } from "../../src/http/public/answer-stream.ts";

const times = { keepAliveMs: 60_000, streamIdleMs: 60_000 };

/** Returns the chunks that a client receives. Each write of `answer` is one chunk. */
async function chunksOf(answer: (stream: AnswerStream) => Promise<void>): Promise<string[]> {
  const server = createServer((_, response) => void answer(streamOn(response))).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const socket = connect(address.port, "127.0.0.1");
  socket.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
  const received = await text(socket);
  server.close();
  const body = received.slice(received.indexOf("\r\n\r\n") + 4);
  return [...body.matchAll(/^([0-9a-f]+)\r\n(.*)\r\n/gm)].map(([, , chunk = ""]) => chunk);
}

function streamOn(response: ServerResponse, patience: StreamTimes = times): AnswerStream {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  return new AnswerStream(response, () => response.writeHead(200), patience, gone.signal);
}

test("writes the events of one turn together, in order", async () => {
  const chunks = await chunksOf(async (stream) => {
    await nextTurn();
    stream.send("a");
    await Promise.resolve();
    stream.send("b");
    await nextTurn();
    stream.send("c");
    await nextTurn();
    stream.send("d");
    stream.end("e");
  });
  assert.deepEqual(chunks.slice(0, 3), ["ab", "c", "de"]);
});

test("reports backpressure of a burst in the same turn", async () => {
  const chunks = await chunksOf(async (stream) => {
    let sent = 0;
    while (stream.room() === null && sent < 100) {
      stream.send("x".repeat(1024));
      sent += 1;
    }
    stream.end(String(sent));
  });
  assert.ok(Number(chunks.join("").replaceAll("x", "")) < 100);
});

test("does not wait for a client that has caught up, and does not drop it", async () => {
  const { promise: outcome, resolve } = Promise.withResolvers<{ isWaiting: boolean; isOpen: boolean }>();
  const stalled = Promise.withResolvers<void>();
  const caughtUp = Promise.withResolvers<void>();
  const server = createServer(async (_, response) => {
    const stream = streamOn(response, { keepAliveMs: 60_000, streamIdleMs: 200 });
    // The write that fills the connection follows after the call of `room`, as at the end of each
    // turn.
    while (!response.writableNeedDrain) {
      stream.send("x".repeat(12_000));
      assert.equal(stream.room(), null);
      await nextTurn();
    }
    stalled.resolve();
    await once(response, "drain");
    caughtUp.resolve();
    stream.send("next");
    const room = stream.room();
    await room;
    resolve({ isWaiting: room !== null, isOpen: !response.destroyed });
    stream.end("");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const socket = connect(address.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.pause();
  socket.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
  try {
    await stalled.promise;
    socket.resume();
    await caughtUp.promise;
    assert.deepEqual(await outcome, { isWaiting: false, isOpen: true });
  } finally {
    socket.destroy();
    server.close();
  }
});
