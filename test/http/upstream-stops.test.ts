/** Stop sequences in answers of an upstream: they are matched here, whatever the upstream does. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DialectName } from "../../src/engines/upstream/dialects.ts";
import { jsonOf } from "../fixtures/service.ts";
import {
  type Call,
  charged,
  delta,
  done,
  event,
  type Front,
  finish,
  first,
  startFront,
  text,
  usage,
} from "../fixtures/upstream.ts";

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

/** The reasons for which a usage was estimated here. */
async function estimates(front: Front): Promise<string[]> {
  const metrics = await front.service.metrics.text();
  return [...metrics.matchAll(/^inkwell_estimated_usages_total\{.*reason="(\w+)"\} [1-9]/gm)].map(
    ([, reason]) => reason ?? "",
  );
}

test("a stop sequence ends the answer here, and the upstream's connection is closed at once", async () => {
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

test("an answer that ends here is counted as cut, which raises no alert, and nothing is logged of it", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(text("one "), text("END"));
  await (await front.chat({ stop: ["END"] })).text();
  assert.deepEqual(await estimates(front), ["cut"]);
  assert.doesNotMatch(front.log(), /usage/);
});

for (const [dialect, token] of counted) {
  test(`${dialect}: an answer that ends here costs exactly what was made`, async () => {
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

/** Withholds text that begins a stop sequence that it was sent, and drops it when the answer ends by length. */
function withholding(call: Call): Promise<void> {
  const tail = call.body.stop === undefined ? [text("EN")] : [];
  return call.stream(first, text("one "), ...tail, finish("length"), usage(5, 2), done);
}

describe("text that ends like the beginning of a stop sequence is delivered when the answer ends by length", () => {
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

test("OpenAI and Ollama are sent the stop sequences, end the answer themselves and report its usage", async () => {
  for (const dialect of ["openai", "ollama"] as const) {
    await using front = await startFront({ dialect });
    front.upstream.play = (call) => call.stream(first, text("one "), finish(), usage(5, 4), done);
    const response = await front.chat({ stop: ["END", "\n\n"] });
    assert.deepEqual(front.upstream.last().body.stop, ["END", "\n\n"]);
    const { completionTokens, estimated } = charged(await front.receipt(response));
    assert.deepEqual([completionTokens, estimated], [4, false]);
  }
});

test("a setting of the model decides whether stop sequences are sent, and they are matched here either way", async () => {
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

test("a stop sequence in the thinking does not end the answer", async () => {
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
