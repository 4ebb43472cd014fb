/**
 * Large bodies that wait for their turn to be parsed, while clients leave or the service stops.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { errorOf, hello, startService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

/** Takes longer to parse than the limit of one turn. */
const tools = Array.from({ length: 30_000 }, (_, n) => ({ [n.toString(36).padStart(24, "k")]: n }));

test("answers all bodies that arrive together", async () => {
  await using service = await startService();
  const other = await service.addKey();
  const requests = Array.from({ length: 12 }, (_, n) =>
    service.chat({ tools }, { headers: { authorization: `Bearer ${n % 2 === 0 ? service.key : other}` } }),
  );
  for (const response of await Promise.all(requests)) assert.equal(response.status, 200);
});

test("frees the bodies of clients that leave while they wait", async () => {
  await using service = await startService();
  const leave = new AbortController();
  const requests = Array.from({ length: 12 }, () => service.chat({ tools }, { signal: leave.signal }));
  const first = Promise.race(requests);
  assert.equal((await first).status, 200);
  leave.abort();
  await Promise.allSettled(requests);
  assert.equal((await service.chat()).status, 200);
  // The server sees closed connections one by one.
  await until("all bodies are freed", () => service.server.uploads.bytes === 0);
});

test("refuses waiting bodies with shutting_down when the service drains", async () => {
  await using service = await startService();
  const requests = Array.from({ length: 12 }, () => service.chat({ tools }));
  // The engine gets the first request before its client sees the answer; others may have had their
  // turn by then.
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
