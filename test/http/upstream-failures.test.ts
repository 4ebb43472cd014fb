/**
 * Upstreams that fail. Each request ends as in the table of docs/ledger.md, and callers see no
 * upstream errors.
 */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { errorOf } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";
import {
  type Call,
  charged,
  type FrontOptions,
  type Play,
  secretKey,
  startFront,
} from "../fixtures/upstream.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const quick = { connectMs: 60_000, headersMs: 1000, idleMs: 1000 };

/** Sends `part` for a multiple of the time that `quick` allows, then breaks the connection. */
async function drip(call: Call, part: string): Promise<void> {
  for (let n = 0; n < 200 && !call.isClosed; n += 1) {
    call.socket.write(part);
    await sleep(25);
  }
  call.socket.destroy();
}

const secretText = `invalid key ${secretKey} at vendor-host.internal, contact sales@vendor.example`;

interface Failing {
  name: string;
  play: Play;
  status: number;
  code: string;
  retryAfter?: string;
  options?: FrontOptions;
}

describe("a failure before the first token is an HTTP status and costs nothing (QuantumNous/new-api#4168, mozilla-ai/otari#128)", () => {
  const errorBody = JSON.stringify({ error: { message: secretText, type: "x", code: "y" } });
  const upstreamError = { status: 502, code: "upstream_error" };
  const timeout = { status: 504, code: "upstream_timeout" };
  const overloaded = { status: 503, code: "overloaded" };
  const failing: Failing[] = [
    { name: "400 about the key", play: (call) => call.answer(400, errorBody), ...upstreamError },
    { name: "401", play: (call) => call.answer(401, errorBody), ...upstreamError },
    { name: "403", play: (call) => call.answer(403, errorBody), ...upstreamError },
    { name: "404", play: (call) => call.answer(404, errorBody), ...upstreamError },
    {
      name: "a redirect",
      play: (call) => call.answer(302, "", { location: "http://x.example/" }),
      ...upstreamError,
    },
    { name: "500", play: (call) => call.answer(500, errorBody), ...upstreamError },
    {
      name: "500 with an HTML page",
      play: (call) => call.answer(500, `<html>${secretText}</html>`, { "content-type": "text/html" }),
      ...upstreamError,
    },
    {
      name: "200 with an HTML page",
      play: (call) => call.answer(200, `<html>${secretText}</html>`, { "content-type": "text/html" }),
      ...upstreamError,
    },
    { name: "200 with an error as JSON", play: (call) => call.answer(200, errorBody), ...upstreamError },
    {
      name: "an error page without an end",
      play: async (call) => {
        call.head(500);
        await call.send("x".repeat(100_000));
      },
      ...upstreamError,
    },
    {
      name: "429 with retry-after",
      play: (call) => call.answer(429, errorBody, { "retry-after": "7" }),
      ...overloaded,
      retryAfter: "7",
    },
    {
      name: "429 with a retry-after that SDKs would ignore",
      play: (call) => call.answer(429, errorBody, { "retry-after": "86400" }),
      ...overloaded,
      retryAfter: "60",
    },
    { name: "503", play: (call) => call.answer(503, errorBody), ...overloaded },
    { name: "504", play: (call) => call.answer(504, errorBody), ...timeout },
    { name: "no answer at all", play: () => {}, ...timeout, options: { times: quick } },
    {
      name: "informational responses without an end",
      play: (call) => drip(call, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
      ...timeout,
      options: { times: quick },
    },
    {
      name: "a header without an end",
      play: (call) => {
        call.socket.write("HTTP/1.1 200 OK\r\nx: ");
        return drip(call, "x");
      },
      ...timeout,
      options: { times: quick },
    },
    {
      name: "more headers than are read",
      play: (call) => call.socket.write(`HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(20_000)}`),
      ...upstreamError,
    },
    {
      name: "more values in an event than are parsed",
      play: (call) => call.stream(`data: ${"[".repeat(1_000_000)}\n\n`),
      ...upstreamError,
    },
    {
      name: "an error whose message is no text",
      play: (call) => call.stream(event({ error: { message: { toString: 1 }, code: [[[[]]]] } })),
      ...upstreamError,
    },
    {
      name: "headers, and then nothing",
      play: (call) => call.head(),
      ...timeout,
      options: { times: quick },
    },
    {
      name: "headers and the empty first event, and then nothing",
      play: (call) => call.send(first),
      ...timeout,
      options: { times: quick },
    },
    { name: "an empty stream", play: (call) => call.stream(), ...upstreamError },
    { name: "a stream with nothing but [DONE]", play: (call) => call.stream(done), ...upstreamError },
    {
      name: "an event that is no JSON",
      play: (call) => call.stream(`data: {"choices":[${secretText}\n\n`),
      ...upstreamError,
    },
    { name: "an event that is no object", play: (call) => call.stream("data: [1]\n\n"), ...upstreamError },
    { name: "an error event", play: (call) => call.stream(`data: ${errorBody}\n\n`), ...upstreamError },
    {
      name: "an event that is named an error",
      play: (call) => call.stream(`event: error\ndata: ${secretText}\n\n`),
      ...upstreamError,
    },
    {
      name: "bytes that are no HTTP",
      play: (call) => call.socket.end(`${secretText}\r\n\r\n`),
      ...upstreamError,
    },
  ];
  for (const { name, play, status, code, retryAfter, options } of failing) {
    test(name, async () => {
      await using front = await startFront(options);
      front.upstream.play = play;
      const response = await front.chat({ stream: true });
      assert.equal(response.status, status);
      const error = await errorOf(response);
      assert.equal(error.code, code);
      for (const secret of [secretKey, "vendor", "127.0.0.1", "sales"]) {
        assert.ok(!error.message.includes(secret), `the caller is not told of ${secret}`);
      }
      if (retryAfter !== undefined) assert.equal(response.headers.get("retry-after"), retryAfter);
      const row = await front.receipt(response);
      assert.deepEqual([row?.ending, row?.costMicro], ["engine_failed", 0]);
      assert.ok(!front.log().includes(secretKey), "the key is not in the log");
      assert.match(front.log(), /127\.0\.0\.1:\d+\/v1: /, "the log names the upstream");
      assert.equal(front.upstream.calls.length, 1, "it is asked once");
    });
  }
});

test("gives up a TLS handshake that never ends", async (t) => {
  const silent = createServer();
  t.after(() => silent.close());
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const address = silent.address();
  assert.ok(address !== null && typeof address !== "string");
  await using front = await startFront({
    urls: [`https://127.0.0.1:${address.port}/v1`],
    times: { ...quick, connectMs: 1000 },
  });
  const response = await front.chat();
  assert.equal(response.status, 504);
  assert.equal((await errorOf(response)).code, "upstream_timeout");
  assert.equal((await front.receipt(response))?.costMicro, 0);
  assert.match(front.log(), /no connection in time/);
});

test("logs errors that the operator can fix", async () => {
  await using front = await startFront();
  for (const [status, hint] of [
    [401, /answered 401, so the key of this model is wrong or missing: .*contact sales/],
    [404, /answered 404, so url or model of this model is wrong/],
  ] as const) {
    front.upstream.play = (call) => call.answer(status, JSON.stringify({ error: secretText }));
    await front.chat();
    assert.match(front.log(), hint);
  }
});

test("does not log an upstream error that quotes the conversation", async () => {
  await using front = await startFront();
  const content = "my diary of the year 1987, which is nobody's business";
  front.upstream.play = (call) => call.answer(400, JSON.stringify({ detail: `bad input: "${content}"` }));
  await front.chat({ messages: [{ role: "user", content }] });
  assert.ok(!front.log().includes("diary"));
  assert.match(front.log(), /answered 400|quote the request/);
});

test("does not log the user in an upstream error", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.answer(403, '{"detail":"ada@example.com is not welcome"}');
  await front.chat({ user: "ada@example.com" });
  assert.ok(!front.log().includes("ada@"));
  assert.match(front.log(), /\[user\] is not welcome/);
});

