/** The overview of the operator API: one snapshot, shared by all clients, as a stream too. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Fields,
  fieldsOf,
  listOf,
  operatorTests,
  operatorToken,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { babble, startService } from "../fixtures/service.ts";

const operatorTest = operatorTests({ script: babble("word ", { tokenDelayMs: 5 }) });
const token = { authorization: `Bearer ${operatorToken}` };

/** Opens a stream. `next` returns the next event, or null after the end. */
async function openStream(operator: TestOperator, headers: Record<string, string> = token) {
  const answer = await fetch(`${operator.url}/admin/overview/stream`, { headers });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.ok(answer.body);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    async next(): Promise<Fields | null> {
      for (;;) {
        const end = text.indexOf("\n\n");
        if (end >= 0) {
          const event = text.slice(0, end);
          text = text.slice(end + 2);
          if (event.startsWith("data: ")) return fieldsOf(JSON.parse(event.slice(6)));
          continue;
        }
        const { value, done } = await reader.read();
        if (done) return null;
        text += value;
      }
    },
    cancel: () => reader.cancel(),
  };
}

operatorTest("shows health, running requests, models, sums and errors", async (operator, service) => {
  const going = new AbortController();
  const answer = await service.chat({ stream: true }, { signal: going.signal });
  await answer.body?.getReader().read();
  service.live.errors.logged(50, [{ code: "internal_error" }, "a request failed"]);
  const { body } = await operator.get("/admin/overview");
  const health = { store: "ok", clock: "ok", draining: false, warnings: [], nodes: 0 };
  assert.deepEqual(body.health, health);
  const { running, waiting, requests } = fieldsOf(body.running);
  assert.deepEqual([running, waiting], [1, 0]);
  assert.equal(listOf(requests)[0]?.request_id, answer.headers.get("x-request-id"));
  assert.equal(listOf(body.models)[0]?.id, "small");
  assert.equal(fieldsOf(body.last_hour).requests, 0);
  assert.equal(listOf(body.errors)[0]?.message, "a request failed");
  going.abort();
});

operatorTest(
  "streams a snapshot at once and after each change, the same to all",
  async (operator, service) => {
    const streams = [await openStream(operator), await openStream(operator)];
    const first = await Promise.all(streams.map((stream) => stream.next()));
    assert.deepEqual(first[0], first[1]);
    assert.equal(fieldsOf(first[0]?.running).running, 0);
    await (await service.chat({ max_tokens: 3 })).text();
    const second = await Promise.all(streams.map((stream) => stream.next()));
    assert.deepEqual(second[0], second[1]);
    assert.equal(fieldsOf(second[0]?.last_hour).requests, 1);
    for (const stream of streams) await stream.cancel();
  },
);

test("takes one snapshot a second for all clients", async (t) => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const over = t.mock.method(service.live.activity, "over");
  const nowMs = performance.now();
  const clock = t.mock.method(performance, "now", () => nowMs);
  const stream = await openStream(operator);
  await stream.next();
  const ofOne = over.mock.callCount();
  await Promise.all(Array.from({ length: 20 }, () => operator.get("/admin/overview")));
  assert.equal(over.mock.callCount(), ofOne, "all within a second share the snapshot");
  clock.mock.mockImplementation(() => nowMs + 1001);
  await operator.get("/admin/overview");
  assert.equal(over.mock.callCount(), 2 * ofOne);
  clock.mock.restore();
  await stream.cancel();
});

test("a stream ends with the listener, which does not wait for it", async () => {
  await using service = await startService();
  const operator = await startOperator(service);
  const stream = await openStream(operator);
  await stream.next();
  const startedMs = performance.now();
  await operator[Symbol.asyncDispose]();
  assert.ok(performance.now() - startedMs < 1500, "the stop was not delayed");
  assert.equal(await stream.next().catch(() => null), null);
});

operatorTest("a stream ends when its session is signed out", async (operator) => {
  const own = { "x-inkwell-request": "1", "content-type": "application/json" };
  const signedIn = await fetch(`${operator.url}/admin/session`, {
    method: "POST",
    headers: own,
    body: JSON.stringify({ token: operatorToken }),
  });
  const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
  const stream = await openStream(operator, { cookie, "x-inkwell-request": "1" });
  await stream.next();
  const headers = { cookie, "x-inkwell-request": "1" };
  assert.equal((await fetch(`${operator.url}/admin/session`, { method: "DELETE", headers })).status, 204);
  assert.equal(await stream.next().catch(() => null), null);
});

operatorTest("a HEAD request opens no stream", async (operator) => {
  const answer = await operator.ask("HEAD", "/admin/overview/stream");
  assert.ok(answer.status === 404 || answer.status === 405);
});
