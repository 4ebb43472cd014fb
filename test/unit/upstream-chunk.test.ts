/**
 * Events of an upstream's stream are read alike, whether they are parsed or compared with the ones
 * before.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ChunkReader, type ChunkRules } from "../../src/engines/upstream/chunk-reader.ts";
import { anyCharacter } from "../fixtures/characters.ts";
import { share } from "../fixtures/thorough.ts";

const rules: ChunkRules = { reasoningFields: ["reasoning_content"], topLogprobs: null };
const head = { id: "chatcmpl-0", object: "chat.completion.chunk", created: 1, model: 'a "model"' };

function eventOf(delta: object, choice: object = {}, more: object = {}): string {
  return JSON.stringify({
    ...head,
    choices: [{ index: 0, delta, finish_reason: null, ...choice }],
    usage: null,
    ...more,
  });
}

/** Returns the chunk or the failure. */
function resultOf(reader: ChunkReader, data: string): unknown {
  try {
    return reader.read(data);
  } catch (error) {
    return String(error);
  }
}

const texts = fc.oneof(
  fc.constantFrom(
    "a",
    " word",
    '"',
    "\\",
    "\\u0041",
    "\n",
    "\u0000",
    "\u2028",
    "\u00fc",
    "\u{1f600}",
    "",
    "inkwell",
  ),
  fc.string({ unit: anyCharacter, maxLength: 6 }),
);
const letters = fc.constantFrom("a", "b");
const events = fc.oneof(
  { weight: 6, arbitrary: texts.map((content) => eventOf({ content })) },
  texts.map((content) => eventOf({ content }, { finish_reason: "stop" })),
  texts.map((content) => eventOf({ content }, {}, { usage: { prompt_tokens: 1, completion_tokens: 1 } })),
  texts.map((content) => eventOf({ content, reasoning_content: content })),
  texts.map((content) => eventOf({ role: "assistant", content })),
  fc.tuple(letters, letters).map(([note, content]) => eventOf({ note: { content: note }, content })),
  texts.map((content) => eventOf({ content }, {}, { error: { message: content } })),
  texts.map((content) => eventOf({ content }, {}, { extra: { content } })),
  // Written with spaces, and broken.
  texts.map((content) => eventOf({ content }).replaceAll('":', '": ')),
  texts.map((content) => eventOf({ content: "x" }).replace('"x"', `"${content}"`)),
  fc.tuple(texts, fc.nat(200)).map(([content, length]) => eventOf({ content }).slice(0, length)),
  texts.map((content) => `${eventOf({ content })}${content}`),
);

test("an event is read the same behind any others as by itself", () => {
  fc.assert(
    fc.property(fc.array(events, { maxLength: 40 }), (stream) => {
      const reader = new ChunkReader(rules);
      for (const data of stream)
        assert.deepEqual(resultOf(reader, data), resultOf(new ChunkReader(rules), data));
    }),
    { numRuns: share(500) },
  );
});

test("an event that only looks like those before it is parsed", () => {
  const reader = new ChunkReader(rules);
  for (let n = 0; n < 3; n += 1) assert.equal(reader.read(eventOf({ content: "word" })).text, "word");
  const smuggled = eventOf({ content: "x" }).replace(
    '"x"',
    '"x"},"finish_reason":"stop","more":{"content":"y"',
  );
  assert.deepEqual(reader.read(smuggled), {
    text: "x",
    thinkingLength: 0,
    logprobs: null,
    finishReason: null,
    usage: null,
  });
  assert.throws(() => reader.read(eventOf({ content: "x" }).replace('"x"', '"x\\"')), /not a JSON object/);
  assert.equal(reader.read(eventOf({ content: "x" }).replace('"x"', '"\\u0041"')).text, "A");
});

test("an event with more keys or values than anybody sends is not parsed", (t) => {
  const reader = new ChunkReader(rules);
  const tooMany = {
    values: [eventOf({ content: "x" }, {}, { more: Array(70_000).fill(1) }), `{"a":${"[".repeat(1_000_000)}`],
    keys: [`{${Array.from({ length: 17_000 }, (_, n) => `"${n}":1`)}}`],
  };
  const parse = t.mock.method(JSON, "parse");
  for (const [kind, events] of Object.entries(tooMany)) {
    for (const data of events) {
      assert.throws(() => reader.read(data), new RegExp(`${data.length} characters has too many ${kind}`));
    }
  }
  assert.equal(parse.mock.callCount(), 0);
});

test("an event with the log-probabilities of 200 tokens is read", () => {
  const alternative = (n: number) => ({ token: `word${n}`, logprob: -1.25, bytes: [119, 111, 114, 100] });
  const content = Array.from({ length: 200 }, (_, n) => ({
    ...alternative(n),
    top_logprobs: Array.from({ length: 20 }, (_, other) => alternative(other)),
  }));
  const reader = new ChunkReader({ ...rules, topLogprobs: 20 });
  const { logprobs } = reader.read(eventOf({ content: "word" }, { logprobs: { content } }));
  assert.deepEqual(logprobs?.length, 200);
});

test("fields of the wrong type are no text", () => {
  let nested: unknown = "x";
  for (let depth = 0; depth < 10_000; depth += 1) nested = [nested];
  const reader = new ChunkReader({ ...rules, topLogprobs: 1 });
  for (const wrong of [{ toString: 1, valueOf: 1 }, nested, null, true, {}]) {
    const entry = { token: wrong, logprob: wrong, bytes: wrong, top_logprobs: [wrong] };
    const chunk = reader.read(
      eventOf({ content: wrong }, { logprobs: { content: [entry] }, finish_reason: wrong }),
    );
    assert.deepEqual([chunk.text, chunk.finishReason, chunk.logprobs?.[0]?.token], ["", null, ""]);
    const failure = resultOf(reader, eventOf({}, {}, { error: { message: wrong, code: wrong } }));
    assert.match(String(failure), /^UpstreamFailure: it reported an error: $/);
  }
});

test("events that are alike are not parsed", (t) => {
  const parse = t.mock.method(JSON, "parse");
  const reader = new ChunkReader(rules);
  for (let n = 0; n < 1000; n += 1) {
    // Some servers report the second of each event.
    const created = { created: Math.floor(n / 100) };
    assert.equal(reader.read(eventOf({ content: ` word${n}` }, {}, created)).text, ` word${n}`);
  }
  assert.ok(parse.mock.callCount() <= 20, `${parse.mock.callCount()} of 1000 were parsed`);
});
