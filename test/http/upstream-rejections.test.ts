/**
 * Requests that an upstream rejects: the caller gets a 400, with the upstream's sentence if the
 * operator passes it on, and pays nothing. The server stays in use.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import OpenAI from "openai";
import { readEvents } from "../fixtures/events.ts";
import { clientOf } from "../fixtures/sdk.ts";
import { errorOf } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";
import {
  charged,
  type Front,
  type Play,
  secretKey,
  startFront,
  startUpstream,
} from "../fixtures/upstream.ts";
import { misconfigured, rejections } from "../fixtures/upstream-errors.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const penalty = {
  message: "presence_penalty must be in [-2, 2], got 5.0.",
  type: "BadRequestError",
  code: 400,
};
/** The message for a rejection that names no parameter. */
const unnamed =
  "The model rejected the request. Check its parameters and messages. The operator of this service can look up the reason in the log, under the id of this request.";
const reject: Play = (call) => call.answer(400, JSON.stringify({ error: penalty }));

function answerWith(status: number, body: unknown): Play {
  return (call) => call.answer(status, typeof body === "string" ? body : JSON.stringify(body));
}

async function assertVoided(front: Front, response: Response): Promise<void> {
  const row = await front.receipt(response);
  assert.deepEqual(
    [row?.ending, row?.costMicro, row?.promptTokens, row?.shortfallMicro],
    ["refused", 0, 0, 0],
  );
}

describe("a rejected request is a 400 with our sentence, and costs nothing", () => {
  for (const { server, status, body, sentence, param } of rejections) {
    const named = `The model rejected the request: parameter "${param}". Check its value.`;
    const passed = `The model rejected the request. ${sentence}`;
    for (const passErrors of [false, true]) {
      test(`${server}${passErrors ? ", with its own sentence if the operator trusts it" : ""}`, async () => {
        await using front = await startFront(passErrors ? { passErrors } : {});
        front.upstream.play = answerWith(status, body);
        for (const stream of [true, false]) {
          const response = await front.chat({ stream });
          assert.equal(response.status, 400);
          const { message, ...error } = await errorOf(response);
          assert.deepEqual(error, { type: "invalid_request_error", code: "invalid_value", param });
          assert.equal(message, passErrors ? passed : param === null ? unnamed : named);
          await assertVoided(front, response);
        }
        assert.equal(front.upstream.calls.length, 2, "each is asked once");
      });
    }
  }
});

test("a request that a proxy finds too large is told so", async () => {
  await using front = await startFront({ passErrors: true });
  front.upstream.play = answerWith(413, "<html>413 Request Entity Too Large</html>");
  const { message } = await errorOf(await front.chat());
  assert.equal(
    message,
    "The model rejected the request, because it is too large. Send fewer or shorter messages.",
  );
});

describe("a 400 about the configuration stays a 502, and callers do not learn of it", () => {
  for (const [what, body] of misconfigured) {
    test(what, async () => {
      await using front = await startFront();
      front.upstream.play = answerWith(400, body);
      const response = await front.chat();
      assert.equal(response.status, 502);
      const error = await errorOf(response);
      assert.deepEqual([error.code, error.param], ["upstream_error", null]);
      assert.equal(error.message, 'The model "big" failed on this request. Try again.');
      const row = await front.receipt(response);
      assert.deepEqual([row?.ending, row?.costMicro], ["engine_failed", 0]);
      assert.match(front.log(), /so the configuration of this model may be wrong/);
    });
  }
});

test("no word of the upstream reaches the caller by default", async () => {
  await using front = await startFront();
  front.upstream.play = answerWith(400, {
    error: { message: "zanzibar", param: "/srv/models", code: "zen" },
  });
  const { message, param } = await errorOf(await front.chat());
  assert.deepEqual([message, param], [unnamed, null]);
});

test("a sentence that is passed on is one visible line of 300 characters without the key", async () => {
  await using front = await startFront({ passErrors: true });
  const escaped = [...secretKey].map((unit) => `\\u00${unit.charCodeAt(0).toString(16)}`).join("");
  const passed = async (message: string) => {
    front.upstream.play = answerWith(400, { error: { message } });
    return (await errorOf(await front.chat())).message.replace("The model rejected the request. ", "");
  };
  assert.equal(
    await passed(`seed\r\n is \u202eodd\u0000 for ${secretKey} or ${escaped}`),
    String.raw`seed is \u202eodd for [key] or [key]`,
  );
  assert.equal(await passed("\u200b".repeat(5000)), String.raw`\u200b`.repeat(50));
  assert.equal(await passed(`${"x".repeat(299)}\u{1f58b}y`), "x".repeat(299));
  assert.equal(await passed(`${"x".repeat(290)}${secretKey}`), `${"x".repeat(290)}[key]`);
  assert.equal(await passed(" \n"), unnamed.replace("The model rejected the request. ", ""));
});

