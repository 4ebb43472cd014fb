/** Charges for upstream answers whose usage is missing or implausible. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { sliceTokens } from "../../src/chat/hold-extender.ts";
import { eventsOf } from "../fixtures/batches.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";
import {
  balanceOf,
  breakOff,
  type Call,
  charged,
  type FrontOptions,
  generate,
  startFront,
  startUpstream,
  testAnswers,
} from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const absurd: [name: string, promptTokens: unknown, completionTokens: unknown][] = [
  ["negative (lingyuins/octopus#243)", -5, 2],
  ["negative completion", 5, -2],
  ["fractional", 5, 2.5],
  ["more completion than was asked for", 5, 11],
  ["more prompt than fits the model", 8193, 2],
  ["beyond all integers", 5, 1e300],
  ["strings", "5", "2"],
  ["zero under an answer (BerriAI/litellm#37992)", 5, 0],
  ["no prompt at all", 0, 2],
  ["null", null, null],
];
const letters = [..."an answer of few tokens and many letters"].map(text);
const counted = (content: string, prompt: number, made: number) =>
  event({
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
    usage: { prompt_tokens: prompt, completion_tokens: made, total_tokens: prompt + made },
  });
const timed = (timings: object) => event({ choices: [{ index: 0, delta: { content: "Hello" } }], timings });
const cut = { ending: "engine_failed", code: "upstream_error" } as const;
/** Prompts cost nothing, and a completion token costs a credit. */
const credits = (amount: number) => balanceOf(amount, { prompt: 0, completion: 1_000_000 });

testAnswers([
  ...absurd.map(([name, promptTokens, completionTokens]) => ({
    what: `replaces an implausible usage by our count, and logs it: ${name}`,
    sends: [text("Hello"), text(" world"), finish(), usage(promptTokens, completionTokens), done],
    body: { stream: false, max_tokens: 10 },
    gives: { promptTokens: 3, completionTokens: 2, estimated: true, ending: "stop" as const },
    logs: /impossible usage/,
    metrics: /inkwell_estimated_usages_total\{model="big",reason="absurd"\} 1/,
  })),
  {
    what: "accepts the usage of an upstream that sends more events than tokens",
    sends: [...letters, finish(), usage(5, 9), done],
    gives: { completionTokens: 9, estimated: false },
  },
  {
    what: "rejects a usage with far too few tokens for the text",
    sends: [...Array(40).fill(counted("twenty characters or ", 5, 1)), finish(), usage(5, 1), done],
    options: { dialect: "vllm" },
    gives: { completionTokens: 105, estimated: true },
    logs: /impossible usage/,
  },
  {
    what: "estimates the usage if the upstream reports none (llmgateway#3331, BerriAI/litellm#36943)",
    sends: [first, text("a"), text("b"), text("c"), finish(), done],
    body: { stream: false },
    gives: { completionTokens: 3, estimated: true, ending: "stop" },
    metrics: /inkwell_estimated_usages_total\{model="big",reason="missing"\} 1/,
  },
  {
    what: "estimates several tokens in one event by their characters",
    sends: [text("x".repeat(80)), finish(), done],
    gives: { completionTokens: 10 },
  },
  {
    what: "charges exactly if every event has a usage, even if the answer breaks off",
    sends: breakOff(counted("Hel", 7, 3), counted("lo", 7, 5)),
    body: { stream: true },
    options: { dialect: "vllm" },
    gives: { ...cut, promptTokens: 7, completionTokens: 5, estimated: false },
  },
  {
    what: "uses the timings of llama-server as usage",
    sends: breakOff(timed({ cache_n: 4, prompt_n: 6, predicted_n: 3 })),
    body: { stream: true },
    options: { dialect: "llama-server" },
    gives: { ...cut, promptTokens: 10, completionTokens: 3, estimated: false },
  },
  {
    what: "ignores timings without cached tokens, because most of the prompt may be cached",
    sends: breakOff(timed({ prompt_n: 1, predicted_n: 3 })),
    body: { stream: true, messages: [{ role: "user", content: "word ".repeat(400) }] },
    options: { dialect: "llama-server" },
    gives: { ...cut, promptTokens: 500, estimated: true },
  },
  {
    what: "ends the answer at the last paid token, and closes the upstream connection",
    sends: async (call) => {
      for (let n = 0; !call.isClosed && n < 5000; n += 1) await call.send(text("x "));
    },
    body: { stream: false, max_tokens: 4000 },
    options: credits(300),
    gives: {
      content: "x ".repeat(300),
      reason: "length",
      ending: "credits",
      completionTokens: 300,
      shortfallMicro: 0,
    },
    closes: true,
  },
  {
    what: "delivers an event with more tokens than a slice once it is paid",
    sends: [text("x".repeat(8 * 4 * sliceTokens)), finish(), usage(5, 4 * sliceTokens), done],
    body: { max_tokens: 8 * sliceTokens },
    options: credits(5000),
    gives: { content: "x".repeat(8 * 4 * sliceTokens), completionTokens: 4 * sliceTokens },
  },
  {
    what: "does not deliver an event with more tokens than the balance pays",
    sends: (call) => call.send(text("a"), text("x".repeat(8 * 1000))),
    body: { max_tokens: 4000 },
    options: credits(300),
    gives: { content: "a", reason: "length", completionTokens: 1 },
    closes: true,
  },
]);

