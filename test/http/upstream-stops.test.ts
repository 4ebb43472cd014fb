/**
 * Stop sequences in answers of an upstream. They are matched here, even if the upstream matches
 * them too.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DialectName } from "../../src/engines/upstream/dialects.ts";
import { jsonOf } from "../fixtures/service.ts";
import { type Call, charged, type Front, startFront } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

interface Completion {
  choices: { message: { content: string }; finish_reason: string }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

/** A token with the count so far, as each of these servers reports it. */
const counted: readonly (readonly [DialectName, (content: string, made: number) => string])[] = [
  ["vllm", usageWithEach],
  ["sglang", usageWithEach],
  ["llama-server", timingsWithEach],
];

function timingsWithEach(content: string, made: number): string {
  const timings = { cache_n: 4, prompt_n: 6, predicted_n: made };
  return event({ choices: [{ index: 0, delta: { content } }], timings });
}

function usageWithEach(content: string, made: number): string {
  return event({
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
    usage: { prompt_tokens: 10, completion_tokens: made, total_tokens: 10 + made },
  });
}

/** Reasons of estimated usages. */
async function estimates(front: Front): Promise<string[]> {
  const metrics = await front.service.metrics.text();
  return [...metrics.matchAll(/^inkwell_estimated_usages_total\{.*reason="(\w+)"\} [1-9]/gm)].map(
    ([, reason]) => reason ?? "",
  );
}

test("ends the answer at a stop sequence, and closes the upstream connection at once", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(text("one "), text("EN"), text("D two"), text(" three"));
  const response = await front.chat({ stop: ["END"] });
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "one ");
  assert.equal(answer.choices[0]?.finish_reason, "stop");
  await front.upstream.last().closed;
  const { completionTokens, estimated, ending } = charged(await front.receipt(response));
  assert.deepEqual(
    { completionTokens, estimated, ending },
    { completionTokens: 3, estimated: true, ending: "stop" },
  );
});

test("counts such an answer as cut, without an alert or a log line", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(text("one "), text("END"));
  await (await front.chat({ stop: ["END"] })).text();
  assert.deepEqual(await estimates(front), ["cut"]);
  assert.doesNotMatch(front.log(), /usage/);
});

for (const [dialect, token] of counted) {
  test(`${dialect}: charges exactly the tokens up to the stop sequence`, async () => {
    await using front = await startFront({ dialect });
    front.upstream.play = (call) =>
      call.send(token("one ", 1), token("E", 2), token("ND", 5), token(" two", 6));
    const response = await front.chat({ stop: ["END"] });
    const answer = await jsonOf<Completion>(response);
    assert.equal(answer.choices[0]?.message.content, "one ");
    const { promptTokens, completionTokens, estimated } = charged(await front.receipt(response));
    assert.deepEqual([promptTokens, completionTokens, estimated], [10, 5, false]);
    assert.deepEqual(await estimates(front), []);
  });
}

/**
 * An upstream that withholds the start of a stop sequence and drops it if the answer ends with
 * `length`.
 */
function withholding(call: Call): Promise<void> {
  const tail = call.body.stop === undefined ? [text("EN")] : [];
  return call.stream(first, text("one "), ...tail, finish("length"), usage(5, 2), done);
}

describe("delivers text that looks like the start of a stop sequence if the answer ends with `length`", () => {
  for (const dialect of ["compatible", "llama-server", "vllm", "sglang"] as const) {
    test(dialect, async () => {
      await using front = await startFront({ dialect });
      front.upstream.play = withholding;
      const answer = await jsonOf<Completion>(await front.chat({ stop: ["END"], max_tokens: 2 }));
      assert.equal(answer.choices[0]?.message.content, "one EN");
      assert.equal(answer.choices[0]?.finish_reason, "length");
    });
  }
});

test("sends stop sequences to OpenAI and Ollama, which end the answer and report its usage", async () => {
  for (const dialect of ["openai", "ollama"] as const) {
    await using front = await startFront({ dialect });
    front.upstream.play = (call) => call.stream(first, text("one "), finish(), usage(5, 4), done);
    const response = await front.chat({ stop: ["END", "\n\n"] });
    assert.deepEqual(front.upstream.last().body.stop, ["END", "\n\n"]);
    const { completionTokens, estimated } = charged(await front.receipt(response));
    assert.deepEqual([completionTokens, estimated], [4, false]);
  }
});

test("sends stop sequences as the model's setting says, and matches them in any case", async () => {
  for (const [dialect, sendStop] of [
    ["compatible", true],
    ["openai", false],
  ] as const) {
    await using front = await startFront({ dialect, sendStop });
    front.upstream.play = (call) => call.send(text("one "), text("END"));
    const answer = await jsonOf<Completion>(await front.chat({ stop: "END" }));
    assert.deepEqual(front.upstream.last().body.stop, sendStop ? ["END"] : undefined);
    assert.equal(answer.choices[0]?.message.content, "one ");
  }
});

test("ends with stop if text that was held as a possible tag completes the sequence at the limit", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: ["<think>", "</think>"], opened: false, hidden: false },
  });
  front.upstream.play = (call) => call.send(text("a"), text("b<"), text(" c"), text(" d"));
  const answer = await jsonOf<Completion>(await front.chat({ stop: "<", max_tokens: 2 }));
  assert.deepEqual([answer.choices[0]?.message.content, answer.choices[0]?.finish_reason], ["ab", "stop"]);
});

test("ignores stop sequences in the thinking", async () => {
  await using front = await startFront({
    reasoning: { field: "reasoning_content", tags: ["<think>", "</think>"], opened: false, hidden: false },
  });
  front.upstream.play = (call) =>
    call.stream(
      delta({ reasoning_content: "END" }),
      text("<think>END</think>"),
      text("one"),
      finish(),
      usage(5, 9),
      done,
    );
  const answer = await jsonOf<Completion>(await front.chat({ stop: "END" }));
  assert.equal(answer.choices[0]?.message.content, "one");
  assert.equal(answer.usage.completion_tokens, 9);
});
