/** At a limit, idle connections give their place to new ones. The test moves the clock. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, test } from "node:test";
import { type ConnectionLimits, Connections } from "../../src/http/connections.ts";
import { parseAnswer } from "../fixtures/raw-http.ts";
import { until } from "../fixtures/until.ts";

const request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const limits = { connectionsMax: 4, connectionsPerAddressMax: 2, trustedProxies: [] };

let nowMs = 0;
let connections: Connections;
/** Responses that the test ends. */
let pending: ServerResponse[];
let refusals: string[];
let sockets: Socket[];
let server: ReturnType<typeof createServer>;
let port = 0;

beforeEach(() => start(limits));
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  server.close();
  await once(server, "close");
});

async function start(given: ConnectionLimits): Promise<void> {
  [nowMs, pending, refusals, sockets] = [0, [], [], []];
  connections = new Connections(given, () => nowMs);
  server = createServer((_request, response) => void pending.push(response));
  connections.guard(server, (reason) => void refusals.push(reason));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  port = address.port;
}

interface Client {
  socket: Socket;
  received: string;
}

/** Opens a connection, and waits until the server has decided about it. */
async function open(localAddress = "127.0.0.1"): Promise<Client> {
  const decided = connections.count + refusals.length;
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  const client = { socket, received: "" };
  socket.on("error", () => {}).setEncoding("utf8");
  socket.on("data", (text) => {
    client.received += text;
  });
  sockets.push(socket);
  await once(socket, "connect");
  await until("it is decided", () => connections.count + refusals.length > decided);
  return client;
}

async function ask({ socket }: Client): Promise<void> {
  const before = pending.length;
  socket.write(request);
  await until("the request has arrived", () => pending.length > before);
}

/** Ends the newest response. */
async function answer(client: Client): Promise<void> {
  pending.pop()?.end("answer");
  await until("the answer has arrived", () => client.received.endsWith("answer"));
  client.received = "";
}

async function isRefused(client: Client): Promise<void> {
  await until("it is closed", () => client.socket.closed);
  const { status, body, headers } = parseAnswer(client.received);
  assert.equal(status, 503);
  assert.equal(JSON.parse(body).error.code, "overloaded");
  assert.equal(headers.get("x-content-type-options"), "nosniff");
  assert.equal(headers.get("cache-control"), "no-store");
}

test("the connection that has been idle for longest gives its place to a new one of its address", async () => {
  const stranger = await open("127.0.0.2");
  const [first, second] = [await open(), await open()];
  nowMs = 1_000;
  const third = await open();
  await isRefused(first);
  assert.deepEqual(refusals, ["address"]);
  assert.equal(connections.count, 3);
  for (const socket of [stranger, second, third]) await ask(socket);
});

test("a connection that is idle for less than a second stays, and the new one is refused", async () => {
  const [first] = [await open(), await open()];
  nowMs = 999;
  await isRefused(await open());
  await ask(first);
});

test("a connection with a request stays, however long it takes, and is idle after its answer", async () => {
  const [first, second] = [await open(), await open()];
  await ask(first);
  await ask(second);
  nowMs = 100_000;
  await isRefused(await open());
  await answer(second);
  await isRefused(await open());
  nowMs += 1_000;
  await ask(await open());
  await isRefused(second);
  await isRefused(await open());
  assert.equal(connections.count, 2);
});

test("a connection whose body does not come gives its place, until the body has come", async () => {
  const upload = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n";
  const [first, second] = [await open(), await open()];
  server.on("request", (request) => request.resume());
  first.socket.write(upload);
  await until("the first request has arrived", () => pending.length === 1);
  second.socket.write(`${upload}o`);
  await until("the second request has arrived", () => pending.length === 2);
  nowMs = 999;
  await isRefused(await open());
  nowMs = 1_000;
  const complete = pending.pop();
  second.socket.write("k");
  await until("the second body has arrived", () => complete?.req.complete === true);
  const third = await open();
  await until("the first one is closed", () => first.socket.closed);
  assert.equal(first.received, "");
  await ask(third);
  nowMs = 100_000;
  await isRefused(await open());
  complete?.end("answer");
  await until("the answer has arrived", () => second.received.endsWith("answer"));
});

test("at the limit of all addresses, the connection that has been idle for longest goes", async () => {
  const idle = await open("127.0.0.2");
  for (const address of ["127.0.0.2", "127.0.0.3", "127.0.0.3"]) await open(address);
  nowMs = 1_000;
  await ask(await open());
  await isRefused(idle);
  assert.deepEqual(refusals, ["total"]);
});

test("a request over a connection that was refused for another one is not served", async () => {
  const [first] = [await open(), await open()];
  nowMs = 1_000;
  // The socket of the client is still open when the server has refused it.
  await ask(await open());
  first.socket.write(request);
  await isRefused(first);
  assert.equal(pending.length, 1);
});

test("a connection whose counting the caller has ended is never closed for another one", async () => {
  const [stream, second] = [await open(), await open()];
  const arrived = once(server, "request");
  await ask(stream);
  const [{ socket }] = await arrived;
  connections.release(socket);
  await answer(stream);
  assert.equal(connections.count, 1);
  nowMs = 5_000;
  await open();
  await open();
  await isRefused(second);
  await ask(stream);
});
