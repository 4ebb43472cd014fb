/** The request of a client as the engine receives it. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { GenerateOptions, Prompt } from "../../src/chat/engine.ts";
import { errorOf, startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService({ engine: { contextWindow: 100 } });
});
after(() => service[Symbol.asyncDispose]());

async function handed(body: object | string): Promise<{ prompt: Prompt; options: GenerateOptions }> {
  const response =
    typeof body === "string"
      ? await service.request("POST", "/v1/chat/completions", { body })
      : await service.chat(body);
  assert.equal(response.status, 200, await response.text());
  const prompt = service.engine.prompts.at(-1);
  const options = service.engine.options.at(-1);
  assert.ok(prompt !== undefined && options !== undefined);
  return { prompt, options };
}

const mapped: [rule: string, body: object, sampling: object][] = [
  ["without parameters there is nothing but the stops", {}, { stop: [] }],
  ["no stop is none", { stop: [] }, { stop: [] }],
  ["one stop becomes a list", { stop: "END" }, { stop: ["END"] }],
  ["four stops stay four", { stop: ["a", "b", "c", "d"] }, { stop: ["a", "b", "c", "d"] }],
  ["temperature 0 is not absent", { temperature: 0 }, { stop: [], temperature: 0 }],
  [
    "top_p, top_k and seed are passed on",
    { top_p: 0, top_k: 40, seed: -5 },
    { stop: [], topP: 0, topK: 40, seed: -5 },
  ],
  [
    "penalties are passed on as they are",
    { presence_penalty: -7, frequency_penalty: 1e9 },
    { stop: [], presencePenalty: -7, frequencyPenalty: 1e9 },
  ],
  ["logprobs without a number are passed on without one", { logprobs: true }, { stop: [], logprobs: true }],
  [
    "logprobs and their number are passed on as they are",
    { logprobs: true, top_logprobs: 3 },
    { stop: [], logprobs: true, topLogprobs: 3 },
  ],
  [
    "logprobs false is passed on with its number",
    { logprobs: false, top_logprobs: 3 },
    { stop: [], logprobs: false, topLogprobs: 3 },
  ],
];

for (const [rule, body, sampling] of mapped) {
  test(rule, async () => assert.deepEqual((await handed(body)).options.sampling, sampling));
}

const limits: [rule: string, body: object, maxTokens: number][] = [
  // The greeting is three of the window's hundred tokens.
  ["without a limit the window leaves the rest", {}, 97],
  ["max_tokens is the limit", { max_tokens: 5 }, 5],
  ["max_completion_tokens is the limit as well", { max_completion_tokens: 6 }, 6],
  ["of two limits the smaller one holds", { max_tokens: 9, max_completion_tokens: 7 }, 7],
  ["of two limits the smaller one holds, either way", { max_tokens: 7, max_completion_tokens: 9 }, 7],
  ["null beside a limit is absent", { max_tokens: null, max_completion_tokens: 8 }, 8],
  ["a limit beyond the window is clamped", { max_tokens: 98 }, 97],
];

for (const [rule, body, maxTokens] of limits) {
  test(rule, async () => assert.equal((await handed(body)).options.maxTokens, maxTokens));
}

const efforts: [rule: string, body: object, reasoning: object][] = [
  ["no reasoning is asked for by default", {}, {}],
  ["reasoning_effort becomes the effort", { reasoning_effort: "low" }, { effort: "low" }],
  [
    "reasoning.effort wins over reasoning_effort",
    { reasoning_effort: "low", reasoning: { effort: "high" } },
    { effort: "high" },
  ],
  [
    "reasoning_effort applies if reasoning has no effort",
    { reasoning_effort: "low", reasoning: { max_tokens: 9 } },
    { effort: "low", maxTokens: 9 },
  ],
  [
    "reasoning.effort null does not win",
    { reasoning_effort: "low", reasoning: { effort: null } },
    { effort: "low" },
  ],
  ["a thinking budget of 0 is not absent", { reasoning: { max_tokens: 0 } }, { maxTokens: 0 }],
];

for (const [rule, body, reasoning] of efforts) {
  test(rule, async () => assert.deepEqual((await handed(body)).prompt.reasoning, reasoning));
}

test("passes messages on unchanged, without the null fields of SDK helpers", async () => {
  const messages = [
    { role: "developer", content: "be brief" },
    { role: "assistant", content: "", refusal: null, tool_calls: null },
    { role: "user", content: " spaces \n and \u0000 \ud83d\udd8b " },
  ];
  const { prompt } = await handed({ messages });
  assert.deepEqual(prompt.messages, [messages[0], { role: "assistant", content: "" }, messages[2]]);
  assert.equal(prompt.accountId, service.account);
});

test("replaces a lone surrogate in content and stop sequences", async () => {
  const { prompt, options } = await handed(
    String.raw`{"model":"small","messages":[{"role":"user","content":"a\ud800b\udc00"}],"stop":["\udfff!"]}`,
  );
  assert.deepEqual(prompt.messages, [{ role: "user", content: "a\ufffdb\ufffd" }]);
  assert.deepEqual(options.sampling.stop, ["\ufffd!"]);
});

test("makes infinite numbers finite", async () => {
  const body = (field: string) =>
    `{"model":"small","messages":[{"role":"user","content":"x"}],"${field}":-1e400}`;
  assert.equal((await handed(body("presence_penalty"))).options.sampling.presencePenalty, -Number.MAX_VALUE);
  assert.equal((await handed(body("seed"))).options.sampling.seed, -Number.MAX_VALUE);
});

test("refuses a prompt longer than the window, and names the window", async () => {
  const response = await service.chat({ messages: [{ role: "user", content: "word ".repeat(100) }] });
  const error = await errorOf(response);
  assert.equal(response.status, 400);
  assert.equal(error.code, "context_length_exceeded");
  assert.match(error.message, /^This model's maximum context length is 100 tokens\. /);
});
