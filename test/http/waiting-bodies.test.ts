/** Large bodies that wait for their turn to be parsed: what happens if a client leaves or the service stops meanwhile. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { errorOf, hello, startService } from "../fixtures/service.ts";

/** Takes longer to parse than one turn of the event loop may spend. */
const tools = Array.from({ length: 30_000 }, (_, n) => ({ [n.toString(36).padStart(24, "k")]: n }));

test("bodies that arrive together are all answered", async () => {
  await using service = await startService();
  const other = await service.addKey();
  const requests = Array.from({ length: 12 }, (_, n) =>
    service.chat({ tools }, { headers: { authorization: `Bearer ${n % 2 === 0 ? service.key : other}` } }),
  );
  for (const response of await Promise.all(requests)) assert.equal(response.status, 200);
});

test("clients that leave while their bodies wait leave nothing behind", { timeout: 30_000 }, async () => {
  await using service = await startService();
  const leave = new AbortController();
  const requests = Array.from({ length: 12 }, () => service.chat({ tools }, { signal: leave.signal }));
  const first = Promise.race(requests);
  assert.equal((await first).status, 200);
  leave.abort();
  await Promise.allSettled(requests);
  assert.equal((await service.chat()).status, 200);
  // The server hears of closed connections one by one.
  while (service.server.uploads.bytes > 0) await nextTurn();
});

test("bodies that wait when the service drains are refused with shutting_down", async () => {
  await using service = await startService();
  const requests = Array.from({ length: 12 }, () => service.chat({ tools }));
  // The engine gets the first one before the client sees its answer, when others may have had their turn too.
  while (service.engine.prompts.length === 0) await nextTurn();
  void service.server.requests.drain();
  const codes = new Set<string>();
  for (const response of await Promise.all(requests)) {
    if (response.status !== 200) codes.add((await errorOf(response)).code);
  }
  assert.deepEqual([...codes], ["shutting_down"]);
  await service.server.requests.drain();
  assert.equal(service.server.requests.count, 0);
  assert.ok(service.engine.prompts.every(({ messages }) => messages[0]?.content === hello[0].content));
});
