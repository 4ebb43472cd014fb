/** Limits on the connections of the public listener, in total and from one address. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { operatorConnectionLimits as operatorLimits } from "../../src/http/admin/server.ts";
import { startOperator } from "../fixtures/operator.ts";
import { startPortal } from "../fixtures/portal.ts";
import { parseAnswer, readAll } from "../fixtures/raw-http.ts";
import { babble, hello, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const request = "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";

async function open(service: TestService, localAddress?: string): Promise<Socket> {
  const from = localAddress === undefined ? {} : { localAddress };
  const socket = connect({ port: service.port, host: "127.0.0.1", ...from });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** A connection whose request is under way: its answer goes on and on. */
async function hold(service: TestService, localAddress?: string): Promise<Socket> {
  service.engine.script = () => babble("word ", { tokenDelayMs: 5 });
  const socket = await open(service, localAddress);
  const body = JSON.stringify({ model: "small", stream: true, messages: hello });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\n`;
  socket.write(`${head}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  const [received] = await once(socket, "data");
  assert.equal(parseAnswer(String(received)).status, 200);
  return socket;
}

/** Status of a request over a new connection. */
async function statusOf(service: TestService, localAddress?: string): Promise<number> {
  const socket = await open(service, localAddress);
  socket.write(`${request}authorization: Bearer ${service.key}\r\n\r\n`);
  return parseAnswer(await readAll(socket)).status;
}

test("closes a connection whose bytes are no HTTP, also if its client leaves its side open", async () => {
  await using service = await startService();
  const socket = connect({ port: service.port, host: "127.0.0.1", allowHalfOpen: true });
  socket.on("error", () => {});
  socket.write(`${request}\r\nmore`);
  const [received] = await once(socket, "data");
  assert.match(String(received), /^HTTP\/1\.1 /);
  await until("it has gone", () => service.server.connections.count === 0);
  socket.destroy();
});

test("answers a connection over the limit with 503 and closes it, while the operator listener continues", async () => {
  await using service = await startService({ connections: { connectionsMax: 3 } });
  await using operator = await startOperator(service);
  const held = await Promise.all([hold(service), hold(service), hold(service)]);
  assert.equal(service.server.connections.count, 3);

  const socket = await open(service);
  const { status, headers, body } = parseAnswer(await readAll(socket));
  assert.equal(status, 503);
  assert.equal(headers.get("connection"), "close");
  assert.match(headers.get("retry-after") ?? "", /^\d+$/);
  const { error } = JSON.parse(body);
  assert.deepEqual([error.code, error.type], ["overloaded", "server_error"]);

  assert.equal((await operator.get("/healthz")).status, 200);
  assert.equal((await operator.get("/admin/accounts")).status, 200);
  const metrics = (await operator.get("/metrics")).text;
  assert.match(metrics, /^inkwell_connections 3$/m);
  assert.match(metrics, /^inkwell_connections_max 3$/m);
  assert.match(metrics, /^inkwell_refused_connections_total\{listener="public",reason="total"\} 1$/m);
  assert.match(JSON.stringify(service.log), /limits\.connections allows/);

  held[0]?.destroy();
  await until("one has gone", () => service.server.connections.count === 2);
  assert.equal(await statusOf(service), 200);
  for (const each of held) each.destroy();
  await until("all have gone", () => service.server.connections.count === 0);
});

test("a refused client that writes first can read the refusal", async () => {
  await using service = await startService({ connections: { connectionsMax: 1 } });
  const held = await hold(service);
  for (let n = 0; n < 20; n += 1) {
    const refused = await open(service);
    refused.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 65536\r\n\r\n${"x".repeat(65_536)}`,
    );
    assert.equal(parseAnswer(await readAll(refused)).status, 503);
  }
  held.destroy();
});

test("limits the connections of one address, so that others can connect", async () => {
  await using service = await startService({ connections: { connectionsPerAddressMax: 2 } });
  const held = await Promise.all([hold(service), hold(service)]);
  assert.equal(service.server.connections.count, 2);
  assert.equal(await statusOf(service), 503);
  assert.equal(await statusOf(service, "127.0.0.2"), 200);
  assert.match(
    await service.metrics.text(),
    /^inkwell_refused_connections_total\{listener="public",reason="address"\} 1$/m,
  );
  assert.match(JSON.stringify(service.log), /limits\.trusted_proxies/);
  for (const each of held) each.destroy();
  await until("all have gone", () => service.server.connections.count === 0);
  assert.equal(await statusOf(service), 200);
});

test("exempts a trusted proxy from the limit per address, but not from the total", async () => {
  await using service = await startService({
    connections: {
      connectionsMax: 4,
      connectionsPerAddressMax: 1,
      trustedProxies: ["127.0.0.1", "127.9.0.0/16"],
    },
  });
  const held = [await hold(service), await hold(service), await hold(service, "127.9.3.4")];
  assert.equal(service.server.connections.count, 3);
  held.push(await hold(service, "127.0.0.2"));
  assert.equal(service.server.connections.count, 4);
  assert.equal(await statusOf(service), 503);
  held[0]?.destroy();
  await until("there is room again", () => service.server.connections.count === 3);
  assert.equal(await statusOf(service, "127.0.0.2"), 503, "it has its one");
  assert.equal(await statusOf(service), 200);
  for (const each of held) each.destroy();
});

test("refused connections to the portal and to the operator listener are counted and logged", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  await using portal = await startPortal(service, { connections: { connectionsMax: 2 } });
  for (const [listener, { url }, max, reason, text] of [
    ["portal", portal, 2, "total", /the portal has as many as the open files of this process allow/],
    ["operator", operator, operatorLimits.connectionsPerAddressMax, "address", /to the operator listener/],
  ] as const) {
    const port = Number(new URL(url).port);
    const held: Socket[] = [];
    const closed: Promise<unknown>[] = [];
    // Connections of earlier requests may count, so the first refusal comes at `max` or before.
    for (let n = 0; n < max + 1; n += 1) {
      const socket = connect({ port, host: "127.0.0.1" });
      socket.on("error", () => {}).resume();
      closed.push(once(socket, "close"));
      await once(socket, "connect");
      held.push(socket);
    }
    const metrics = () => service.metrics.text();
    const counted = new RegExp(
      `^inkwell_refused_connections_total\\{listener="${listener}",reason="${reason}"\\} [1-9]`,
      "m",
    );
    await until("a refusal is counted", async () => counted.test(await metrics()));
    const lines = service.log.filter((line) => line.listener === listener);
    assert.equal(lines.length, 1, "one line a minute");
    assert.match(String(lines[0]?.msg), text);
    assert.deepEqual([lines[0]?.level, lines[0]?.address], [40, "127.0.0.1"]);
    for (const socket of held) socket.destroy();
    await Promise.all(closed);
  }
  const untouched = /^inkwell_refused_connections_total\{listener="public",reason="(?:total|address)"\} 0$/gm;
  assert.equal((await service.metrics.text()).match(untouched)?.length, 2);
});

test("closes all connections of a flood", async () => {
  await using service = await startService({ connections: { connectionsMax: 1 } });
  const held = await hold(service);
  const flood = Array.from({ length: 500 }, () => {
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.on("error", () => {}).resume();
    return once(socket, "close");
  });
  await Promise.all(flood);
  assert.equal(service.server.connections.count, 1);
  const lines = service.log.filter(({ msg }) => String(msg).startsWith("connections are refused"));
  assert.equal(lines.length, 1, "the log has one line a minute");
  held.destroy();
  await until("it has gone", () => service.server.connections.count === 0);
  assert.equal(await statusOf(service), 200);
});
