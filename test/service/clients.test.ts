/**
 * Real clients and the real engine: the official SDK, an abort, and more concurrent requests than
 * the account can pay for.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { ask } from "../fixtures/http-stream.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { type Folder, miniature, newFolder, type Program, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

const tokenPriced = "one-credit-a-token";
let folder: Folder;
let service: Program;
let url = "";
let key = "";
let client: OpenAI;

/**
 * A hundred credits, and two prices: one that hardly counts, and one credit for each completion
 * token.
 */
before(async () => {
  folder = await newFolder();
  const engine = `engine: llama, source: ${miniature}, context_window: 4096, parallel: 4, threads: 1, gpu: off`;
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    `plans:
  hundred:
    base: { credits: 100, every: P1Y }
    overage: { credits: 0, every: P1Y }
models:
  smollm2-135m-instruct: { ${engine}, price: { prompt: 1, completion: 1 } }
  ${tokenPriced}: { ${engine}, price: { prompt: 0, completion: 1000000 } }
`,
  );
  service = startProgram(folder.path);
  const up = await service.up();
  url = up.url;
  key = up.key ?? "";
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
});

after(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

const model = "smollm2-135m-instruct";
const messages = [{ role: "user" as const, content: "What is an inkwell?" }];

test("gives the official SDK the same answer streamed and whole", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages,
    seed: 7,
    max_tokens: 60,
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
  const whole = await client.chat.completions.create({ model, messages, seed: 7, max_tokens: 60 });
  assert.equal(whole.choices[0]?.message.content, text);
  assert.equal(whole.choices[0]?.finish_reason, finish);
  assert.equal(whole.usage?.completion_tokens, usage?.completion_tokens);
  assert.equal(whole.usage?.prompt_tokens, usage?.prompt_tokens);
});

test("stops the decoder after an abort and charges the tokens made", async () => {
  const stream = await client.chat.completions
    .create({
      model,
      messages: [{ role: "user", content: "An endless story, please." }],
      stream: true,
    })
    .withResponse();
  let texts = 0;
  for await (const chunk of stream.data) {
    if ((chunk.choices[0]?.delta.content ?? "") !== "") texts += 1;
    if (texts === 5) break;
  }
  const id = stream.response.headers.get("x-request-id") ?? "";
  await until(
    "it is settled",
    () => query(folder.path, "select id from charge where id = ?", id).length === 1,
  );
  const [row] = query(folder.path, "select * from charge where id = ?", id);
  assert.equal(row?.ending, "client_gone");
  assert.ok(Number(row.completion_tokens) >= texts, "what was read is charged");
  assert.ok(Number(row.completion_tokens) < 4000, "it was not played to its end");
  assert.equal(row.cost, Number(row.prompt_tokens) + Number(row.completion_tokens));
});

test("spends exactly the credits of an account in 200 concurrent requests, of which it can pay 50", async () => {
  const left = "select base_amount - base_spent - base_held as base, holds from account";
  const before = query(folder.path, left)[0];
  assert.equal(before?.holds, 0);
  const wholeCredits = Math.floor(Number(before?.base) / 1_000_000);
  // Two tokens each, which none of them ends by itself before.
  const request = { url, key, model: tokenPriced, content: "An endless story, please.", max_tokens: 2 };
  const requests = Array.from({ length: 200 }, async () => {
    for (;;) {
      const answer = await ask(request);
      // A busy machine does not count all prompts in time. Such a request has no hold yet.
      if (answer.status !== 504) return answer;
      await answer.text();
    }
  });
  const answers = await Promise.all(requests);
  const statuses = new Map<number, number>();
  let tokens = 0;
  for (const answer of answers) {
    statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
    const body: { usage?: { completion_tokens: number }; error?: { code: string } } = JSON.parse(
      await answer.text(),
    );
    tokens += body.usage?.completion_tokens ?? 0;
    if (answer.status !== 200)
      assert.match(body.error?.code ?? "", /^(insufficient_credits|credits_reserved)$/);
  }
  assert.equal(tokens, wholeCredits, `tokens made and paid; ${JSON.stringify([...statuses])}`);
  assert.equal(statuses.get(200), Math.ceil(wholeCredits / 2));
  const after = query(folder.path, left)[0];
  assert.equal(after?.holds, 0);
  assert.equal(after?.base, Number(before?.base) - wholeCredits * 1_000_000);
  assertSoundLedger(folder.path);
  assert.equal(query(folder.path, "select sum(shortfall) as n from charge")[0]?.n, 0);

  const broke = await ask({ url, key, model: tokenPriced, max_tokens: 1 });
  assert.equal(broke.status, 402);
});

test("stops cleanly after these requests", async () => {
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  assertSoundLedger(folder.path);
});
