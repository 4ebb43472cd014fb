/** Hostile bodies. None of them may crash the service or cause an internal error. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { Refusal } from "../../src/errors.ts";
import { parseRequest } from "../../src/http/openai-format/request.ts";
import { anyCharacter } from "../fixtures/characters.ts";
import { optionalParameters } from "../fixtures/chat-parameters.ts";
import { errorOf, startService, type TestService } from "../fixtures/service.ts";
import { share } from "../fixtures/thorough.ts";

let service: TestService;
before(async () => {
  service = await startService();
});
after(() => service[Symbol.asyncDispose]());

/** Sends a body over HTTP. The answer must be a 200 or a client error. */
async function survives(body: Uint8Array<ArrayBuffer>): Promise<void> {
  const response = await service.request("POST", "/v1/chat/completions", { body });
  const text = await response.text();
  assert.ok(response.status < 500, `${response.status} ${text}`);
  if (response.status !== 200) assert.equal(typeof JSON.parse(text).error.message, "string");
}

/** Parses bodies in this process, which is faster. */
function isParsedOrRefused(body: Uint8Array): void {
  try {
    parseRequest(body, { messagesMax: 100, keysMax: 32_768 });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    assert.ok(error.status === 400);
    assert.ok(error.message.isWellFormed() && error.message.length < 500, error.message);
    assert.ok((error.param ?? "").isWellFormed());
  }
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Any string as JSON, lone surrogates included. */
const string = fc.string({
  unit: fc.oneof(
    fc.constantFrom("\ud800", "\udc00", "\u0000", "\u2028", "__proto__"),
    fc.string({ unit: anyCharacter, maxLength: 3 }),
  ),
  maxLength: 6,
});

const number = fc.oneof(
  fc.double(),
  fc.constantFrom("1e400", "-1e400", "1e-400", "123456789012345678901234567890", "-0", "1.0"),
);

const names = fc.constantFrom(
  ...optionalParameters,
  ..."model messages role content name include_usage include_obfuscation effort tools".split(" "),
  ..."__proto__ constructor toString hasOwnProperty length prototype 0".split(" "),
  "",
);

/** JSON text with huge numbers, duplicate keys and any keys. */
const { json } = fc.letrec<{ json: string; leaf: string; list: string; record: string }>((tie) => ({
  json: fc.oneof({ maxDepth: 5, withCrossShrink: true }, tie("leaf"), tie("list"), tie("record")),
  leaf: fc.oneof(
    string.map((text) => JSON.stringify(text)),
    number.map((value) => (typeof value === "number" ? (JSON.stringify(value) ?? "0") : value)),
    fc.constantFrom("null", "true", "false", '"small"', '"user"', "1"),
  ),
  list: fc.array(tie("json"), { maxLength: 4 }).map((items) => `[${items.join(",")}]`),
  record: fc
    .array(fc.tuple(fc.oneof(names, string), tie("json")), { maxLength: 6 })
    .map((entries) => `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",")}}`),
}));

/** A valid request with one random field, so that it passes the first checks. */
const almostGood = fc
  .tuple(names, json, fc.oneof(names, string), json)
  .map(([field, value, inner, innerValue]) => {
    const message = `{"role":"user","content":"x",${JSON.stringify(inner)}:${innerValue}}`;
    return `{"model":"small","messages":[{"role":"user","content":"x"},${message}],${JSON.stringify(field)}:${value}}`;
  });

test("refuses random bytes", async () => {
  await fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), isParsedOrRefused), {
    numRuns: share(2000),
  });
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), (bytes) => survives(Uint8Array.from(bytes))),
    { numRuns: share(100) },
  );
});

test("refuses random JSON", async () => {
  await fc.assert(fc.property(json.map(bytesOf), isParsedOrRefused), { numRuns: share(3000) });
  await fc.assert(fc.asyncProperty(json.map(bytesOf), survives), { numRuns: share(100) });
});

test("refuses valid requests with one changed field", async () => {
  await fc.assert(fc.property(almostGood.map(bytesOf), isParsedOrRefused), { numRuns: share(5000) });
  await fc.assert(fc.asyncProperty(almostGood.map(bytesOf), survives), { numRuns: share(200) });
});

test("refuses valid requests cut at any place", async () => {
  const good = bytesOf('\ufeff{"model":"small","messages":[{"role":"user","content":"\u00e9\u20ac"}],"n":1}');
  for (let length = 0; length < good.length; length += 1) isParsedOrRefused(good.subarray(0, length));
  await survives(good);
});

const deep = (open: string, close: string, depth: number) => `${open.repeat(depth)}${close.repeat(depth)}`;
const depth = 500_000;

