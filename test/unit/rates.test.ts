/** Limits on requests and tokens per minute and on running requests. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { leftAt } from "../../src/accounts/plan-limits.ts";
import type { Limits } from "../../src/ledger/plan.ts";
import {
  countRates,
  countTokens,
  followLimits,
  limitsLeft,
  rateRefusalOf,
  ratesOf,
  type Scope,
} from "../../src/ledger/rates.ts";

const now = Date.UTC(2026, 0, 15, 12);
const minute = 60_000;

function scope(limits: Limits, whose: "account" | "key" = "account"): Scope {
  return { scope: whose, limits, row: { requestsTatMs: 0, tokensTatMs: 0, tokensLimit: null, holds: 0 } };
}

/** What a request with a prompt of so many tokens uses. */
function uses(promptTokens: number) {
  return { requests: 1, tokens: promptTokens };
}

/** Lets a request in if the limits do. */
function admit(scopes: readonly Scope[], promptTokens: number, nowMs: number): boolean {
  followLimits(scopes, nowMs);
  if (rateRefusalOf(scopes, uses(promptTokens), nowMs) !== null) return false;
  countRates(scopes, uses(promptTokens), nowMs);
  return true;
}

test("admits everything and counts nothing without limits", () => {
  const scopes = [scope({})];
  for (let n = 0; n < 1000; n += 1) assert.ok(admit(scopes, 1_000_000, now));
  assert.deepEqual(scopes[0]?.row, { requestsTatMs: 0, tokensTatMs: 0, tokensLimit: null, holds: 0 });
  assert.deepEqual(ratesOf(scopes, now), {});
});

test("admits a burst of one minute, and then one request per share of a minute", () => {
  const scopes = [scope({ requestsPerMinute: 6 })];
  for (let n = 0; n < 6; n += 1) assert.ok(admit(scopes, 1, now));
  assert.ok(!admit(scopes, 1, now));
  assert.ok(!admit(scopes, 1, now + 9_999));
  assert.ok(admit(scopes, 1, now + 10_000));
  assert.ok(!admit(scopes, 1, now + 10_000));
});

test("what is left follows a changed limit, recovers with time, and changes no row", () => {
  const before = scope({ tokensPerMinute: 100, concurrent: 1 });
  assert.ok(admit([before], 60, now));
  const after = {
    ...before,
    limits: { tokensPerMinute: 200, concurrent: 1 },
    row: { ...before.row, holds: 3 },
  };
  const row = { ...after.row };
  const left = (nowMs: number) => limitsLeft(after, nowMs).map(({ name, remaining }) => [name, remaining]);
  assert.deepEqual(left(now), [
    ["tokensPerMinute", 140],
    ["concurrent", 0],
  ]);
  // The debt shrinks at the old limit until the next request. A share of a token is none.
  assert.deepEqual(left(now + 8_900)[0], ["tokensPerMinute", 154]);
  assert.deepEqual(left(now + 36_000)[0], ["tokensPerMinute", 200]);
  assert.deepEqual(after.row, row);
  assert.deepEqual(limitsLeft(scope({}), now), []);
});

test("a page knows what is left some time later, to one request or token", () => {
  const amounts = fc.record({
    limit: fc.integer({ min: 1, max: 100_000 }),
    used: fc.double({ min: 0, max: 3, noNaN: true }),
    laterMs: fc.integer({ min: 0, max: 200_000 }),
  });
  fc.assert(
    fc.property(amounts, ({ limit: most, used, laterMs }) => {
      const counted = scope({ tokensPerMinute: most });
      countTokens([counted], Math.ceil(most * used), now);
      const stateAt = (nowMs: number) => limitsLeft(counted, nowMs)[0] ?? assert.fail();
      const { remaining: left, resetMs } = stateAt(now);
      const full_at = resetMs === 0 ? null : new Date(now + resetMs).toISOString();
      const shown = leftAt({ left, most, full_at }, now + laterMs);
      const { remaining } = stateAt(now + laterMs);
      // A time has whole milliseconds, in which a large limit has more than one token.
      assert.ok(Math.abs(shown - remaining) <= 1 + most / 60_000, `${shown} of ${remaining}`);
      assert.ok(shown >= left && shown <= most);
    }),
  );
});

test("admits the whole burst if a share is not a whole number of milliseconds", () => {
  for (const limit of [7, 42, 70, 97, 999, 12_345]) {
    const scopes = [scope({ requestsPerMinute: limit })];
    let admitted = 0;
    while (admit(scopes, 1, now)) admitted += 1;
    assert.equal(admitted, limit);
  }
});

