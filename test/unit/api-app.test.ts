/** The application that the operator listener and the portal share. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createApiApp } from "../../src/http/api/app.ts";
import { limits } from "../../src/limits/limits.ts";

test("the headers of a request have the time of the table of limits, as on the public listener", async () => {
  const app = createApiApp();
  assert.equal(app.server.headersTimeout, limits.headers.most);
  await app.close();
});

test("a client that reads nothing of its response is dropped", async () => {
  const app = createApiApp(undefined, 100);
  app.get("/large", async () => "x".repeat(32 * 1024 * 1024));
  const url = new URL(await app.listen({ port: 0, host: "127.0.0.1" }));
  const closed = Promise.withResolvers<void>();
  app.server.on("connection", (socket) => socket.once("close", () => closed.resolve()));
  const client = connect(Number(url.port), "127.0.0.1").pause();
  client.on("error", () => {});
  client.write("GET /large HTTP/1.1\r\nhost: x\r\n\r\n");
  await closed.promise;
  client.destroy();
  await app.close();
});

test("a client that waits for the rest of a response is not dropped", async () => {
  const app = createApiApp(undefined, 100);
  app.get("/slow", async () =>
    Readable.from(
      (async function* () {
        yield "one";
        await sleep(400);
        yield "two";
      })(),
    ),
  );
  const answer = await fetch(`${await app.listen({ port: 0, host: "127.0.0.1" })}/slow`);
  assert.equal(await answer.text(), "onetwo");
  await app.close();
});
