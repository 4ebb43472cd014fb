/**
 * Hostile requests of several accounts do not block the program. The limit applies to the
 * processor time of the main thread between two turns of the event loop, and is a few times that
 * of a control in the same thread and second. It is generous: without limits each of these
 * requests took 1 to 30 s.
 *
 * `npm run bench -- blocking` measures all of them.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { attacks, run } from "../fixtures/attacks.ts";
import { assertFreeLoop, startWatchedService, type WatchedService } from "../fixtures/watched-service.ts";

const attackMs = 700;

let service: WatchedService;
before(async () => {
  service = await startWatchedService();
});
after(() => service[Symbol.asyncDispose]());

const names = [
  "20 x 4 MB of text",
  "20 x 130,000 messages",
  "20 x 300,000 unknown fields of a message",
  "20 x 32,000 objects with a key of their own",
  "20 x 4 MB of opening brackets",
  "bodies in chunks of one byte",
  "pipelined requests without a key",
];
for (const name of names) {
  test(`keeps the event loop free during ${name}`, async () => {
    const attack = attacks.find((each) => each.name === name);
    assert.ok(attack !== undefined, `no attack is called ${name}`);
    await assertFreeLoop(service, () => run(attack, service, attackMs));
  });
}
