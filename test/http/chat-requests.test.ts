/** The rules for chat requests: one row per rule, with its answer. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type CallerCode, catalogue } from "../../src/errors.ts";
import { optionalParameters } from "../fixtures/chat-parameters.ts";
import { errorOf, hello, jsonOf, startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService({ messagesMax: 3, otherModels: ["large"], plan: { models: ["small"] } });
});
after(() => service[Symbol.asyncDispose]());

/**
 * The body of a request: an object overrides `model` and `messages`, a string is sent unchanged.
 */
type Body = object | string;

function user(message: object): object {
  return { messages: [{ role: "user", content: "x", ...message }] };
}

function post(body: Body): Promise<Response> {
  return typeof body === "string"
    ? service.request("POST", "/v1/chat/completions", { body })
    : service.chat(body);
}

type Refused = [rule: string, body: Body, code: CallerCode, param?: string | undefined, message?: RegExp];

/** Values of each parameter that are refused, by the code of the refusal. */
const wrongValues: Record<string, { type?: unknown[]; value?: unknown[]; unknown?: unknown[] }> = {
  model: { type: [null, 1] },
  messages: { type: ["hello", null], value: [[]] },
  temperature: { type: [true], value: [2.01, -0.01] },
  top_p: { value: [1.1, -1] },
  top_k: { type: [1.5], value: [-1] },
  max_tokens: { type: [1.5, "5"], value: [0] },
  max_completion_tokens: { value: [-1] },
  stream: { type: ["true"] },
  stream_options: { type: [[]] },
  "stream_options.include_all": { unknown: [true] },
  "stream_options.include_usage": { type: [1] },
  "stream_options.include_obfuscation": { type: ["yes"] },
  reasoning: { type: ["high"] },
  "reasoning.budget": { unknown: [1] },
  "reasoning.effort": { type: [3] },
  "reasoning.max_tokens": { type: [0.5], value: [-1] },
  reasoning_effort: { type: [1] },
  n: { type: ["1", 1.5], value: [0] },
  stop: { type: [5], value: [""] },
  "stop[1]": { type: [["a", null]], value: [["a", ""]] },
  seed: { type: [0.5, "1"] },
  presence_penalty: { type: ["1"] },
  frequency_penalty: { type: [[]] },
  logprobs: { type: [5] },
  top_logprobs: { type: [0.5], value: [21, -1] },
  user: { type: [7] },
};

const contentOfFirst = "messages[0].content";
const greeting = '"messages":[{"role":"user","content":"x"}]';

