/** Clients without a token that flood the operator listener or hold its connections. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { operatorConnectionLimits } from "../../src/http/admin/server.ts";
import { requestsAheadMax } from "../../src/http/connections.ts";
import { holdBack } from "../fixtures/held-back.ts";
import { operatorTests, type TestOperator } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { parseAnswer, readAll } from "../fixtures/raw-http.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();

async function open({ url }: TestOperator, localAddress?: string): Promise<Socket> {
  const from = localAddress === undefined ? {} : { localAddress };
  const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", ...from });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

for (const [path, name] of [
  ["/metrics", "holdTotals"],
  ["/readyz", "accounts"],
] as const) {
  operatorTest(`reads the store once for simultaneous requests to ${path}`, async (operator, service) => {
    using away = holdBack(service.store, name);
    const first = operator.get(path);
    await until("the store is read", () => away.asked > 0);
    const others = Array.from({ length: 10 }, () => operator.get(path));
    // These are answered after the others have arrived: one connection, in their order.
    for (let n = 0; n < 3; n++) assert.equal((await operator.get("/healthz")).status, 200);
    const isReady = path === "/readyz";
    const drained = isReady ? service.server.requests.drain() : null;
    away.release();
    for (const { status } of await Promise.all([first, ...others]))
      assert.equal(status, isReady ? 503 : 200, "a drain that began before the answer counts");
    await drained;
    assert.ok(away.asked <= 2, `${away.asked} reads`);
    const before = away.asked;
    await operator.get(path);
    if (!isReady) assert.ok(away.asked > before, "later requests are read anew");
  });
}

operatorTest("closes a connection that pipelines thousands of requests", async (operator, service) => {
  using away = holdBack(service.store, "accounts");
  away.release();
  const socket = await open(operator);
  // A connection that is closed over unread bytes is reset.
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.resume();
  socket.write("GET /readyz HTTP/1.1\r\nhost: [::1]\r\n\r\n".repeat(5000));
  await closed;
  assert.ok(away.asked <= requestsAheadMax, `${away.asked} looks`);
  assert.equal((await operator.get("/readyz")).status, 200);
});

operatorTest(
  "a health check is answered beside a thousand idle connections of another address",
  async (operator) => {
    const { connectionsPerAddressMax, connectionsMax } = operatorConnectionLimits;
    assert.ok(connectionsPerAddressMax < connectionsMax);
    const sockets: Socket[] = [];
    for (let n = 0; n < 1_000; n += 1) {
      const socket = await open(operator, "127.0.0.2");
      sockets.push(socket.resume());
    }
    const checking = await open(operator);
    checking.write(get("/healthz", "close"));
    assert.equal(parseAnswer(await readAll(checking)).status, 200);
    const refused = /refused_connections_total\{listener="operator",reason="address"\} (\d+)/;
    const count = Number(refused.exec((await operator.get("/metrics")).text)?.[1]);
    assert.equal(count, sockets.length - connectionsPerAddressMax);
    for (const socket of sockets) socket.destroy();
  },
);

function get(path: string, connection: string): string {
  return `GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: ${connection}\r\n\r\n`;
}

operatorTest("closes the connection within seconds after refusing an unread body", async (operator) => {
  const passedMs = startOwnTime();
  const socket = await open(operator);
  socket.write("POST /admin/accounts HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\nx");
  const { status, headers } = parseAnswer(await readAll(socket));
  assert.deepEqual([status, headers.get("connection")], [401, "close"]);
  // Node's own limit is 30 s.
  assert.ok(passedMs() < 15_000);
});
