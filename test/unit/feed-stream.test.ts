/** A stream of a live page over a real connection: what a slow reader gets, and when it ends. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createApiApp } from "../../src/http/api/app.ts";
import { FeedStream } from "../../src/http/api/feed-stream.ts";
import { until } from "../fixtures/until.ts";

const keepAliveMs = 15_000;
/** More than the buffers of both ends hold, sooner or later. */
const large = "x".repeat(256 * 1024);

/** A stream whose client reads nothing until the test resumes it. */
async function startStream() {
  const app = createApiApp();
  const opened = Promise.withResolvers<{ stream: FeedStream; isBehind(): boolean }>();
  app.get("/", (_request, reply) => {
    const stream = new FeedStream(reply);
    opened.resolve({ stream, isBehind: () => reply.raw.writableNeedDrain });
  });
  const url = new URL(await app.listen({ host: "127.0.0.1", port: 0 }));
  const socket = connect(Number(url.port), url.hostname);
  socket.on("error", () => {});
  socket.pause();
  socket.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
  let received = "";
  socket.setEncoding("utf8").on("data", (text) => {
    received += text;
  });
  socket.pause();
  const { stream, isBehind } = await opened.promise;
  let hasEnded = false;
  stream.onEnd(() => {
    hasEnded = true;
  });
  return {
    ...{ stream, socket, isBehind },
    hasEnded: () => hasEnded,
    received: () => received,
    /** Sends states until the client is behind. Returns their number. */
    async fill() {
      let sent = 0;
      while (!isBehind()) {
        sent += 1;
        stream.send("state", JSON.stringify(sent + large));
        await nextTurn();
      }
      return sent;
    },
    async [Symbol.asyncDispose]() {
      socket.destroy();
      await app.close();
    },
  };
}

test("a client that is behind gets the newest state of each event when it reads again", async () => {
  await using client = await startStream();
  const { stream, socket, received } = client;
  await client.fill();
  for (const state of ["1", "2", "3"]) {
    stream.send("state", state);
    stream.send("other", state);
  }
  socket.resume();
  await until("the newest states", () => received().includes("event: other\ndata: 3\n\n"));
  const small = [...received().matchAll(/event: (\w+)\ndata: (\d+)\n\n/g)].map(([, ...event]) => event);
  assert.deepEqual(small, [
    ["state", "3"],
    ["other", "3"],
  ]);
});

test("a state that is equal to the one before is not sent again", async () => {
  await using client = await startStream();
  const { stream, socket, received } = client;
  for (const state of ["1", "1", "2", "2", "1"]) stream.send("state", state);
  stream.send("end", "0");
  socket.resume();
  await until("the end", () => received().includes("event: end"));
  assert.deepEqual(
    [...received().matchAll(/event: state\ndata: (\d)/g)].map(([, state]) => state),
    ["1", "2", "1"],
  );
});

test("a client that reads nothing for half a minute is dropped, and a quiet stream has comments", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  await using client = await startStream();
  const { socket, received, hasEnded } = client;
  socket.resume();
  t.mock.timers.tick(keepAliveMs);
  await until("a comment", () => /\r\n:\n\n/.test(received()));
  socket.pause();
  await client.fill();
  t.mock.timers.tick(keepAliveMs);
  await nextTurn();
  assert.equal(hasEnded(), false, "it may be slow");
  t.mock.timers.tick(keepAliveMs);
  await until("it is dropped", () => hasEnded());
});
