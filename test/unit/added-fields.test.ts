/** Refusals of fields that no caller sent, in the words of real servers. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type AddedFields,
  addedFields,
  adjust,
  adjustmentFor,
  fitting,
  isAboutAdded,
} from "../../src/engines/upstream/added-fields.ts";
import { dialectOf } from "../../src/engines/upstream/dialects.ts";

const added: AddedFields = {
  names: ["stream_options", "max_tokens"],
  limit: "max_tokens",
  needsLimit: false,
};

interface Refusal {
  text: string;
  sent: number;
  field?: string;
  isTooLong?: boolean;
}

function answerTo({ text, sent, field, isTooLong = false }: Refusal, change: Partial<AddedFields> = {}) {
  const objection = { field: field ?? null, text };
  const request = { adjusted: new Set<string>(), sentTokens: sent, isTooLong };
  const next = adjustmentFor(objection, { ...added, ...change }, request);
  return next && [next.name, next.value, next.isOfPrompt];
}

describe("the most that a model generates is taken from the refusal of", () => {
  const refusals: [server: string, text: string, sent: number, most: number][] = [
    [
      "OpenAI",
      "max_tokens is too large: 32753. This model supports at most 16384 completion tokens, whereas you provided 32753.",
      32_753,
      16_384,
    ],
    [
      "Anthropic",
      "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
      100_000,
      64_000,
    ],
    ["DeepSeek", "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 32_000, 8192],
    [
      "Groq",
      "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
      32_000,
      8192,
    ],
    ["a server with thousands", "max_tokens must be at most 1,024", 5000, 1024],
    [
      "vLLM 0.32",
      "max_tokens=4063 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
      4063,
      2048,
    ],
    [
      "SGLang 0.5.23",
      "max_completion_tokens is too large: 4063.This model supports at most 2048 completion tokens.",
      4063,
      2048,
    ],
  ];
  for (const [server, text, sent, most] of refusals) {
    test(server, () => assert.deepEqual(answerTo({ text, sent }), ["max_tokens", most, false]));
  }
});

describe("what a window leaves is taken from the refusal of", () => {
  const refusals: [server: string, text: string, sent: number, left: number][] = [
    [
      "OpenAI and vLLM",
      "This model's maximum context length is 4096 tokens. However, you requested 5104 tokens (3008 in the messages, 2096 in the completion). Please reduce the length of the messages or completion.",
      2096,
      1088,
    ],
    [
      "OpenAI, if the limit is as large as the window",
      "This model's maximum context length is 4096 tokens. However, you requested 4217 tokens (121 in the messages, 4096 in the completion).",
      4096,
      3975,
    ],
    [
      "vLLM with the difference",
      "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens and your request has 3008 input tokens (4000 > 4096 - 3008).",
      4000,
      1088,
    ],
    [
      "vLLM of today",
      "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens and your prompt contains at least 3997 input tokens, for a total of at least 4097 tokens.",
      100,
      99,
    ],
    [
      "SGLang",
      "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5104 tokens: 3008 tokens from the input messages and 2096 tokens for the completion.",
      2096,
      1088,
    ],
    [
      "Text Generation Inference",
      "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3008 `inputs` tokens and 2096 `max_new_tokens`",
      2096,
      1088,
    ],
    [
      "Anthropic",
      "input length and `max_tokens` exceed context limit: 149854 + 61287 > 200000, decrease input length or `max_tokens` and try again",
      61_287,
      50_146,
    ],
  ];
  for (const [server, text, sent, left] of refusals) {
    test(server, () =>
      assert.deepEqual(answerTo({ text, sent, isTooLong: true }), ["max_tokens", left, true]),
    );
  }

  test("nobody, if the prompt alone is too long", () => {
    for (const text of [
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens.",
      "This model's maximum context length is 4096 tokens. However, you requested 5008 tokens (4500 in the messages, 508 in the completion).",
      "Prompt contains 5000 tokens, too large for model with 4096 maximum context length",
      "the request exceeds the available context size. try increasing the context size or enable context shift",
    ])
      for (const sent of [508, 100_000]) {
        if (text.includes("508") && sent !== 508) continue;
        assert.equal(answerTo({ text, sent, isTooLong: true }), null, text);
      }
  });
});

describe("a field is left out", () => {
  test("if the server does not know it", () => {
    const text =
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    assert.deepEqual(answerTo({ text, sent: 32_753, field: "max_tokens" }), ["max_tokens", null, false]);
    for (const said of [
      "Unrecognized request argument supplied: stream_options",
      "body.stream_options.include_usage: Extra inputs are not permitted",
      "continuous_usage_stats is not supported",
    ])
      assert.deepEqual(answerTo({ text: said, sent: 9 }), ["stream_options", null, false], said);
    assert.deepEqual(answerTo({ text: "Extra inputs are not permitted", field: "stream_options", sent: 9 }), [
      "stream_options",
      null,
      false,
    ]);
  });

  test("but never the limit of an answer that cannot be stopped in time", () => {
    const text = "max_tokens is not supported";
    assert.equal(answerTo({ text, sent: 9 }, { needsLimit: true }), null);
    const named = "max_tokens is too large. At most 5 output tokens.";
    assert.deepEqual(answerTo({ text: named, sent: 9 }, { needsLimit: true }), ["max_tokens", 5, false]);
    const learned = new Map<string, number | null>([
      ["max_tokens", null],
      ["stream_options", null],
    ]);
    assert.deepEqual([...fitting(learned, { ...added, needsLimit: true }).keys()], ["stream_options"]);
    assert.deepEqual([...fitting(learned, added).keys()], ["max_tokens", "stream_options"]);
  });

  test("but not one that was adjusted before, or that the caller sent", () => {
    const objection = { field: "max_tokens", text: "max_tokens is odd" };
    const request = { adjusted: new Set(["max_tokens"]), sentTokens: 9, isTooLong: false };
    assert.equal(adjustmentFor(objection, added, request), null);
    const lower = { field: "max_tokens", text: "max_tokens is still too large. At most 5." };
    assert.equal(adjustmentFor(lower, added, request)?.value, 5, "a limit may be lowered again");
    const ofCaller = addedFields(dialectOf("compatible"), { isLimited: true, needsLimit: false });
    assert.deepEqual([ofCaller.names, ofCaller.limit], [["stream_options"], null]);
    assert.equal(adjustmentFor(objection, ofCaller, { ...request, adjusted: new Set() }), null);
    assert.equal(isAboutAdded(objection, ofCaller), false);
    assert.equal(isAboutAdded(objection, added), true);
    const learned = new Map([["max_tokens", 5]]);
    assert.equal(fitting(learned, ofCaller).size, 0, "a value of the caller is not changed");
  });

  test("if the dialect adds it", () => {
    for (const [dialect, name] of [
      ["vllm", "cache_salt"],
      ["llama-server", "timings_per_token"],
    ] as const) {
      const fields = addedFields(dialectOf(dialect), { isLimited: true, needsLimit: false });
      const objection = { field: null, text: `extra field ${name} not permitted` };
      const request = { adjusted: new Set<string>(), sentTokens: 9, isTooLong: false };
      assert.deepEqual(adjustmentFor(objection, fields, request), { name, value: null, isOfPrompt: false });
    }
  });
});

test("an adjusted request has the field no more, or the lower of two numbers", () => {
  const body = { model: "m", max_tokens: 100, stream_options: { include_usage: true } };
  adjust(
    body,
    new Map([
      ["stream_options", null],
      ["max_tokens", 50],
      ["cache_salt", null],
    ]),
  );
  assert.deepEqual(body, { model: "m", max_tokens: 50 });
  adjust(body, new Map([["max_tokens", 70]]));
  assert.equal(body.max_tokens, 50);
});