const refused: Refused[] = [
  ["an empty body is no JSON", "", "invalid_json"],
  [
    "half a body is no JSON",
    '{"model":',
    "invalid_json",
    undefined,
    /not valid JSON: .*position|end of JSON/,
  ],
  ["JSON with a comment is no JSON", "{/**/}", "invalid_json"],
  ["NaN is no JSON", '{"temperature":NaN}', "invalid_json"],
  [
    "a body must be an object, not null",
    "null",
    "invalid_type",
    undefined,
    /The body must be a JSON object, not null/,
  ],
  ...["[]", '"hello"', "1"].map(
    (body): Refused => [`a body must be an object, not ${body}`, body, "invalid_type"],
  ),

  ["model must be there", `{${greeting}}`, "missing_required_parameter", "model"],
  ["a model that is not offered is not found", { model: "gpt-4o" }, "model_not_found", "model", /"gpt-4o"/],
  ["a model named nothing is not found", { model: "" }, "model_not_found", "model"],
  [
    "a model named like a property of every object is not found",
    { model: "__proto__" },
    "model_not_found",
    "model",
  ],
  ["a model outside the plan is not allowed", { model: "large" }, "model_not_allowed", "model"],

  ["messages must be there", '{"model":"small"}', "missing_required_parameter", "messages"],
  [
    "messages have a most",
    { messages: Array(4).fill(hello[0]) },
    "invalid_value",
    "messages",
    /4 items; at most 3/,
  ],
  ["a message must be an object", { messages: ["hello"] }, "invalid_type", "messages[0]"],
  ["a message must not be null", { messages: [hello[0], null] }, "invalid_type", "messages[1]"],
  [
    "a role must be there",
    { messages: [{ content: "x" }] },
    "missing_required_parameter",
    "messages[0].role",
  ],
  ...["robot", "tool", "function", "User"].map((role): Refused => {
    return [`there is no role ${role}`, user({ role }), "invalid_value", "messages[0].role"];
  }),
  ["a role must be a string", user({ role: 1 }), "invalid_type", "messages[0].role"],
  ["content must be there", { messages: [{ role: "user" }] }, "missing_required_parameter", contentOfFirst],
  ...[null, 5, [{ type: "image_url", image_url: { url: "data:," } }]].map((content): Refused => {
    return [
      `content must not be ${JSON.stringify(content)}`,
      user({ content }),
      "invalid_type",
      contentOfFirst,
    ];
  }),
  [
    "content must not be an array of text parts, and the way out is said",
    user({ content: [{ type: "text", text: "x" }] }),
    "invalid_type",
    contentOfFirst,
    /Send content as one string/,
  ],
  [
    "the fault is named by its index",
    { messages: [hello[0], { role: "user", content: 1 }] },
    "invalid_type",
    "messages[1].content",
  ],
  [
    "name is not a field of a message, and the way out is said",
    user({ name: "ada" }),
    "unknown_parameter",
    "messages[0].name",
    /Remove name/,
  ],
  ...Object.entries({ weight: 1, tool_calls: [{}], refusal: "no", annotations: [], constructor: 1 }).map(
    ([name, value]): Refused => {
      const what = `a message has no field ${name}`;
      return [what, user({ [name]: value }), "unknown_parameter", `messages[0].${name}`];
    },
  ),
  ["nor with null", user({ weight: null }), "unknown_parameter", "messages[0].weight"],
  [
    "__proto__ is a field like any other",
    '{"model":"small","messages":[{"role":"user","content":"x","__proto__":{}}]}',
    "unknown_parameter",
    "messages[0].__proto__",
  ],
  [
    "a message does not inherit what it lacks",
    '{"model":"small","messages":[{"__proto__":{"role":"user","content":"x"}}]}',
    "missing_required_parameter",
    "messages[0].role",
  ],
  [
    "the name of an unknown field is cut where it is long",
    user({ ["k".repeat(500)]: 1 }),
    "unknown_parameter",
    `messages[0].${"k".repeat(64)}...`,
  ],

  [
    "temperature in quotes is not a number, and the message says what is right",
    { temperature: "0.5" },
    "invalid_type",
    "temperature",
    /from 0 to 2, not the string "0.5"/,
  ],
  [
    "a temperature beyond all numbers is over 2",
    `{"model":"small",${greeting},"temperature":1e400}`,
    "invalid_value",
    "temperature",
  ],
  ["n is 1, and the message says so", { n: 2 }, "invalid_value", "n", /n must be 1/],
  ["stop has up to four sequences", { stop: [..."abcde"] }, "invalid_value", "stop", /up to 4/],
  [
    "one bad limit is not hidden by a good one",
    { max_tokens: 5, max_completion_tokens: 0 },
    "invalid_value",
    "max_completion_tokens",
  ],
  [
    "stream_options is checked without stream as well",
    { stream: false, stream_options: { x: null } },
    "unknown_parameter",
    "stream_options.x",
  ],
  ...Object.entries(wrongValues).flatMap(([param, { type = [], value = [], unknown = [] }]) => {
    const rows: [code: CallerCode, values: unknown[]][] = [
      ["invalid_type", type],
      ["invalid_value", value],
      ["unknown_parameter", unknown],
    ];
    return rows.flatMap(([code, values]) =>
      values.map((each): Refused => {
        const [name = "", inner] = param.replace(/\[1\]$/, "").split(".");
        const sent = { [name]: inner === undefined ? each : { [inner]: each } };
        return [`${JSON.stringify(sent)} is refused with ${code}`, sent, code, param];
      }),
    );
  }),
];

for (const [rule, body, code, param, message] of refused) {
  for (const stream of typeof body === "string" || "stream" in body ? [false] : [false, true]) {
    test(stream ? `${rule}, streamed as well` : rule, async () => {
      const sent = typeof body === "string" ? body : stream ? { ...body, stream } : body;
      const response = await post(sent);
      const error = await errorOf(response);
      assert.equal(error.code, code, error.message);
      assert.equal(response.status, catalogue[code].status);
      assert.equal(response.headers.get("content-type"), "application/json; charset=utf-8");
      assert.equal(error.type, catalogue[code].type);
      assert.equal(error.param, param ?? null);
      if (message !== undefined) assert.match(error.message, message);
      assert.match(response.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/);
      assert.match(response.headers.get("openai-processing-ms") ?? "", /^\d+$/);
    });
  }
}

/** A JSON number that a 64-bit float cannot represent. */
function huge(field: string): string {
  return `{"model":"small","messages":[{"role":"user","content":"x"}],"${field}":1e400}`;
}