describe("a failure in the middle of a stream is an error event, and the tokens are charged", () => {
  const parts = [first, text("one"), text(" two")];
  const failing: { name: string; play: Play; code: string; options?: FrontOptions }[] = [
    {
      name: "the connection is cut",
      play: async (call: Call) => {
        await call.send(...parts);
        call.socket.destroy();
      },
      code: "upstream_error",
    },
    {
      name: "the answer ends without its end",
      play: (call) => call.stream(...parts),
      code: "upstream_error",
    },
    {
      name: "a silent stream",
      play: (call) => call.send(parts.join("")),
      code: "upstream_timeout",
      options: { times: { ...quick, headersMs: 60_000 } },
    },
    {
      name: "an event that is no JSON",
      play: (call) => call.stream(...parts, `data: ${secretText}\n\n`),
      code: "upstream_error",
    },
    {
      name: "an error event, whose text is not counted as output (QuantumNous/new-api#5288)",
      play: (call) => call.stream(...parts, event({ error: { message: secretText } }), finish(), usage(5, 2)),
      code: "upstream_error",
    },
    {
      name: "an older vLLM's error event",
      play: (call) => call.stream(...parts, event({ object: "error", message: secretText, code: 400 })),
      code: "upstream_error",
    },
    {
      name: "a finish that says that it was aborted",
      play: (call) => call.stream(...parts, finish("abort"), usage(5, 2)),
      code: "upstream_error",
    },
  ];
  for (const { name, play, code, options } of failing) {
    test(name, async () => {
      await using front = await startFront(options);
      front.upstream.play = play;
      const events = await front.events();
      assert.deepEqual(events.texts, ["one", " two"]);
      assert.ok(!events.done, "no [DONE]");
      assert.equal(events.error?.code, code);
      assert.ok(!JSON.stringify(events).includes("vendor"));
      const row = charged(await front.settled());
      assert.deepEqual([row.ending, row.completionTokens, row.estimated], ["engine_failed", 2, true]);
      assert.ok(row.promptTokens > 0);
      assert.ok(!front.log().includes(secretKey));
      assert.equal(front.upstream.calls.length, 1, "it is not asked again");
    });
  }

  test("ends the answer at an event of 100 MB, within bounded memory", async () => {
    await using front = await startFront();
    let sent = 0;
    front.upstream.play = async (call) => {
      await call.send(...parts, 'data: {"choices":[{"delta":{"content":"');
      // The system holds some megabytes that nobody has read.
      for (; sent < 100 && !call.isClosed; sent += 1) await call.send("x".repeat(1024 * 1024));
      await call.send('"}}]}\n\n', finish(), done);
    };
    const events = await front.events();
    assert.equal(events.error?.code, "upstream_error");
    assert.equal(charged(await front.settled()).completionTokens, 2);
    await front.upstream.last().closed;
    assert.ok(sent < 100, "it was not read to its end");
  });
});

