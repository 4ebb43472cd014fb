/**
 * Default values and the system prompt of a model: when they apply, when the request overrides
 * them, and how clients see them.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { GenerateOptions } from "../../src/chat/engine.ts";
import { errorOf, jsonOf, startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService({
    engine: { contextWindow: 100 },
    defaults: { temperature: 0.2, topP: 0.9, topK: 40, frequencyPenalty: 0.4, maxTokens: 20 },
    otherModels: ["plain"],
  });
});
after(() => service[Symbol.asyncDispose]());

async function optionsFor(body: object): Promise<GenerateOptions> {
  const response = await service.chat(body);
  assert.equal(response.status, 200, await response.text());
  const options = service.engine.options.at(-1);
  assert.ok(options !== undefined);
  return options;
}

const cases: [rule: string, body: object, sampling: object, maxTokens: number][] = [
  [
    "a request without values gets all defaults",
    {},
    { stop: [], temperature: 0.2, topP: 0.9, topK: 40, frequencyPenalty: 0.4 },
    20,
  ],
  [
    "an explicit null counts as absent",
    { temperature: null, top_p: null, top_k: null, max_tokens: null, max_completion_tokens: null },
    { stop: [], temperature: 0.2, topP: 0.9, topK: 40, frequencyPenalty: 0.4 },
    20,
  ],
  [
    "a value of the request replaces its own default only",
    { temperature: 1.5, stop: "END", seed: 3 },
    { stop: ["END"], seed: 3, temperature: 1.5, topP: 0.9, topK: 40, frequencyPenalty: 0.4 },
    20,
  ],
  [
    "a zero of the request wins",
    { temperature: 0, top_p: 0, top_k: 0, frequency_penalty: 0 },
    { stop: [], temperature: 0, topP: 0, topK: 0, frequencyPenalty: 0 },
    20,
  ],
  [
    "a larger max_tokens of the request wins",
    { max_tokens: 50 },
    { stop: [], temperature: 0.2, topP: 0.9, topK: 40, frequencyPenalty: 0.4 },
    50,
  ],
  [
    "max_completion_tokens of the request wins too",
    { max_completion_tokens: 21 },
    { stop: [], temperature: 0.2, topP: 0.9, topK: 40, frequencyPenalty: 0.4 },
    21,
  ],
];

for (const [rule, body, sampling, maxTokens] of cases) {
  test(rule, async () => {
    const options = await optionsFor(body);
    assert.deepEqual(options.sampling, sampling);
    assert.equal(options.maxTokens, maxTokens);
  });
}

test("clamps a default max_tokens to the rest of the window", async () => {
  const { maxTokens } = await optionsFor({ messages: [{ role: "user", content: "word ".repeat(88) }] });
  assert.ok(maxTokens < 20, `${maxTokens} tokens`);
});

test("GET /v1/models shows the defaults under the names that requests use", async () => {
  const list = await jsonOf<{ data: { id: string; defaults: object }[] }>(
    await service.request("GET", "/v1/models"),
  );
  assert.deepEqual(
    list.data.map(({ id, defaults }) => [id, defaults]),
    [
      ["small", { temperature: 0.2, top_p: 0.9, top_k: 40, frequency_penalty: 0.4, max_tokens: 20 }],
      ["plain", {}],
    ],
  );
});

const systemPrompt = "You answer in one sentence.";
const question = { role: "user", content: "Why is the sky blue?" };

test("a model's system prompt stands before the messages, and its tokens are counted and charged", async () => {
  await using plain = await startService();
  await using instructed = await startService({ systemPrompt });
  const [without, within] = await Promise.all(
    [plain, instructed].map(async (each) => {
      const answer = await each.chat({ messages: [question] });
      const { usage } = await jsonOf<{ usage: { prompt_tokens: number; completion_tokens: number } }>(answer);
      return usage;
    }),
  );
  assert.deepEqual(instructed.engine.prompts[0]?.messages, [
    { role: "system", content: systemPrompt },
    question,
  ]);
  assert.ok(without !== undefined && within !== undefined);
  // The scripted engine counts each word, and one token for each message.
  assert.equal(within.prompt_tokens, without.prompt_tokens + 6);
  const { costMicro } = instructed.settled[0] ?? {};
  assert.equal(costMicro, within.prompt_tokens * 10 + within.completion_tokens * 30);
});

for (const role of ["system", "developer"]) {
  test(`a ${role} message of the request replaces the system prompt, even at the end`, async () => {
    await using instructed = await startService({ systemPrompt });
    const own = { role, content: "Answer at length." };
    for (const messages of [
      [own, question],
      [question, own],
      [question, { ...own, content: "" }],
    ]) {
      assert.equal((await instructed.chat({ messages })).status, 200);
      assert.deepEqual(instructed.engine.prompts.at(-1)?.messages, messages);
    }
  });
}

test("the system prompt counts in the context window", async () => {
  await using narrow = await startService({
    systemPrompt: "word ".repeat(10),
    engine: { contextWindow: 20 },
  });
  assert.equal((await narrow.chat({ messages: [{ role: "user", content: "word ".repeat(7) }] })).status, 200);
  const refused = await narrow.chat({ messages: [{ role: "user", content: "word ".repeat(8) }] });
  assert.equal(refused.status, 400);
  assert.equal((await errorOf(refused)).code, "context_length_exceeded");
});

test("GET /v1/models does not show the system prompt", async () => {
  await using instructed = await startService({ systemPrompt });
  const list = await (await instructed.request("GET", "/v1/models")).text();
  assert.doesNotMatch(list, /system|one sentence/);
});