test("a refusal names the limit, its scope and the time until the request is admitted", () => {
  const scopes = [scope({ requestsPerMinute: 6 })];
  for (let n = 0; n < 6; n += 1) admit(scopes, 1, now);
  assert.deepEqual(rateRefusalOf(scopes, uses(1), now), {
    kind: "rate_limit_exceeded",
    of: "requests",
    scope: "account",
    retryAfterMs: 10_000,
    rates: { requests: { limit: 6, remaining: 0, resetMs: 60_000 } },
  });
});

test("refused requests are not counted (litellm#39726)", () => {
  const scopes = [scope({ requestsPerMinute: 6, tokensPerMinute: 60 })];
  for (let n = 0; n < 6; n += 1) admit(scopes, 1, now);
  for (let n = 0; n < 1000; n += 1) assert.ok(!admit(scopes, 1, now + n));
  assert.ok(admit(scopes, 1, now + 10_000));
});

test("counts prompt tokens when a request is admitted", () => {
  const scopes = [scope({ tokensPerMinute: 100 })];
  assert.ok(admit(scopes, 60, now));
  assert.ok(!admit(scopes, 41, now));
  assert.ok(admit(scopes, 40, now));
  assert.ok(admit(scopes, 0, now), "a request without tokens waits for none");
});

test("the next request waits for completion tokens above the limit", () => {
  const scopes = [scope({ tokensPerMinute: 100 })];
  assert.ok(admit(scopes, 10, now));
  countTokens(scopes, 190, now);
  const refusal = rateRefusalOf(scopes, uses(1), now);
  assert.equal(refusal?.kind === "rate_limit_exceeded" && refusal.retryAfterMs, 60_600);
  assert.ok(admit(scopes, 1, now + 60_600));
});

test("returns tokens that were counted and not used", () => {
  const scopes = [scope({ tokensPerMinute: 100 })];
  assert.ok(admit(scopes, 100, now));
  countTokens(scopes, -100, now);
  assert.ok(admit(scopes, 100, now));
});

test("tokens that are returned late never admit more than one burst", () => {
  const scopes = [scope({ tokensPerMinute: 100 })];
  assert.ok(admit(scopes, 100, now));
  countTokens(scopes, -100, now + 600_000);
  assert.ok(admit(scopes, 100, now + 600_000));
  assert.ok(!admit(scopes, 1, now + 600_000));
});

test("the refusal of a prompt above the limit has no time to wait", () => {
  const scopes = [scope({ tokensPerMinute: 100 })];
  const refusal = rateRefusalOf(scopes, uses(101), now);
  assert.ok(refusal?.kind === "rate_limit_exceeded");
  assert.equal(refusal.of, "tokens");
  assert.equal(refusal.retryAfterMs, null);
});

test("a limit of one request per minute admits the next request after a minute", () => {
  const scopes = [scope({ requestsPerMinute: 1 })];
  assert.ok(admit(scopes, 1, now));
  assert.ok(!admit(scopes, 1, now + 59_999));
  assert.ok(admit(scopes, 1, now + 60_000));
});

test("applies the limits of key and account, and shows the tighter one", () => {
  const account = scope({ requestsPerMinute: 60, tokensPerMinute: 100 });
  const key = scope({ requestsPerMinute: 2 }, "key");
  const scopes = [account, key];
  assert.ok(admit(scopes, 30, now));
  assert.ok(admit(scopes, 30, now));
  const refusal = rateRefusalOf(scopes, uses(1), now);
  assert.equal(refusal?.scope, "key");
  assert.deepEqual(refusal?.rates, {
    requests: { limit: 2, remaining: 0, resetMs: 60_000 },
    tokens: { limit: 100, remaining: 40, resetMs: 36_000 },
  });
  // Another key of the account is kept apart from it, but not from the account.
  assert.ok(admit([account, scope({ requestsPerMinute: 2 }, "key")], 1, now));
});

test("a request that one scope refuses is counted by no scope", () => {
  const account = scope({ requestsPerMinute: 60 });
  const scopes = [account, scope({ requestsPerMinute: 1 }, "key")];
  assert.ok(admit(scopes, 1, now));
  const before = { ...account.row };
  assert.ok(!admit(scopes, 1, now));
  assert.deepEqual(account.row, before);
});

