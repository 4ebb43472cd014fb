/**
 * Stops by signal: running answers finish within the drain time or are settled as they stand, new
 * requests are refused, a second signal stops at once, and nothing keeps running.
 *
 * SIGSTOP halts the engine's process, so that an answer is certainly still running, and SIGCONT
 * resumes it. With the maximum of log-probabilities an unread answer fills its connection and
 * pauses, so it cannot end before.
 */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { SqlRow } from "../fixtures/backends.ts";
import { startCollector } from "../fixtures/collector.ts";
import { ask, type ChatStream, openStream, type StreamEvent } from "../fixtures/http-stream.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { defaultPrice, newFolder, type Program, quickEntry, startProgram } from "../fixtures/program.ts";
import { endless, startTwoAnswers } from "../fixtures/running-requests.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { upstreamModel } from "../fixtures/upstream-program.ts";

const skip = process.platform === "win32" ? "Windows has no signals" : false;

/** Running answers may finish on a busy machine too. */
const patient = { INKWELL_LIMITS__DRAIN_SECONDS: "3600" };

async function portIsFree(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.on("connect", () => resolve(false)).on("error", () => resolve(true));
    socket.on("close", () => socket.destroy());
  });
}

function receipt(folder: string, stream: ChatStream) {
  const [row] = query(
    folder,
    "select ending, prompt_tokens as prompt, completion_tokens as completion, cost from charge where id = ?",
    stream.requestId,
  );
  assert.ok(row !== undefined, "the request has a receipt");
  return row;
}

async function assertGone(service: Program, engine: number, url: string): Promise<void> {
  await processEnded(engine);
  assert.ok(!isRunning(service.process.pid ?? 0));
  assert.ok(await portIsFree(url), "the port is free again");
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`${signal}: finishes a running stream and refuses a new request with 503`, { skip }, async () => {
    await using folder = await newFolder();
    await using service = startProgram(folder.path, { env: patient });
    const { url, operatorUrl, key } = await service.up();
    assert.ok(key !== null);
    const limits = { max_tokens: 1000, stream_options: { include_usage: true } };
    const stream = await openStream({ url, key, ...endless, ...limits });
    const engine = service.enginePid();
    process.kill(engine, "SIGSTOP");
    service.process.kill(signal);
    await service.shows("Stopping: running answers may finish.");

    const refused = await ask({ url, key });
    assert.equal(refused.status, 503);
    assert.equal(refused.headers.get("connection"), "close");
    const { error }: { error: { code: string } } = await jsonOf(refused);
    assert.equal(error.code, "shutting_down");
    const readiness = await fetch(`${operatorUrl}/readyz`);
    assert.equal(readiness.status, 503, "no balancer sends more");

    process.kill(engine, "SIGCONT");
    const rest = await stream.rest();
    assert.deepEqual(
      rest.map((event) => (event === "[DONE]" ? event : (event.choices?.[0]?.finish_reason ?? "usage"))),
      ["length", "usage", "[DONE]"],
    );
    assert.deepEqual(await service.ended, { code: 0, signal: null });
    const { ending, completion } = receipt(folder.path, stream);
    assert.deepEqual({ ending, completion }, { ending: "length", completion: 1000 });
    assertSoundLedger(folder.path);
    await assertGone(service, engine, url);
  });
}

test("ends a stream with an error after the drain time and settles it", {
  skip,
}, async () => {
  await using folder = await newFolder();
  await using service = startProgram(folder.path, { env: { INKWELL_LIMITS__DRAIN_SECONDS: "0" } });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const { stream, whole } = await startTwoAnswers(folder.path, { url, key });
  const engine = service.enginePid();
  service.process.kill("SIGTERM");

  const rest = await stream.rest();
  const last: StreamEvent | "[DONE]" | undefined = rest.at(-1);
  assert.ok(last !== undefined && last !== "[DONE]", "no [DONE] after half an answer");
  assert.equal(last.error?.code, "shutting_down");
  const unstreamed = await whole;
  assert.equal(unstreamed.status, 503);
  assert.deepEqual(await service.ended, { code: 0, signal: null });

  const { ending, prompt, completion, cost } = receipt(folder.path, stream);
  assert.equal(ending, "shutdown");
  assert.ok(
    Number(completion) >= stream.texts,
    `${completion} tokens are charged, ${stream.texts} were read`,
  );
  assert.equal(cost, defaultPrice.prompt * Number(prompt) + defaultPrice.completion * Number(completion));
  assert.equal(query(folder.path, "select count(*) as n from charge where ending = 'shutdown'")[0]?.n, 2);
  assertSoundLedger(folder.path);
  await assertGone(service, engine, url);
});

