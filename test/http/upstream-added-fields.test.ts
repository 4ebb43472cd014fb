/** Servers that refuse fields which Inkwell adds: no caller is at fault. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Call, type Play, startFront, startUpstream, testAnswers } from "../fixtures/upstream.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const sayHello: Play = (call) => call.stream(first, text("Hello"), finish(), usage(5, 1), done);

function refuse(call: Call, message: string, param: string | null = null, status = 400): void {
  const error = { message, type: "invalid_request_error", param, code: null };
  call.answer(status, JSON.stringify({ error }));
}

/** Refuses a limit above `most`, as OpenAI does. */
function limitedTo(most: number): Play {
  return (call): unknown => {
    const { max_tokens: asked } = call.body;
    if (typeof asked !== "number" || asked <= most) return sayHello(call);
    const supports = `This model supports at most ${most} completion tokens, whereas you provided ${asked}.`;
    return refuse(call, `max_tokens is too large: ${asked}. ${supports}`, "max_tokens");
  };
}

/** Refuses requests that have one of these fields. */
function without(...names: string[]): Play {
  return (call): unknown => {
    const name = names.find((each) => each in call.body);
    if (name === undefined) return sayHello(call);
    return refuse(call, `Unsupported parameter: '${name}' is not supported with this model.`, name);
  };
}

test("asks again with the number that a refusal names, and from then on at once", async () => {
  await using front = await startFront();
  front.upstream.play = limitedTo(1000);
  for (let n = 0; n < 2; n += 1) await front.assertAnswer({}, { status: 200, completionTokens: 1 });
  const sent = front.upstream.calls.map(({ body }) => body.max_tokens);
  assert.equal(sent.length, 3);
  assert.deepEqual(sent.slice(1), [1000, 1000]);
  const [server] = front.engine.servers();
  const message = "it refused max_tokens, which no caller sent; for an hour, it is sent with 1000 at most";
  assert.deepEqual(
    server?.notices.map(({ kind, message: said }) => [kind, said]),
    [["corrected_field", message]],
  );
  assert.ok(front.log().includes(message));
  const metrics = await front.service.metrics.text();
  assert.match(metrics, /inkwell_upstream_notices_total\{model="big",kind="corrected_field"\} 1/);
});

test("forgets it after an hour, and at a reload", async (t) => {
  await using front = await startFront();
  front.upstream.play = limitedTo(1000);
  const calls = async () => {
    const before = front.upstream.calls.length;
    assert.equal((await front.chat()).status, 200);
    return front.upstream.calls.length - before;
  };
  assert.deepEqual([await calls(), await calls()], [2, 1]);
  front.engine.reloaded();
  assert.equal(front.engine.servers()[0]?.notices.length, 0);
  assert.deepEqual([await calls(), await calls()], [2, 1]);
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 3_600_000);
  assert.deepEqual([await calls(), await calls()], [2, 1]);
});

test("leaves the value of a caller as it is, and its refusal is the caller's", async () => {
  await using front = await startFront();
  front.upstream.play = limitedTo(1000);
  for (const field of ["max_tokens", "max_completion_tokens"])
    await front.assertAnswer({ [field]: 2000 }, { status: 400, code: "invalid_value", param: "max_tokens" });
  assert.equal((await front.chat()).status, 200);
  assert.equal((await front.chat({ max_tokens: 2000 })).status, 400, "also after it was learned");
  const sent = front.upstream.calls.map(({ body }) => body.max_tokens);
  assert.deepEqual([sent[0], sent[1], sent.at(-1)], [2000, 2000, 2000]);
});

test("asks again with what the window leaves, and does not keep that number", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => {
    const { max_tokens: asked } = call.body;
    assert.ok(typeof asked === "number");
    if (3000 + asked <= 4096) return sayHello(call);
    const requested = `you requested ${3000 + asked} tokens (3000 in the messages, ${asked} in the completion)`;
    return refuse(
      call,
      `This model's maximum context length is 4096 tokens. However, ${requested}.`,
      "messages",
    );
  };
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.calls[1]?.body.max_tokens, 1096);
  assert.equal(front.engine.servers()[0]?.notices.length, 0);
  await front.assertAnswer({ max_tokens: 2000 }, { code: "context_length_exceeded" });
});

describe("leaves out what a server does not know", () => {
  const refusals: [name: string, names: string[], options?: object][] = [
    ["the limit of tokens", ["max_tokens"]],
    ["stream_options", ["stream_options"]],
    ["both", ["max_tokens", "stream_options"]],
    ["the salt of vLLM, with both", ["cache_salt", "max_tokens", "stream_options"], { dialect: "vllm" }],
  ];
  for (const [name, names, options] of refusals) {
    test(name, async () => {
      await using front = await startFront(options);
      front.upstream.playOther = (call) => call.answer(200, '{"count":5}');
      front.upstream.play = without(...names);
      assert.equal((await front.chat()).status, 200);
      assert.equal(front.upstream.calls.length, names.length + 1);
      assert.equal((await front.chat()).status, 200);
      assert.equal(front.upstream.calls.length, names.length + 2, "it is remembered");
    });
  }
});

