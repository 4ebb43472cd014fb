/** Clients without a token that flood the operator listener or hold its connections. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { operatorConnectionLimits } from "../../src/http/admin/server.ts";
import { requestsAheadMax } from "../../src/http/connections.ts";
import { rightClock } from "../fixtures/clocks.ts";
import { operatorTests, operatorToken, type TestOperator } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { parseAnswer, readAll } from "../fixtures/raw-http.ts";

const operatorTest = operatorTests();

async function open({ url }: TestOperator, localAddress?: string): Promise<Socket> {
  const from = localAddress === undefined ? {} : { localAddress };
  const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", ...from });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

operatorTest("reads metrics once for simultaneous requests", async (operator, service) => {
  const { holdTotals } = service.store;
  const { promise: until, resolve: release } = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  let reads = 0;
  service.store.holdTotals = async () => {
    reads += 1;
    started.resolve();
    await until;
    return await holdTotals.call(service.store);
  };
  service.metrics.observe({
    version: "0.0.0",
    catalog: service.catalog,
    running: () => 0,
    connections: service.server.connections,
    uploads: service.server.uploads,
    holdTotals: () => service.store.holdTotals(),
    lastAudit: async () => null,
    nodes: () => [],
    clock: () => rightClock,
    lateCharges: () => 0,
  });
  const first = operator.get("/metrics");
  await started.promise;
  const others = Array.from({ length: 10 }, () => operator.get("/metrics"));
  // These are answered after the others have arrived: one connection, in their order.
  for (let n = 0; n < 3; n++) assert.equal((await operator.get("/healthz")).status, 200);
  release();
  for (const { status } of await Promise.all([first, ...others])) assert.equal(status, 200);
  assert.ok(reads <= 2, `${reads} reads`);
  await operator.get("/metrics");
  assert.ok(reads >= 2, "later requests are read anew");
});

operatorTest("reads the store once for simultaneous readiness checks", async (operator, service) => {
  const { accounts } = service.store;
  const { promise: until, resolve: release } = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  let looks = 0;
  service.store.accounts = async (query) => {
    looks += 1;
    started.resolve();
    await until;
    return await accounts.call(service.store, query);
  };
  const first = operator.get("/readyz");
  await started.promise;
  const others = Array.from({ length: 10 }, () => operator.get("/readyz"));
  for (let n = 0; n < 3; n++) assert.equal((await operator.get("/healthz")).status, 200);
  const drained = service.server.requests.drain();
  release();
  const answers = await Promise.all([first, ...others]);
  await drained;
  assert.ok(looks <= 2, `${looks} looks`);
  for (const { status } of answers) assert.equal(status, 503, "the drain began before the answer");
});

operatorTest("closes a connection that pipelines thousands of requests", async (operator, service) => {
  const { accounts } = service.store;
  let looks = 0;
  service.store.accounts = async (query) => {
    looks += 1;
    return await accounts.call(service.store, query);
  };
  const socket = await open(operator);
  // A connection that is closed over unread bytes is reset.
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.resume();
  socket.write("GET /readyz HTTP/1.1\r\nhost: [::1]\r\n\r\n".repeat(5000));
  await closed;
  assert.ok(looks <= requestsAheadMax, `${looks} looks`);
  assert.equal((await operator.get("/readyz")).status, 200);
});

operatorTest("one address cannot take all connections", async (operator, service) => {
  const { connectionsPerAddressMax, connectionsMax } = operatorConnectionLimits;
  assert.ok(connectionsPerAddressMax < connectionsMax);
  const { accounts } = service.store;
  const { promise: until, resolve: release } = Promise.withResolvers<void>();
  const all = Promise.withResolvers<void>();
  let looks = 0;
  service.store.accounts = async (query) => {
    looks += 1;
    if (looks === connectionsPerAddressMax) all.resolve();
    await until;
    return await accounts.call(service.store, query);
  };
  const head = `GET /admin/accounts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${operatorToken}\r\n\r\n`;
  const held = await Promise.all(
    Array.from({ length: connectionsPerAddressMax }, async () => {
      const socket = await open(operator, "127.0.0.2");
      socket.write(head);
      return socket;
    }),
  );
  await all.promise;
  const { status, body } = parseAnswer(await readAll(await open(operator, "127.0.0.2")));
  assert.equal(status, 503);
  assert.equal(JSON.parse(body).error.code, "overloaded");
  assert.equal((await operator.get("/healthz")).status, 200);
  release();
  for (const socket of held) socket.destroy();
});

operatorTest(
  "a health check is answered beside a thousand idle connections of another address",
  async (operator) => {
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
    assert.equal(count, sockets.length - operatorConnectionLimits.connectionsPerAddressMax);
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
