/** Answers of a correct upstream, in chunks of any size, and the requests that it gets. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Events } from "../fixtures/events.ts";
import { errorOf, jsonOf } from "../fixtures/service.ts";
import { charged, secretKey, startFront } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

interface Completion {
  choices: { message: { content: string }; finish_reason: string; logprobs?: unknown }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

test("answers with the text of the upstream, and charges its usage", async () => {
  await using front = await startFront();
  const response = await front.chat();
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "Hello world");
  assert.equal(answer.choices[0]?.finish_reason, "stop");
  assert.deepEqual([answer.usage.prompt_tokens, answer.usage.completion_tokens], [5, 2]);
  assert.deepEqual(charged(await front.receipt(response)), {
    promptTokens: 5,
    cachedTokens: 0,
    completionTokens: 2,
    reasoningTokens: 0,
    ending: "stop",
    estimated: false,
  });
});

test("always asks the upstream for a stream with usage, with its model name and key", async () => {
  await using front = await startFront();
  await front.chat({ max_tokens: 9 });
  const { body, headers, path } = front.upstream.last();
  assert.equal(path, "/v1/chat/completions");
  assert.equal(headers.authorization, `Bearer ${secretKey}`);
  assert.deepEqual(body, {
    model: "vendor/big",
    messages: [{ role: "user", content: "Hello there" }],
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 9,
  });
});

test("forwards sampling, user and thinking parameters, but not those for this service", async () => {
  await using front = await startFront({
    dialect: "vllm",
    reasoning: { field: "reasoning_content", tags: null, opened: false, hidden: false },
  });
  const forwarded = {
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    seed: 7,
    presence_penalty: 0.25,
    frequency_penalty: -0.25,
    logprobs: true,
    top_logprobs: 3,
    user: "ada@example.com",
    reasoning_effort: "high",
  };
  const forHere = {
    stop: ["END"],
    n: 1,
    stream_options: { include_obfuscation: true },
    store: true,
    metadata: { a: "b" },
  };
  const response = await front.chat({ ...forwarded, ...forHere, max_completion_tokens: 9 });
  assert.equal(response.status, 200, await response.text());
  const { cache_salt: salt, ...body } = front.upstream.last().body;
  assert.equal(typeof salt, "string");
  assert.deepEqual(body, {
    ...forwarded,
    model: "vendor/big",
    messages: [{ role: "user", content: "Hello there" }],
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    max_tokens: 9,
  });
});

test("forwards no null user, and replaces a lone surrogate in the user", async () => {
  await using front = await startFront();
  assert.equal((await front.chat({ user: null })).status, 200);
  assert.ok(!("user" in front.upstream.last().body));
  assert.equal((await front.chat({ user: "a\ud800" })).status, 200);
  assert.equal(front.upstream.last().body.user, "a\ufffd");
});

test("streams one event per event of the upstream", async () => {
  await using front = await startFront();
  front.upstream.play = (call) =>
    call.stream(first, text("a"), text("b"), text("c"), finish("length"), usage(5, 3), done);
  const events = await front.events({ stream_options: { include_usage: true } });
  assert.deepEqual(events.texts, ["a", "b", "c"]);
  assert.equal(events.chunks.at(-2)?.choices[0]?.finish_reason, "length");
  assert.equal(events.chunks.at(-1)?.usage?.completion_tokens, 3);
  assert.ok(events.done);
  assert.ok(!JSON.stringify(events).includes("vendor/big"), "the upstream's name for the model stays here");
});

test("accepts bytes that are split anywhere, even inside a character", async () => {
  await using front = await startFront();
  const whole = Buffer.from(
    [first, text("gr\u00fc\u00df "), text("\u{1f58b}\ufe0f"), finish(), usage(5, 2), done].join(""),
  );
  front.upstream.play = async (call) => {
    for (let at = 0; at < whole.length; at += 1) await call.send(whole.subarray(at, at + 1));
    call.response.end();
  };
  const events = await front.events();
  assert.deepEqual(events.texts, ["gr\u00fc\u00df ", "\u{1f58b}\ufe0f"]);
});

test("accepts CRLF, comments, other fields, data on several lines, and a missing last line break", async () => {
  await using front = await startFront();
  const split = '{"choices":[{"index":0,\ndata: "delta":{"content":"two"},"finish_reason":null}]}';
  front.upstream.play = (call) =>
    call.stream(
      ": a comment\r\n\r\n",
      first.replaceAll("\n", "\r\n"),
      `id: 7\r\nretry: 10\r\n${text("one").replaceAll("\n", "\r\n")}`,
      ": ping\n\n",
      `data: ${split}\n\n`,
      finish(),
      usage(5, 2).trimEnd(),
    );
  const events = await front.events();
  assert.deepEqual(events.texts, ["one", "two"]);
  assert.ok(events.done);
  assert.equal(charged(await front.settled()).estimated, false, "the last event counts");
});

test("joins surrogates from two events, and replaces a lone one", async () => {
  await using front = await startFront();
  const half = (escaped: string) => `data: {"choices":[{"index":0,"delta":{"content":"${escaped}"}}]}\n\n`;
  front.upstream.play = (call) =>
    call.stream(half("a\\ud83d"), half("\\ude00b"), half("\\ud83d"), half("c"), finish(), usage(5, 4), done);
  const events = await front.events();
  assert.equal(events.texts.join(""), "a\u{1f600}b\ufffdc");
});

for (const [rule, end, shown] of [
  ["leaves out U+FFFD at the end of an answer that a server cut inside a character", finish("length"), "grü"],
  ["leaves out U+FFFD at the end of an answer without a reason that has all its tokens", "", "grü"],
  ["passes on U+FFFD with which a model ends its answer", finish("stop"), "grü\ufffd"],
] as const) {
  test(rule, async () => {
    await using front = await startFront();
    front.upstream.play = (call) =>
      call.stream(first, text("gr"), text("ü"), text("\ufffd"), end, usage(5, 3), done);
    const events = await front.events({ max_tokens: 3 });
    assert.equal(events.texts.join(""), shown);
    const streamed = charged(await front.settled());
    assert.equal(streamed.completionTokens, 3, "the tokens of the character are charged");
    const response = await front.chat({ max_tokens: 3 });
    const answer = await jsonOf<Completion>(response);
    assert.equal(answer.choices[0]?.message.content, shown);
    assert.deepEqual(charged(await front.receipt(response)), streamed);
  });
}

test("leaves out U+FFFD at the end of an answer that the credits cut, and keeps it elsewhere", async () => {
  await using front = await startFront();
  front.upstream.play = (call) =>
    call.stream(first, text("\ufffd"), text("a"), text("\ufffd"), text("b"), finish(), usage(5, 4), done);
  assert.equal((await front.events()).texts.join(""), "\ufffda\ufffdb");
  assert.equal((await front.events({ max_tokens: 3 })).texts.join(""), "\ufffda");
});

test("accepts a finish reason without [DONE] as complete", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(5, 1));
  const events = await front.events();
  assert.ok(events.done);
  assert.equal(charged(await front.settled()).ending, "stop");
});

test("ignores empty finish reasons, which some servers send (sgl-project/sglang#3912, ollama/ollama#4357)", async () => {
  await using front = await startFront();
  const word = (content: string) => delta({ content }, { finish_reason: "" });
  front.upstream.play = (call) => call.stream(first, word("Hel"), word("lo"));
  const broken = await front.events();
  assert.deepEqual(broken.texts, ["Hel", "lo"]);
  assert.equal(broken.error?.code, "upstream_error", "an answer without an end is not whole");
  front.upstream.play = (call) => call.stream(first, word("Hel"), word("lo"), finish(), usage(5, 2), done);
  assert.ok((await front.events()).done);
});

for (const [name, afterwards, options, estimated] of [
  [
    "treats a stream that stays open after its finish reason as complete after a while",
    [],
    { finishMs: 20 },
    true,
  ],
  [
    "does not wait for a connection that stays open after [DONE], and closes it after a while (Menci/Floway#447)",
    [usage(5, 1), done],
    {},
    false,
  ],
] as const) {
  test(name, async () => {
    await using front = await startFront(options);
    front.upstream.play = (call) => call.send(text("Hello"), finish(), ...afterwards);
    assert.ok((await front.events()).done);
    assert.equal(charged(await front.settled()).estimated, estimated);
    await front.upstream.last().closed;
  });
}

test("accepts headers that arrive late and in pieces", async () => {
  await using front = await startFront();
  front.upstream.play = async ({ socket }) => {
    const body = [first, text("Hello"), finish(), usage(5, 1), done].join("");
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    for (const byte of head) await new Promise<void>((resolve) => socket.write(byte, () => resolve()));
    socket.end(body);
  };
  assert.deepEqual((await front.events()).texts, ["Hello"]);
});

test("reuses the connection after a complete answer", async () => {
  await using front = await startFront();
  for (let n = 0; n < 3; n += 1) assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.calls.length, 3);
  assert.equal(front.upstream.connections, 1);
});

test("counts thinking in a separate field of any name, and never sends it", async () => {
  await using front = await startFront({
    reasoning: { field: "thoughts", tags: null, opened: false, hidden: false },
  });
  for (const field of ["thoughts", "reasoning_content", "reasoning"]) {
    front.upstream.play = (call) =>
      call.stream(
        first,
        delta({ [field]: "hm" }),
        delta({ [field]: "m" }),
        text("Yes"),
        finish(),
        usage(5, 3),
        done,
      );
    const response = await front.chat({ stream: true });
    const received = await response.text();
    assert.ok(received.includes("Yes") && !received.includes("hm"), received);
    const { completionTokens, reasoningTokens } = charged(await front.receipt(response));
    assert.deepEqual({ completionTokens, reasoningTokens }, { completionTokens: 3, reasoningTokens: 2 });
  }
});

test("joins content parts, and counts thinking parts without sending them", async () => {
  await using front = await startFront();
  const part = (said: string) => ({ type: "text", text: said });
  const thought = { type: "thinking", thinking: [part("hm")], closed: true };
  front.upstream.play = (call) =>
    call.stream(
      delta({ content: [thought] }),
      delta({ content: [{ type: "thinking", thinking: "m" }] }),
      delta({ content: [part("Y"), { type: "reference", reference_ids: [1] }, part("es")] }),
      delta({ content: "." }),
      finish(),
      done,
    );
  const response = await front.chat();
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "Yes.");
  const { completionTokens, reasoningTokens } = charged(await front.receipt(response));
  assert.deepEqual({ completionTokens, reasoningTokens }, { completionTokens: 4, reasoningTokens: 2 });
});

test("counts thinking between tags without sending it, even if a tag is split", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: ["<think>", "</think>"], opened: false, hidden: false },
  });
  front.upstream.play = (call) =>
    call.stream(
      text("<thi"),
      text("nk>hm"),
      text("m</th"),
      text("ink>"),
      text("\n\nYes"),
      finish(),
      usage(5, 5),
      done,
    );
  const response = await front.chat();
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "Yes");
  assert.equal(charged(await front.receipt(response)).reasoningTokens, 4);
});

test("removes thinking that the prompt has opened", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: ["<think>", "</think>"], opened: true, hidden: false },
  });
  front.upstream.play = (call) =>
    call.stream(text("hm"), text("</think>"), text("Yes"), finish(), usage(5, 3), done);
  const answer = await jsonOf<Completion>(await front.chat());
  assert.equal(answer.choices[0]?.message.content, "Yes");
});

test("accepts the upstream's counts of thinking and cached tokens if they are plausible", async () => {
  await using front = await startFront();
  const details = (cached: unknown, reasoning: unknown) => ({
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens_details: { reasoning_tokens: reasoning },
  });
  for (const [cached, reasoning, expected] of [
    [4, 1, [4, 1]],
    [6, 3, [0, 0]],
    [-1, 0.5, [0, 0]],
    ["4", null, [0, 0]],
  ] as const) {
    front.upstream.play = (call) =>
      call.stream(text("Hello"), text("!"), finish(), usage(5, 2, details(cached, reasoning)), done);
    const { cachedTokens, reasoningTokens } = charged(await front.receipt(await front.chat()));
    assert.deepEqual([cachedTokens, reasoningTokens], expected);
  }
});

test("asks llama-server for at least one alternative with log-probabilities, and removes extra ones", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  const entry = (token: string) => ({ token, logprob: -0.5, bytes: null });
  const logprobs = { content: [{ ...entry("Hi"), top_logprobs: [entry("Hi"), entry("Ho")] }] };
  front.upstream.play = (call) =>
    call.stream(first, delta({ content: "Hi" }, { logprobs }), finish(), usage(5, 1), done);
  const answer = await jsonOf<Completion>(await front.chat({ logprobs: true }));
  assert.equal(front.upstream.last().body.top_logprobs, 1);
  assert.deepEqual(answer.choices[0]?.logprobs, {
    content: [{ token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [] }],
    refusal: null,
  });
});

test("cuts an answer that exceeds max_tokens", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(...Array.from({ length: 20 }, () => text("x ")));
  const response = await front.chat({ max_tokens: 7 });
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "x ".repeat(7));
  assert.equal(answer.choices[0]?.finish_reason, "length");
  assert.equal(charged(await front.receipt(response)).completionTokens, 7);
  await front.upstream.last().closed;
});

test("normalises a conversation until the chat template accepts it", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => {
    const inARow = /("assistant".*){2}/.test(JSON.stringify(call.body.messages));
    return inARow
      ? call.answer(400, '{"error":{"message":"roles must alternate"}}')
      : call.stream(text("ok"), finish(), usage(9, 1), done);
  };
  const response = await front.chat({
    messages: [
      { role: "developer", content: "Be brief" },
      { role: "user", content: "Hi" },
      { role: "assistant", content: "one" },
      { role: "assistant", content: "two" },
    ],
  });
  assert.equal(response.status, 200);
  assert.deepEqual(front.upstream.last().body.messages, [
    { role: "system", content: "Be brief" },
    { role: "user", content: "Hi" },
    { role: "assistant", content: "one\n\ntwo" },
  ]);
  assert.equal(front.service.settled.length, 1);
});

test("passes the parameters of a request on as they are", async () => {
  await using front = await startFront();
  const parameters = {
    top_k: 40,
    presence_penalty: 5,
    frequency_penalty: -7.5,
    seed: 2 ** 40,
    logprobs: true,
    top_logprobs: 0,
    user: "a name of more than the sixty-four characters that OpenAI's API takes",
  };
  assert.equal((await front.chat(parameters)).status, 200);
  const { body } = front.upstream.last();
  assert.deepEqual(Object.fromEntries(Object.keys(parameters).map((name) => [name, body[name]])), parameters);
});

test("sends reasoning_effort also if reasoning has a number of tokens only", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: null, opened: false, hidden: false },
  });
  await front.chat({ reasoning: { max_tokens: 5 }, reasoning_effort: "high" });
  assert.equal(front.upstream.last().body.reasoning_effort, "high");
  await front.chat({ reasoning: { max_tokens: 5 } });
  assert.equal(front.upstream.last().body.reasoning_effort, "low");
});

describe("an answer that the upstream's content filter ends", () => {
  const reasonOf = ({ chunks }: Events) => chunks.at(-1)?.choices[0]?.finish_reason;
  const filtered = [first, text("one"), finish("content_filter"), usage(5, 1), done];

  test("ends with its reason, streamed or not, and is charged like a whole one", async () => {
    await using front = await startFront();
    front.upstream.play = (call) => call.stream(...filtered);
    const events = await front.events();
    assert.equal(reasonOf(events), "content_filter");
    assert.ok(events.done);
    const response = await front.chat();
    const answer = await jsonOf<Completion>(response.clone());
    assert.equal(answer.choices[0]?.finish_reason, "content_filter");
    const row = charged(await front.receipt(response));
    assert.deepEqual([row.ending, row.completionTokens, row.estimated], ["stop", 1, false]);
  });

  test("ends without text if the filter withheld all of it", async () => {
    await using front = await startFront();
    front.upstream.play = (call) => call.stream(first, finish("content_filter"), usage(5, 0), done);
    const events = await front.events();
    assert.deepEqual([events.texts, reasonOf(events), events.done], [[], "content_filter", true]);
  });
});

test("refuses a prompt that is too long for the upstream, in our words", async () => {
  await using front = await startFront();
  const said = "This model's maximum context length is 4096 tokens at secret-host";
  front.upstream.play = (call) => call.answer(400, JSON.stringify({ error: { message: said } }));
  const response = await front.chat();
  assert.equal(response.status, 400);
  const error = await errorOf(response);
  assert.deepEqual([error.code, error.param], ["context_length_exceeded", "messages"]);
  assert.ok(!error.message.includes("secret-host"));
  const row = await front.receipt(response);
  assert.deepEqual([row?.ending, row?.costMicro], ["refused", 0]);
});

test("ignores empty and unknown events", async () => {
  await using front = await startFront();
  front.upstream.play = (call) =>
    call.stream(
      first,
      event({ choices: [] }),
      event({ choices: [{ index: 0, delta: { content: "" } }] }),
      event({ prompt_filter_results: [], choices: [{ index: 0 }] }),
      text("Hello"),
      finish(),
      usage(5, 1),
      done,
    );
  assert.deepEqual((await front.events()).texts, ["Hello"]);
});
