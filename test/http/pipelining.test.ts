/** Requests that a client sends ahead of the answers on one connection. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { requestsAheadMax } from "../../src/http/connections.ts";
import { exchange, readAll } from "../fixtures/raw-http.ts";
import { startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService();
});
after(() => service[Symbol.asyncDispose]());

const get = (more = "") =>
  `GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\n${more}\r\n`;
const answersIn = (received: string) => received.match(/HTTP\/1\.1 200 OK/g)?.length ?? 0;

test("answers a few requests that were sent ahead, in order", async () => {
  const body = '{"model":"small","messages":[{"role":"user","content":"x"}]}';
  const head = get(`content-type: application/json\r\ncontent-length: ${body.length}\r\n`);
  const chat = head.replace("GET /v1/models", "POST /v1/chat/completions") + body;
  const sent = get().repeat(requestsAheadMax - 3) + chat + get() + get("connection: close\r\n");
  const received = await exchange(service.port, sent);
  assert.equal(answersIn(received), requestsAheadMax);
  const kinds = [...received.matchAll(/"object":"(chat\.completion|list)"/g)].map(([, kind]) => kind);
  assert.equal(kinds.indexOf("chat.completion"), requestsAheadMax - 3);
});

test("closes a connection that sends thousands of requests ahead, after a few of them", async () => {
  const before = service.finished.length;
  const socket = connect({ port: service.port, host: "127.0.0.1" });
  // A connection that is closed over unread bytes is reset.
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.write(get().repeat(5000) + get("connection: close\r\n"));
  socket.resume();
  await closed;
  assert.ok(
    service.finished.length - before <= requestsAheadMax,
    `${service.finished.length - before} requests`,
  );
  assert.equal((await service.chat()).status, 200);
});

test("accepts any number of requests from a connection that waits for its answers", async () => {
  const socket = connect({ port: service.port, host: "127.0.0.1" });
  const received = readAll(socket);
  let answers = 0;
  const rounds = 3 * requestsAheadMax;
  socket.on("data", (text) => {
    answers += answersIn(String(text));
    socket.write(get(answers < rounds ? "" : "connection: close\r\n"));
  });
  socket.write(get());
  assert.ok(answersIn(await received) >= rounds);
});
