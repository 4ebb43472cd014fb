/**
 * `finish_reason: "length"`: a client can compute from usage and model list whether the credits
 * ended (docs/api.md).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { babble, jsonOf, startService, type TestService } from "../fixtures/service.ts";

interface Completion {
  choices: { finish_reason: string }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

interface ModelList {
  data: { context_window: number; max_output_tokens: number; defaults: { max_tokens?: number } }[];
}

/** The token limit, as docs/api.md describes it. */
async function tokenLimit(service: TestService, asked: number | undefined, promptTokens: number) {
  const [model] = (await jsonOf<ModelList>(await service.request("GET", "/v1/models"))).data;
  assert.ok(model !== undefined);
  return Math.min(
    asked ?? model.defaults.max_tokens ?? Number.POSITIVE_INFINITY,
    model.max_output_tokens,
    model.context_window - promptTokens,
  );
}

const endless = { script: babble("word "), engine: { contextWindow: 100 } };
const poor = {
  plan: {
    base: { credits: 2, every: "P1D", align: "opening" },
    overage: { credits: 0, every: "P1D", align: "opening" },
  },
};
/** Two credits pay for the greeting and some 20 tokens. */
const dear = { price: { prompt: 20_000, completion: 100_000 } };

const cases: [rule: string, options: object, asked: number | undefined, byCredits: boolean][] = [
  ["max_tokens of the request", endless, 5, false],
  ["max_tokens of the model's defaults", { ...endless, defaults: { maxTokens: 6 } }, undefined, false],
  ["the window", endless, undefined, false],
  ["the end of the credits, without max_tokens", { ...endless, ...poor, ...dear }, undefined, true],
  ["the end of the credits, before max_tokens", { ...endless, ...poor, ...dear }, 50, true],
  ["max_tokens, with few credits", { ...endless, ...poor, ...dear }, 5, false],
];

for (const [rule, options, asked, byCredits] of cases) {
  test(`the reason of \`length\`: ${rule}`, async () => {
    await using service = await startService(options);
    const response = await service.chat(asked === undefined ? {} : { max_tokens: asked });
    const { choices, usage } = await jsonOf<Completion>(response);
    assert.equal(choices[0]?.finish_reason, "length");
    const limit = await tokenLimit(service, asked, usage.prompt_tokens);
    if (byCredits) assert.ok(usage.completion_tokens < limit, `${usage.completion_tokens} of ${limit}`);
    else assert.equal(usage.completion_tokens, limit);
    const receipt = await service.receipt(response.headers.get("x-request-id") ?? "");
    assert.equal(receipt?.ending, byCredits ? "credits" : "length", "the ledger agrees");
    const balance = await jsonOf<{ balances: { total: { credits: number } } }>(
      await service.request("GET", "/v1/balance"),
    );
    assert.equal(balance.balances.total.credits === 0, byCredits);
  });
}
