/** The allowance for refused requests, by a clock of the test's own. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "../../src/errors.ts";
import { RefusalAllowance } from "../../src/http/public/refusal-allowance.ts";
import { planOf } from "../fixtures/ledger-rows.ts";

const limits = { refusedBytesPerMinute: 60_000, refusedMsPerMinute: 1_200 };
const plan = planOf("test", 1, 0);

function callerOf(keyId: string, accountId = "ada") {
  return { accountId, keyId, plan, models: ["*"], concurrent: null };
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

/** Seconds to wait, or null if the caller is let through. */
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

test("lets a thousand small refusals a minute pass, for as long as they come", () => {
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
  test(`refuses a key that has used a minute's worth of ${kind}, and names the wait exactly`, () => {
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

test("never asks for a longer wait than retry-after can express", () => {
  const { allowance, pass } = begin();
  for (let n = 0; n < 100; n += 1) allowance.charge(callerOf("key"), { bytes: 60_000, ms: 5_000 });
  assert.equal(waitOf(allowance), 60);
  pass(60_001);
  assert.equal(waitOf(allowance), null);
});

test("an account has four times the allowance of a key, and others are not affected", () => {
  const { allowance } = begin();
  for (let n = 0; n < 5; n += 1) {
    assert.equal(waitOf(allowance, callerOf(`key${n}`)), n < 4 ? null : 1, `key ${n}`);
    allowance.charge(callerOf(`key${n}`), { bytes: 60_000, ms: 0 });
  }
  assert.notEqual(waitOf(allowance, callerOf("another key")), null);
  assert.equal(waitOf(allowance, callerOf("key0", "ben")) === null, false, "the key itself is still over");
  assert.equal(waitOf(allowance, callerOf("bens key", "ben")), null);
});

test("forgets keys whose work no longer counts", () => {
  const { allowance, pass } = begin();
  allowance.charge(callerOf("key"), { bytes: 0, ms: 0 });
  assert.equal(allowance.size, 0, "no work is nothing to remember");
  for (let n = 0; n < 900; n += 1) allowance.charge(callerOf(`old${n}`, `o${n}`), { bytes: 1_000, ms: 1 });
  assert.equal(allowance.size, 1_800);
  pass(60_000);
  for (let n = 0; n < 200; n += 1) allowance.charge(callerOf(`new${n}`, `n${n}`), { bytes: 1_000, ms: 1 });
  assert.ok(allowance.size <= 400, `${allowance.size} are remembered`);
});

test("remembers a bounded number, however many keys there are", () => {
  const { allowance } = begin();
  for (let n = 0; n < 120_000; n += 1) allowance.charge(callerOf(`${n}`, `${n}`), { bytes: 60_000, ms: 0 });
  assert.ok(allowance.size <= 100_000, `${allowance.size} are remembered`);
  assert.notEqual(waitOf(allowance, callerOf("119999", "119999")), null, "the last ones are among them");
});