for (const [second, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  test(`stops at once after a second signal, ${second}, and charges running requests at a later start`, {
    skip,
  }, async () => {
    await using folder = await newFolder();
    let engine: number;
    {
      await using service = startProgram(folder.path);
      const { url, key } = await service.up();
      assert.ok(key !== null);
      await openStream({ url, key, ...endless });
      engine = service.enginePid();
      process.kill(engine, "SIGSTOP");
      service.process.kill("SIGTERM");
      await service.shows("Stopping: running answers may finish.");
      service.process.kill(second);
      assert.deepEqual(await service.ended, { code, signal: null });
      process.kill(engine, "SIGCONT");
      await assertGone(service, engine, url);
    }
    assertSoundLedger(folder.path, { holds: 1 });
  });
}

for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  test(`${signal}: stops a start without creating an account, and prints the key at the next start`, {
    skip,
  }, async () => {
    await using folder = await newFolder();
    {
      await using service = startProgram(folder.path);
      await service.shows("Inkwell ");
      service.process.kill(signal);
      assert.deepEqual(await service.ended, { code, signal: null }, service.stderr);
      assert.match(service.stderr, /Stopped before the service was up\./);
      assert.doesNotMatch(service.stdout, /ink_/);
    }
    await using service = startProgram(folder.path);
    assert.ok((await service.up()).key !== null);
  });
}

test("stops despite a client that only keeps its connection open", { skip }, async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  await using service = startProgram(folder.path, { env: upstreamModel(folder.path, upstream) });
  const { url, key } = await service.up();
  const { hostname, port } = new URL(url);
  const silent = connect(Number(port), hostname);
  silent.on("error", () => {});
  await new Promise((resolve) => silent.on("connect", resolve));
  const half = httpRequest(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "content-length": 1000 },
  });
  half.on("error", () => {}).flushHeaders();
  half.write('{"model":');
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  silent.destroy();
  half.destroy();
});

test("stops despite a client that has stopped reading, and records its charge", { skip }, async () => {
  await using folder = await newFolder();
  await using service = startProgram(folder.path, {
    entry: quickEntry,
    env: { INKWELL_LIMITS__DRAIN_SECONDS: "0", INKWELL_LIMITS__STREAM_IDLE_SECONDS: "3600" },
  });
  const { url, key } = await service.up();
  const { hostname, port } = new URL(url);
  const body = JSON.stringify({
    model: "smollm2-135m-instruct",
    messages: [{ role: "user", content: endless.content }],
    stream: true,
    logprobs: true,
    top_logprobs: 20,
  });
  const unread = connect(Number(port), hostname);
  unread.on("error", () => {}).pause();
  unread.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  let before: SqlRow | undefined;
  let rested = 0;
  // An engine that has no processor for a moment makes no tokens either, but checkpoints go on.
  await until("its answer fills the connection and rests: four checkpoints with the same tokens", () => {
    const [hold] = query(folder.path, "select expires_ms as at, completion_tokens as made from hold");
    if (hold?.made !== before?.made) rested = 0;
    else if (hold?.at !== before?.at && Number(hold?.made) > 0) rested += 1;
    before = hold;
    return rested === 3;
  });

  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  unread.destroy();
  assert.match(service.stderr, /"unread":1,.*have not been read to their end/);
  assert.doesNotMatch(service.stderr, /not settled|given up/);
  const [{ ending } = {}] = query(folder.path, "select ending from charge");
  assert.equal(ending, "shutdown");
  assertSoundLedger(folder.path);
});

test("includes a charge that is recorded at the last moment in its trace", { skip }, async () => {
  await using collector = await startCollector();
  await using folder = await newFolder();
  await using service = startProgram(folder.path, { env: { INKWELL_TRACING__ENDPOINT: collector.endpoint } });
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const stream = await openStream({ url, key, ...endless });
  using db = new DatabaseSync(path.join(folder.path, "data", "inkwell.db"), { timeout: 5000 });
  db.exec("begin immediate");
  stream.abort();
  await until("its charge is late", async () =>
    /^inkwell_late_charges 1$/m.test(await (await fetch(`${operatorUrl}/metrics`)).text()),
  );
  service.process.kill("SIGTERM");
  await until("all that is left to do is to record it", () => portIsFree(operatorUrl));
  await until("the request's end is told", () => collector.spans().some(({ kind }) => kind === "server"));
  db.exec("rollback");
  assert.deepEqual(await service.ended, { code: 0, signal: null });
  assert.equal(receipt(folder.path, stream).ending, "client_gone");
  const names = collector.spans().map(({ name }) => name);
  assert.ok(names.includes("settle"), `${names}`);
});

test("closes kept connections of clients before it refuses requests", {
  skip,
}, async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const env = { ...upstreamModel(folder.path, upstream), INKWELL_LIMITS__UNREADY_SECONDS: "4" };
  await using service = startProgram(folder.path, { env });
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const before = await ask({ url, key, max_tokens: 1 });
  assert.equal(before.headers.get("connection"), "keep-alive");
  await before.text();
  service.process.kill("SIGTERM");
  await until("it is not ready", async () => !(await fetch(`${operatorUrl}/readyz`)).ok);
  for (const stream of [true, false]) {
    const answer = await ask({ url, key, max_tokens: 1, stream });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("connection"), "close");
    await answer.text();
  }
  assert.deepEqual(await service.ended, { code: 0, signal: null });
});

async function jsonOf<T>(response: Response): Promise<T> {
  const body: T = JSON.parse(await response.text());
  return body;
}
