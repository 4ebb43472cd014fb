/**
 * Uploads deliver the bytes as they were sent, in chunks of any size, and free their memory at
 * once.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import { after, before, test } from "node:test";
import { Uploads } from "../../src/http/public/uploads.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";

const caller = { accountId: "ada", plan: planOf("test", 1, 0), key: keyOf("key", "ada") };
const uploads = new Uploads({ bodyBytesMax: 3_000_000, uploadBytesMax: 12_000_000, uploadMs: 60_000 });

let read: (received: Uint8Array, message: IncomingMessage) => void = () => {};
const server = createServer(async (message, response) => {
  const upload = uploads.admit(caller, message.headers);
  const bytes = await upload.read(message);
  read(Uint8Array.from(bytes), message);
  assert.equal(upload.receivedBytes, bytes.length);
  upload.release();
  upload.release();
  assert.equal(bytes.length, 0, "the memory is gone");
  response.end();
});

before(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
after(() => server.close());

function portOf(): number {
  const address = server.address();
  assert.ok(address !== null && typeof address !== "string");
  return address.port;
}

/** Sends pieces one after the other, and returns the body that arrived. */
async function sent(pieces: readonly Buffer[], headers: Record<string, number>): Promise<Uint8Array> {
  const { promise, resolve } = Promise.withResolvers<Uint8Array>();
  read = resolve;
  const outgoing = request({ port: portOf(), host: "127.0.0.1", method: "POST", headers });
  const answered = once(outgoing, "response");
  for (const piece of pieces) {
    await new Promise((written) => outgoing.write(piece, written));
  }
  outgoing.end();
  const [answer]: IncomingMessage[] = await answered;
  answer?.resume();
  return await promise;
}

for (const [how, sizes] of [
  ["in one piece", [700]],
  ["byte by byte", Array.from({ length: 50 }, () => 1)],
  ["in pieces of all sizes", [1, 65_535, 65_536, 65_537, 3, 400_000, 1_000_000]],
  ["of the largest size", [1_000_000, 2_000_000]],
  ["that is empty", []],
] as const) {
  for (const isAnnounced of [true, false]) {
    test(`reads a body ${how}, ${isAnnounced ? "with" : "without"} a content-length`, async () => {
      const pieces = sizes.map((size) => randomBytes(size));
      const whole = Buffer.concat(pieces);
      const received = await sent(pieces, isAnnounced ? { "content-length": whole.length } : {});
      assert.ok(whole.equals(received));
      assert.deepEqual([uploads.count, uploads.bytes], [0, 0]);
    });
  }
}

test("gives a small body separate memory", async () => {
  // Node shares memory among small buffers, so freeing it would break the others.
  const neighbour = Buffer.from("a small neighbour");
  await sent([Buffer.from("abc"), Buffer.from("def")], { "content-length": 6 });
  assert.equal(String(neighbour), "a small neighbour");
  assert.equal(Buffer.from("another").toString(), "another");
});
