/** Prompts that are not counted are held for in full, and no report is charged beyond its hold. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { balanceOf, startFront, testAnswers } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

/** A credit for each token; the template has none. */
const having = (credits: number, more: object = {}) => ({
  templateTokens: 0,
  ...balanceOf(credits),
  ...more,
});
const says = (...report: string[]) => [first, text("ok"), finish(), ...report, done];
const hi = [{ role: "user", content: "Hi" }];
/** A prompt of 124 bytes, and of 140 tokens at most. */
const dense = [{ role: "user", content: "\u0007".repeat(124) }];
/** 2000 bytes, of which a quarter is above a window of 200. */
const long = [{ role: "user", content: "word ".repeat(400) }];
const narrow = { contextWindow: 200 };
const wide = { contextWindow: 100_000 };

testAnswers([
  {
    what: "charges a dense prompt as the upstream counts it, without a shortfall",
    sends: says(usage(124, 1)),
    body: { stream: false, messages: dense, max_tokens: 1 },
    options: having(200),
    gives: { promptTokens: 124, costMicro: 125_000_000, shortfallMicro: 0 },
  },
  {
    what: "never charges more prompt tokens than were held, and reports the model",
    sends: says(usage(8000, 1)),
    body: { stream: false, messages: dense, max_tokens: 1 },
    options: having(200),
    gives: { promptTokens: 140, completionTokens: 1, shortfallMicro: 0 },
    metrics: /inkwell_uncharged_tokens_total\{model="big",kind="prompt"\} 7860/,
    logs: /"unchargedPromptTokens":7860/,
  },
  {
    what: "takes tokens that are reported at the end from the balance",
    sends: says(usage(10, 500)),
    body: { stream: false, messages: hi },
    options: having(1000, wide),
    gives: { promptTokens: 10, completionTokens: 500, costMicro: 510_000_000 },
  },
  {
    what: "charges late tokens only as far as the balance pays for them",
    sends: says(usage(10, 5000)),
    body: { stream: false, messages: hi, max_tokens: 6000 },
    options: having(300, wide),
    gives: { promptTokens: 10, completionTokens: 290, costMicro: 300_000_000, shortfallMicro: 0 },
  },
  {
    what: "a prompt that is not counted is refused by the server if it is too long, and costs nothing",
    sends: (call) => call.answer(400, '{"error":{"message":"The prompt is longer than the context window"}}'),
    body: { messages: long },
    options: having(3000, narrow),
    gives: {
      status: 400,
      code: "context_length_exceeded",
      costMicro: 0,
      message:
        'This model\'s maximum context length is 200 tokens. The prompt is too long. The messages do not fit the window of "big". Send fewer or shorter messages, or ask for fewer max_tokens.',
    },
  },
  {
    what: "is held for its bytes and charged as reported, also if the server's window is larger",
    sends: says(usage(900, 1)),
    body: { stream: false, messages: long },
    options: having(2017, narrow),
    gives: { promptTokens: 900, estimated: false, shortfallMicro: 0 },
  },
  {
    what: "and is refused if the balance does not pay for its bytes",
    sends: says(),
    body: { messages: long },
    options: having(2015, narrow),
    gives: { status: 402 },
  },
  {
    what: "is charged for a quarter of its bytes if the server reports no usage, marked as estimated",
    sends: says(),
    body: { messages: long },
    options: having(3000),
    gives: { promptTokens: 500, completionTokens: 1, estimated: true },
  },
  {
    what: "is charged for one token at least",
    sends: says(),
    body: { messages: [{ role: "user", content: "" }] },
    options: having(3000),
    gives: { promptTokens: 1, estimated: true },
  },
  {
    what: "is charged as an estimate if the server reports more than the prompt can have",
    sends: says(usage(8193, 1)),
    body: { messages: long },
    options: having(3000),
    gives: { promptTokens: 500, estimated: true },
  },
]);

test("refuses a dense prompt that the balance cannot pay, instead of charging more than it has", async () => {
  await using front = await startFront(having(120));
  const { message } = await front.assertAnswer({ messages: dense }, { status: 402 });
  assert.match(String(message), /at most 140 tokens/);
  assert.equal(front.upstream.calls.length, 0);
  assert.equal((await front.service.balance()).base.remainingMicro, 120_000_000);
});

test("asks SGLang for the tokens of a prompt, and holds for exactly them", async () => {
  await using front = await startFront(having(50, { dialect: "sglang" }));
  front.upstream.playOther = (call) => call.answer(200, '{"tokens":[1],"count":30,"max_model_len":8192}');
  front.upstream.play = (call) => call.stream(...says(usage(30, 1)));
  await front.assertAnswer({ messages: dense }, { promptTokens: 30 });
  assert.equal(front.upstream.asked[0]?.path, "/tokenize");
  assert.equal(front.upstream.last().body.max_tokens, 20, "the rest of the balance");
});

test("holds for the bound after an upstream has reported more than was counted", async () => {
  await using front = await startFront(having(1000, { dialect: "vllm" }));
  front.upstream.playOther = (call) => call.answer(200, '{"count":20}');
  front.upstream.play = (call) => call.stream(...says(usage(60, 1)));
  const body = { messages: dense, max_tokens: 1 };
  await front.assertAnswer(body, { promptTokens: 20 });
  await front.assertAnswer(body, { promptTokens: 60 });
  assert.equal(front.log().match(/it counted 20 tokens, and the prompt was reported with 60/g)?.length, 1);
});

test("a prompt that is not counted leaves the rest of the window to the answer, and never less than half", async () => {
  await using front = await startFront({ contextWindow: 8192 });
  for (const [bytes, asked, limit] of [
    [4000, undefined, 7192],
    [24_000, undefined, 4096],
    [40_000, undefined, 4096],
    [24_000, 3000, 3000],
    [24_000, 9000, 4096],
  ]) {
    const messages = [{ role: "user", content: "x".repeat(bytes ?? 0) }];
    await front.assertAnswer({ messages, max_tokens: asked }, { status: 200 });
    assert.equal(front.upstream.last().body.max_tokens, limit, `${bytes} bytes, ${asked} asked for`);
  }
});

test("a prompt that is not counted counts for a quarter of its bytes in limits per minute, until it is charged", async () => {
  const { service } = balanceOf(3000);
  const limits = { tokensPerMinute: 1200 };
  await using front = await startFront({ service: { ...service, plan: { ...service?.plan, limits } } });
  front.upstream.play = (call) => call.stream(...says(usage(800, 1)));
  const left = async (messages: object[]) => {
    const response = await front.chat({ messages });
    await front.receipt(response);
    return [response.status, Number(response.headers.get("x-ratelimit-remaining-tokens"))];
  };
  assert.deepEqual(await left(long), [200, 700]);
  const [status, rest] = await left(long);
  assert.equal(status, 429);
  assert.ok(rest !== undefined && rest >= 399 && rest < 500, `${rest} of 1200 after 801`);
});

test("asks a server whose count was exceeded again after ten minutes", async (t) => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":4}');
  const asked = async () => {
    await front.chat();
    return front.upstream.asked.length;
  };
  const now = performance.now.bind(performance);
  assert.deepEqual([await asked(), await asked()], [1, 1]);
  t.mock.method(performance, "now", () => now() + 590_000);
  assert.equal(await asked(), 1);
  t.mock.method(performance, "now", () => now() + 600_000);
  assert.equal(await asked(), 2);
});
