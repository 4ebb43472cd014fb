/** A connection that sends too many requests ahead is closed, and the rest of them is dropped. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import { Connections, requestsAheadMax } from "../../src/http/connections.ts";

test("hands no request on after the one that closed the connection", async () => {
  let answers = 0;
  const server = createServer((_request, response) => {
    answers += 1;
    setTimeout(() => response.end(), 1);
  });
  const limits = { connectionsMax: 100, connectionsPerAddressMax: 100, trustedProxies: [] };
  new Connections(limits).guard(server, () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
  // Twice: Node uses the parser of a closed connection again.
  for (let n = 0; n < 2; n += 1) {
    answers = 0;
    const socket = connect({ port: address.port, host: "127.0.0.1" });
    socket.on("error", () => {}).resume();
    socket.write(request.repeat(2000));
    await once(socket, "close");
    assert.equal(answers, requestsAheadMax);
  }
  const response = await fetch(`http://127.0.0.1:${address.port}`);
  assert.equal(response.status, 200);
  server.close();
  server.closeAllConnections();
});
