/**
 * Stop sequences in answers of an upstream. They are matched here, even if the upstream matches
 * them too.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Call, charged, startFront, testAnswers } from "../fixtures/upstream.ts";
import { delta, done, event, finish, text, usage } from "../fixtures/upstream-events.ts";

/** A token with the count so far, as these servers report it. */
function withUsage(content: string, made: number): string {
  const counts = { prompt_tokens: 10, completion_tokens: made, total_tokens: 10 + made };
  return event({ choices: [{ index: 0, delta: { content }, finish_reason: null }], usage: counts });
}
function withTimings(content: string, made: number): string {
  const timings = { cache_n: 4, prompt_n: 6, predicted_n: made };
  return event({ choices: [{ index: 0, delta: { content } }], timings });
}
const counted = [
  ["vllm", withUsage],
  ["sglang", withUsage],
  ["llama-server", withTimings],
] as const;
const tagged = {
  field: "reasoning_content",
  tags: ["<think>", "</think>"],
  opened: false,
  hidden: false,
} as const;

testAnswers([
  ...counted.map(([dialect, token]) => ({
    what: `${dialect}: charges exactly the tokens up to the stop sequence`,
    sends: [token("one ", 1), token("E", 2), token("ND", 5), token(" two", 6)],
    body: { stop: ["END"] },
    options: { dialect },
    gives: { content: "one ", promptTokens: 10, completionTokens: 5, estimated: false },
  })),
  ...(["compatible", "llama-server", "vllm", "sglang"] as const).map((dialect) => ({
    what: `${dialect}: delivers what looks like the start of a stop sequence if the answer ends with length`,
    // A server that knows the sequence withholds its start, and drops it.
    sends: (call: Call) =>
      call.stream(text("one "), call.body.stop === undefined ? text("EN") : "", finish("length"), done),
    body: { stop: ["END"], max_tokens: 2 },
    options: { dialect },
    gives: { content: "one EN", reason: "length" },
  })),
  {
    what: "ends with stop if text that was held as a possible tag completes the sequence at the limit",
    sends: [text("a"), text("b<"), text(" c"), text(" d")],
    body: { stop: "<", max_tokens: 2 },
    options: { reasoning: { ...tagged, field: null } },
    gives: { content: "ab", reason: "stop" },
  },
  {
    what: "ignores stop sequences in the thinking",
    sends: [
      delta({ reasoning_content: "END" }),
      text("<think>END</think>"),
      text("one"),
      finish(),
      usage(5, 9),
      done,
    ],
    body: { stop: "END" },
    options: { reasoning: tagged },
    gives: { content: "one", completionTokens: 9 },
  },
]);

test("ends the answer at a stop sequence, closes the connection at once, and counts it as cut", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.send(text("one "), text("EN"), text("D two"), text(" three"));
  await front.assertAnswer({ stop: ["END"] }, { content: "one ", reason: "stop", ending: "stop" });
  await front.upstream.last().closed;
  const { completionTokens, estimated } = charged(await front.settled());
  assert.deepEqual([completionTokens, estimated], [3, true]);
  const metrics = await front.service.metrics.text();
  const reasons = metrics.matchAll(/^inkwell_estimated_usages_total\{.*reason="(\w+)"\} [1-9]/gm);
  assert.deepEqual(
    [...reasons].map(([, reason]) => reason),
    ["cut"],
  );
  assert.doesNotMatch(front.log(), /usage/, "no alert and no log line");
});

for (const [dialect, sendStop, isSent] of [
  ["openai", undefined, true],
  ["ollama", undefined, true],
  ["openai", false, false],
  ["compatible", true, true],
  ["compatible", undefined, false],
] as const) {
  test(`${dialect} with send_stop ${sendStop} is ${isSent ? "" : "not "}sent the stop sequence`, async () => {
    await using front = await startFront({ dialect, ...(sendStop === undefined ? {} : { sendStop }) });
    front.upstream.play = (call) => call.send(text("one "), text("END"));
    await front.assertAnswer({ stop: "END" }, { content: "one " });
    assert.deepEqual(front.upstream.last().body.stop, isSent ? ["END"] : undefined);
  });
}
