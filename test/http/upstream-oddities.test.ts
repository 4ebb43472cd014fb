/** Undocumented behaviour of servers: signs of life, codings, endings, texts and counts. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { errorOf, jsonOf } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";
import { charged, type Front, type Play, startFront } from "../fixtures/upstream.ts";
import { delta, done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const tail = [finish(), usage(5, 2), done];

async function whole(front: Front, body: object = {}) {
  const response = await front.chat(body);
  const json = await jsonOf<{ choices: { message: { content: string }; finish_reason: string }[] }>(response);
  const [choice] = json.choices;
  return {
    content: choice?.message.content,
    reason: choice?.finish_reason,
    row: await front.receipt(response),
  };
}

const noticed = (front: Front) => front.engine.servers()[0]?.notices.map(({ kind }) => kind);

describe("a sign of life is no part of an answer", () => {
  const signs: [name: string, sign: string][] = [
    ["an event without data", "data:\n\n"],
    ["an event with a space", "data: \n\n"],
    ["a ping without data", "event: ping\ndata:\n\n"],
    ["a comment", ": OPENROUTER PROCESSING\n\n"],
    ["an empty object", "data: {}\n\n"],
  ];
  for (const [name, sign] of signs) {
    test(name, async () => {
      await using front = await startFront();
      front.upstream.play = (call) =>
        call.stream(sign, first, sign, text("one"), sign, text(" two"), sign, ...tail);
      const { content, row } = await whole(front);
      assert.equal(content, "one two");
      assert.deepEqual(charged(row).completionTokens, 2);
      assert.deepEqual((await front.events()).texts, ["one", " two"]);
    });
  }
});

describe("an answer ends after `headers_seconds` without text", () => {
  const times = { connectMs: 60_000, headersMs: 400, idleMs: 60_000 };
  const forms: [name: string, sign: string][] = [
    ["empty objects at full speed", "data: {}\n\n".repeat(2000)],
    ["comments", ": ping\n\n"],
    ["events without data", "data:\n\n"],
  ];
  for (const [name, sign] of forms) {
    test(name, () =>
      unlessStalled(async () => {
        await using front = await startFront({ times });
        const babble: Play = async (call) => {
          while (!call.isClosed) {
            await call.send(sign);
            await new Promise((resolve) => setTimeout(resolve, 10));
          }
        };
        front.upstream.play = babble;
        const response = await front.chat();
        assert.equal(response.status, 504);
        assert.equal((await errorOf(response)).code, "upstream_timeout");
        assert.equal((await front.receipt(response))?.costMicro, 0);
        assert.match(front.log(), /it sent no text for 0\.4 s \(headers_seconds\)/);
        front.upstream.play = async (call) => {
          await call.send(first, text("one"));
          await babble(call);
        };
        const streamed = await front.events();
        assert.deepEqual([streamed.texts, streamed.error?.code], [["one"], "upstream_timeout"]);
      }),
    );
  }

  test("but not while it thinks, nor while text arrives", () =>
    unlessStalled(async () => {
      await using front = await startFront({ times });
      front.upstream.play = async (call) => {
        for (let n = 0; n < 8; n += 1) {
          await call.send(n < 6 ? delta({ reasoning_content: "hm" }) : text("x"));
          await new Promise((resolve) => setTimeout(resolve, 150));
        }
        await call.stream(finish(), usage(5, 8), done);
      };
      assert.equal((await whole(front)).content, "xx");
    }));
});

describe("a coding that nobody asked for is a failure of the server", () => {
  const answer = gzipSync([first, text("Hello"), ...tail].join(""));
  const plays: [name: string, play: Play][] = [
    [
      "an answer",
      (call) =>
        call.response
          .writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" })
          .end(answer),
    ],
    [
      "a refusal",
      (call) =>
        call.response
          .writeHead(400, { "content-type": "application/json", "content-encoding": "br" })
          .end(gzipSync("{}")),
    ],
  ];
  for (const [name, play] of plays) {
    test(name, async () => {
      await using front = await startFront();
      front.upstream.play = play;
      const response = await front.chat();
      assert.equal(response.status, 502);
      assert.equal((await errorOf(response)).code, "upstream_error");
      assert.match(front.log(), /in the coding (?:gzip|br), although Inkwell asks for none/);
      assert.equal(front.upstream.last().headers["accept-encoding"], "identity");
    });
  }

  test("and `identity` is none", async () => {
    await using front = await startFront();
    front.upstream.play = async (call) => {
      call.head(200, { "content-encoding": "Identity" });
      await call.stream(first, text("Hello"), ...tail);
    };
    assert.equal((await whole(front)).content, "Hello");
  });
});

test("waits as long as `retry-after-ms` says", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.answer(429, "{}", { "retry-after-ms": "6500", "retry-after": "60" });
  const response = await front.chat();
  assert.equal(response.status, 503);
  assert.equal(response.headers.get("retry-after"), "7");
});

describe("an error event means what its status means", () => {
  const plays: [error: object, status: number, code: string][] = [
    [{ message: "slow down", code: 429 }, 503, "overloaded"],
    [{ message: "slow down", type: "rate_limit_exceeded" }, 503, "overloaded"],
    [{ message: "too long", code: "context_length_exceeded" }, 400, "context_length_exceeded"],
    [{ message: "flagged", code: "content_filter" }, 400, "content_filter"],
    [{ message: "too late", code: 504 }, 504, "upstream_timeout"],
  ];
  for (const [error, status, code] of plays) {
    test(JSON.stringify(error), async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(event({ error }));
      for (let n = 0; n < 6; n += 1) {
        const response = await front.chat();
        if (n > 0 && code === "upstream_timeout") break;
        assert.equal(response.status, status);
        assert.equal((await errorOf(response)).code, code);
        if (status === 503) assert.ok(Number(response.headers.get("retry-after")) > 0);
      }
      const isFault = code === "upstream_timeout";
      if (!isFault) assert.equal(front.engine.servers()[0]?.pausedAccounts, 0, "the server did not fail");
    });
  }
});

describe("the end of an answer", () => {
  test("is content_filter if the moderation withholds the rest in an error event", async () => {
    await using front = await startFront();
    const error = {
      code: "data_inspection_failed",
      message: "Output data may contain inappropriate content.",
    };
    front.upstream.play = (call) => call.stream(text("one"), text(" two"), event({ error }));
    const { content, reason, row } = await whole(front);
    assert.deepEqual([content, reason, row?.completionTokens], ["one two", "content_filter", 2]);
    assert.equal(front.engine.servers()[0]?.pausedAccounts, 0);
  });

  for (const [word, reason] of [
    ["MAX_TOKENS", "length"],
    ["model_length", "length"],
    ["SAFETY", "content_filter"],
    ["sensitive", "content_filter"],
    ["eos", "stop"],
  ] as const) {
    test(`${word} is ${reason}`, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(text("Hello"), finish(word), usage(5, 1), done);
      assert.equal((await whole(front)).reason, reason);
      assert.deepEqual(noticed(front), []);
    });
  }

  for (const word of ["insufficient_system_resource", "network_error"]) {
    test(`${word} is a failure, free if it is not streamed`, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(text("Hello"), finish(word), usage(5, 1), done);
      const response = await front.chat();
      assert.equal(response.status, 502);
      assert.equal((await front.receipt(response))?.costMicro, 0);
      const streamed = await front.events();
      assert.deepEqual([streamed.error?.code, streamed.done], ["upstream_error", false]);
    });
  }

  test("in an unknown word is passed on as stop, and reported once for each word", async () => {
    await using front = await startFront();
    for (const word of ["banana", "banana", "OTHER", "banana"]) {
      front.upstream.play = (call) => call.stream(text("Hello"), finish(word), usage(5, 1), done);
      assert.equal((await whole(front)).reason, "stop");
    }
    assert.deepEqual(noticed(front), ["unknown_ending", "unknown_ending"]);
    assert.equal(front.service.log.filter(({ notice }) => notice === "unknown_ending").length, 2);
    const metrics = await front.service.metrics.text();
    assert.match(metrics, /inkwell_upstream_notices_total\{model="big",kind="unknown_ending"\} 4/);
  });
});

test("an answer without a reason for its end is passed on, and reported", async () => {
  await using front = await startFront();
  front.upstream.play = (call) => call.stream(text("Hello"), text(" world"), done);
  const { content, reason } = await whole(front);
  assert.deepEqual([content, reason], ["Hello world", "stop"]);
  assert.deepEqual(noticed(front), ["unknown_ending"]);
});

describe("text is text, wherever it stands", () => {
  const forms: [name: string, parts: string[]][] = [
    ["a refusal", [delta({ content: null, refusal: "I " }), delta({ refusal: "cannot." })]],
    ["a message", [event({ choices: [{ index: 0, message: { role: "assistant", content: "I cannot." } }] })]],
    [
      "a completion",
      [event({ choices: [{ index: 0, text: "I " }] }), event({ choices: [{ index: 0, text: "cannot." }] })],
    ],
    [
      "a difference with the message so far beside it",
      ["I ", "cannot."].map((content) =>
        event({ choices: [{ index: 0, delta: { content }, message: { content: "I cannot." } }] }),
      ),
    ],
  ];
  for (const [name, parts] of forms) {
    test(name, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(...parts, ...tail);
      const { content, row } = await whole(front);
      assert.equal(content, "I cannot.");
      assert.equal(row?.note, null);
    });
  }
});

describe("a receipt has a note", () => {
  test("if tokens without text are paid", async () => {
    await using front = await startFront();
    front.upstream.play = (call) => call.stream(delta({ tool_calls: [] }), finish(), usage(5, 9), done);
    const { content, row } = await whole(front);
    assert.deepEqual([content, row?.completionTokens], ["", 9]);
    assert.equal(row?.note, "the server reported 9 tokens and sent no text");
    assert.deepEqual(noticed(front), ["no_text"]);
  });

  test("but not if a stop sequence left no text, here or at the server", async () => {
    await using front = await startFront({ sendStop: false });
    for (const parts of [[text("END")], [text("EN"), text("D")], []]) {
      front.upstream.play = (call) => call.stream(...parts, ...tail);
      const { content, row } = await whole(front, { stop: "END" });
      assert.deepEqual([content, row?.note], ["", null]);
    }
  });

  test("if the total is none", async () => {
    await using front = await startFront();
    front.upstream.play = (call) =>
      call.stream(text("Hello"), text(" world"), finish(), usage(5, 2, { total_tokens: 6 }), done);
    const { row } = await whole(front);
    assert.deepEqual([row?.promptTokens, row?.completionTokens, row?.estimated], [5, 2, false]);
    assert.equal(row?.note, "the server reported a total of 6 tokens, which its counts do not add up to");
    assert.deepEqual(noticed(front), ["odd_total"]);
  });

  test("if the server counts far fewer tokens than the prompt has", async () => {
    await using front = await startFront({ dialect: "vllm" });
    const messages = [{ role: "user", content: "word ".repeat(200) }];
    let counted = '{"count":206}';
    front.upstream.playOther = (call) => call.answer(200, counted);
    front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(102, 1), done);
    assert.equal(
      (await whole(front, { messages })).row?.note,
      "the prompt has 206 tokens, and the server reported 102 tokens",
    );
    assert.deepEqual(noticed(front), ["prompt_cut"]);
    assert.match(front.log(), /the prompt has 206 tokens, and the server reported 102 tokens/);
    front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(103, 1), done);
    assert.equal((await whole(front, { messages })).row?.note, null);
    counted = "{}";
    front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(62, 1), done);
    assert.equal(
      (await whole(front, { messages })).row?.note,
      "the prompt has 1000 bytes, and the server reported 62 tokens",
    );
    front.upstream.play = (call) => call.stream(text("Hello"), finish(), usage(63, 1), done);
    assert.equal((await whole(front, { messages })).row?.note, null);
  });
});

test("a count before the text is not that of the whole answer", async () => {
  await using front = await startFront();
  const parts = Array.from({ length: 30 }, () => text("x "));
  front.upstream.play = (call) => call.stream(usage(5, 1), ...parts, finish(), done);
  const { row } = await whole(front);
  assert.deepEqual([row?.completionTokens, row?.estimated], [30, true]);
});

test("thinking that is counted beside the answer is charged, and never beyond the hold", async () => {
  await using front = await startFront({
    reasoning: { field: null, tags: null, opened: false, hidden: false },
  });
  const beside = { total_tokens: 331, completion_tokens_details: { reasoning_tokens: 317 } };
  front.upstream.play = (call) => call.stream(text("42"), finish(), usage(12, 2, beside), done);
  const { row } = await whole(front, { max_tokens: 900 });
  assert.deepEqual([row?.completionTokens, row?.reasoningTokens, row?.note], [319, 317, null]);
  const limited = await whole(front, { max_tokens: 100 });
  assert.deepEqual([limited.row?.completionTokens, limited.row?.shortfallMicro], [100, 0]);
});

test("the name of the model goes along where llama-server counts a prompt", async () => {
  await using front = await startFront({ dialect: "llama-server" });
  front.upstream.playOther = (call) =>
    call.answer(
      200,
      JSON.stringify(call.path === "/tokenize" ? { tokens: [1, 2, 3] } : { prompt: "<user>Hi" }),
    );
  assert.equal((await front.chat()).status, 200);
  await until("both were asked", () => front.upstream.asked.length === 2);
  assert.deepEqual(
    front.upstream.asked.map(({ path, body }) => [path, body.model]),
    [
      ["/apply-template", "vendor/big"],
      ["/tokenize", "vendor/big"],
    ],
  );
});
