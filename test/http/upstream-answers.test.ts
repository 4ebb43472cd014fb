/** Answers of a correct upstream, in chunks of any size, and the requests that it gets. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../fixtures/service.ts";
import { type FrontOptions, secretKey, startFront, testAnswers } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const thinking = { field: null, tags: null, opened: false, hidden: false };
const tags = ["<think>", "</think>"] as const;
const emptyReason = (content: string) => delta({ content }, { finish_reason: "" });
const half = (escaped: string) => `data: {"choices":[{"index":0,"delta":{"content":"${escaped}"}}]}\n\n`;
const part = (said: string) => ({ type: "text", text: said });
const wideText = Buffer.from(
  [first, text("gr\u00fc\u00df "), text("\u{1f58b}\ufe0f"), finish(), usage(5, 2), done].join(""),
);
const details = (cached: unknown, reasoning: unknown) => ({
  prompt_tokens_details: { cached_tokens: cached },
  completion_tokens_details: { reasoning_tokens: reasoning },
});
const end = [finish(), usage(5, 5), done];
const whole = { ending: "stop", estimated: false } as const;

testAnswers([
  {
    what: "answers with the text of the upstream, and charges its usage",
    sends: [first, text("Hello"), text(" world"), finish(), usage(5, 2), done],
    gives: {
      ...whole,
      content: "Hello world",
      reason: "stop",
      promptTokens: 5,
      cachedTokens: 0,
      completionTokens: 2,
      reasoningTokens: 0,
    },
  },
  {
    what: "streams one event per event of the upstream, whose name for the model stays here",
    sends: [first, text("a"), text("b"), text("c"), finish("length"), usage(5, 3), done],
    body: { stream: true },
    gives: { texts: ["a", "b", "c"], reason: "length", completionTokens: 3, done: true },
    withholds: ["vendor/big"],
  },
  {
    what: "accepts bytes that are split anywhere, even inside a character",
    sends: async (call) => {
      for (let at = 0; at < wideText.length; at += 1) await call.send(wideText.subarray(at, at + 1));
      call.response.end();
    },
    body: { stream: true },
    gives: { texts: ["gr\u00fc\u00df ", "\u{1f58b}\ufe0f"] },
  },
  {
    what: "accepts CRLF, comments, other fields, data on several lines, and a missing last line break",
    sends: [
      ": a comment\r\n\r\n",
      first.replaceAll("\n", "\r\n"),
      `id: 7\r\nretry: 10\r\n${text("one").replaceAll("\n", "\r\n")}`,
      ": ping\n\n",
      'data: {"choices":[{"index":0,\ndata: "delta":{"content":"two"},"finish_reason":null}]}\n\n',
      finish(),
      usage(5, 2).trimEnd(),
    ],
    body: { stream: true },
    gives: { texts: ["one", "two"], done: true, estimated: false },
  },
  {
    what: "joins surrogates from two events, and replaces a lone one",
    sends: [half("a\\ud83d"), half("\\ude00b"), half("\\ud83d"), half("c"), finish(), usage(5, 4), done],
    gives: { content: "a\u{1f600}b\ufffdc" },
  },
  ...(
    [
      ["leaves out U+FFFD at the end of an answer that a server cut inside a character", finish("length")],
      ["leaves out U+FFFD at the end of an answer without a reason that has all its tokens", ""],
      ["passes on U+FFFD with which a model ends its answer", finish("stop")],
    ] as const
  ).map(([what, end]) => ({
    what,
    sends: [first, text("gr"), text("ü"), text("\ufffd"), end, usage(5, 3), done],
    body: { max_tokens: 3 },
    gives: { content: what.startsWith("passes") ? "grü\ufffd" : "grü", completionTokens: 3 },
  })),
  ...[undefined, 3].map((max_tokens) => ({
    what: `keeps U+FFFD within an answer, and leaves it out at the end: max_tokens ${max_tokens}`,
    sends: [first, text("\ufffd"), text("a"), text("\ufffd"), text("b"), finish(), usage(5, 4), done],
    body: { max_tokens },
    gives: { content: max_tokens === 3 ? "\ufffda" : "\ufffda\ufffdb" },
  })),
  {
    what: "accepts a finish reason without [DONE] as complete",
    sends: [text("Hello"), finish(), usage(5, 1)],
    body: { stream: true },
    gives: { done: true, ending: "stop" },
  },
  {
    what: "ignores empty finish reasons, which some servers send (sgl-project/sglang#3912, ollama/ollama#4357)",
    sends: [first, emptyReason("Hel"), emptyReason("lo"), finish(), usage(5, 2), done],
    gives: { content: "Hello", reason: "stop" },
  },
  {
    what: "takes an answer with nothing but empty finish reasons for one that broke off",
    sends: [first, emptyReason("Hel"), emptyReason("lo")],
    body: { stream: true },
    gives: { texts: ["Hel", "lo"], code: "upstream_error" },
  },
  {
    what: "treats a stream that stays open after its finish reason as complete after a while",
    sends: (call) => call.send(text("Hello"), finish()),
    options: { finishMs: 20 },
    body: { stream: true },
    gives: { done: true, estimated: true },
    closes: true,
  },
  {
    what: "does not wait for a connection that stays open after [DONE] and closes it (Menci/Floway#447)",
    sends: (call) => call.send(text("Hello"), finish(), usage(5, 1), done),
    body: { stream: true },
    gives: { done: true, estimated: false },
    closes: true,
  },
  {
    what: "accepts headers that arrive late and in pieces",
    sends: async ({ socket }) => {
      const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
      for (const byte of head) await new Promise<void>((resolve) => socket.write(byte, () => resolve()));
      socket.end([first, text("Hello"), finish(), usage(5, 1), done].join(""));
    },
    gives: { content: "Hello" },
  },
  ...["thoughts", "reasoning_content", "reasoning"].map((field) => ({
    what: `counts thinking in a field ${field}, and never sends it`,
    sends: [
      first,
      delta({ [field]: "hm" }),
      delta({ [field]: "m" }),
      text("Yes"),
      finish(),
      usage(5, 3),
      done,
    ],
    options: { reasoning: { ...thinking, field: "thoughts" } },
    gives: { content: "Yes", completionTokens: 3, reasoningTokens: 2 },
    withholds: ["hm"],
  })),
  {
    what: "joins content parts, and counts thinking parts without sending them",
    sends: [
      delta({ content: [{ type: "thinking", thinking: [part("hm")], closed: true }] }),
      delta({ content: [{ type: "thinking", thinking: "m" }] }),
      delta({ content: [part("Y"), { type: "reference", reference_ids: [1] }, part("es")] }),
      delta({ content: "." }),
      finish(),
      done,
    ],
    gives: { content: "Yes.", completionTokens: 4, reasoningTokens: 2 },
  },
  {
    what: "counts thinking between tags without sending it, even if a tag is split",
    sends: [...["<thi", "nk>hm", "m</th", "ink>", "\n\nYes"].map(text), ...end],
    options: { reasoning: { ...thinking, tags } },
    gives: { content: "Yes", reasoningTokens: 4 },
  },
  {
    what: "removes thinking that the prompt has opened",
    sends: [text("hm"), text("</think>"), text("Yes"), finish(), usage(5, 3), done],
    options: { reasoning: { ...thinking, tags, opened: true } },
    gives: { content: "Yes" },
  },
  ...(
    [
      [4, 1, 4, 1],
      [6, 3, 0, 0],
      [-1, 0.5, 0, 0],
      ["4", null, 0, 0],
    ] as const
  ).map(([cached, reasoning, cachedTokens, reasoningTokens]) => ({
    what: `charges ${cachedTokens} cached and ${reasoningTokens} thinking tokens for ${cached} and ${reasoning}`,
    sends: [text("Hello"), text("!"), finish(), usage(5, 2, details(cached, reasoning)), done],
    gives: { cachedTokens, reasoningTokens },
  })),
  {
    what: "cuts an answer that exceeds max_tokens, and closes its connection",
    sends: (call) => call.send(...Array.from({ length: 20 }, () => text("x "))),
    body: { max_tokens: 7 },
    gives: { content: "x ".repeat(7), reason: "length", completionTokens: 7 },
    closes: true,
  },
  {
    what: "ends with content_filter if the upstream's filter ends the answer, charged like a whole one",
    sends: [first, text("one"), finish("content_filter"), usage(5, 1), done],
    gives: { ...whole, reason: "content_filter", completionTokens: 1 },
  },
  {
    what: "ends without text if the filter withheld all of it",
    sends: [first, finish("content_filter"), usage(5, 0), done],
    gives: { content: "", reason: "content_filter" },
  },
  {
    what: "refuses a prompt that is too long for the upstream, in our words",
    sends: (call) =>
      call.answer(400, '{"error":{"message":"maximum context length is 4096 at secret-host"}}'),
    gives: {
      status: 400,
      code: "context_length_exceeded",
      param: "messages",
      ending: "refused",
      costMicro: 0,
    },
    withholds: ["secret-host"],
  },
  {
    what: "keeps the usage that an object without counts follows",
    sends: [first, text("Hello"), finish(), usage(5, 4), event({ choices: [], usage: {} }), done],
    gives: { ...whole, content: "Hello", promptTokens: 5, completionTokens: 4 },
  },
  {
    what: "takes [DONE] with a blank behind it for the end",
    sends: [first, text("Hello"), usage(5, 4), "data: [DONE] \n\n"],
    gives: { content: "Hello", promptTokens: 5, completionTokens: 4 },
  },
  {
    what: "ignores empty and unknown events",
    sends: [
      event({ choices: [] }),
      event({ choices: [{ index: 0, delta: { content: "" } }] }),
      event({ prompt_filter_results: [], choices: [{ index: 0 }] }),
      text("Hello"),
      ...end,
    ],
    body: { stream: true },
    gives: { texts: ["Hello"] },
  },
]);

const forwarded = {
  temperature: 0.5,
  top_p: 0.9,
  top_k: 40,
  seed: 7,
  presence_penalty: 5,
  frequency_penalty: -7.5,
  logprobs: true,
  top_logprobs: 3,
  user: "a".repeat(65),
  reasoning_effort: "high",
};
const options = { include_obfuscation: true };
const forHere = { stop: ["END"], n: 1, stream_options: options, store: true, metadata: { a: "b" } };
const requests: [what: string, body: object, asked: object, options?: FrontOptions][] = [
  ["a stream with usage, with its model name and key", { max_tokens: 9 }, { max_tokens: 9 }],
  [
    "sampling, user and thinking parameters, but not those for this service",
    { ...forwarded, ...forHere, max_completion_tokens: 9 },
    { ...forwarded, max_tokens: 9, stream_options: { include_usage: true, continuous_usage_stats: true } },
    { dialect: "vllm", reasoning: { ...thinking, field: "reasoning_content" } },
  ],
  ["no null user", { user: null, max_tokens: 9 }, { max_tokens: 9 }],
  ["no lone surrogate in the user", { user: "a\ud800", max_tokens: 9 }, { max_tokens: 9, user: "a\ufffd" }],
];
for (const [what, body, asked, options] of requests) {
  test(`asks the upstream for ${what}`, async () => {
    await using front = await startFront(options);
    await front.assertAnswer(body, { status: 200 });
    const call = front.upstream.last();
    assert.equal(call.path, "/v1/chat/completions");
    assert.equal(call.headers.authorization, `Bearer ${secretKey}`);
    assert.equal(call.headers["accept-encoding"], "identity");
    const { cache_salt: salt, ...sent } = call.body;
    assert.equal(typeof salt, options?.dialect === "vllm" ? "string" : "undefined");
    assert.deepEqual(sent, {
      model: "vendor/big",
      messages: [{ role: "user", content: "Hello there" }],
      stream: true,
      stream_options: { include_usage: true },
      ...asked,
    });
  });
}

test("reuses the connection after a complete answer", async () => {
  await using front = await startFront();
  for (let n = 0; n < 3; n += 1) assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.calls.length, 3);
  assert.equal(front.upstream.connections, 1);
});

test("asks llama-server for at least one alternative with log-probabilities, and removes extra ones", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  const entry = (token: string) => ({ token, logprob: -0.5, bytes: null });
  const logprobs = { content: [{ ...entry("Hi"), top_logprobs: [entry("Hi"), entry("Ho")] }] };
  front.upstream.play = (call) =>
    call.stream(first, delta({ content: "Hi" }, { logprobs }), finish(), usage(5, 1), done);
  const answer = await jsonOf<{ choices: { logprobs: unknown }[] }>(await front.chat({ logprobs: true }));
  assert.equal(front.upstream.last().body.top_logprobs, 1);
  assert.deepEqual(answer.choices[0]?.logprobs, {
    content: [{ token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [] }],
    refusal: null,
  });
});

test("normalises a conversation until the chat template accepts it", async () => {
  await using front = await startFront();
  front.upstream.play = (call) =>
    /("assistant".*){2}/.test(JSON.stringify(call.body.messages))
      ? call.answer(400, '{"error":{"message":"roles must alternate"}}')
      : call.stream(text("ok"), finish(), usage(9, 1), done);
  const said = (role: string, content: string) => ({ role, content });
  const asked = [said("developer", "Be brief"), said("user", "Hi")];
  const messages = [...asked, said("assistant", "one"), said("assistant", "two")];
  await front.assertAnswer({ messages }, { status: 200 });
  const sent = [said("system", "Be brief"), said("user", "Hi"), said("assistant", "one\n\ntwo")];
  assert.deepEqual(front.upstream.last().body.messages, sent);
  assert.equal(front.service.settled.length, 1);
});