test("the official SDK throws the message, and does not send the request again", async () => {
  await using front = await startFront();
  front.upstream.play = reject;
  const chat = { model: "big", messages: [{ role: "user" as const, content: "Hi" }], presence_penalty: 5 };
  const client = clientOf(front.service, { maxRetries: 2 });
  await assert.rejects(client.chat.completions.create(chat), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.message, `400 ${unnamed}`);
    assert.deepEqual([error.code, error.type, error.param], ["invalid_value", "invalid_request_error", null]);
    return true;
  });
  assert.equal(front.upstream.calls.length, 1);
  assert.equal(front.upstream.last().body.presence_penalty, 5);
});

test("a rejection is not retried at another server, opens no circuit, and is no failure of the server", async () => {
  const other = await startUpstream(reject);
  await using front = await startFront({ others: [other] });
  front.upstream.play = reject;
  const messages = [
    { role: "user", content: "one" },
    { role: "user", content: "two" },
  ];
  for (let n = 0; n < 10; n += 1) assert.equal((await front.chat({ messages })).status, 400);
  assert.equal(front.upstream.calls.length + other.calls.length, 10, "no conversation is normalised further");
  assert.equal(front.engine.state, "ready");
  for (const { state, lastError } of front.engine.servers())
    assert.deepEqual([state, lastError], ["ok", null]);
});

test("the log has the words of the upstream with the id of the request, and no error", async () => {
  await using front = await startFront();
  front.upstream.play = reject;
  const response = await front.chat();
  const id = response.headers.get("x-request-id") ?? "";
  const line = front.service.log.find(({ detail }) => typeof detail === "string");
  assert.equal(line?.requestId, id);
  assert.match(String(line?.detail), /127\.0\.0\.1:\d+\/v1: it answered 400: .*presence_penalty must be in/);
  assert.ok(!front.log().includes('"a request failed"'));
});

test("rejected requests use up the allowance for refused requests", async () => {
  await using front = await startFront({ service: { refusedBytesPerMinute: 5_000 } });
  front.upstream.play = reject;
  const messages = [{ role: "user", content: "x".repeat(10_000) }];
  assert.equal((await front.chat({ messages })).status, 400);
  const refused = await front.chat({ messages });
  assert.equal(refused.status, 429);
  assert.equal((await errorOf(refused)).code, "too_many_refusals");
  assert.equal(front.upstream.calls.length, 1);
});

test("failures of the upstream do not use up the allowance", async () => {
  await using front = await startFront({ service: { refusedBytesPerMinute: 5_000 } });
  front.upstream.play = answerWith(500, {});
  const messages = [{ role: "user", content: "x".repeat(10_000) }];
  for (let n = 0; n < 2; n += 1) assert.equal((await front.chat({ messages })).status, 502);
});

describe("a rejection as an event of a 200", () => {
  const events: [server: string, event: string][] = [
    ["SGLang", event({ error: { object: "error", ...penalty } })],
    ["an older vLLM", event({ object: "error", ...penalty })],
    [
      "Text Generation Inference",
      `event: error\ndata: ${JSON.stringify({ error: penalty.message, error_type: "validation" })}\n\n`,
    ],
  ];
  for (const [server, sent] of events) {
    test(`of ${server} before the first token is a 400 and costs nothing`, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(first, sent, done);
      const response = await front.chat({ stream: true });
      assert.equal(response.status, 400);
      assert.equal((await errorOf(response)).message, unnamed);
      await assertVoided(front, response);
      assert.equal(front.upstream.calls.length, 1);
      assert.equal(front.engine.servers()[0]?.lastError, null);
    });

    test(`of ${server} in the middle of an answer is a failure of the server`, async () => {
      await using front = await startFront();
      front.upstream.play = (call) => call.stream(first, text("one"), sent, finish(), usage(5, 1), done);
      const { texts, error } = await front.events();
      assert.deepEqual([texts, error?.code], [["one"], "upstream_error"]);
      const row = charged(await front.settled());
      assert.deepEqual([row.ending, row.completionTokens], ["engine_failed", 1]);
    });
  }

  test("is an event if a comment has already been sent, and counts as refused", async () => {
    await using front = await startFront({
      service: { keepAliveMs: 20, refusedBytesPerMinute: 5_000 },
    });
    const pending = Promise.withResolvers<void>();
    front.upstream.play = async (call) => {
      await pending.promise;
      reject(call);
    };
    const messages = [{ role: "user", content: "x".repeat(10_000) }];
    const response = await front.chat({ stream: true, messages });
    assert.equal(response.status, 200);
    pending.resolve();
    const { comments, chunks, error, done: isDone } = readEvents(await response.text());
    assert.ok(comments.length > 0 && chunks.length === 0 && !isDone);
    assert.deepEqual([error?.code, error?.message], ["invalid_value", unnamed]);
    await assertVoided(front, response);
    assert.equal((await front.chat({ messages })).status, 429, "it has used up the allowance");
    await until("both are reported", () => front.service.finished.length === 2);
    const live = /inkwell_refused_bytes_total (\d+)/.exec(await front.service.metrics.text())?.[1];
    assert.ok(Number(live) > 5_000);
  });
});
