/** Charges for upstream answers whose usage is missing or implausible. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { sliceTokens } from "../../src/chat/hold-extender.ts";
import { eventsOf } from "../fixtures/batches.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { jsonOf } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";
import { type Call, charged, startFront, startUpstream } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

interface Completion {
  choices: { message: { content: string }; finish_reason: string }[];
}

describe("replaces an implausible usage by our count, and logs it", () => {
  const cases: [name: string, promptTokens: unknown, completionTokens: unknown][] = [
    ["negative (lingyuins/octopus#243)", -5, 2],
    ["negative completion", 5, -2],
    ["fractional", 5, 2.5],
    ["more completion than was asked for", 5, 11],
    ["more prompt than fits the model", 8193, 2],
    ["beyond all integers", 5, 1e300],
    ["strings", "5", "2"],
    ["zero under an answer (BerriAI/litellm#37992)", 5, 0],
    ["no prompt at all", 0, 2],
    ["null", null, null],
  ];
  for (const [name, promptTokens, completionTokens] of cases) {
    test(name, async () => {
      await using front = await startFront();
      front.upstream.play = (call) =>
        call.stream(text("Hello"), text(" world"), finish(), usage(promptTokens, completionTokens), done);
      const response = await front.chat({ max_tokens: 10 });
      assert.equal(response.status, 200);
      const row = charged(await front.receipt(response));
      assert.deepEqual([row.completionTokens, row.estimated, row.ending], [2, true, "stop"]);
      assert.ok(row.promptTokens > 0);
      assert.match(
        await front.service.metrics.text(),
        /inkwell_estimated_usages_total\{model="big",reason="absurd"\} 1/,
      );
      assert.match(front.log(), /impossible usage/);
    });
  }
});

test("accepts the usage of an upstream that sends more events than tokens", async () => {
  await using front = await startFront();
  const letters = [..."an answer of few tokens and many letters"].map(text);
  front.upstream.play = (call) => call.stream(...letters, finish(), usage(5, 9), done);
  const row = charged(await front.receipt(await front.chat()));
  assert.deepEqual([row.completionTokens, row.estimated], [9, false]);
  assert.ok(!front.log().includes("impossible usage"));
});

test("rejects a usage with far too few tokens for the text", async () => {
  await using front = await startFront({ dialect: "vllm" });
  const counted = event({
    choices: [{ index: 0, delta: { content: "twenty characters or " }, finish_reason: null }],
    usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 },
  });
  front.upstream.play = (call) => call.stream(...Array(40).fill(counted), finish(), usage(5, 1), done);
  const row = charged(await front.receipt(await front.chat()));
  assert.deepEqual([row.completionTokens >= 40, row.estimated], [true, true]);
  assert.match(front.log(), /impossible usage/);
});

test("does not charge the tokens of a failed upstream for the answer of another", async () => {
  const other = await startUpstream(async (call) => {
    await call.send(first, usage(500, 2));
    call.socket.destroy();
  });
  await using front = await startFront({ others: [other] });
  front.upstream.play = (call) => call.stream(text("Hello"), text(" world"), finish(), done);
  for (let n = 0; n < 2; n += 1) {
    const row = charged(await front.receipt(await front.chat()));
    assert.ok(row.promptTokens < 100, `${row.promptTokens} tokens`);
    assert.deepEqual([row.completionTokens, row.estimated], [2, true]);
  }
  assert.ok(other.calls.length > 0, "it was asked");
});

test("estimates the usage if the upstream reports none (llmgateway#3331, BerriAI/litellm#36943)", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream(first, text("a"), text("b"), text("c"), finish(), done);
  const response = await front.chat();
  const row = charged(await front.receipt(response));
  assert.deepEqual([row.completionTokens, row.estimated, row.ending], [3, true, "stop"]);
  assert.match(
    await front.service.metrics.text(),
    /inkwell_estimated_usages_total\{model="big",reason="missing"\} 1/,
  );
});

test("estimates several tokens in one event by their characters", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream(text("x".repeat(80)), finish(), done);
  assert.equal(charged(await front.receipt(await front.chat())).completionTokens, 10);
});

test("charges exactly if every event has a usage, even if the answer breaks off", async () => {
  await using front = await startFront({ dialect: "vllm" });
  const counted = (content: string, made: number) =>
    event({
      choices: [{ index: 0, delta: { content }, finish_reason: null }],
      usage: { prompt_tokens: 7, completion_tokens: made, total_tokens: 7 + made },
    });
  front.upstream.play = async (call) => {
    await call.send(counted("Hel", 3), counted("lo", 5));
    call.socket.destroy();
  };
  const events = await front.events();
  assert.equal(events.error?.code, "upstream_error");
  assert.deepEqual(charged(await front.settled()), {
    promptTokens: 7,
    cachedTokens: 0,
    completionTokens: 5,
    reasoningTokens: 0,
    ending: "engine_failed",
    estimated: false,
  });
  assert.deepEqual(front.upstream.last().body.stream_options, {
    include_usage: true,
    continuous_usage_stats: true,
  });
});

test("uses the timings of llama-server as usage", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  const timings = { cache_n: 4, prompt_n: 6, predicted_n: 3 };
  front.upstream.play = async (call) => {
    await call.send(event({ choices: [{ index: 0, delta: { content: "Hello" } }], timings }));
    call.socket.destroy();
  };
  await front.events();
  const row = charged(await front.settled());
  assert.deepEqual([row.promptTokens, row.completionTokens, row.estimated], [10, 3, false]);
});

test("ignores timings without cached tokens, because most of the prompt may be cached", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  const timings = { prompt_n: 1, predicted_n: 3 };
  front.upstream.play = async (call) => {
    await call.send(event({ choices: [{ index: 0, delta: { content: "Hello" } }], timings }));
    call.socket.destroy();
  };
  await front.events({ messages: [{ role: "user", content: "word ".repeat(400) }] });
  const row = charged(await front.settled());
  assert.ok(row.promptTokens > 100, `${row.promptTokens} tokens`);
  assert.equal(row.estimated, true);
});

test("holds credits for an upper bound of the prompt, and charges its real length", async () => {
  await using front = await startFront();
  const content = "word ".repeat(400);
  front.upstream.play = (call) => call.stream(text("ok"), finish(), usage(700, 1), done);
  const messages = [{ role: "user", content }];
  await front.chat({ messages });
  // Without a usage, a quarter of the bytes is charged.
  front.upstream.play = (call) => call.stream(text("ok"), finish(), done);
  const row = charged(await front.receipt(await front.chat({ messages })));
  assert.equal(row.estimated, true);
  assert.equal(row.promptTokens, 500);
});

test("asks vLLM for the tokens of a prompt", async () => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":8000,"max_model_len":8192,"tokens":[]}');
  const response = await front.chat({ max_tokens: 5000 });
  assert.equal(response.status, 200);
  const [asked] = front.upstream.asked;
  assert.equal(asked?.path, "/tokenize");
  assert.deepEqual(asked?.body.messages, [{ role: "user", content: "Hello there" }]);
  assert.equal(front.upstream.last().body.max_tokens, 192, "what the window leaves");
});

test("asks llama-server to apply its template, and for the tokens of the result", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  front.upstream.playOther = (call: Call) =>
    call.path === "/apply-template"
      ? call.answer(200, '{"prompt":"<s>Hello there"}')
      : call.answer(200, JSON.stringify({ tokens: Array(8190).fill(1) }));
  assert.equal((await front.chat()).status, 200);
  assert.deepEqual(
    front.upstream.asked.map(({ path, body }) => [path, body.content]),
    [
      ["/apply-template", undefined],
      ["/tokenize", "<s>Hello there"],
    ],
  );
  assert.equal(front.upstream.last().body.max_tokens, 2);
});

test("sends the thinking parameters to the tokenizer, because they may change the prompt", async () => {
  const reasoning = { field: null, tags: null, opened: false, hidden: true };
  await using front = await startFront({ dialect: "vllm", reasoning });
  front.upstream.playOther = (call) => call.answer(200, '{"count":5}');
  await front.chat({ reasoning: { max_tokens: 0 } });
  const said = { enable_thinking: false, thinking: false };
  assert.deepEqual(front.upstream.asked[0]?.body.chat_template_kwargs, said);
  assert.deepEqual(front.upstream.last().body.chat_template_kwargs, said);
});

test("asks vLLM to render the effort that it adds to a chat itself", async () => {
  const reasoning = { field: null, tags: null, opened: false, hidden: true };
  await using front = await startFront({ dialect: "vllm", reasoning });
  front.upstream.playOther = (call) => call.answer(200, '{"count":5}');
  await front.chat({ reasoning_effort: "high" });
  assert.deepEqual(front.upstream.asked[0]?.body.chat_template_kwargs, { reasoning_effort: "high" });
  assert.equal(front.upstream.last().body.chat_template_kwargs, undefined);
});

test("cuts off a tokenizer answer that never ends, and answers the request", async () => {
  await using front = await startFront({ dialect: "vllm" });
  const mebibyte = " ".repeat(1024 * 1024);
  let sent = 0;
  front.upstream.playOther = async (call) => {
    call.head(200, { "content-type": "application/json" });
    while (!call.isClosed && sent < 500) {
      // Resolves when the system has accepted the bytes or the connection is closed.
      await Promise.race([call.send(mebibyte), call.closed]);
      sent += 1;
    }
  };
  assert.equal((await front.chat()).status, 200);
  assert.match(front.log(), /they are held for one token per byte/);
  await front.upstream.asked[0]?.closed;
  assert.ok(sent < 100, `${sent} MiB were taken`);
});

for (const length of [20, 20_000]) {
  test(`does not parse a tokenizer answer with too many values for a prompt of ${length} characters`, async (t) => {
    await using front = await startFront({ dialect: "vllm", contextWindow: 50_000 });
    const tokens = `[${"1,".repeat(70_000)}1]`;
    front.upstream.playOther = (call) => call.answer(200, `{"count":5,"tokens":${tokens}}`);
    const parse = t.mock.method(JSON, "parse");
    const messages = [{ role: "user", content: "x".repeat(length) }];
    const row = charged(await front.receipt(await front.chat({ messages })));
    assert.equal(row.promptTokens, 5, "as the usage of the answer says");
    assert.ok(parse.mock.calls.every(({ arguments: [text] }) => !text.includes(tokens)));
    // The tokens of a long prompt may be too many. The next prompt may be short.
    const isOfPrompt = length > 16_384;
    assert.equal(front.log().includes("its answer has too many values"), !isOfPrompt);
    await front.chat();
    assert.equal(front.upstream.asked.length, isOfPrompt ? 2 : 1);
  });
}

test("answers the request if the tokenizer never responds", async () => {
  const patient = { connectMs: 5000, headersMs: 600_000, idleMs: 600_000 };
  await using front = await startFront({ dialect: "vllm", times: patient });
  front.upstream.playOther = () => {};
  assert.equal((await front.chat()).status, 200);
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.asked.length, 1, "and is left alone for a while");
});

test("leaves the conversation unchanged if the tokenizer refuses everything", async () => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(400, "{}");
  const messages = [
    { role: "system", content: "Be brief" },
    { role: "user", content: "Hi" },
  ];
  assert.equal((await front.chat({ messages })).status, 200);
  assert.deepEqual(front.upstream.last().body.messages, messages);
});

test("answers the request if the tokenizer fails, and does not use it for a while", async () => {
  await using front = await startFront({ dialect: "vllm" });
  assert.equal((await front.chat()).status, 200);
  assert.equal((await front.chat()).status, 200);
  assert.equal(front.upstream.asked.length, 1);
  assert.match(front.log(), /they are held for one token per byte/);
});

test("repeats a tokenizer request once if its kept connection closes", async () => {
  await using front = await startFront({ dialect: "vllm" });
  front.upstream.playOther = (call) => call.answer(200, '{"count":8000}');
  await front.chat();
  front.upstream.playOther = (call) => {
    front.upstream.playOther = (again) => again.answer(200, '{"count":8100}');
    call.socket.destroy();
  };
  await front.chat();
  assert.equal(front.upstream.last().body.max_tokens, 92);
  assert.ok(!front.log().includes("they are held for one token per byte"));
  front.upstream.playOther = (call) => call.socket.destroy();
  await front.chat();
  assert.equal(front.upstream.asked.length, 5, "only once");
  assert.match(front.log(), /they are held for one token per byte/);
});

test("asks the tokenizer of another server if one fails", async () => {
  const other = await startUpstream();
  await using front = await startFront({ others: [other], dialect: "vllm" });
  other.playOther = (call) => call.answer(200, '{"count":8000}');
  for (let n = 0; n < 4; n += 1) await front.chat();
  assert.equal(front.upstream.asked.length, 1, "left alone for a while");
  assert.equal(other.asked.length, 3);
  const asked = [...front.upstream.calls, ...other.calls].map(({ body }) => body.max_tokens);
  assert.equal(asked.filter((maxTokens) => maxTokens === 192).length, 3, "what the window leaves");
});

/** Ten prompt tokens cost 100 micro-credits, like one completion token. */
const dear = { prompt: 0, completion: 1_000_000 };