const accepted: [rule: string, body: Body][] = [
  [
    "a message of each role in any order is accepted",
    {
      messages: [
        { role: "assistant", content: "a" },
        { role: "developer", content: "b" },
        { role: "system", content: "c" },
      ],
    },
  ],
  ["empty content is accepted", user({ content: "" })],
  [
    "null is absent for every optional parameter",
    Object.fromEntries(optionalParameters.map((name) => [name, null])),
  ],
  [
    "null is absent inside stream_options and reasoning",
    {
      stream_options: { include_usage: null, include_obfuscation: null },
      reasoning: { effort: null, max_tokens: null },
    },
  ],
  [
    "what SDK helpers send back as null is absent",
    user({
      refusal: null,
      parsed: null,
      tool_calls: null,
      function_call: null,
      audio: null,
      annotations: null,
      name: null,
      reasoning_content: null,
    }),
  ],
  ["n 1 is accepted", { n: 1 }],
  [
    "the ends of every range are accepted",
    { temperature: 2, top_p: 1, top_k: 0, max_tokens: 1, top_logprobs: 20, logprobs: true },
  ],
  [
    "the other ends of every range are accepted",
    { temperature: 0, top_p: 0, top_logprobs: 0, reasoning: { max_tokens: 0 } },
  ],
  ["a whole number may be written with a point", `{"model":"small",${greeting},"max_tokens":5.0,"n":1.0}`],
  [
    "stream_options without stream are ignored",
    { stream_options: { include_usage: true, include_obfuscation: true } },
  ],
  ["max_tokens beyond the window is clamped", { max_tokens: 1_000_000_000 }],
  ["an infinite max_tokens is clamped", huge("max_tokens")],
  ["an infinite top_k is accepted", huge("top_k")],
  ["an infinite seed is accepted", huge("seed")],
  ["a negative seed is accepted", { seed: -(2 ** 60) }],
  ["penalties of any size are accepted", { presence_penalty: -1e300, frequency_penalty: 1e300 }],
  ["infinite penalties are accepted", huge("presence_penalty")],
  [
    "a thinking budget beyond all numbers is accepted",
    `{"model":"small",${greeting},"reasoning":{"max_tokens":1e999}}`,
  ],
  ["an unknown effort is accepted", { reasoning: { effort: "herculean" }, reasoning_effort: "" }],
  ["top_logprobs without logprobs is accepted", { top_logprobs: 5 }],
  [
    "parameters that are not offered are ignored",
    {
      tools: [{}],
      tool_choice: "auto",
      functions: [],
      parallel_tool_calls: true,
      response_format: { type: "json_object" },
      logit_bias: { 5: 1 },
      prediction: {},
      modalities: ["audio"],
      audio: {},
      web_search_options: {},
      store: true,
      metadata: {},
      service_tier: "flex",
    },
  ],
  [
    "parameters that nobody knows are ignored, whatever they hold",
    { frobnicate: [[[]]], "": 1, "\u0000": null },
  ],
  [
    "__proto__ and constructor at the top are ignored",
    `{"model":"small",${greeting},"__proto__":{"n":5},"constructor":1}`,
  ],
  [
    "of a key that is there twice the last counts",
    `{"model":"nope","model":"small",${greeting},"n":7,"n":1}`,
  ],
  ["a byte order mark at the start is skipped", `\ufeff{"model":"small",${greeting}}`],
  ["white space around the body is accepted", `\r\n\t {"model":"small",${greeting}} \n`],
  [
    "a parameter nested very deeply is ignored",
    `{"model":"small",${greeting},"x":${"[".repeat(100_000)}${"]".repeat(100_000)}}`,
  ],
];

for (const [rule, body] of accepted) {
  test(rule, async () => {
    const response = await post(body);
    assert.equal(response.status, 200, await response.clone().text());
    assert.equal((await jsonOf<{ object: string }>(response)).object, "chat.completion");
  });
}

test("refuses a body that is not UTF-8", async () => {
  const body = Buffer.from(`{"model":"small",${greeting}}`.replace("x", "\u00e9"), "latin1");
  const response = await service.request("POST", "/v1/chat/completions", { body: new Uint8Array(body) });
  const error = await errorOf(response);
  assert.equal(response.status, 400);
  assert.equal(error.code, "invalid_json");
  assert.match(error.message, /UTF-8/);
});

test("refuses a deeply nested message in one sentence", async () => {
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  const response = await post(`{"model":"small","messages":[{"role":"user","content":${deep}}]}`);
  assert.equal((await errorOf(response)).code, "invalid_type");
});

async function journalLength(): Promise<number | undefined> {
  return (await service.store.accountSnapshot(service.account))?.account.seq;
}

test("generates, holds and charges nothing for refused requests", async () => {
  const made = service.engine.tokensMade;
  const seq = await journalLength();
  for (const [, body] of refused) await (await post(body)).arrayBuffer();
  assert.equal(service.engine.tokensMade, made);
  assert.equal(await journalLength(), seq);
});
