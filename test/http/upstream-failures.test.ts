/**
 * Upstreams that fail. Each request ends as in the table of docs/ledger.md, and callers see no
 * upstream errors.
 */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../fixtures/until.ts";
import {
  type AnswerCase,
  breakOff,
  type Call,
  charged,
  type Outcome,
  type Play,
  secretKey,
  startFront,
  testAnswers,
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
const html = { "content-type": "text/html" };
const errorBody = JSON.stringify({ error: { message: secretText, type: "x", code: "y" } });
const answers =
  (status: number, body = errorBody, headers = {}): Play =>
  (call) =>
    call.answer(status, body, headers);

/** Plays by what the client gets. */
const beforeTheAnswer: Record<"error" | "timeout" | "overloaded", Record<string, Play | string[]>> = {
  error: {
    "400 about the key": answers(400),
    ...Object.fromEntries([401, 403, 404, 500].map((status) => [`${status}`, answers(status)])),
    "a redirect": answers(302, "", { location: "http://x.example/" }),
    "500 with an HTML page": answers(500, `<html>${secretText}</html>`, html),
    "200 with an HTML page": answers(200, `<html>${secretText}</html>`, html),
    "200 with an error as JSON": answers(200),
    "an error page without an end": async (call) => {
      call.head(500);
      await call.send("x".repeat(100_000));
    },
    "more headers than are read": (call) =>
      call.socket.write(`HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(20_000)}`),
    "more values in an event than are parsed": [`data: ${"[".repeat(1_000_000)}\n\n`],
    "an error whose message is no text": [event({ error: { message: { toString: 1 }, code: [[[[]]]] } })],
    "an empty stream": [],
    "a stream with nothing but [DONE]": [done],
    "an event that is no JSON": [`data: {"choices":[${secretText}\n\n`],
    "an event that is no object": ["data: [1]\n\n"],
    "an error event": [`data: ${errorBody}\n\n`],
    "an event that is named an error": [`event: error\ndata: ${secretText}\n\n`],
    "bytes that are no HTTP": (call) => call.socket.end(`${secretText}\r\n\r\n`),
  },
  timeout: {
    "504": answers(504),
    "no answer at all": () => {},
    "informational responses without an end": (call) =>
      drip(call, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    "a header without an end": (call) => {
      call.socket.write("HTTP/1.1 200 OK\r\nx: ");
      return drip(call, "x");
    },
    "headers, and then nothing": (call) => call.head(),
    "headers and the empty first event, and then nothing": (call) => call.send(first),
  },
  overloaded: { "503": answers(503) },
};
const ends = {
  error: { status: 502, code: "upstream_error" },
  timeout: { status: 504, code: "upstream_timeout" },
  overloaded: { status: 503, code: "overloaded" },
} as const;
const free: Partial<Outcome> = { ending: "engine_failed", costMicro: 0 };
const secrets = [secretKey, "vendor", "127.0.0.1", "sales"];

describe("a failure before the first token is an HTTP status and costs nothing (QuantumNous/new-api#4168, mozilla-ai/otari#128)", () => {
  for (const kind of ["error", "timeout", "overloaded"] as const)
    testAnswers(
      Object.entries(beforeTheAnswer[kind]).map(([what, sends]) => ({
        what,
        sends,
        body: { stream: true },
        options: kind === "timeout" ? { times: quick } : {},
        gives: { ...ends[kind], ...free },
        withholds: secrets,
        calls: 1,
        logs: /127\.0\.0\.1:\d+\/v1: /,
      })),
    );
});

const parts = [first, text("one"), text(" two")];
const brokenOff: Partial<Outcome> = {
  texts: ["one", " two"],
  done: false,
  ending: "engine_failed",
  promptTokens: 3,
  completionTokens: 2,
  estimated: true,
};
const inTheMiddle: [what: string, sends: AnswerCase["sends"], options?: AnswerCase["options"]][] = [
  ["the connection is cut", breakOff(...parts)],
  ["the answer ends without its end", parts],
  ["a silent stream", (call) => call.send(parts.join("")), { times: { ...quick, headersMs: 60_000 } }],
  ["an event that is no JSON", [...parts, `data: ${secretText}\n\n`]],
  [
    "an error event, whose text is not counted as output (QuantumNous/new-api#5288)",
    [...parts, event({ error: { message: secretText } }), finish(), usage(5, 2)],
  ],
  ["an older vLLM's error event", [...parts, event({ object: "error", message: secretText, code: 400 })]],
  ["a finish that says that it was aborted", [...parts, finish("abort"), usage(5, 2)]],
];

describe("a failure in the middle of a stream is an error event, and the tokens are charged", () => {
  testAnswers(
    inTheMiddle.map(([what, sends, options = {}]) => ({
      what,
      sends,
      body: { stream: true },
      options,
      gives: { ...brokenOff, code: options.times === undefined ? "upstream_error" : "upstream_timeout" },
      withholds: secrets,
      calls: 1,
    })),
  );

  test("ends the answer at an event of 100 MB, within bounded memory", async () => {
    await using front = await startFront();
    let sent = 0;
    front.upstream.play = async (call) => {
      await call.send(...parts, 'data: {"choices":[{"delta":{"content":"');
      // The system holds some megabytes that nobody has read.
      for (; sent < 100 && !call.isClosed; sent += 1) await call.send("x".repeat(1024 * 1024));
      await call.send('"}}]}\n\n', finish(), done);
    };
    await front.assertAnswer({ stream: true }, { code: "upstream_error", completionTokens: 2 });
    await front.upstream.last().closed;
    assert.ok(sent < 100, "it was not read to its end");
  });
});

testAnswers([
  ...Object.entries({ "7": "7", "86400": "60" }).map(([sent, retryAfter]) => ({
    what: `429 with a retry-after of ${sent} s is told with ${retryAfter} s, because SDKs ignore longer ones`,
    sends: answers(429, errorBody, { "retry-after": sent }),
    gives: { ...ends.overloaded, ...free, retryAfter },
    withholds: secrets,
  })),
  {
    what: "accepts an answer that breaks after its finish reason",
    sends: breakOff(text("Hello"), finish()),
    body: { stream: true },
    gives: { done: true, ending: "stop", estimated: true },
  },
  {
    what: "does not log an upstream error that quotes the conversation",
    sends: (call) => call.answer(400, JSON.stringify({ detail: `bad input: ${JSON.stringify(call.body)}` })),
    body: { messages: [{ role: "user", content: "my diary of the year 1987, which is nobody's business" }] },
    gives: {},
    logs: /answered 400|quote the request/,
    logsNo: /diary/,
  },
  {
    what: "does not log the user in an upstream error",
    sends: answers(403, '{"detail":"ada@example.com is not welcome"}'),
    body: { user: "ada@example.com" },
    gives: {},
    logs: /\[user\] is not welcome/,
    logsNo: /ada@/,
  },
  {
    what: "logs that the key is wrong",
    sends: answers(401),
    gives: {},
    logs: /answered 401, so the key of this model is wrong or missing: .*contact sales/,
  },
  {
    what: "logs that the URL or the model is wrong",
    sends: answers(404),
    gives: {},
    logs: /answered 404, so url or model of this model is wrong/,
  },
]);

test("gives up a TLS handshake that never ends", async (t) => {
  const silent = createServer();
  t.after(() => silent.close());
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const address = silent.address();
  assert.ok(address !== null && typeof address !== "string");
  const urls = [`https://127.0.0.1:${address.port}/v1`];
  await using front = await startFront({ urls, times: { ...quick, connectMs: 1000 } });
  await front.assertAnswer({}, { status: 504, code: "upstream_timeout", costMicro: 0 });
  assert.match(front.log(), /no connection in time/);
});

describe("a client that leaves", () => {
  for (const [when, sent, tokens] of [
    [
      "before the first token closes the upstream connection and pays the prompt (BerriAI/litellm#31499)",
      [],
      0,
    ],
    [
      "in the middle closes it at once and pays every token (BerriAI/litellm#30244, #30630)",
      [first, text("one"), text(" two"), text(" three")],
      3,
    ],
  ] as const) {
    test(when, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => (sent.length === 0 ? undefined : call.send(...sent));
      const controller = new AbortController();
      const asked = front.chat({ stream: true }, controller.signal).catch(() => null);
      await until("the upstream is asked", () => front.upstream.calls.length === 1);
      if (tokens > 0) {
        const reader = (await asked)?.body?.pipeThrough(new TextDecoderStream()).getReader();
        for (let received = ""; !received.includes("three"); )
          received += (await reader?.read())?.value ?? "";
      }
      controller.abort();
      await front.upstream.last().closed;
      await asked;
      const { promptTokens, completionTokens, ending, estimated } = charged(await front.settled());
      assert.deepEqual([ending, promptTokens, completionTokens, estimated], ["client_gone", 3, tokens, true]);
      const metrics = await front.service.metrics.text();
      assert.match(metrics, /inkwell_estimated_usages_total\{model="big",reason="cut"\} 1/);
    });
  }

  test("while it waits sends nothing to the upstream and pays nothing", async () => {
    await using front = await startFront({ parallel: 1 });
    front.upstream.play = (call) => call.send(first, text("one"));
    const running = new AbortController();
    const leaving = new AbortController();
    assert.equal((await front.chat({ stream: true }, running.signal)).status, 200);
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