test("ends the answer at the last paid token, and closes the upstream connection", async () => {
  await using front = await startFront({
    service: {
      price: dear,
      plan: {
        base: { credits: 300, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1D", align: "opening" },
      },
    },
  });
  front.upstream.play = async (call) => {
    for (let n = 0; !call.isClosed && n < 5000; n += 1) await call.send(text(`${n} `));
  };
  const response = await front.chat({ max_tokens: 4000 });
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.finish_reason, "length");
  assert.equal(answer.choices[0]?.message.content.split(" ").length - 1, 300, "as many as 300 credits buy");
  const row = await front.receipt(response);
  assert.deepEqual([row?.ending, row?.completionTokens, row?.shortfallMicro], ["credits", 300, 0]);
  await front.upstream.last().closed;
});

test("asks the upstream for no more tokens than the balance pays", async () => {
  await using front = await startFront({
    service: {
      price: dear,
      plan: {
        base: { credits: 20, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1D", align: "opening" },
      },
    },
  });
  await front.chat({ max_tokens: 4000 });
  assert.equal(front.upstream.last().body.max_tokens, 20);
});

test("delivers an event with more tokens than a slice once it is paid", async () => {
  await using front = await startFront({
    service: {
      price: dear,
      plan: {
        base: { credits: 5000, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1D", align: "opening" },
      },
    },
  });
  const tokens = 4 * sliceTokens;
  front.upstream.play = (call) => call.stream(text("x".repeat(8 * tokens)), finish(), usage(5, tokens), done);
  const response = await front.chat({ max_tokens: 2 * tokens });
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content.length, 8 * tokens);
  assert.equal(charged(await front.receipt(response)).completionTokens, tokens);
});

test("does not deliver an event with more tokens than the balance pays", async () => {
  await using front = await startFront({
    service: {
      price: dear,
      plan: {
        base: { credits: 300, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1D", align: "opening" },
      },
    },
  });
  front.upstream.play = (call) => call.send(text("a"), text("x".repeat(8 * 1000)));
  const response = await front.chat({ max_tokens: 4000 });
  const answer = await jsonOf<Completion>(response);
  assert.equal(answer.choices[0]?.message.content, "a");
  assert.equal(answer.choices[0]?.finish_reason, "length");
  assert.equal(charged(await front.receipt(response)).completionTokens, 1);
  await front.upstream.last().closed;
});

test("loses nothing if the reader pauses longer than an upstream may be silent", () =>
  unlessStalled(async () => {
    await using front = await startFront({ times: { connectMs: 60_000, headersMs: 60_000, idleMs: 1000 } });
    const words = 2000;
    front.upstream.play = (call) =>
      call.stream(
        ...Array.from({ length: words }, () => text("x".repeat(500))),
        finish(),
        usage(5, words),
        done,
      );
    const prompt = { accountId: "a", messages: [{ role: "user", content: "Hi" }], reasoning: {} } as const;
    const prepared = await front.engine.prepare(prompt, new AbortController().signal);
    const options = {
      maxTokens: 1_000_000,
      paidTokens: 1_000_000,
      sampling: { stop: [] },
      onTokens: () => {},
    };
    let read = 0;
    for await (const event of eventsOf(prepared.generate(options))) {
      if (event.type !== "text") continue;
      read += 1;
      if (read === 10) await new Promise((resolve) => setTimeout(resolve, 2000));
    }
    assert.equal(read, words);
  }));

describe("keeps the usage if the reader pauses longer than it may take", () => {
  const finishMs = 1000;
  const words = (count: number) => Array.from({ length: count }, () => text("x"));
  const last = delta({ content: "x" }, { finish_reason: "stop" });
  const cases: [name: string, events: string[]][] = [
    ["when the answer ends behind a full window", [...words(100), finish()]],
    ["when its end is what fills the window", [...words(63), last]],
  ];
  for (const [name, events] of cases) {
    test(name, () =>
      unlessStalled(async () => {
        await using front = await startFront({ finishMs });
        front.upstream.play = async (call) => {
          // Sent at once, so that the window is full before anything is read.
          await call.send(events.join(""));
          await call.stream(usage(5, 900), done);
        };
        const prompt = {
          accountId: "a",
          messages: [{ role: "user", content: "Hi" }],
          reasoning: {},
        } as const;
        const prepared = await front.engine.prepare(prompt, new AbortController().signal);
        const options = { maxTokens: 1000, paidTokens: 1000, sampling: { stop: [] }, onTokens: () => {} };
        const generation = prepared.generate(options);
        let read = 0;
        for await (const { type } of eventsOf(generation)) {
          if (type !== "text") continue;
          read += 1;
          if (read === 10) await new Promise((resolve) => setTimeout(resolve, 2 * finishMs));
        }
        assert.ok(read >= 64);
        assert.deepEqual([generation.usage.completionTokens, generation.usage.estimated], [900, false]);
      }),
    );
  }
});

test("does not wait for a missing usage once the reader has caught up", async () => {
  await using front = await startFront({ finishMs: 100 });
  const passedMs = startOwnTime();
  const words = Array.from({ length: 100 }, () => text("x"));
  front.upstream.play = (call) => call.send([...words, finish()].join(""));
  const events = await front.events();
  assert.ok(events.done);
  assert.ok(passedMs() < 30_000, "before the connection is taken for dead");
  assert.equal(charged(await front.settled()).estimated, true);
});

test("a pausing reader slows down the upstream, with a bounded buffer (BerriAI/litellm#12685)", async () => {
  await using front = await startFront({ contextWindow: 1_000_000 });
  let sent = 0;
  const piece = text("x".repeat(1000));
  front.upstream.play = async (call) => {
    await call.send(first);
    // Resolves when the system has accepted the bytes, so it waits for a reader.
    while (!call.isClosed && sent < 400_000) {
      await call.send(piece);
      sent += 1;
    }
  };
  const controller = new AbortController();
  const response = await front.chat({ stream: true }, controller.signal);
  assert.equal(response.status, 200);
  let before = -1;
  await until("the upstream stands still", async () => {
    const isStill = sent > 0 && sent === before;
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 300));
    return isStill;
  });
  assert.ok(sent < 100_000, `${sent} thousand characters were taken`);
  controller.abort();
  await front.upstream.last().closed;
  assert.equal(charged(await front.settled()).ending, "client_gone");
});