test("does not charge the tokens of a failed upstream for the answer of another", async () => {
  const other = await startUpstream(breakOff(first, usage(500, 2)));
  await using front = await startFront({ others: [other] });
  front.upstream.play = (call) => call.stream(text("Hello"), text(" world"), finish(), done);
  for (let n = 0; n < 2; n += 1)
    await front.assertAnswer({}, { promptTokens: 3, completionTokens: 2, estimated: true });
  assert.ok(other.calls.length > 0, "it was asked");
});

test("asks the upstream for no more tokens than the balance pays", async () => {
  await using front = await startFront(credits(20));
  await front.chat({ max_tokens: 4000 });
  assert.equal(front.upstream.last().body.max_tokens, 20);
});

test("asks vLLM for the tokens of a prompt", async () => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":8000,"max_model_len":8192,"tokens":[]}');
  await front.assertAnswer({ max_tokens: 5000 }, { status: 200 });
  const [asked] = front.upstream.asked;
  assert.equal(asked?.path, "/tokenize");
  assert.deepEqual(asked?.body.messages, [{ role: "user", content: "Hello there" }]);
  assert.equal(front.upstream.last().body.max_tokens, 192, "what the window leaves");
});

test("asks llama-server to apply its template, and for the tokens of the result", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  front.upstream.playOther = (call) =>
    call.path === "/apply-template"
      ? call.answer(200, '{"prompt":"<s>Hello there"}')
      : call.answer(200, JSON.stringify({ tokens: Array(8190).fill(1) }));
  await front.assertAnswer({}, { status: 200 });
  assert.deepEqual(
    front.upstream.asked.map(({ path, body }) => [path, body.model, body.content]),
    [
      ["/apply-template", "vendor/big", undefined],
      ["/tokenize", "vendor/big", "<s>Hello there"],
    ],
  );
  assert.equal(front.upstream.last().body.max_tokens, 2);
});

const hidden = { field: null, tags: null, opened: false, hidden: true };
for (const [what, body, atTokenizer, atChat] of [
  [
    "sends the thinking parameters to the tokenizer, because they may change the prompt",
    { reasoning: { max_tokens: 0 } },
    { enable_thinking: false, thinking: false },
    { enable_thinking: false, thinking: false },
  ],
  [
    "asks vLLM to render the effort that it adds to a chat itself",
    { reasoning_effort: "high" },
    { reasoning_effort: "high" },
    undefined,
  ],
] as const) {
  test(what, async () => {
    await using front = await startFront({ dialect: "vllm", reasoning: hidden });
    front.upstream.playOther = (call) => call.answer(200, '{"count":5}');
    await front.chat(body);
    assert.deepEqual(front.upstream.asked[0]?.body.chat_template_kwargs, atTokenizer);
    assert.deepEqual(front.upstream.last().body.chat_template_kwargs, atChat);
  });
}

test("cuts off a tokenizer answer that never ends, and answers the request", async () => {
  await using front = await startFront({ dialect: "vllm" });
  const mebibyte = " ".repeat(1024 * 1024);
  let sent = 0;
  front.upstream.playOther = async (call) => {
    call.head(200, { "content-type": "application/json" });
    while (!call.isClosed && sent < 500) {
      // Resolves when the system has accepted the bytes or the connection is closed.
      await Promise.race([call.send(mebibyte), call.closed]);
      sent += 1;
    }
  };
  await front.assertAnswer({}, { status: 200 });
  assert.match(front.log(), /they are held for one token per byte/);
  await front.upstream.asked[0]?.closed;
  assert.ok(sent < 100, `${sent} MiB were taken`);
});

for (const length of [20, 20_000]) {
  test(`does not parse a tokenizer answer with too many values for a prompt of ${length} characters`, async (t) => {
    await using front = await startFront({ dialect: "vllm", contextWindow: 50_000 });
    const tokens = `[${"1,".repeat(70_000)}1]`;
    front.upstream.playOther = (call) => call.answer(200, `{"count":5,"tokens":${tokens}}`);
    const parse = t.mock.method(JSON, "parse");
    const messages = [{ role: "user", content: "x".repeat(length) }];
    await front.assertAnswer({ messages }, { promptTokens: 5 });
    assert.ok(parse.mock.calls.every(({ arguments: [text] }) => !text.includes(tokens)));
    // The tokens of a long prompt may be too many. The next prompt may be short.
    const isOfPrompt = length > 16_384;
    assert.equal(front.log().includes("its answer has too many values"), !isOfPrompt);
    await front.chat();
    assert.equal(front.upstream.asked.length, isOfPrompt ? 2 : 1);
  });
}