test("accepts an answer that breaks after its finish reason", async () => {
  await using front = await startFront();
  front.upstream.play = async (call) => {
    await call.send(text("Hello"), finish());
    call.socket.destroy();
  };
  const events = await front.events();
  assert.ok(events.done);
  const row = charged(await front.settled());
  assert.deepEqual([row.ending, row.estimated], ["stop", true]);
});

describe("a client that leaves", () => {
  test("before the first token closes the upstream connection and pays the prompt (BerriAI/litellm#31499)", async () => {
    await using front = await startFront();
    front.upstream.play = () => {};
    const controller = new AbortController();
    const asked = front.chat({ stream: true }, controller.signal).catch(() => null);
    await until("the upstream is asked", () => front.upstream.calls.length === 1);
    controller.abort();
    await front.upstream.last().closed;
    await asked;
    const row = charged(await front.settled());
    assert.deepEqual([row.ending, row.completionTokens, row.estimated], ["client_gone", 0, true]);
    assert.ok(row.promptTokens > 0);
  });

  test("in the middle closes the upstream connection at once and pays every token (BerriAI/litellm#30244, #30630)", async () => {
    await using front = await startFront();
    front.upstream.play = (call) => call.send(first, text("one"), text(" two"), text(" three"));
    const controller = new AbortController();
    const response = await front.chat({ stream: true }, controller.signal);
    const reader = response.body?.getReader();
    let received = "";
    while (!received.includes("three")) {
      const { value } = (await reader?.read()) ?? {};
      received += new TextDecoder().decode(value);
    }
    controller.abort();
    await front.upstream.last().closed;
    const row = charged(await front.settled());
    assert.deepEqual([row.ending, row.completionTokens, row.estimated], ["client_gone", 3, true]);
    assert.match(
      await front.service.metrics.text(),
      /inkwell_estimated_usages_total\{model="big",reason="cut"\} 1/,
    );
  });

  test("while it waits sends nothing to the upstream and pays nothing", async () => {
    await using front = await startFront({ parallel: 1 });
    front.upstream.play = (call) => call.send(first, text("one"));
    const running = new AbortController();
    const leaving = new AbortController();
    const first200 = await front.chat({ stream: true }, running.signal);
    assert.equal(first200.status, 200);
    const waiting = front.chat({ stream: true }, leaving.signal).catch(() => null);
    await until("one waits", () => front.engine.load().waiting === 1);
    leaving.abort();
    await waiting;
    await until("nobody waits", () => front.service.settled.length === 1);
    assert.equal(front.upstream.calls.length, 1);
    const row = charged(await front.settled());
    assert.deepEqual([row.ending, row.promptTokens], ["client_gone", 0]);
    running.abort();
    await front.upstream.last().closed;
  });
});
