/** Refusals of fields that no caller sent, in the words of real servers. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type AddedFields,
  addedFields,
  correctFields,
  correctionFor,
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
  const objection = { field: field ?? null, param: null, text };
  const request = { corrected: new Set<string>(), sentTokens: sent, isTooLong };
  const next = correctionFor(objection, { ...added, ...change }, request);
  return next && [next.name, next.value, next.isLasting];
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
    [
      "Gemini, which excludes the end of its range",
      "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
      100_000,
      65_536,
    ],
    [
      "Bedrock",
      "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
      8192,
      4096,
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
    test(server, () => assert.deepEqual(answerTo({ text, sent }), ["max_tokens", most, true]));
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
      "vLLM with the most that a prompt may have",
      "You passed 98305 input tokens and requested 32768 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 98304 tokens. Please reduce the length of the input prompt.",
      32_768,
      32_767,
    ],
    [
      "the same with a large limit",
      "You passed 3073 input tokens and requested 128000 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 3072 tokens.",
      128_000,
      127_999,
    ],
    [
      "Cerebras",
      "Please reduce the length of the messages or completion. Current length is 69553 while limit is 65536",
      8000,
      3983,
    ],
    [
      "Moonshot",
      "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
      32_000,
      25_114,
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
      assert.deepEqual(answerTo({ text, sent, isTooLong: true }), ["max_tokens", left, false]),
    );
  }

  test("nobody, if the prompt alone is too long: it is sent once without a limit", () => {
    for (const text of [
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens.",
      "This model's maximum context length is 4096 tokens. However, you requested 5008 tokens (4500 in the messages, 508 in the completion).",
      "Prompt contains 5000 tokens, too large for model with 4096 maximum context length",
      "the request exceeds the available context size. try increasing the context size or enable context shift",
    ])
      for (const sent of [508, 100_000]) {
        if (text.includes("508") && sent !== 508) continue;
        assert.deepEqual(answerTo({ text, sent, isTooLong: true }), ["max_tokens", null, false], text);
      }
  });
});

describe("a field is left out", () => {
  test("if the server does not know it", () => {
    const text =
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    assert.deepEqual(answerTo({ text, sent: 32_753, field: "max_tokens" }), ["max_tokens", null, true]);
    for (const said of [
      "Unrecognized request argument supplied: stream_options",
      "body.stream_options.include_usage: Extra inputs are not permitted",
      "continuous_usage_stats is not supported",
    ])
      assert.deepEqual(answerTo({ text: said, sent: 9 }), ["stream_options", null, true], said);
    assert.deepEqual(answerTo({ text: "Extra inputs are not permitted", field: "stream_options", sent: 9 }), [
      "stream_options",
      null,
      true,
    ]);
  });

  test("but never the limit of an answer that cannot be stopped in time", () => {
    const text = "max_tokens is not supported";
    assert.equal(answerTo({ text, sent: 9 }, { needsLimit: true }), null);
    const named = "max_tokens is too large. At most 5 output tokens.";
    assert.deepEqual(answerTo({ text: named, sent: 9 }, { needsLimit: true }), ["max_tokens", 5, true]);
    const learned = new Map<string, number | null>([
      ["max_tokens", null],
      ["stream_options", null],
    ]);
    assert.deepEqual([...fitting(learned, { ...added, needsLimit: true }).keys()], ["stream_options"]);
    assert.deepEqual([...fitting(learned, added).keys()], ["max_tokens", "stream_options"]);
  });

  test("but not one that was corrected before, or that the caller sent", () => {
    const objection = { field: "max_tokens", param: "max_tokens", text: "max_tokens is odd" };
    const request = { corrected: new Set(["max_tokens"]), sentTokens: 9, isTooLong: false };
    assert.equal(correctionFor(objection, added, request), null);
    const lower = {
      field: "max_tokens",
      param: "max_tokens",
      text: "max_tokens is still too large. At most 5.",
    };
    assert.equal(correctionFor(lower, added, request)?.value, 5, "a limit may be lowered again");
    const ofCaller = addedFields(dialectOf("compatible"), { isLimited: true, needsLimit: false });
    assert.deepEqual([ofCaller.names, ofCaller.limit], [["stream_options"], null]);
    assert.equal(correctionFor(objection, ofCaller, { ...request, corrected: new Set() }), null);
    assert.equal(isAboutAdded(objection, ofCaller), false);
    assert.equal(isAboutAdded(objection, added), true);
    const learned = new Map([["max_tokens", 5]]);
    assert.equal(fitting(learned, ofCaller).size, 0, "a value of the caller is not changed");
  });

  test("but not for long if the limit is too small", () => {
    const text =
      "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 11 instead.";
    assert.deepEqual(answerTo({ text, sent: 11 }), ["max_tokens", null, false]);
  });

  test("but not if the refusal is about a parameter of the caller and only mentions it", () => {
    for (const objection of [
      { field: "temperature", param: "temperature", text: "temperature is odd; max_tokens is 9" },
      { field: null, param: null, text: 'temperature must be at most 2. Received: {"max_tokens": 9}' },
    ])
      assert.equal(isAboutAdded(objection, added), false, objection.text);
    const wrapped = { field: null, param: null, text: "Unrecognized request argument supplied: max_tokens" };
    assert.equal(isAboutAdded(wrapped, added), true);
  });

  test("if the dialect adds it", () => {
    for (const [dialect, name] of [
      ["vllm", "cache_salt"],
      ["llama-server", "timings_per_token"],
    ] as const) {
      const fields = addedFields(dialectOf(dialect), { isLimited: true, needsLimit: false });
      const objection = { field: null, param: null, text: `extra field ${name} not permitted` };
      const request = { corrected: new Set<string>(), sentTokens: 9, isTooLong: false };
      assert.deepEqual(correctionFor(objection, fields, request), { name, value: null, isLasting: true });
    }
  });
});

test("what a balance can pay is sent once, and not kept (OpenRouter)", () => {
  const text =
    "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 30104.";
  assert.deepEqual(answerTo({ text, sent: 65_536 }), ["max_tokens", 30_104, false]);
});

test("a corrected request has the field no more, or the lower of two numbers", () => {
  const body = { model: "m", max_tokens: 100, stream_options: { include_usage: true } };
  correctFields(
    body,
    new Map([
      ["stream_options", null],
      ["max_tokens", 50],
      ["cache_salt", null],
    ]),
  );
  assert.deepEqual(body, { model: "m", max_tokens: 50 });
  correctFields(body, new Map([["max_tokens", 70]]));
  assert.equal(body.max_tokens, 50);
});
