/** Streamed answers, event by event, and the same answers in one piece. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Chunk, type Events, readEvents } from "../fixtures/events.ts";
import type { ScriptToken } from "../fixtures/scripted-engine.ts";
import { babble, errorOf, jsonOf, say, startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService();
});
after(() => service[Symbol.asyncDispose]());

interface Completion {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: {
    index: number;
    message: { role: string; content: string };
    finish_reason: string;
    logprobs?: unknown;
  }[];
  usage: Usage;
}

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  completion_tokens_details: { reasoning_tokens: number };
}

async function stream(body: object = {}): Promise<Events> {
  const response = await service.chat({ stream: true, ...body });
  assert.equal(response.status, 200);
  return readEvents(await response.text());
}

async function whole(body: object = {}): Promise<Completion> {
  const response = await service.chat(body);
  assert.equal(response.status, 200);
  return jsonOf(response);
}

/** The keys of an object in the order of the JSON. */
function keysOf(object: object | undefined): string[] {
  return Object.keys(object ?? {});
}

describe("an answer in one piece", () => {
  test("has exactly the fields of the contract and `created`", async () => {
    service.engine.script = () => say("Hello", " world");
    const answer = await whole();
    assert.deepEqual(keysOf(answer), ["id", "object", "created", "model", "choices", "usage"]);
    assert.match(answer.id, /^chatcmpl-[0-9a-f-]{36}$/);
    assert.equal(answer.object, "chat.completion");
    assert.ok(Math.abs(answer.created - Date.now() / 1000) < 60);
    assert.equal(answer.model, "small");
    assert.deepEqual(answer.choices, [
      { index: 0, message: { role: "assistant", content: "Hello world" }, finish_reason: "stop" },
    ]);
    assert.deepEqual(answer.usage, {
      prompt_tokens: 3,
      completion_tokens: 2,
      total_tokens: 5,
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
  });

  test("reports thinking and cached tokens, but not the thinking", async () => {
    service.engine.script = () => ({ ...say("Yes"), reasoningTokens: 4, cachedTokens: 2 });
    const answer = await whole();
    assert.equal(answer.choices[0]?.message.content, "Yes");
    assert.equal(answer.usage.completion_tokens, 5);
    assert.equal(answer.usage.completion_tokens_details.reasoning_tokens, 4);
    assert.equal(answer.usage.prompt_tokens_details.cached_tokens, 2);
  });

  test("may be empty", async () => {
    service.engine.script = () => say();
    const answer = await whole();
    assert.deepEqual(answer.choices[0]?.message, { role: "assistant", content: "" });
    assert.equal(answer.usage.completion_tokens, 0);
  });

  test("has log-probabilities if the request asks for them", async () => {
    service.engine.script = () => say("a", "b");
    const answer = await whole({ logprobs: true, top_logprobs: 1 });
    const certain = (token: string, code: number) => {
      const one = { token, logprob: 0, bytes: [code] };
      return { ...one, top_logprobs: [one] };
    };
    assert.deepEqual(answer.choices[0]?.logprobs, {
      content: [certain("a", 97), certain("b", 98)],
      refusal: null,
    });
  });
});

describe("a streamed answer", () => {
  test("has the headers of an event stream", async () => {
    service.engine.script = () => say("x");
    const response = await service.chat({ stream: true });
    assert.equal(response.headers.get("content-type"), "text/event-stream");
    assert.equal(response.headers.get("cache-control"), "no-cache");
    assert.equal(response.headers.get("x-accel-buffering"), "no");
    assert.match(response.headers.get("openai-processing-ms") ?? "", /^\d+$/);
    const id = response.headers.get("x-request-id");
    assert.equal(readEvents(await response.text()).chunks[0]?.id, `chatcmpl-${id}`);
  });

  test("has the role, one event per token, the finish reason and [DONE]", async () => {
    service.engine.script = () => say("Hello", " world", "!");
    const { chunks, done, comments, error } = await stream();
    assert.deepEqual(
      chunks.map(({ choices }) => choices),
      [
        [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }],
        [{ index: 0, delta: { content: "Hello" }, finish_reason: null }],
        [{ index: 0, delta: { content: " world" }, finish_reason: null }],
        [{ index: 0, delta: { content: "!" }, finish_reason: null }],
        [{ index: 0, delta: {}, finish_reason: "stop" }],
      ],
    );
    const [first] = chunks;
    for (const chunk of chunks) {
      assert.deepEqual(keysOf(chunk), ["id", "object", "created", "model", "choices"]);
      assert.equal(chunk.object, "chat.completion.chunk");
      assert.deepEqual([chunk.id, chunk.created, chunk.model], [first?.id, first?.created, "small"]);
    }
    assert.deepEqual({ done, comments, error }, { done: true, comments: [], error: null });
  });

  test("costs the same as the answer in one piece (BerriAI/litellm#37923)", async () => {
    await using service = await startService({ script: say("Hello", " there", "!") });
    const ids: string[] = [];
    for (const stream of [true, false]) {
      const response = await service.chat({ stream });
      await response.text();
      ids.push(response.headers.get("x-request-id") ?? "");
    }
    const [streamed, whole] = await Promise.all(ids.map((id) => service.receipt(id)));
    assert.ok(streamed !== undefined && whole !== undefined);
    assert.ok(streamed.costMicro > 0);
    assert.deepEqual(
      [streamed.costMicro, streamed.completionTokens, streamed.baseMicro],
      [whole.costMicro, 3, whole.baseMicro],
    );
  });

  test("has the role, the finish reason and [DONE] if it is empty", async () => {
    service.engine.script = () => say();
    const { chunks, done } = await stream();
    assert.equal(chunks.length, 2);
    assert.ok(done);
  });

  test("ends with `length` at the limit, with one text event per token", async () => {
    service.engine.script = () => babble("word ");
    const { texts, chunks } = await stream({ max_tokens: 7, stream_options: { include_usage: true } });
    assert.equal(texts.length, 7);
    assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, "length");
    assert.equal(chunks.at(-1)?.usage?.completion_tokens, 7);
  });

  test("with include_usage has `usage: null` in each chunk and the usage in a last chunk without choices", async () => {
    service.engine.script = () => say("a", "b");
    const { chunks } = await stream({ stream_options: { include_usage: true } });
    const last = chunks.pop();
    assert.ok(chunks.length === 4 && chunks.every((chunk) => chunk.usage === null));
    assert.deepEqual(last?.choices, []);
    assert.deepEqual(last?.usage, {
      prompt_tokens: 3,
      completion_tokens: 2,
      total_tokens: 5,
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
  });

  for (const options of [{ include_usage: false }, { include_usage: null }, {}, null]) {
    test(`with stream_options ${JSON.stringify(options)} has no usage`, async () => {
      service.engine.script = () => say("a");
      const { chunks } = await stream({ stream_options: options });
      assert.ok(chunks.every((chunk) => !("usage" in chunk) && !("obfuscation" in chunk)));
      assert.ok(chunks.every((chunk) => chunk.choices.length === 1));
    });
  }

  test("with include_obfuscation pads every chunk to a multiple of 32 characters", async () => {
    const tokens = ["a", "seven c", "x".repeat(31), "x".repeat(32), "x".repeat(33), "\u{1f58b}"];
    service.engine.script = () => say(...tokens);
    const options = { stream_options: { include_obfuscation: true, include_usage: true } };
    const { chunks } = await stream(options);
    assert.equal(chunks.length, tokens.length + 3);
    for (const { choices, obfuscation } of chunks) {
      const text = choices[0]?.delta.content ?? "";
      assert.ok(obfuscation !== undefined && obfuscation.length > 0 && obfuscation.length <= 32);
      assert.equal((text.length + obfuscation.length) % 32, 0);
    }
    const again = await stream(options);
    assert.notDeepEqual(again.chunks.map(paddingOf), chunks.map(paddingOf), "the padding is random");
  });

  test("with logprobs has them in each text chunk", async () => {
    service.engine.script = () => say("a", "b");
    const { chunks } = await stream({ logprobs: true });
    assert.equal(chunks[0]?.choices[0]?.logprobs, undefined);
    assert.deepEqual(chunks[1]?.choices[0]?.logprobs, {
      content: [{ token: "a", logprob: 0, bytes: [97], top_logprobs: [] }],
      refusal: null,
    });
  });

  test("escapes all Unicode line separators", async () => {
    const token = "a\nb\r\nc\u2028d\u2029e\u0085f\u000bg\u001eh data: [DONE]\n\n";
    service.engine.script = () => say(token);
    const response = await service.chat({ stream: true });
    const body = await response.text();
    for (const mark of "\r\u000b\u000c\u001c\u001d\u001e\u0085\u2028\u2029") {
      assert.ok(!body.includes(mark), `U+${mark.charCodeAt(0).toString(16)} ends a line for some clients`);
    }
    assert.deepEqual(readEvents(body).texts, [token]);
  });
});

function paddingOf(chunk: Chunk): string | undefined {
  return chunk.obfuscation;
}

const bytes = (...values: number[]) => Uint8Array.from(values);

describe("characters and stop sequences that span tokens", () => {
  const rows: [
    rule: string,
    tokens: ScriptToken[],
    body: object,
    texts: string[],
    completionTokens: number,
  ][] = [
    [
      "a token that ends inside a character waits for the one that completes it",
      ["a", bytes(0xe2, 0x82), bytes(0xac), "b"],
      {},
      ["a", "\u20ac", "b"],
      4,
    ],
    [
      "a character in four tokens is one event",
      [bytes(0xf0), bytes(0x9f), bytes(0x96), bytes(0x8b)],
      {},
      ["\u{1f58b}"],
      4,
    ],
    [
      "a character that is never completed is left out, and its tokens count",
      ["a", bytes(0xe2), bytes(0x82)],
      {},
      ["a"],
      3,
    ],
    [
      "a character that the token limit cuts is left out, and its tokens count",
      ["a", bytes(0xf0), bytes(0x9f), bytes(0x96), bytes(0x8b)],
      { max_tokens: 3 },
      ["a"],
      3,
    ],
    [
      "a stop sequence is never sent, nor what follows it",
      ["one", " END", " two"],
      { stop: " END" },
      ["one"],
      2,
    ],
    ["a stop sequence inside a token leaves what is before it", ["one ENDING"], { stop: "END" }, ["one "], 1],
    [
      "a stop sequence that spans tokens is never sent",
      ["one", " E", "N", "D", " two"],
      { stop: ["END"] },
      ["one", " "],
      4,
    ],
    [
      "text that might have begun a stop sequence is sent when it did not",
      ["one", " E", "N", "X"],
      { stop: "END" },
      ["one", " E", "N", "X"],
      4,
    ],
    ["text that is held back at the end is sent", ["one", "E", "N"], { stop: "END" }, ["one", "E", "N"], 3],
    [
      "of four stop sequences the first one in the text counts",
      ["a b c d"],
      { stop: ["d", "c", "b", "x"] },
      ["a "],
      1,
    ],
    ["a token without text is counted and gives no event", ["a", "", "b"], {}, ["a", "b"], 3],
    [
      "held back text is sent at the token limit",
      ["one", "E", "N", "D"],
      { stop: "END", max_tokens: 3 },
      ["one", "E", "N"],
      3,
    ],
  ];
  for (const [rule, tokens, body, texts, completionTokens] of rows) {
    test(rule, async () => {
      service.engine.script = () => say(...tokens);
      const events = await stream({ ...body, stream_options: { include_usage: true } });
      assert.deepEqual(events.texts, texts);
      assert.equal(events.chunks.at(-1)?.usage?.completion_tokens, completionTokens);
      const answer = await whole(body);
      assert.equal(answer.choices[0]?.message.content, texts.join(""));
      assert.equal(answer.usage.completion_tokens, completionTokens);
      assert.equal(answer.choices[0]?.finish_reason, events.chunks.at(-2)?.choices[0]?.finish_reason);
    });
  }
});

describe("an engine that fails after the first token", () => {
  test("ends a stream with an error event and without [DONE]", async () => {
    service.engine.script = () => ({ ...say("a", "b", "c"), failure: { afterTokens: 2, kind: "failed" } });
    const { texts, error, done } = await stream();
    assert.deepEqual(texts, ["a", "b"]);
    assert.equal(done, false);
    assert.deepEqual(keysOf(error ?? undefined), ["message", "type", "param", "code"]);
    assert.equal(error?.code, "upstream_error");
    assert.equal(error?.type, "server_error");
    assert.doesNotMatch(error?.message ?? "", /script/);
    assert.equal(service.finished.at(-1)?.code, "upstream_error");
    assert.equal(service.settled.at(-1)?.usage.completionTokens, 2);
  });

  test("answers in one piece with an error status", async () => {
    service.engine.script = () => ({ ...say("a", "b", "c"), failure: { afterTokens: 2, kind: "timeout" } });
    const response = await service.chat();
    assert.equal(response.status, 504);
    assert.equal((await errorOf(response)).code, "upstream_timeout");
  });
});

test("answers a defect of the engine with 500, and logs the details only", async () => {
  service.engine.script = () => ({
    tokens: {
      *[Symbol.iterator]() {
        yield "a";
        throw new Error("secret at /etc/inkwell");
      },
    },
  });
  service.log.length = 0;
  const response = await service.chat();
  assert.equal(response.status, 500);
  const error = await errorOf(response);
  assert.equal(error.code, "internal_error");
  assert.doesNotMatch(error.message, /secret|etc/);
  assert.equal(service.log[0]?.requestId, response.headers.get("x-request-id"));
  assert.match(JSON.stringify(service.log[0]), /secret at/);
  const { error: inStream, done } = await stream();
  assert.equal(inStream?.code, "internal_error");
  assert.equal(done, false);
});
