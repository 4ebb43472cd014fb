/** The official SDK, with our base URL and key. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { clientOf } from "../fixtures/sdk.ts";
import { babble, say, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

let service: TestService;
before(async () => {
  service = await startService({ otherModels: ["large"], plan: { models: ["small"] } });
});
after(() => service[Symbol.asyncDispose]());

const greeting = { model: "small", messages: [{ role: "user" as const, content: "Hello there" }] };

test("gets a completion", async () => {
  service.engine.script = () => say("Hello", " world");
  const { data, response, request_id } = await clientOf(service)
    .chat.completions.create(greeting)
    .withResponse();
  assert.equal(data.choices[0]?.message.content, "Hello world");
  assert.equal(data.choices[0]?.finish_reason, "stop");
  assert.equal(data.usage?.total_tokens, 5);
  assert.equal(data.usage?.prompt_tokens_details?.cached_tokens, 0);
  assert.equal(request_id, response.headers.get("x-request-id"));
});

test("reads a stream chunk by chunk", async () => {
  service.engine.script = () => say("Hello", " world");
  const stream = await clientOf(service).chat.completions.create({
    ...greeting,
    stream: true,
    stream_options: { include_usage: true, include_obfuscation: true },
  });
  const texts: string[] = [];
  let total = 0;
  for await (const chunk of stream) {
    texts.push(chunk.choices[0]?.delta.content ?? "");
    total = chunk.usage?.total_tokens ?? total;
  }
  assert.deepEqual(texts, ["", "Hello", " world", "", ""]);
  assert.equal(total, 5);
});

test("assembles the answer with the streaming helper", async () => {
  service.engine.script = () => say("Hello", " world");
  const deltas: string[] = [];
  const runner = clientOf(service)
    .chat.completions.stream({ ...greeting, stream_options: { include_usage: true }, logprobs: true })
    .on("content", (delta) => deltas.push(delta));
  const final = await runner.finalChatCompletion();
  assert.deepEqual(deltas, ["Hello", " world"]);
  assert.equal(final.choices[0]?.message.content, "Hello world");
  assert.equal(final.choices[0]?.logprobs?.content?.length, 2);
  assert.equal((await runner.totalUsage()).total_tokens, 5);
});

test("accepts the message of an answer back unchanged, from every helper", async () => {
  service.engine.script = () => say("Yes");
  const completions = clientOf(service).chat.completions;
  const plain = await completions.create(greeting);
  const parsed = await completions.parse(greeting);
  const streamed = await completions.stream(greeting).finalChatCompletion();
  for (const answer of [plain, parsed, streamed]) {
    const message = answer.choices[0]?.message;
    assert.ok(message !== undefined);
    const again = await completions.create({
      model: "small",
      messages: [...greeting.messages, message, { role: "user", content: "Go on" }],
    });
    assert.equal(again.choices[0]?.message.content, "Yes");
  }
});

test("ignores unsupported parameters", async () => {
  service.engine.script = () => say("Yes");
  const answer = await clientOf(service).chat.completions.create({
    ...greeting,
    tools: [{ type: "function", function: { name: "f", parameters: {} } }],
    tool_choice: "auto",
    response_format: { type: "json_object" },
    metadata: { a: "b" },
    store: true,
    service_tier: "auto",
    user: "ada",
    reasoning_effort: "low",
  });
  assert.equal(answer.choices[0]?.message.content, "Yes");
});

test("lists the models", async () => {
  const ids: string[] = [];
  for await (const model of clientOf(service).models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["small"]);
});

describe("errors become the classes of the SDK", () => {
  const rows: [
    rule: string,
    error: new (...args: never[]) => Error,
    status: number,
    code: string,
    ask: () => Promise<unknown>,
  ][] = [
    [
      "400",
      OpenAI.BadRequestError,
      400,
      "invalid_value",
      () => clientOf(service).chat.completions.create({ ...greeting, temperature: 3 }),
    ],
    [
      "401",
      OpenAI.AuthenticationError,
      401,
      "invalid_api_key",
      () => clientOf(service, { key: "sk-wrong" }).models.list(),
    ],
    [
      "403",
      OpenAI.PermissionDeniedError,
      403,
      "model_not_allowed",
      () => clientOf(service).chat.completions.create({ ...greeting, model: "large" }),
    ],
    [
      "404 for a model",
      OpenAI.NotFoundError,
      404,
      "model_not_found",
      () => clientOf(service).chat.completions.create({ ...greeting, model: "gpt-4o" }),
    ],
    [
      "404 for a path",
      OpenAI.NotFoundError,
      404,
      "unknown_path",
      () => clientOf(service).embeddings.create({ model: "small", input: "x" }),
    ],
    [
      "404 for the path of a model",
      OpenAI.NotFoundError,
      404,
      "unknown_path",
      () => clientOf(service).models.retrieve("small"),
    ],
  ];
  for (const [rule, expected, status, code, ask] of rows) {
    test(rule, async () => {
      await assert.rejects(ask, (error) => {
        assert.ok(error instanceof OpenAI.APIError && error instanceof expected);
        assert.equal(error.status, status);
        assert.equal(error.code, code);
        assert.match(error.requestID ?? "", /^[0-9a-f-]{36}$/);
        return true;
      });
    });
  }

  test("402 is not retried", async () => {
    const none = { credits: 0, every: "P1D", align: "opening" } as const;
    await using poor = await startService({ plan: { base: none, overage: none } });
    await assert.rejects(clientOf(poor, { maxRetries: 2 }).chat.completions.create(greeting), {
      status: 402,
      code: "insufficient_credits",
    });
    assert.equal(poor.finished.length, 1);
  });

  test("503 and 429 are retried after the time that they name", async () => {
    service.finished.length = 0;
    let refusals = 0;
    service.engine.script = () => {
      refusals += 1;
      return refusals === 1 ? { tokens: [], refusal: { at: "generate", kind: "overloaded" } } : say("Yes");
    };
    const answer = await clientOf(service, { maxRetries: 1 }).chat.completions.create(greeting);
    assert.equal(answer.choices[0]?.message.content, "Yes");
    assert.deepEqual(
      service.finished.map(({ status }) => status),
      [503, 200],
    );
  });

  test("a failure in the middle of a stream is thrown by the stream", async () => {
    service.engine.script = () => ({ ...say("a", "b"), failure: { afterTokens: 1, kind: "failed" } });
    const stream = await clientOf(service).chat.completions.create({ ...greeting, stream: true });
    const texts: string[] = [];
    await assert.rejects(
      async () => {
        for await (const chunk of stream) texts.push(chunk.choices[0]?.delta.content ?? "");
      },
      (error) => error instanceof OpenAI.APIError && error.code === "upstream_error",
    );
    assert.deepEqual(texts, ["", "a"]);
  });
});

test("stops the engine on an abort", async () => {
  service.engine.script = () => babble("word ", { tokenDelayMs: 1 });
  service.settled.length = 0;
  const stream = await clientOf(service).chat.completions.create({ ...greeting, stream: true });
  let read = 0;
  for await (const _ of stream) {
    read += 1;
    if (read === 4) break;
  }
  await until("it is settled", () => service.settled.length > 0);
  assert.equal(service.settled[0]?.ending, "client_gone");
  assert.equal(service.engine.open, 0);
});

test("answers fifty concurrent requests", async () => {
  service.engine.script = (prompt) => say("echo ", prompt.messages.at(-1)?.content ?? "");
  const client = clientOf(service);
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      const messages = [{ role: "user" as const, content: `number ${index}` }];
      if (index % 2 === 0)
        return (await client.chat.completions.create({ model: "small", messages })).choices[0]?.message
          .content;
      return client.chat.completions.stream({ model: "small", messages }).finalContent();
    }),
  );
  assert.deepEqual(
    answers,
    Array.from({ length: 50 }, (_, index) => `echo number ${index}`),
  );
});
