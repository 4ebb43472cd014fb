/** The allowance for refused requests, with a test clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "../../src/errors.ts";
import { RefusalAllowance } from "../../src/http/public/refusal-allowance.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";

const limits = { refusedBytesPerMinute: 60_000, refusedMsPerMinute: 1_200 };
const plan = planOf("test", 1, 0);

function callerOf(keyId: string, accountId = "ada") {
  return { accountId, plan, key: keyOf(keyId, accountId) };
}

function begin() {
  let nowMs = 5_000_000;
  const allowance = new RefusalAllowance(limits, () => nowMs);
  return {
    allowance,
    pass: (ms: number) => {
      nowMs += ms;
    },
  };
}

/** Seconds to wait, or null if the caller is allowed. */
function waitOf(allowance: RefusalAllowance, caller = callerOf("key")): number | null {
  try {
    allowance.require(caller);
    return null;
  } catch (error) {
    assert.ok(error instanceof Refusal && error.code === "too_many_refusals");
    assert.equal(error.status, 429);
    return error.retryAfterSeconds ?? Number.NaN;
  }
}

test("allows a thousand small refusals a minute, without end", () => {
  const { allowance, pass } = begin();
  for (let n = 0; n < 10_000; n += 1) {
    assert.equal(waitOf(allowance), null, `refusal ${n}`);
    allowance.charge(callerOf("key"), { bytes: 59, ms: 1.1 });
    pass(60);
  }
});

for (const [kind, work] of [
  ["bytes", { bytes: 30_000, ms: 0 }],
  ["processor time", { bytes: 0, ms: 600 }],
] as const) {
  test(`refuses a key that has used the ${kind} of a minute, with the exact wait`, () => {
    const { allowance, pass } = begin();
    allowance.charge(callerOf("key"), work);
    assert.equal(waitOf(allowance), null, "a burst is allowed");
    allowance.charge(callerOf("key"), work);
    allowance.charge(callerOf("key"), work);
    assert.equal(waitOf(allowance), 30);
    pass(29_900);
    assert.equal(waitOf(allowance), 1);
    pass(200);
    assert.equal(waitOf(allowance), null);
  });
}

test("never exceeds the longest retry-after", () => {
  const { allowance, pass } = begin();
  for (let n = 0; n < 100; n += 1) allowance.charge(callerOf("key"), { bytes: 60_000, ms: 5_000 });
  assert.equal(waitOf(allowance), 60);
  pass(60_001);
  assert.equal(waitOf(allowance), null);
});

test("is that of the account, whatever its key, and separate from other accounts", () => {
  const { allowance } = begin();
  assert.equal(waitOf(allowance, callerOf("key0")), null);
  allowance.charge(callerOf("key0"), { bytes: 60_000, ms: 0 });
  assert.notEqual(waitOf(allowance, callerOf("another key")), null);
  assert.equal(waitOf(allowance, callerOf("bens key", "ben")), null);
});