const failing: [what: string, play: (call: Call) => void, logs: RegExp, options?: FrontOptions][] = [
  ["has no such path", (call) => call.answer(404, "{}"), /they are held for one token per byte/],
  ["refuses every conversation", (call) => call.answer(400, "{}"), /refuses every conversation/],
  [
    "never responds",
    () => {},
    /they are held for one token per byte/,
    { times: { connectMs: 5000, headersMs: 600_000, idleMs: 600_000 } },
  ],
];
for (const [what, play, logs, options] of failing) {
  test(`answers the request if the tokenizer ${what}, and does not use it for a while`, async () => {
    await using front = await startFront({ dialect: "vllm", ...options });
    front.upstream.playOther = play;
    const messages = ["system", "user"].map((role) => ({ role, content: "Hi" }));
    await front.assertAnswer({ messages }, { status: 200 });
    assert.deepEqual(front.upstream.last().body.messages, messages, "the conversation is unchanged");
    const asked = front.upstream.asked.length;
    await front.assertAnswer({ messages }, { status: 200 });
    assert.equal(front.upstream.asked.length, asked);
    assert.match(front.log(), logs);
  });
}

test("repeats a tokenizer request once if its kept connection closes", async () => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":8000}');
  await front.chat();
  front.upstream.playOther = (call) => {
    front.upstream.playOther = (again) => again.answer(200, '{"count":8100}');
    call.socket.destroy();
  };
  await front.chat();
  assert.equal(front.upstream.last().body.max_tokens, 92);
  assert.ok(!front.log().includes("they are held for one token per byte"));
  front.upstream.playOther = (call) => call.socket.destroy();
  await front.chat();
  assert.equal(front.upstream.asked.length, 5, "only once");
  assert.match(front.log(), /they are held for one token per byte/);
});

test("asks the tokenizer of another server if one fails", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other], dialect: "vllm" });
  other.playOther = (call) => call.answer(200, '{"count":8000}');
  for (let n = 0; n < 4; n += 1) await front.chat();
  assert.equal(front.upstream.asked.length, 1, "left alone for a while");
  assert.equal(other.asked.length, 3);
  const asked = [...front.upstream.calls, ...other.calls].map(({ body }) => body.max_tokens);
  assert.equal(asked.filter((maxTokens) => maxTokens === 192).length, 3, "what the window leaves");
});

const word = text("x");
describe("loses nothing if the reader pauses longer than", () => {
  const last = delta({ content: "x" }, { finish_reason: "stop" });
  const times = { connectMs: 60_000, headersMs: 60_000, idleMs: 1000 };
  const long = text("x".repeat(500));
  const finishMs = 1000;
  const cases: [name: string, options: FrontOptions, words: number, events: string[], more: string[]][] = [
    ["an upstream may be silent", { times }, 2000, [], [...Array(2000).fill(long), finish()]],
    // Sent at once, so that the window is full before anything is read.
    ["a usage may take behind a full window", { finishMs }, 100, [...Array(100).fill(word), finish()], []],
    ["a usage may take behind an end that fills it", { finishMs }, 64, [...Array(63).fill(word), last], []],
  ];
  for (const [name, options, words, events, more] of cases) {
    test(name, () =>
      unlessStalled(async () => {
        await using front = await startFront(options);
        front.upstream.play = async (call) => {
          if (events.length > 0) await call.send(events.join(""));
          await call.stream(...more, usage(5, 70 * words), done);
        };
        const generation = await generate(front, { maxTokens: 1_000_000 });
        let read = 0;
        for await (const { type } of eventsOf(generation)) {
          if (type !== "text") continue;
          read += 1;
          if (read === 10) await sleep(2000);
        }
        const { completionTokens, estimated } = generation.usage;
        assert.deepEqual([read, completionTokens, estimated], [words, 70 * words, false]);
      }),
    );
  }
});

test("does not wait for a missing usage once the reader has caught up", async () => {
  await using front = await startFront({ finishMs: 100 });
  const passedMs = startOwnTime();
  front.upstream.play = (call) => call.send([...Array(100).fill(word), finish()].join(""));
  await front.assertAnswer({ stream: true }, { done: true, estimated: true });
  assert.ok(passedMs() < 30_000, "before the connection is taken for dead");
});

test("a pausing reader slows down the upstream, with a bounded buffer (BerriAI/litellm#12685)", async () => {
  await using front = await startFront({ contextWindow: 1_000_000 });
  let sent = 0;
  const piece = text("x".repeat(1000));
  front.upstream.play = async (call) => {
    await call.send(first);
    // Resolves when the system has accepted the bytes, so it waits for a reader.
    for (; !call.isClosed && sent < 400_000; sent += 1) await call.send(piece);
  };
  const controller = new AbortController();
  const response = await front.chat({ stream: true }, controller.signal);
  assert.equal(response.status, 200);
  let before = -1;
  await until("the upstream stands still", async () => {
    const isStill = sent > 0 && sent === before;
    before = sent;
    await sleep(300);
    return isStill;
  });
  assert.ok(sent < 100_000, `${sent} thousand characters were taken`);
  controller.abort();
  await front.upstream.last().closed;
  assert.equal(charged(await front.settled()).ending, "client_gone");
});
