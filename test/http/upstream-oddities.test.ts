/** Undocumented behaviour of servers: signs of life, codings, endings, texts and counts. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { type Outcome, type Play, startFront, testAnswers } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const tail = [finish(), usage(5, 2), done];
const signs: [name: string, sign: string][] = [
  ["an event without data", "data:\n\n"],
  ["an event with a space", "data: \n\n"],
  ["a ping without data", "event: ping\ndata:\n\n"],
  ["a comment", ": OPENROUTER PROCESSING\n\n"],
  ["an empty object", "data: {}\n\n"],
];
const coded: Partial<Outcome> = { status: 502, code: "upstream_error" };
const zipped = gzipSync([first, text("Hello"), ...tail].join(""));
const errors: [error: object, gives: Partial<Outcome>][] = [
  [{ code: 429 }, { status: 503, code: "overloaded" }],
  [{ type: "rate_limit_exceeded" }, { status: 503, code: "overloaded" }],
  [{ code: "context_length_exceeded" }, { status: 400, code: "context_length_exceeded" }],
  [{ code: "content_filter" }, { status: 400, code: "content_filter" }],
  [{ code: 504 }, { status: 504, code: "upstream_timeout" }],
];
const places: [name: string, parts: string[]][] = [
  ["a refusal", [delta({ content: null, refusal: "I " }), delta({ refusal: "cannot." })]],
  ["a message", [event({ choices: [{ index: 0, message: { role: "assistant", content: "I cannot." } }] })]],
  [
    "a completion",
    [event({ choices: [{ index: 0, text: "I " }] }), event({ choices: [{ index: 0, text: "cannot." }] })],
  ],
  [
    "a difference with the message so far beside it",
    ["I ", "cannot."].map((content) =>
      event({ choices: [{ index: 0, delta: { content }, message: { content: "I cannot." } }] }),
    ),
  ],
];
const withheld = {
  code: "data_inspection_failed",
  message: "Output data may contain inappropriate content.",
};
const beside = usage(12, 2, { total_tokens: 331, completion_tokens_details: { reasoning_tokens: 317 } });
const thinking = { field: null, tags: null, opened: false, hidden: false };

testAnswers([
  ...signs.map(([name, sign]) => ({
    what: `a sign of life is no part of an answer: ${name}`,
    sends: [sign, first, sign, text("one"), sign, text(" two"), sign, ...tail],
    gives: { content: "one two", completionTokens: 2 },
  })),
  {
    what: "an answer in a coding that nobody asked for is a failure of the server",
    sends: ({ response }) => {
      response
        .writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" })
        .end(zipped);
    },
    gives: coded,
    logs: /in the coding gzip, although Inkwell asks for none/,
  },
  {
    what: "and so is a refusal in such a coding",
    sends: (call) => call.answer(400, "x", { "content-encoding": "br" }),
    gives: coded,
    logs: /in the coding br, although Inkwell asks for none/,
  },
  {
    what: "`identity` is no coding",
    sends: async (call) => {
      call.head(200, { "content-encoding": "Identity" });
      await call.stream(first, text("Hello"), ...tail);
    },
    gives: { content: "Hello" },
  },
  {
    what: "waits as long as `retry-after-ms` says",
    sends: (call) => call.answer(429, "{}", { "retry-after-ms": "6500", "retry-after": "60" }),
    gives: { status: 503, retryAfter: "7" },
  },
  ...errors.map(([error, gives]) => ({
    what: `an error event means what its status means: ${JSON.stringify(error)}`,
    sends: [event({ error: { message: "no", ...error } })],
    gives,
  })),
  {
    what: "ends with content_filter if the moderation withholds the rest in an error event",
    sends: [text("one"), text(" two"), event({ error: withheld })],
    gives: { content: "one two", reason: "content_filter", completionTokens: 2 },
  },
  ...Object.entries({ MAX_TOKENS: "length", SAFETY: "content_filter", eos: "stop" }).map(
    ([word, reason]) => ({
      what: `an answer that ends with ${word} ends with ${reason}`,
      sends: [text("Hello"), finish(word), usage(5, 1), done],
      gives: { reason },
      notices: [],
    }),
  ),
  {
    what: "an ending that is a failure is free if the answer is not streamed",
    sends: [text("Hello"), finish("network_error"), usage(5, 1), done],
    body: { stream: false },
    gives: { status: 502, code: "upstream_error", costMicro: 0 },
  },
  {
    what: "an answer without a reason for its end is passed on, and reported",
    sends: [text("Hello"), text(" world"), done],
    gives: { content: "Hello world", reason: "stop" },
    notices: ["unknown_ending"],
  },
  ...places.map(([name, parts]) => ({
    what: `text is text, wherever it stands: ${name}`,
    sends: [...parts, ...tail],
    gives: { content: "I cannot.", note: null },
  })),
  {
    what: "a receipt has a note if tokens without text are paid",
    sends: [delta({ tool_calls: [] }), finish(), usage(5, 9), done],
    gives: { content: "", completionTokens: 9, note: "the server reported 9 tokens and sent no text" },
    notices: ["no_text"],
  },
  ...[[text("END")], [text("EN"), text("D")], []].map((parts) => ({
    what: `but not if a stop sequence left no text, in ${parts.length} events`,
    sends: [...parts, ...tail],
    body: { stop: "END" },
    options: { sendStop: false },
    gives: { content: "", note: null },
  })),
  {
    what: "a receipt has a note if the total is none",
    sends: [text("Hello"), text(" world"), finish(), usage(5, 2, { total_tokens: 6 }), done],
    gives: {
      promptTokens: 5,
      completionTokens: 2,
      estimated: false,
      note: "the server reported a total of 6 tokens, which its counts do not add up to",
    },
    notices: ["odd_total"],
  },
  {
    what: "a count before the text is not that of the whole answer",
    sends: [usage(5, 1), ...Array.from({ length: 30 }, () => text("x ")), finish(), done],
    gives: { completionTokens: 30, estimated: true },
  },
  {
    what: "thinking that is counted beside the answer is charged",
    sends: [text("42"), finish(), beside, done],
    body: { max_tokens: 900 },
    options: { reasoning: thinking },
    gives: { completionTokens: 319, reasoningTokens: 317, note: null },
  },
  {
    what: "and never beyond the hold",
    sends: [text("42"), finish(), beside, done],
    body: { max_tokens: 100 },
    options: { reasoning: thinking },
    gives: { completionTokens: 100, shortfallMicro: 0 },
  },
]);

describe("an answer ends after `headers_seconds` without text", () => {
  const options = { times: { connectMs: 60_000, headersMs: 400, idleMs: 60_000 } };
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  for (const [name, sign] of [
    ["empty objects at full speed", "data: {}\n\n".repeat(2000)],
    ["comments", ": ping\n\n"],
    ["events without data", "data:\n\n"],
  ] as const) {
    test(name, () =>
      unlessStalled(async () => {
        await using front = await startFront(options);
        const babble: Play = async (call) => {
          for (; !call.isClosed; await pause(10)) await call.send(sign);
        };
        front.upstream.play = babble;
        await front.assertAnswer({}, { status: 504, code: "upstream_timeout", costMicro: 0 });
        assert.match(front.log(), /it sent no text for 0\.4 s \(headers_seconds\)/);
        front.upstream.play = async (call) => {
          await call.send(first, text("one"));
          await babble(call);
        };
        await front.assertAnswer({ stream: true }, { texts: ["one"], code: "upstream_timeout" });
      }),
    );
  }

  test("but not while it thinks, nor while text arrives", () =>
    unlessStalled(async () => {
      await using front = await startFront(options);
      front.upstream.play = async (call) => {
        for (let n = 0; n < 8; n += 1) {
          await call.send(n < 6 ? delta({ reasoning_content: "hm" }) : text("x"));
          await pause(150);
        }
        await call.stream(finish(), usage(5, 8), done);
      };
      await front.assertAnswer({}, { content: "xx" });
    }));
});

test("an ending in an unknown word is passed on as stop, and reported once for each word", async () => {
  await using front = await startFront();
  for (const word of ["banana", "banana", "OTHER", "banana"]) {
    front.upstream.play = (call) => call.stream(text("Hello"), finish(word), usage(5, 1), done);
    await front.assertAnswer({}, { reason: "stop" });
  }
  const noticed = front.engine.servers()[0]?.notices.map(({ kind }) => kind);
  assert.deepEqual(noticed, ["unknown_ending", "unknown_ending"]);
  assert.equal(front.service.log.filter(({ notice }) => notice === "unknown_ending").length, 2);
  const metrics = await front.service.metrics.text();
  assert.match(metrics, /inkwell_upstream_notices_total\{model="big",kind="unknown_ending"\} 4/);
});

test("a receipt has a note if the server counts far fewer tokens than the prompt has", async () => {
  await using front = await startFront({ dialect: "vllm" });
  const messages = [{ role: "user", content: "word ".repeat(200) }];
  for (const [counted, reported, note] of [
    ['{"count":206}', 102, "the prompt has 206 tokens, and the server reported 102 tokens"],
    ['{"count":206}', 103, null],
    ["{}", 62, "the prompt has 1000 bytes, and the server reported 62 tokens"],
    ["{}", 63, null],
  ] as const) {
    front.upstream.playOther = (call) => call.answer(200, counted);
    front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(reported, 1), done);
    await front.assertAnswer({ messages }, { note });
  }
  assert.match(front.log(), /the prompt has 206 tokens, and the server reported 102 tokens/);
  assert.equal(front.engine.servers()[0]?.notices[0]?.kind, "prompt_cut");
});