const monsters: [rule: string, body: string][] = [
  ["brackets without end", "[".repeat(4 * depth)],
  ["arrays half a million deep", deep("[", "]", depth)],
  ["objects half a million deep", `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`],
  [
    "content half a million deep",
    `{"model":"small","messages":[{"role":"user","content":${deep("[", "]", depth)}}]}`,
  ],
  ["messages half a million deep", `{"model":"small","messages":${deep("[", "]", depth)}}`],
  [
    "a stop half a million deep",
    `{"model":"small","messages":[{"role":"user","content":"x"}],"stop":${deep("[", "]", depth)}}`,
  ],
  [
    "an unknown field half a million deep",
    `{"model":"small","messages":[{"role":"user","content":"x","y":${deep("[", "]", depth)}}]}`,
  ],
  [
    "a number of a million digits",
    `{"model":"small","messages":[{"role":"user","content":"x"}],"seed":${"9".repeat(1_000_000)}}`,
  ],
  [
    "a key of a million characters",
    `{"model":"small","messages":[{"role":"user","content":"x","${"k".repeat(1_000_000)}":1}]}`,
  ],
  [
    "a model of a million characters",
    `{"model":"${"m".repeat(1_000_000)}","messages":[{"role":"user","content":"x"}]}`,
  ],
  [
    "a role of a million characters",
    `{"model":"small","messages":[{"role":"${"r".repeat(1_000_000)}","content":"x"}]}`,
  ],
  [
    "a hundred thousand messages",
    `{"model":"small","messages":[${'{"role":"user","content":""},'.repeat(99_999)}{"role":"user","content":""}]}`,
  ],
  ["a hundred thousand keys", `{${Array.from({ length: 100_000 }, (_, n) => `"k${n}":0`).join(",")}}`],
];
for (const [rule, body] of monsters) {
  test(rule, async () => {
    const response = await service.request("POST", "/v1/chat/completions", { body });
    const text = await response.text();
    assert.ok(response.status >= 200 && response.status < 500, `${response.status}`);
    assert.ok(text.length < 2_000, `an answer of ${text.length} characters`);
  });
}

/** Bodies of 4 MB, which must be refused before each value is checked. */
const crowds: [rule: string, body: string, code: string, param: string | null][] = [
  [
    "130,000 messages",
    `{"model":"small","messages":[${'{"role":"user","content":"x"},'.repeat(129_999)}{"role":"user","content":"x"}]}`,
    "invalid_value",
    null,
  ],
  [
    "messages beyond the limit, the first of them wrong",
    `{"model":3,"messages":[${'{"role":"nobody"},'.repeat(2048)}{"role":"user","content":"x"}]}`,
    "invalid_value",
    "messages",
  ],
  [
    "a million values in a parameter that is ignored",
    `{"model":"small","messages":[{"role":"user","content":"x"}],"tools":[${"0,".repeat(999_999)}0]}`,
    "invalid_value",
    null,
  ],
  [
    "300,000 unknown fields of one message",
    `{"model":"small","messages":[{"role":"user","content":"x",${Array.from({ length: 300_000 }, (_, n) => `"${n}":0`).join(",")}}]}`,
    "invalid_value",
    null,
  ],
  ["brackets only", "[".repeat(4_000_000), "invalid_value", null],
];
for (const [rule, body, code, param] of crowds) {
  test(`refuses ${rule} because of their number`, async () => {
    const response = await service.request("POST", "/v1/chat/completions", { body });
    assert.equal(response.status, 400);
    const error = await errorOf(response);
    assert.deepEqual([error.code, error.param], [code, param]);
    assert.match(error.message, /more than 32768 keys|more than 131072 values|at most 2048 are accepted/);
  });
}

test("accepts 2048 messages with all null fields of SDKs, and 100 tools", async () => {
  const nulls = { refusal: null, tool_calls: null, function_call: null, audio: null, annotations: null };
  const message = { role: "user", content: "x", ...nulls, name: null, parsed: null, reasoning_content: null };
  const properties = Object.fromEntries(
    Array.from({ length: 20 }, (_, n) => [`p${n}`, { type: "string", description: "a parameter" }]),
  );
  const tool = { type: "function", function: { name: "f", parameters: { type: "object", properties } } };
  const response = await service.chat({
    messages: Array.from({ length: 2048 }, () => message),
    tools: Array.from({ length: 100 }, () => tool),
  });
  assert.equal(response.status, 200);
});

test("names the first invalid message", async () => {
  const good = { role: "user", content: "x" };
  const messages = [...Array.from({ length: 2000 }, () => good), { ...good, name: "Ada" }, { role: "x" }];
  const error = await errorOf(await service.chat({ messages }));
  assert.deepEqual([error.code, error.param], ["unknown_parameter", "messages[2000].name"]);
});

test("the service still works afterwards", async () => {
  assert.equal((await service.chat()).status, 200);
});
