/** Refusals of the ledger: code, sentence and audience. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "../../src/errors.ts";
import { operatorResponseTo } from "../../src/http/admin/refusals.ts";
import { publicRefusalOf } from "../../src/http/public/error-handler.ts";
import { refusalOf } from "../../src/ledger/refusals.ts";
import { notAdmitted } from "../../src/sign-in/refusals.ts";

test("a caller gets no code for operators", () => {
  const refusal = new Refusal("key_revoked", "Key key_1 is revoked.");
  const told = publicRefusalOf(refusal);
  assert.deepEqual([told.code, told.status], ["internal_error", 500]);
  assert.doesNotMatch(told.message, /key_1/);
  assert.ok(told.cause instanceof Error && told.cause.cause === refusal, "the log has the refusal");
});

test("a caller gets a refusal for callers as it is", () => {
  const refusal = new Refusal("invalid_json", "The body is empty.");
  assert.equal(publicRefusalOf(refusal), refusal);
});

test("a fault of a value has the code of all such faults, and its field", () => {
  const { code, param, message } = refusalOf({ kind: "unknown_plan", plan: "small", plans: ["smal"] });
  assert.deepEqual([code, param], ["invalid_value", "plan"]);
  assert.equal(message, 'There is no plan "small". Did you mean smal?');
});

test("another refusal of the ledger has its kind as its code, and the field of the catalogue", () => {
  const { code, param } = refusalOf({ kind: "grant_not_found", account: "ada", grant: 7 });
  assert.deepEqual([code, param], ["grant_not_found", "grant"]);
});

test("operators are told why a balance cannot be read, and callers are not", () => {
  const refusal = refusalOf({ kind: "balance_unavailable", account: "ada", problem: "its plan is missing" });
  assert.doesNotMatch(publicRefusalOf(refusal).message, /plan is missing/);
  assert.match(operatorResponseTo(refusal).message, / \(account ada: its plan is missing\)$/);
});

test("nobody who signs in is told by which rule they are refused", () => {
  const refusal = notAdmitted({ contact: null }, "no rule has the group staff");
  assert.equal(refusal.detail, "no rule has the group staff");
  assert.doesNotMatch(operatorResponseTo(refusal).message, /staff/);
});

test("a limit says when to try again, or that waiting does not help", () => {
  const rates = { tokens: { limit: 100, remaining: 0, resetMs: 1500 } };
  const limited = { kind: "rate_limit_exceeded", of: "tokens", scope: "key", rates } as const;
  const later = refusalOf({ ...limited, retryAfterMs: 1500 });
  assert.deepEqual([later.retryAfterSeconds, later.waitingHelps, later.rates], [1.5, undefined, rates]);
  assert.equal(later.message, "The limit of this key is 100 tokens per minute. Try again in 2 s.");
  const never = refusalOf({ ...limited, retryAfterMs: null });
  assert.deepEqual([never.retryAfterSeconds, never.waitingHelps], [undefined, false]);
});

test("a limit of one is told as one", () => {
  const running = refusalOf({ kind: "concurrency_limit_exceeded", scope: "key", limit: 1 });
  assert.match(running.message, /is 1 request running at once\./);
  const rates = { requests: { limit: 1, remaining: 0, resetMs: 1000 } };
  const often = refusalOf({
    kind: "rate_limit_exceeded",
    scope: "key",
    of: "requests",
    rates,
    retryAfterMs: 1000,
  });
  assert.match(often.message, /is 1 request per minute\./);
});
