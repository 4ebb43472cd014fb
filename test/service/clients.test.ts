/** The official SDK and the embedded engine. Other tests of the SDK: test/http/sdk.test.ts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { newFolder } from "../fixtures/program.ts";

const model = "smollm2-135m-instruct";
const messages = [{ role: "user" as const, content: "What is an inkwell?" }];

test("gives the official SDK the same answer streamed and whole", async () => {
  await using folder = await newFolder();
  await using service = startInside(folder.path);
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const stream = await client.chat.completions.create({
    model,
    messages,
    seed: 7,
    max_tokens: 20,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let finish: string | null | undefined;
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason;
    usage = chunk.usage ?? usage;
  }
  assert.ok(text.length > 0);
  assert.ok(finish === "stop" || finish === "length");
  const whole = await client.chat.completions.create({ model, messages, seed: 7, max_tokens: 20 });
  assert.equal(whole.choices[0]?.message.content, text);
  assert.equal(whole.choices[0]?.finish_reason, finish);
  assert.equal(whole.usage?.completion_tokens, usage?.completion_tokens);
  assert.equal(whole.usage?.prompt_tokens, usage?.prompt_tokens);
  assert.equal(await service.stop(), 0);
  assertSoundLedger(folder.path);
});
