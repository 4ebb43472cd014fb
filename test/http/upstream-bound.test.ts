/** Prompts that are not counted are held for in full, and no report is charged beyond its hold. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { errorOf } from "../fixtures/service.ts";
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

/** A prompt of 124 bytes, and of 140 tokens at most. */
const dense = [{ role: "user", content: "\u0007".repeat(124) }];

test("refuses a dense prompt that the balance cannot pay, instead of charging more than it has", async () => {
  await using front = await startFront(balanceOf(120));
  const response = await front.chat({ messages: dense });
  assert.equal(response.status, 402);
  const { message } = await errorOf(response);
  assert.match(message, /at most 140 tokens/);
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
  assert.equal(front.log().match(/it counted 20 tokens, and the prompt was reported with 60/g)?.length, 1);
});

describe("a prompt that is not counted", () => {
  /** 2000 bytes, of which a quarter is above a window of 200. */
  const long = [{ role: "user", content: "word ".repeat(400) }];
  const tooLong = JSON.stringify({ error: { message: "The prompt is longer than the context window" } });

  test("is sent even if a quarter of its bytes exceeds the window, with half the window as limit", async () => {
    await using front = await startFront({ ...balanceOf(3000), contextWindow: 200 });
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(150, 1), done);
    const row = await front.receipt(await front.chat({ messages: long }));
    assert.equal(front.upstream.last().body.max_tokens, 100);
    assert.deepEqual([row?.promptTokens, row?.costMicro, row?.estimated], [150, 151_000_000, false]);
  });

  test("is refused by the server if it is too long, and costs nothing", async () => {
    await using front = await startFront({ ...balanceOf(3000), contextWindow: 200 });
    front.upstream.play = (call) => call.answer(400, tooLong);
    const response = await front.chat({ messages: long });
    const { code, message } = await errorOf(response);
    assert.deepEqual([response.status, code], [400, "context_length_exceeded"]);
    assert.match(message, /^This model's maximum context length is 200 tokens\. /);
    assert.equal((await front.service.balance()).base.remainingMicro, 3_000_000_000);
  });

  test("is held for its bytes and charged as reported, also if the server's window is larger", async () => {
    await using poor = await startFront({ ...balanceOf(2015), contextWindow: 200 });
    assert.equal((await poor.chat({ messages: long })).status, 402);
    await using front = await startFront({ ...balanceOf(2017), contextWindow: 200 });
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(900, 1), done);
    const row = await front.receipt(await front.chat({ messages: long }));
    assert.deepEqual([row?.promptTokens, row?.estimated, row?.shortfallMicro], [900, false, 0]);
  });

  test("leaves the rest of the window to the answer, and never less than half", async () => {
    await using front = await startFront();
    const limitFor = async (bytes: number, body = {}) => {
      await front.chat({ messages: [{ role: "user", content: "x".repeat(bytes) }], ...body });
      return front.upstream.last().body.max_tokens;
    };
    assert.deepEqual([await limitFor(4000), await limitFor(24_000)], [7192, 4096]);
    assert.equal(await limitFor(24_000, { max_tokens: 3000 }), 3000, "as the caller asks");
    assert.equal(await limitFor(24_000, { max_tokens: 9000 }), 4096);
  });

  test("counts for a quarter of its bytes in limits per minute, until it is charged", async () => {
    const { service } = balanceOf(3000);
    const limits = { tokensPerMinute: 1200 };
    await using front = await startFront({ service: { ...service, plan: { ...service?.plan, limits } } });
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(800, 1), done);
    const left = async (messages: object[]) => {
      const response = await front.chat({ messages });
      await front.receipt(response);
      return [response.status, Number(response.headers.get("x-ratelimit-remaining-tokens"))];
    };
    assert.deepEqual(await left(long), [200, 700]);
    const [status, rest] = await left(long);
    assert.equal(status, 429);
    assert.ok(rest !== undefined && rest >= 399 && rest < 500, `${rest} of 1200 after 801`);
  });

  test("is charged for a quarter of its bytes if the server reports no usage, marked as estimated", async () => {
    await using front = await startFront(balanceOf(3000));
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), done);
    const row = await front.receipt(await front.chat({ messages: long }));
    assert.deepEqual([row?.promptTokens, row?.completionTokens, row?.estimated], [500, 1, true]);
    const empty = await front.receipt(await front.chat({ messages: [{ role: "user", content: "" }] }));
    assert.deepEqual([empty?.promptTokens, empty?.estimated], [1, true]);
  });

  test("is charged as an estimate if the server reports more than the prompt can have", async () => {
    await using front = await startFront(balanceOf(3000));
    front.upstream.play = (call) => call.stream(first, text("ok"), finish(), usage(8193, 1), done);
    const row = await front.receipt(await front.chat({ messages: long }));
    assert.deepEqual([row?.promptTokens, row?.estimated], [500, true]);
  });
});

test("asks a server whose count was exceeded again after ten minutes", async (t) => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":4}');
  const asked = async () => {
    await front.chat();
    return front.upstream.asked.length;
  };
  const now = performance.now.bind(performance);
  assert.deepEqual([await asked(), await asked()], [1, 1]);
  t.mock.method(performance, "now", () => now() + 590_000);
  assert.equal(await asked(), 1);
  t.mock.method(performance, "now", () => now() + 600_000);
  assert.equal(await asked(), 2);
});
