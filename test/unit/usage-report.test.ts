/** Counts and endings in the places and words of real servers. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { meaningOf } from "../../src/engines/upstream/finish-words.ts";
import { saneUsage, usageIn } from "../../src/engines/upstream/usage-report.ts";

const bounds = { promptTokensMax: 8192, completionTokensMax: 900, events: 2, characters: 20 };

function countsOf(usage: object, change: Partial<typeof bounds> = {}) {
  const counts = saneUsage({ prompt_tokens: 12, completion_tokens: 2, ...usage }, { ...bounds, ...change });
  assert.ok(counts !== null);
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens, oddTotal } = counts;
  return [promptTokens, cachedTokens, completionTokens, reasoningTokens, oddTotal];
}

describe("the total decides where the thinking is counted", () => {
  const thinking = { completion_tokens_details: { reasoning_tokens: 317 } };
  test("inside, if it is the sum of prompt and completion", () => {
    assert.deepEqual(countsOf({ completion_tokens: 319, total_tokens: 331, ...thinking }), [
      12,
      0,
      319,
      317,
      null,
    ]);
    assert.deepEqual(countsOf({ completion_tokens: 319, ...thinking }), [12, 0, 319, 317, null], "no total");
  });

  test("beside, if it is that sum and the thinking (xAI)", () => {
    assert.deepEqual(countsOf({ total_tokens: 331, ...thinking }), [12, 0, 319, 317, null]);
    assert.deepEqual(
      countsOf({ total_tokens: 331, reasoning_tokens: 317 }),
      [12, 0, 319, 317, null],
      "SGLang's field",
    );
  });

  test("beside, if it is larger and nothing else is told (Gemini)", () => {
    assert.deepEqual(countsOf({ total_tokens: 100 }), [12, 0, 88, 86, null]);
  });

  test("at most the tokens that were asked for", () => {
    const asked = { completionTokensMax: 50 };
    assert.deepEqual(countsOf({ total_tokens: 331, ...thinking }, asked), [12, 0, 50, 48, null]);
    assert.deepEqual(countsOf({ total_tokens: 100_000 }, asked), [12, 0, 50, 48, null]);
  });

  test("nowhere, if it is another one, which is reported", () => {
    assert.deepEqual(countsOf({ total_tokens: 13 }), [12, 0, 2, 0, 13]);
    assert.deepEqual(countsOf({ total_tokens: 0 }), [12, 0, 2, 0, 0]);
    assert.deepEqual(countsOf({ total_tokens: 330, ...thinking }), [12, 0, 2, 0, 330]);
    assert.deepEqual(
      countsOf({ total_tokens: 20, completion_tokens_details: { reasoning_tokens: 0 } }),
      [12, 0, 2, 0, 20],
    );
  });

  test("nowhere, if the cache explains it (Bedrock)", () => {
    for (const cache of [
      { cache_creation_input_tokens: 4000 },
      { cache_read_input_tokens: 4000 },
      { cache_creation_input_tokens: 1000, cache_read_input_tokens: 3000 },
      { prompt_tokens_details: { cached_tokens: 4000 } },
    ])
      assert.deepEqual(
        countsOf({ total_tokens: 4014, ...cache }),
        [12, 0, 2, 0, 4014],
        JSON.stringify(cache),
      );
  });

  test("beside, if the answer is nothing but thinking", () => {
    const usage = {
      completion_tokens: 0,
      total_tokens: 412,
      completion_tokens_details: { reasoning_tokens: 400 },
    };
    assert.deepEqual(countsOf(usage, { events: 20, characters: 0 }), [12, 0, 400, 400, null]);
  });

  test("as before, if it is no whole number", () => {
    for (const total of [-1, 1.5, "331", null, 1e300])
      assert.deepEqual(countsOf({ total_tokens: total }), [12, 0, 2, 0, null]);
  });
});

test("cached tokens are read where Moonshot, DeepSeek and OpenAI put them", () => {
  for (const usage of [
    { cached_tokens: 7 },
    { prompt_cache_hit_tokens: 7, prompt_cache_miss_tokens: 5 },
    { prompt_tokens_details: { cached_tokens: 7 } },
    { prompt_tokens_details: { cached_tokens: 7 }, cached_tokens: 3 },
    { prompt_tokens_details: null, cached_tokens: 7 },
  ])
    assert.equal(countsOf(usage)[1], 7, JSON.stringify(usage));
  assert.equal(countsOf({ cached_tokens: 13 })[1], 0, "more than the prompt has");
});

test("usage is found in the event, in its choice, and where Groq puts it", () => {
  const usage = { prompt_tokens: 1 };
  assert.equal(usageIn({ usage }, undefined), usage);
  assert.equal(usageIn({ usage: null }, { usage }), usage);
  assert.equal(usageIn({ x_groq: { id: "req", usage } }, { usage: null }), usage);
  assert.equal(usageIn({ usage: null }, { usage: null }), null);
});

test("words for the end of an answer have their meaning, in any case", () => {
  const words = {
    stop: "stop STOP eos eos_token end end_turn tool_calls stop_sequence COMPLETE FINISH_REASON_STOP",
    length:
      "length max_tokens MAX_TOKENS model_length max_output_tokens model_context_window_exceeded FINISH_REASON_MAX_TOKENS",
    content_filter:
      "content_filter content-filter SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII refusal sensitive guardrail_intervened",
    failure: "error abort insufficient_system_resource network_error ERROR cancelled",
    unknown: "OTHER banana toString __proto__",
  };
  for (const [meaning, all] of Object.entries(words))
    for (const word of all.split(" ")) assert.equal(meaningOf(word), meaning, word);
});
