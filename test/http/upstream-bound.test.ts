/** Prompts that are not counted are held for in full, and no report is charged beyond its hold. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { Tokenizer } from "../../src/engines/upstream/tokenizer.ts";
import { findTokenizerFiles } from "../../src/model-files/tokenizer-files.ts";
import { writeLlamaTokenizer } from "../fixtures/llama-tokenizer.ts";
import { errorOf } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { charged, type FrontOptions, startFront } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

/** One credit for a token, and a balance of so many credits. */
function balanceOf(credits: number): FrontOptions {
  return {
    templateTokens: 0,
    service: {
      price: { prompt: 1_000_000, completion: 1_000_000 },
      plan: {
        base: { credits, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1M", align: "opening" },
      },
    },
  };
}

/** A prompt of 140 tokens that earlier estimates took for half of it. */
const dense = [{ role: "user", content: "\u0007".repeat(124) }];

test("refuses a dense prompt that the balance cannot pay, instead of charging more than it has", async () => {
  await using front = await startFront(balanceOf(120));
  const response = await front.chat({ messages: dense });
  assert.equal(response.status, 402);
  const { message } = await errorOf(response);
  assert.match(message, /up to 140 tokens/);
  assert.equal(front.upstream.calls.length, 0);
  assert.equal((await front.service.balance()).base.remainingMicro, 120_000_000);
});

test("charges a dense prompt as the upstream counts it, without a shortfall", async () => {
  await using front = await startFront(balanceOf(200));
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(124, 1), done);
  const row = await front.receipt(await front.chat({ messages: dense, max_tokens: 1 }));
  assert.deepEqual([row?.promptTokens, row?.costMicro, row?.shortfallMicro], [124, 125_000_000, 0]);
});

test("never charges more prompt tokens than were held, and reports the model", async () => {
  await using front = await startFront(balanceOf(200));
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(8000, 1), done);
  const row = await front.receipt(await front.chat({ messages: dense, max_tokens: 1 }));
  assert.deepEqual([row?.promptTokens, row?.completionTokens, row?.shortfallMicro], [140, 1, 0]);
  assert.match(
    await front.service.metrics.text(),
    /inkwell_uncharged_tokens_total\{model="big",kind="prompt"\} 7860/,
  );
  assert.match(front.log(), /"unchargedPromptTokens":7860/);
});

test("takes tokens that are reported at the end from the balance, and charges no more than it has", async () => {
  await using front = await startFront({ ...balanceOf(1000), contextWindow: 100_000 });
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(10, 500), done);
  const messages = [{ role: "user", content: "Hi" }];
  const row = charged(await front.receipt(await front.chat({ messages })));
  assert.deepEqual([row.promptTokens, row.completionTokens], [10, 500]);
  assert.equal((await front.service.balance()).base.remainingMicro, 490_000_000);
});

test("charges late tokens only as far as the balance pays for them", async () => {
  await using front = await startFront({ ...balanceOf(300), contextWindow: 100_000 });
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(10, 5000), done);
  const messages = [{ role: "user", content: "Hi" }];
  const row = await front.receipt(await front.chat({ messages, max_tokens: 6000 }));
  assert.deepEqual([row?.promptTokens, row?.completionTokens, row?.shortfallMicro], [10, 290, 0]);
  assert.equal((await front.service.balance()).base.remainingMicro, 0);
});

test("asks SGLang for the tokens of a prompt, and holds for exactly them", async () => {
  await using front = await startFront({ ...balanceOf(50), dialect: "sglang" });
  front.upstream.playOther = (call) => call.answer(200, '{"tokens":[1],"count":30,"max_model_len":8192}');
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(30, 1), done);
  const row = charged(await front.receipt(await front.chat({ messages: dense })));
  assert.equal(row.promptTokens, 30);
  assert.equal(front.upstream.asked[0]?.path, "/tokenize");
  assert.equal(front.upstream.last().body.max_tokens, 20, "the rest of the balance");
});

test("stops asking a server whose tokenizer takes no conversations", async () => {
  await using front = await startFront({ dialect: "sglang" });
  front.upstream.playOther = (call) => call.answer(400, '{"message":"prompt: field required"}');
  await front.chat();
  const asked = front.upstream.asked.length;
  await front.chat();
  assert.equal(front.upstream.asked.length, asked);
  assert.match(front.log(), /refuses every conversation/);
});

test("holds for the bound after an upstream has reported more than was counted", async () => {
  await using front = await startFront({ ...balanceOf(1000), dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":20}');
  front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(60, 1), done);
  const promptTokens = async () => {
    const response = await front.chat({ messages: dense, max_tokens: 1 });
    return charged(await front.receipt(response)).promptTokens;
  };
  assert.equal(await promptTokens(), 20, "the hold pays for no more");
  assert.equal(await promptTokens(), 60, "held for the bound, charged as reported");
  assert.equal(front.log().match(/more prompt tokens than were counted/g)?.length, 1);
});

const folder = await mkdtemp(path.join(tmpdir(), "inkwell-bound-"));
after(() => rm(folder, { recursive: true }));

async function tokenizerOf(template?: string): Promise<Tokenizer> {
  const files = await findTokenizerFiles(await writeLlamaTokenizer(folder, template), folder);
  assert.ok(files !== null);
  return await Tokenizer.start({ files, log: { info() {}, warn() {}, error() {} } });
}

test("holds for the tokens that the tokenizer of the model counts", () =>
  unlessStalled(async () => {
    const tokenizer = await tokenizerOf("{{ messages[0].content }}");
    await using front = await startFront({ ...balanceOf(50), tokenizer, dialect: "vllm" });
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(18, 1), done);
    const messages = [{ role: "user", content: "Hello there" }];
    const row = charged(await front.receipt(await front.chat({ messages })));
    assert.equal(row.promptTokens, 18);
    assert.equal(front.upstream.last().body.max_tokens, 50 - 2 - 16);
    assert.equal(front.upstream.asked.length, 0, "the server is not asked");
  }));

test("adds the allowances of the template to the texts if the tokenizer has no template", () =>
  unlessStalled(async () => {
    const tokenizer = await tokenizerOf();
    await using front = await startFront({ ...balanceOf(50), tokenizer, templateTokens: 10 });
    await front.chat({ messages: [{ role: "user", content: "Hello there" }] });
    assert.equal(front.upstream.last().body.max_tokens, 50 - 2 - 16 - 10);
  }));

test("sends the messages in the form that the template of the tokenizer accepts", () =>
  unlessStalled(async () => {
    const tokenizer = await tokenizerOf(
      "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}{{ messages[0].content }}",
    );
    await using front = await startFront({ tokenizer });
    const twice = ["a", "b"].map((content) => ({ role: "user", content }));
    await front.chat({ messages: twice });
    assert.deepEqual(front.upstream.last().body.messages, [{ role: "user", content: "a\n\nb" }]);
  }));
