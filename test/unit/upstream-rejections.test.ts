/** Errors of upstreams about a request: which are the caller's, and what is read from them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  failureOfConnection,
  failureOfErrorEvent,
  failureOfStatus,
  inMidAnswer,
} from "../../src/engines/upstream/failure.ts";
import { misconfigured, rejections } from "../fixtures/upstream-errors.ts";

function textOf(body: unknown): string {
  return typeof body === "string" ? body : JSON.stringify(body);
}

describe("a rejection is read from the shape of", () => {
  for (const { server, status, body, sentence, param } of rejections) {
    test(server, () => {
      const { failure, reason, isCallers, isFault, elsewhere } = failureOfStatus(status, undefined, body);
      assert.deepEqual([failure, isCallers, isFault, elsewhere], ["rejected", true, false, false]);
      assert.deepEqual(reason, { sentence, param, isTooLarge: false });
    });
  }

  test("an answer without a sentence", () => {
    for (const body of ["", "{}", "null", '{"error":null}', '{"error":{"message":""}}', "[]", "12"]) {
      const { failure, reason } = failureOfStatus(400, undefined, body);
      assert.equal(failure, "rejected", body);
      assert.equal(reason?.sentence, "", body);
    }
  });

  test("an answer that was cut", () => {
    const body = textOf({ error: { message: 'no "seed" here', input: "x".repeat(100) } }).slice(0, 60);
    assert.equal(failureOfStatus(400, undefined, body).reason?.sentence, 'no "seed" here');
  });

  test("a proxy that refuses a large body", () => {
    const { failure, reason } = failureOfStatus(413, undefined, "<html>413 Request Entity Too Large</html>");
    assert.deepEqual([failure, reason], ["rejected", { sentence: "", param: null, isTooLarge: true }]);
  });
});

describe("a 400 is not the caller's fault for", () => {
  for (const [what, body] of misconfigured) {
    test(what, () => {
      const { failure, isFault, elsewhere, message } = failureOfStatus(400, undefined, body);
      assert.deepEqual([failure, isFault, elsewhere], ["failed", false, false]);
      assert.match(message, /^it answered 400, so the configuration of this model may be wrong: /);
    });
  }
});

test("llama-cpp-python refuses a value with a 500", () => {
  const message =
    "1 validation error:\n  {'type': 'less_than_equal', 'loc': ('body', 'presence_penalty'), 'msg': 'Input should be less than or equal to 2', 'input': 5, 'ctx': {'le': 2.0}}\n\n  File \"/srv/llama_cpp/server/app.py\", line 376";
  const error = { message, type: "internal_server_error", param: null, code: null };
  const { failure, reason, isFault } = failureOfStatus(500, undefined, textOf({ error }));
  assert.deepEqual([failure, reason?.param, isFault], ["rejected", "presence_penalty", false]);
  assert.equal(
    failureOfStatus(500, undefined, textOf({ error: { message: "1 validation error" } })).isFault,
    true,
  );
});

test("only 400, 413 and 422 are about a request", () => {
  const body = rejections[0]?.body ?? "";
  for (const status of [401, 402, 403, 404, 405, 409, 429, 500, 503, 504])
    assert.equal(failureOfStatus(status, undefined, body).isCallers, false, `${status}`);
});

describe("an empty account at the provider", () => {
  const of = (status: number, error: object, retryAfter?: string) =>
    failureOfStatus(status, retryAfter, textOf({ error })).failure;
  test("is a 402, or a 429 with the code of such an account and no time to retry", () => {
    assert.equal(of(402, { message: "Insufficient Balance" }), "out_of_credit");
    for (const error of [
      { type: "insufficient_quota", code: "insufficient_quota" },
      { code: "billing_hard_limit_reached" },
      { type: "exceeded_current_quota_error", message: "You exceeded your current quota" },
      { code: "1113", message: "no balance" },
      { code: 1113 },
    ])
      assert.equal(of(429, error), "out_of_credit", JSON.stringify(error));
  });

  test("is no limit per minute, whose sentence may be the same (Gemini)", () => {
    const message = "You exceeded your current quota, please check your plan and billing details.";
    assert.equal(of(429, { message, code: 429, status: "RESOURCE_EXHAUSTED" }), "overloaded");
    assert.equal(of(429, { message, code: "insufficient_quota" }, "20"), "overloaded");
    assert.equal(of(403, { message, code: "insufficient_quota" }), "failed");
  });

  test("is the same for other accounts, and another server may have one", () => {
    const { isFault, isCallers, elsewhere } = failureOfStatus(402, undefined, "{}");
    assert.deepEqual([isFault, isCallers, elsewhere], [false, false, true]);
  });
});

describe("moderation", () => {
  const flagged = {
    message: "Your input was flagged.",
    code: 403,
    metadata: { reasons: ["violence"], flagged_input: "x" },
  };
  const of = (status: number, error: object) => failureOfStatus(status, undefined, textOf({ error }));
  test("is the caller's, by its code, its type or its reasons", () => {
    for (const [status, error] of [
      [403, flagged],
      [400, { code: "content_filter", message: "filtered" }],
      [400, { code: "content_policy_violation" }],
      [400, { code: "data_inspection_failed", type: "data_inspection_failed" }],
      [422, { type: "moderation" }],
    ] as const) {
      const { failure, isCallers, isFault, elsewhere, isRefused } = of(status, error);
      const seen = [failure, isCallers, isFault, elsewhere, isRefused];
      assert.deepEqual(seen, ["filtered", true, false, false, false], JSON.stringify(error));
    }
  });

  test("is nothing of the kind with another status or other words", () => {
    assert.equal(of(403, { message: "content_filter", code: 403 }).failure, "failed");
    assert.equal(of(403, { ...flagged, metadata: { reasons: [] } }).failure, "failed");
    assert.equal(of(401, flagged).failure, "failed");
    assert.equal(of(500, { code: "content_filter" }).failure, "failed");
  });
});

test("a missing answer is the same for all accounts, and an answer may be due to its request", () => {
  const broke = Object.assign(new Error("reset"), { code: "ECONNRESET" });
  const late = Object.assign(new Error("late"), { code: "UND_ERR_HEADERS_TIMEOUT" });
  const silent = Object.assign(new Error("silent"), { code: "UND_ERR_BODY_TIMEOUT" });
  assert.equal(failureOfConnection(broke, { begun: true, answered: false }).isOfAll, true);
  assert.equal(failureOfConnection(late, { begun: true, answered: false }).isOfAll, true);
  assert.equal(failureOfConnection(broke, { begun: false, answered: false }).isOfAll, true);
  assert.equal(failureOfConnection(broke, { begun: true, answered: true }).isOfAll, false);
  assert.equal(failureOfConnection(silent, { begun: true, answered: true }).isOfAll, false);
  for (const status of [401, 403, 404, 500, 503, 504])
    assert.equal(failureOfStatus(status, undefined, "").isOfAll, false, `${status}`);
});

test("a context that is too small has its own failure, in an answer and in an event", () => {
  const message = "The input (5000 tokens) is longer than the model's context length (4096 tokens).";
  const error = { object: "error", message, type: "BadRequestError", code: 400 };
  assert.equal(failureOfStatus(400, undefined, textOf(error)).failure, "too_long");
  assert.equal(failureOfErrorEvent({ error }).failure, "too_long");
});

describe("an error in an event", () => {
  test("is a rejection if it names such a status or type", () => {
    for (const error of [
      { object: "error", message: "top_k is odd", type: "BadRequestError", code: 400 },
      { message: "top_k is odd", code: "400" },
      { message: "top_k is odd", type: "invalid_request_error", code: null },
      { message: "top_k is odd", http_status_code: 422 },
    ]) {
      const { failure, reason } = failureOfErrorEvent({ error });
      assert.deepEqual([failure, reason?.sentence], ["rejected", "top_k is odd"]);
    }
    assert.equal(failureOfErrorEvent({ error: "odd", error_type: "validation" }).failure, "rejected");
    assert.equal(failureOfErrorEvent({ object: "error", message: "odd", code: 400 }).failure, "rejected");
  });

  test("is a failure of the server otherwise", () => {
    for (const event of [
      { error: "it broke" },
      { error: { message: "it broke" } },
      { error: { message: "it broke", code: 500 } },
      { error: { message: "it broke", type: "invalid_request_error", code: 502 } },
      { error: "it broke", error_type: "generation" },
    ]) {
      const { failure, isFault, elsewhere } = failureOfErrorEvent(event);
      assert.deepEqual([failure, isFault, elsewhere], ["failed", true, true]);
    }
  });

  test("means what its status or its words mean", () => {
    for (const [error, failure, isFault] of [
      [{ message: "slow down", code: 429 }, "overloaded", false],
      [{ message: "slow down", type: "rate_limit_error" }, "overloaded", false],
      [{ message: "slow down", status: "RESOURCE_EXHAUSTED" }, "overloaded", false],
      [{ message: "busy", type: "overloaded_error" }, "overloaded", true],
      [{ message: "busy", code: "503" }, "overloaded", true],
      [{ message: "too late", code: 504 }, "timeout", true],
      [{ message: "no key", type: "authentication_error" }, "failed", true],
      [{ message: "no money", code: 402 }, "out_of_credit", false],
      [
        { message: "no money", type: "insufficient_quota", code: "insufficient_quota" },
        "out_of_credit",
        false,
      ],
      [{ message: "flagged", code: "data_inspection_failed" }, "filtered", false],
      [{ message: "too long", code: "context_length_exceeded" }, "too_long", false],
    ] as const) {
      const found = failureOfErrorEvent({ error });
      assert.deepEqual([found.failure, found.isFault], [failure, isFault], JSON.stringify(error));
    }
  });

  test("is a failure of the server in the middle of an answer", () => {
    const rejected = failureOfErrorEvent({ error: { message: "odd", code: 400 } });
    const { failure, isFault } = inMidAnswer(rejected);
    assert.deepEqual([failure, isFault], ["failed", true]);
  });
});

test("the conversation is normalised further only if the error may be about its form", () => {
  const refused = (message: string, param: string | null = null) =>
    failureOfStatus(400, undefined, textOf({ error: { message, param } })).isRefused;
  assert.ok(refused("Conversation roles must alternate user/assistant/user/assistant/..."));
  assert.ok(refused("Only user and assistant roles are supported!", "messages"));
  assert.ok(refused("After the optional system message, it is the user's turn", "messages[1].role"));
  assert.ok(!refused("presence_penalty must be in [-2, 2], got 5.0."));
  assert.ok(!refused("It is out of range", "temperature"));
  assert.ok(!refused("The prompt triggered the content filter"));
});