test("limits the running requests of an account and of a key", () => {
  const account = scope({ concurrent: 2 });
  const key = scope({ concurrent: 1 }, "key");
  assert.equal(rateRefusalOf([account, key], uses(1), now), null);
  key.row.holds = 1;
  account.row.holds = 1;
  assert.deepEqual(rateRefusalOf([account, key], uses(1), now), {
    kind: "concurrency_limit_exceeded",
    scope: "key",
    limit: 1,
    rates: {},
  });
  account.row.holds = 2;
  assert.equal(rateRefusalOf([account, key], uses(1), now)?.scope, "account");
});

test("admits no request early if the clock goes back by seconds", () => {
  const scopes = [scope({ requestsPerMinute: 6 })];
  for (let n = 0; n < 6; n += 1) assert.ok(admit(scopes, 1, now));
  assert.ok(!admit(scopes, 1, now - 5000));
  assert.ok(!admit(scopes, 1, now + 9_999));
  assert.ok(admit(scopes, 1, now + 10_000));
});

test("returns the remaining requests and tokens and their reset after each request", () => {
  const scopes = [scope({ requestsPerMinute: 3, tokensPerMinute: 1000 })];
  admit(scopes, 250, now);
  assert.deepEqual(ratesOf(scopes, now), {
    requests: { limit: 3, remaining: 2, resetMs: 20_000 },
    tokens: { limit: 1000, remaining: 750, resetMs: 15_000 },
  });
  assert.deepEqual(ratesOf(scopes, now + 60_000), {
    requests: { limit: 3, remaining: 3, resetMs: 0 },
    tokens: { limit: 1000, remaining: 1000, resetMs: 0 },
  });
});

const limitArb = fc.oneof(fc.integer({ min: 1, max: 100 }), fc.constantFrom(7, 11, 13, 997, 100_000));
/** Also backwards by seconds: nodes may differ. */
const waitsArb = fc.array(
  fc.oneof(fc.nat({ max: 100 }), fc.nat({ max: 20_000 }), fc.integer({ min: -3000, max: 0 })),
  {
    maxLength: 150,
    size: "max",
  },
);
/**
 * No interval of any length has more than its minutes' worth and one burst. Rounding is allowed
 * for with less than half a request.
 */
function assertWithin(admittedMs: readonly number[], limit: number): void {
  for (const [from, first] of admittedMs.entries()) {
    for (const [more, last] of admittedMs.slice(from).entries()) {
      const minutes = Math.max(0, last - first) / minute;
      assert.ok(more + 1 <= limit * (minutes + 1) + 0.5, `${more + 1} in ${minutes} minutes of ${limit}`);
    }
  }
}

test("property: no interval admits more requests than its share and one burst", () => {
  fc.assert(
    fc.property(limitArb, waitsArb, (limit, waits) => {
      const scopes = [scope({ requestsPerMinute: limit })];
      const admitted: number[] = [];
      let nowMs = now;
      let latestMs = now;
      for (const waitMs of waits) {
        nowMs = Math.max(nowMs + waitMs, latestMs - minute);
        latestMs = Math.max(nowMs, latestMs);
        if (admit(scopes, 1, nowMs)) admitted.push(nowMs);
      }
      assertWithin(admitted, limit);
    }),
  );
});

test("property: the time to wait is exact to the millisecond", () => {
  const amountArb = fc.integer({ min: 1, max: 50 });
  fc.assert(
    fc.property(limitArb, fc.array(amountArb, { maxLength: 20 }), amountArb, (limit, made, wanted) => {
      fc.pre(wanted <= limit);
      const scopes = [scope({ tokensPerMinute: limit })];
      for (const tokens of made) countTokens(scopes, tokens, now);
      const refusal = rateRefusalOf(scopes, uses(wanted), now);
      if (refusal === null) return;
      assert.ok(refusal.kind === "rate_limit_exceeded" && refusal.retryAfterMs != null);
      assert.equal(rateRefusalOf(scopes, uses(wanted), now + refusal.retryAfterMs), null);
      assert.notEqual(rateRefusalOf(scopes, uses(wanted), now + refusal.retryAfterMs - 1), null);
    }),
  );
});

test("property: admits as many requests at once as remain", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 60 }), waitsArb, (limit, waits) => {
      const scopes = [scope({ requestsPerMinute: limit })];
      let nowMs = now;
      for (const waitMs of waits) {
        nowMs += Math.max(0, waitMs);
        admit(scopes, 1, nowMs);
      }
      const { remaining } = ratesOf(scopes, nowMs).requests ?? { remaining: -1 };
      let more = 0;
      while (admit(scopes, 1, nowMs)) more += 1;
      assert.equal(more, remaining);
    }),
  );
});
