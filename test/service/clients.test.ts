/**
 * Real clients and the embedded engine: the official SDK, and more concurrent requests than the
 * account can pay for. Other tests of the SDK: test/http/sdk.test.ts.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { ask } from "../fixtures/http-stream.ts";
import { type InnerProgram, startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { type Folder, miniature, newFolder } from "../fixtures/program.ts";

const model = "smollm2-135m-instruct";
const messages = [{ role: "user" as const, content: "What is an inkwell?" }];

/** A hundred credits, and one for each completion token. */
const configuration = `plans:
  hundred: { base: { credits: 100, every: P1Y }, overage: { credits: 0, every: P1Y } }
models:
  ${model}: { engine: llama, source: ${miniature}, context_window: 4096, parallel: 4, threads: 1, gpu: off, price: { prompt: 0, completion: 1000000 } }
`;
let folder: Folder;
let service: InnerProgram;
let url = "";
let key = "";

before(async () => {
  folder = await newFolder();
  writeFileSync(path.join(folder.path, "inkwell.yaml"), configuration);
  service = startInside(folder.path);
  const up = await service.up();
  url = up.url;
  key = up.key ?? "";
});

after(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

test("gives the official SDK the same answer streamed and whole", async () => {
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
});

test("spends exactly the credits of an account in 200 concurrent requests, of which it can pay few", async () => {
  const left = "select base_amount - base_spent - base_held as base, holds from account";
  const before = query(folder.path, left)[0];
  assert.equal(before?.holds, 0);
  const wholeCredits = Number(before?.base) / 1_000_000;
  assert.ok(wholeCredits >= 60);
  // Two tokens each, which none of them ends by itself before.
  const request = { url, key, content: "An endless story, please.", max_tokens: 2 };
  const requests = Array.from({ length: 200 }, async () => {
    for (;;) {
      const answer = await ask(request);
      // A busy machine does not count all prompts in time. Such a request has no hold yet.
      if (answer.status !== 504) return answer;
      await answer.text();
    }
  });
  let [paid, tokens] = [0, 0];
  for (const answer of await Promise.all(requests)) {
    const { usage, error }: { usage?: { completion_tokens: number }; error?: { code: string } } = JSON.parse(
      await answer.text(),
    );
    tokens += usage?.completion_tokens ?? 0;
    if (answer.status === 200) paid += 1;
    else assert.match(error?.code ?? "", /^(insufficient_credits|credits_reserved)$/);
  }
  assert.deepEqual([tokens, paid], [wholeCredits, Math.ceil(wholeCredits / 2)]);
  const after = query(folder.path, left)[0];
  assert.deepEqual([after?.base, after?.holds], [0, 0]);
  assert.equal(query(folder.path, "select sum(shortfall) as n from charge")[0]?.n, 0);
  assert.equal((await ask({ url, key, max_tokens: 1 })).status, 402);
  assert.equal(await service.stop(), 0);
  assertSoundLedger(folder.path);
});