test("lowers the limit again if a second refusal names a lower number (SGLang)", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => {
    const { max_tokens: asked } = call.body;
    assert.ok(typeof asked === "number");
    if (asked > 2048)
      return refuse(
        call,
        `max_tokens is too large: ${asked}.This model supports at most 2048 completion tokens.`,
      );
    if (33 + asked <= 2048) return sayHello(call);
    const requested = `You requested a total of ${33 + asked} tokens: 33 tokens from the input messages and ${asked} tokens for the completion`;
    return refuse(
      call,
      `Requested token count exceeds the model's maximum context length of 2048 tokens. ${requested}.`,
    );
  };
  assert.equal((await front.chat()).status, 200);
  assert.deepEqual(
    front.upstream.calls.slice(1).map(({ body }) => body.max_tokens),
    [2048, 2015],
  );
});

test("asks four times at most, once for each field", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => {
    const { max_tokens: asked } = call.body;
    refuse(
      call,
      `max_tokens is too large: ${asked}. At most ${Number(asked) - 1} completion tokens.`,
      "max_tokens",
    );
  };
  await front.assertAnswer({}, { status: 502 });
  assert.equal(front.upstream.calls.length, 4);
  await using stubborn = await startFront();
  stubborn.upstream.play = (call) =>
    refuse(call, "max_tokens is too large. At most 7 output tokens.", "max_tokens");
  await stubborn.assertAnswer({}, { status: 502, code: "upstream_error" });
  assert.equal(stubborn.upstream.calls.length, 2);
  assert.match(stubborn.log(), /it refused a field that Inkwell adds: it answered 400: .*At most 7/);
  assert.equal(stubborn.engine.servers()[0]?.notices.length, 0, "nothing is kept that did not help");
});

/** Refuses a limit, and sends this without one. */
const unlimited =
  (...events: string[]): Play =>
  (call) =>
    "max_tokens" in call.body ? refuse(call, "Unsupported parameter: 'max_tokens'") : call.stream(...events);
const many = Array.from({ length: 100 }, () => text("word ".repeat(40)));
const counted = many.map((_, n) =>
  event({
    choices: [{ index: 0, delta: { content: "x" } }],
    usage: { prompt_tokens: 100, completion_tokens: 7 * (n + 1), total_tokens: 100 + 7 * (n + 1) },
  }),
);
const short = { stream: false, messages: [{ role: "user", content: "x" }] };
testAnswers([
  {
    what: "an answer whose server knows no limit ends here by its characters, eight for a token",
    sends: unlimited(...many),
    body: short,
    options: { contextWindow: 600 },
    gives: { ending: "length", completionTokens: 4600 / 8, content: "word ".repeat(920) },
  },
  {
    what: "by the counts of its events",
    sends: unlimited(...counted, finish(), done),
    body: short,
    options: { contextWindow: 200, dialect: "vllm" },
    counts: 100,
    gives: { ending: "length", completionTokens: 98 },
  },
  {
    what: "by its report at the end",
    sends: unlimited(text("Hello"), finish(), usage(5, 600), done),
    body: short,
    options: { contextWindow: 600 },
    gives: { estimated: false, completionTokens: 599 },
  },
]);

test("a model that surprised once goes on to answer without a limit", async () => {
  await using front = await startFront();
  front.upstream.play = unlimited(text("Hello"), finish(), usage(5, 600), done);
  for (let n = 0; n < 3; n += 1) assert.equal((await front.chat()).status, 200);
});

test("applies nothing that another server has refused", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other] });
  front.upstream.play = (call) =>
    call.body.max_tokens === 64
      ? call.answer(500, "{}")
      : refuse(call, "max_tokens is too large. At most 64 completion tokens.", "max_tokens");
  for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 200);
  assert.ok(other.calls.every(({ body }) => Number(body.max_tokens) > 64));
  assert.deepEqual(
    front.engine.servers().map(({ notices }) => notices.length),
    [0, 0],
  );
});

test("adjusts a field for each server that refuses it", async () => {
  const other = await startUpstream((call) =>
    "max_tokens" in call.body
      ? refuse(call, "Unsupported parameter: 'max_tokens'", "max_tokens")
      : call.answer(500, "{}"),
  );
  await using front = await startFront({ others: [other] });
  front.upstream.play = without("max_tokens");
  assert.equal((await front.chat()).status, 200);
  assert.deepEqual([other.calls.length, front.upstream.calls.length], [2, 2]);
});

test("a limit that Inkwell has lowered for a caller is Inkwell's", async () => {
  await using front = await startFront();
  front.upstream.play = limitedTo(1000);
  assert.equal((await front.chat({ max_tokens: 100_000 })).status, 200);
  assert.equal(front.upstream.last().body.max_tokens, 1000);
});

test("never leaves out the limit of a model that thinks silently", async () => {
  const reasoning = { field: null, tags: null, opened: false, hidden: true };
  await using front = await startFront({ reasoning });
  front.upstream.play = without("max_tokens");
  assert.equal((await front.chat()).status, 502);
  assert.equal(front.upstream.calls.length, 1);
  front.upstream.play = limitedTo(1000);
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.last().body.max_tokens, 1000);
});

test("does so at a 422 too, at each server, and not after the first byte of an answer", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other] });
  for (const { calls } of [front.upstream, other]) assert.equal(calls.length, 0);
  const refused: Play = (call) =>
    "stream_options" in call.body ? refuse(call, "stream_options: extra field", null, 422) : sayHello(call);
  front.upstream.play = refused;
  other.play = sayHello;
  for (let n = 0; n < 4; n += 1) assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.calls.length, 3);
  assert.ok(
    other.calls.every(({ body }) => "stream_options" in body),
    "the other one gets it still",
  );
});
