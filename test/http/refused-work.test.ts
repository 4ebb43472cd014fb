/** The limit on work for requests that are refused. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { exchange, parseAnswer } from "../fixtures/raw-http.ts";
import { babble, errorOf, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const chat = "/v1/chat/completions";
const large = `{"model":"small","messages":[{"role":"user","content":"${"x".repeat(10_000)}"}],`;

function post(service: TestService, body: string, key = service.key): Promise<Response> {
  return service.request("POST", chat, { body, headers: { authorization: `Bearer ${key}` } });
}

async function codeOf(answer: Response): Promise<string> {
  return (await errorOf(answer)).code;
}

test("refuses a key beyond its allowance before its body is read, with the time to wait", async () => {
  await using service = await startService({ refusedBytesPerMinute: 15_000 });
  for (let n = 0; n < 2; n += 1) assert.equal(await codeOf(await post(service, large)), "invalid_json");
  const refused = await post(service, large);
  assert.equal(refused.status, 429);
  assert.match(refused.headers.get("retry-after") ?? "", /^([1-9]|[1-5]\d|60)$/);
  const error = await errorOf(refused);
  assert.deepEqual([error.code, error.type], ["too_many_refusals", "rate_limit_error"]);
  assert.match(error.message, /15000 bytes/);
  // It is answered without its body, before the check of size and media type.
  const head = `POST ${chat} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\n`;
  const answer = parseAnswer(await exchange(service.port, `${head}content-length: 99999999\r\n\r\n{`));
  assert.equal(JSON.parse(answer.body).error.code, "too_many_refusals");
  assert.equal(answer.headers.get("connection"), "close");
  assert.equal((await service.request("GET", "/v1/balance")).status, 200, "it is for chat requests only");
  assert.equal((await service.request("GET", "/v1/models")).status, 200);
  const bytes = /^inkwell_refused_bytes_total (\d+)$/m.exec(await service.metrics.text())?.[1];
  assert.equal(bytes, String(2 * large.length), "what was not read is not counted");
});

test("refuses other keys of the account too, and no other account", async () => {
  await using service = await startService({ refusedBytesPerMinute: 8_000 });
  await service.ledger.apply({ kind: "open", account: "ben", plan: "test", by: "test" });
  const ben = await service.addKey({ account: "ben" });
  assert.equal(await codeOf(await post(service, large)), "invalid_json");
  assert.equal(await codeOf(await post(service, large, await service.addKey())), "too_many_refusals");
  const answer = await service.chat({}, { headers: { authorization: `Bearer ${ben}` } });
  assert.equal(answer.status, 200);
});

describe("counts the work on a request that ends", () => {
  const good = `${large}"n":1}`;
  const none = { credits: 0, every: "P1D", align: "opening" } as const;
  const broke = { base: none, overage: none };
  const rows: [how: string, options: Parameters<typeof startService>[0], body: string, status: number][] = [
    ["with 400, for its JSON", {}, large, 400],
    ["with 400, for its fields", {}, `${large}"n":2}`, 400],
    ["with 400, for its length", { engine: { contextWindow: 1 } }, good, 400],
    ["with 402", { plan: broke }, good, 402],
    ["with 404", {}, good.replace("small", "none"), 404],
    ["with 429", { plan: { limits: { tokensPerMinute: 1 } } }, good.replace('"x', '"x x x x'), 429],
    ["with 503", { script: { tokens: [], refusal: { at: "prepare", kind: "overloaded" } } }, good, 503],
  ];
  for (const [how, options, body, status] of rows) {
    test(how, async () => {
      await using service = await startService({ ...options, refusedBytesPerMinute: 5_000 });
      assert.equal((await post(service, body)).status, status);
      assert.equal(await codeOf(await post(service, body)), "too_many_refusals");
    });
  }

  test("because its client leaves before the body is complete", async () => {
    await using service = await startService({ refusedBytesPerMinute: 5_000 });
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    await once(socket, "connect");
    socket.write(
      `POST ${chat} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\ncontent-length: 12000\r\n\r\n${" ".repeat(11_500)}`,
    );
    await until("the body is being received", () => service.server.uploads.count === 1);
    await until(
      "all that was sent has come",
      () => socket.bytesWritten > 11_500 && socket.writableLength === 0,
    );
    socket.destroy();
    await until("it is reported", () => service.finished.length === 1);
    assert.ok((service.finished[0]?.refused?.bytes ?? 0) > 5_000);
    assert.equal(await codeOf(await service.chat()), "too_many_refusals");
  });
});

test("does not count an accepted request, even if it fails or its client leaves", async () => {
  await using service = await startService({
    refusedBytesPerMinute: 5_000,
    script: babble("a", { tokenDelayMs: 1, failure: { afterTokens: 5, kind: "failed" } }),
  });
  const good = `${large}"stream":true}`;
  await (await post(service, good)).text();
  const away = new AbortController();
  const left = await service.request("POST", chat, { body: good, signal: away.signal });
  away.abort();
  await left.text().catch(() => {});
  await until("both are reported", () => service.finished.length === 2);
  assert.deepEqual(
    service.finished.map(({ refused }) => refused),
    [null, null],
  );
  assert.equal((await post(service, good)).status, 200);
});

test("counts processor time, so that one expensive body can use up the allowance", async () => {
  await using service = await startService({
    refusedMsPerMinute: 1,
    bodyBytesMax: 8 * 1024 * 1024,
    messagesMax: 100_000,
    keysMax: 200_000,
  });
  const slow = `{"model":"small","messages":[${'{"role":"user","content":"x"},'.repeat(50_000)}1]}`;
  assert.equal((await post(service, slow)).status, 400);
  const seconds = /^inkwell_refused_seconds_total (\S+)$/m.exec(await service.metrics.text())?.[1];
  assert.ok(Number(seconds) > 0.001, `${seconds} s`);
  assert.equal(await codeOf(await post(service, "{")), "too_many_refusals");
});

test("does not affect a test suite that sends a thousand small invalid requests in a minute", async () => {
  await using service = await startService({
    refusedBytesPerMinute: 62_914_560,
    refusedMsPerMinute: 1_200,
  });
  const bodies = ["{", "{}", '{"model":"small","messages":[]}', '{"model":"small","messages":1,"n":2}'];
  let left = 1_000;
  const statuses = new Set<number>();
  const client = async () => {
    while (left > 0) {
      left -= 1;
      const answer = await post(service, bodies[left % bodies.length] ?? "");
      statuses.add(answer.status);
      await answer.text();
    }
  };
  await Promise.all(Array.from({ length: 10 }, client));
  assert.deepEqual([...statuses], [400]);
});
