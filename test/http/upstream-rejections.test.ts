/**
 * Requests that an upstream rejects: the caller gets a 400, with the upstream's sentence if the
 * operator passes it on, and pays nothing. The server stays in use.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { readEvents } from "../fixtures/events.ts";
import { clientOf } from "../fixtures/sdk.ts";
import { until } from "../fixtures/until.ts";
import {
  type Outcome,
  type Play,
  secretKey,
  startFront,
  startUpstream,
  testAnswers,
} from "../fixtures/upstream.ts";
import { misconfigured, rejections } from "../fixtures/upstream-errors.ts";
import { done, event, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const penalty = {
  message: "presence_penalty must be in [-2, 2], got 5.0.",
  type: "BadRequestError",
  code: 400,
};
const rejected = "The model rejected the request";
/** The message for a rejection that names no parameter. */
const unnamed = `${rejected}. Check its parameters and messages. The operator of this service can look up the reason in the log, under the id of this request.`;
const voided: Partial<Outcome> = { ending: "refused", costMicro: 0, promptTokens: 0, shortfallMicro: 0 };
const refusal: Partial<Outcome> = { status: 400, code: "invalid_value", ...voided };

function answerWith(status: number, body: unknown): Play {
  return (call) => call.answer(status, typeof body === "string" ? body : JSON.stringify(body));
}
const reject = answerWith(400, { error: penalty });

testAnswers(
  rejections.flatMap(({ server, status, body, sentence, param }) =>
    [false, true].map((passErrors) => ({
      what: `a request that ${server} rejects is a 400 with ${passErrors ? "its" : "our"} sentence, and costs nothing`,
      sends: answerWith(status, body),
      options: { passErrors },
      gives: {
        ...refusal,
        param,
        message: passErrors
          ? `${rejected}. ${sentence}`
          : param === null
            ? unnamed
            : `${rejected}: parameter "${param}". Check its value.`,
      },
      calls: 2,
    })),
  ),
);
testAnswers(
  misconfigured.map(([what, body]) => ({
    what: `a 400 about the configuration stays a 502, and callers do not learn of it: ${what}`,
    sends: answerWith(400, body),
    gives: {
      status: 502,
      code: "upstream_error",
      param: null,
      ending: "engine_failed" as const,
      costMicro: 0,
      message: 'The model "big" failed on this request. Try again.',
    },
    logs: /so the configuration of this model may be wrong/,
  })),
);

const events: [server: string, event: string][] = [
  ["SGLang", event({ error: { object: "error", ...penalty } })],
  ["an older vLLM", event({ object: "error", ...penalty })],
  [
    "Text Generation Inference",
    `event: error\ndata: ${JSON.stringify({ error: penalty.message, error_type: "validation" })}\n\n`,
  ],
];
testAnswers([
  ...events.flatMap(([server, sent]) => [
    {
      what: `an event of ${server} before the first token is a 400 and costs nothing`,
      sends: [first, sent, done],
      gives: { ...refusal, message: unnamed },
      calls: 2,
    },
    {
      what: `an event of ${server} in the middle of an answer is a failure of the server`,
      sends: [first, text("one"), sent, finish(), usage(5, 1), done],
      body: { stream: true },
      gives: {
        texts: ["one"],
        code: "upstream_error",
        ending: "engine_failed" as const,
        completionTokens: 1,
      },
    },
  ]),
  {
    what: "a request that a proxy finds too large is told so",
    sends: answerWith(413, "<html>413 Request Entity Too Large</html>"),
    options: { passErrors: true },
    gives: { message: `${rejected}, because it is too large. Send fewer or shorter messages.` },
  },
  {
    what: "no word of the upstream reaches the caller by default",
    sends: answerWith(400, { error: { message: "zanzibar", param: "/srv/models", code: "zen" } }),
    gives: { message: unnamed, param: null },
  },
]);

test("a sentence that is passed on is one visible line of 300 characters without the key", async () => {
  await using front = await startFront({ passErrors: true });
  const escaped = [...secretKey].map((unit) => `\\u00${unit.charCodeAt(0).toString(16)}`).join("");
  for (const [message, passed] of [
    [
      `seed\r\n is \u202eodd\u0000 for ${secretKey} or ${escaped}`,
      String.raw`seed is \u202eodd for [key] or [key]`,
    ],
    ["\u200b".repeat(5000), String.raw`\u200b`.repeat(50)],
    [`${"x".repeat(299)}\u{1f58b}y`, "x".repeat(299)],
    [`${"x".repeat(290)}${secretKey}`, `${"x".repeat(290)}[key]`],
    [" \n", unnamed.replace(`${rejected}. `, "")],
  ] as const) {
    front.upstream.play = answerWith(400, { error: { message } });
    await front.assertAnswer({}, { message: `${rejected}. ${passed}` });
  }
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
  const messages = ["one", "two"].map((content) => ({ role: "user", content }));
  for (let n = 0; n < 10; n += 1) await front.assertAnswer({ messages }, { status: 400 });
  assert.equal(front.upstream.calls.length + other.calls.length, 10, "no conversation is normalised further");
  assert.equal(front.engine.state, "ready");
  for (const { state, lastError } of front.engine.servers())
    assert.deepEqual([state, lastError], ["ok", null]);
});

test("the log has the words of the upstream with the id of the request, and no error", async () => {
  await using front = await startFront();
  front.upstream.play = reject;
  const response = await front.chat();
  const line = front.service.log.find(({ detail }) => typeof detail === "string");
  assert.equal(line?.requestId, response.headers.get("x-request-id"));
  assert.match(String(line?.detail), /127\.0\.0\.1:\d+\/v1: it answered 400: .*presence_penalty must be in/);
  assert.ok(!front.log().includes('"a request failed"'));
});

const long = [{ role: "user", content: "x".repeat(10_000) }];
test("rejected requests use up the allowance for refused requests, and failures do not", async () => {
  await using front = await startFront({ service: { refusedBytesPerMinute: 5_000 } });
  front.upstream.play = answerWith(500, {});
  for (let n = 0; n < 2; n += 1) await front.assertAnswer({ messages: long }, { status: 502 });
  front.upstream.play = reject;
  await front.assertAnswer({ messages: long }, { status: 400 });
  await front.assertAnswer({ messages: long }, { status: 429, code: "too_many_refusals" });
  assert.equal(front.upstream.calls.length, 3);
});

test("a rejection is an event if a comment has already been sent, and counts as refused", async () => {
  await using front = await startFront({ service: { keepAliveMs: 20, refusedBytesPerMinute: 5_000 } });
  const pending = Promise.withResolvers<void>();
  front.upstream.play = async (call) => {
    await pending.promise;
    reject(call);
  };
  const response = await front.chat({ stream: true, messages: long });
  assert.equal(response.status, 200);
  pending.resolve();
  const { comments, chunks, error, done: isDone } = readEvents(await response.text());
  assert.ok(comments.length > 0 && chunks.length === 0 && !isDone);
  assert.deepEqual([error?.code, error?.message], ["invalid_value", unnamed]);
  assert.partialDeepStrictEqual(await front.receipt(response), voided);
  await front.assertAnswer({ messages: long }, { status: 429 });
  await until("both are reported", () => front.service.finished.length === 2);
  const live = /inkwell_refused_bytes_total (\d+)/.exec(await front.service.metrics.text())?.[1];
  assert.ok(Number(live) > 5_000);
});
