/** A listener on `localhost`, which may mean two addresses. Both have the same limits. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { fastify } from "fastify";
import { Connections } from "../../src/http/connections.ts";
import { listenOn } from "../../src/http/listening.ts";
import { exchange } from "../fixtures/raw-http.ts";

const resolve = async () => ["127.0.0.1", "127.0.0.2"];

async function statusAt(url: string): Promise<number> {
  const response = await fetch(url, { headers: { connection: "close" } });
  return response.status;
}

test("answers on both addresses of localhost, within the limits of one server", async () => {
  const app = fastify({ forceCloseConnections: true });
  app.get("/", async () => "yes");
  const limits = { connectionsMax: 1, connectionsPerAddressMax: 1, trustedProxies: [] };
  const connections = new Connections(limits);
  connections.guard(app.server, () => {});
  const url = await listenOn(app, { host: "localhost", port: 0 }, resolve);
  const port = Number(new URL(url).port);
  const other = `http://127.0.0.2:${port}/`;
  assert.equal(url, `http://127.0.0.1:${port}`);
  assert.deepEqual([await statusAt(url), await statusAt(other)], [200, 200]);

  const held = connect({ port, host: "127.0.0.2" });
  await once(held, "connect");
  assert.deepEqual([await statusAt(url), await statusAt(other)], [503, 503]);
  const closed = once(held, "close");
  await app.close();
  await closed;
  await assert.rejects(statusAt(other));
});

test("refuses a port that is taken on one of the addresses", async () => {
  const first = fastify();
  await first.listen({ host: "127.0.0.2", port: 0 });
  const port = Number(new URL(first.listeningOrigin).port);
  const app = fastify();
  await assert.rejects(listenOn(app, { host: "localhost", port }, resolve), { code: "EADDRINUSE" });
  await app.close();
  await first.close();
});

test("ignores an address that the machine does not have", async () => {
  const app = fastify();
  app.get("/", async () => "yes");
  const resolved = async () => ["127.0.0.1", "192.0.2.1"];
  const url = await listenOn(app, { host: "localhost", port: 0 }, resolved);
  const received = await exchange(
    Number(new URL(url).port),
    "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
  );
  assert.match(received, /^HTTP\/1\.1 200 /);
  await app.close();
});
