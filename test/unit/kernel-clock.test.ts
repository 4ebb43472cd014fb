/** The kernel after a clock was set back. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { expire, small } from "../fixtures/kernel-examples.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, limited } from "../fixtures/ledger-rows.ts";
import { hour, minute, start } from "../fixtures/times.ts";

/**
 * One request after another until one is refused: how many were served, and how long the refused
 * one is to wait.
 */
async function served(made: Bench, name: string): Promise<{ count: number; retryAfterMs: number | null }> {
  for (let count = 0; count < 100; count += 1) {
    const outcome = await made.apply(hold(`${name}-${count}`, 1));
    if (outcome.kind === "held") {
      await made.apply(settle(`${name}-${count}`, 1));
      continue;
    }
    assert.ok(outcome.kind === "rate_limit_exceeded");
    return { count, retryAfterMs: outcome.retryAfterMs };
  }
  throw new Error("nothing is refused");
}

/** An account at the moment when the clock has been set back by an hour. Ledger time stands. */
async function setBack(plan = small): Promise<Bench> {
  const made = await bench(plan);
  made.store.times = () => {
    const { nowMs } = made.clock;
    return { nowMs, atMs: Math.max(start, nowMs - hour) };
  };
  return made;
}

// Ledger time stands, and elapsed time goes on

test("rate limits follow the clock while ledger time stands", async () => {
  const made = await setBack(limited({ requestsPerMinute: 6 }));
  assert.deepEqual(await served(made, "a"), { count: 6, retryAfterMs: 10_000 });
  made.clock.nowMs += 10_000;
  assert.deepEqual(await served(made, "b"), { count: 1, retryAfterMs: 10_000 });
  made.clock.nowMs += hour;
  assert.deepEqual(await served(made, "c"), { count: 6, retryAfterMs: 10_000 });
});

test("tokens are counted by the clock while ledger time stands, late settlements included", async () => {
  const made = await setBack(limited({ tokensPerMinute: 100 }));
  await made.apply(hold("h", 300, { promptTokens: 10 }));
  await made.apply(settle("h", 0, { usage: tokens(10, 90) }));
  made.clock.nowMs += minute;
  await made.apply(hold("late", 300, { promptTokens: 100 }));
  made.clock.nowMs += minute;
  await made.apply(expire("late"));
  await made.apply(settle("late", 0, { usage: tokens(100, 50) }));
  const refused = await made.apply(hold("next", 1, { promptTokens: 100 }));
  assert.ok(refused.kind === "rate_limit_exceeded");
  // The expiry took the prompt back; the late settlement counts it again with the answer, and then
  // there is the next.
  assert.equal(refused.retryAfterMs, 90_000);
});

test("a hold has its normal lifetime while ledger time stands", async () => {
  const made = await setBack(limited({ concurrent: 1 }));
  const nowMs = made.clock.nowMs;
  await made.apply(hold("h", 10, { ttlMs: minute }));
  const [row] = made.store.openHolds("ada");
  assert.deepEqual([row?.createdMs, row?.expiresMs], [start, nowMs + minute]);

  made.clock.nowMs += 30_000;
  await made.apply(extend("h", 1, 0, { ttlMs: minute }));
  assert.equal(made.store.openHolds("ada")[0]?.expiresMs, nowMs + 90_000);

  made.clock.nowMs = nowMs + 90_000 - 1;
  assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
  made.clock.nowMs += 1;
  const outcome = await made.apply(expire("h"));
  assert.equal(outcome.kind, "expired");
  assert.equal((await made.apply(hold("next", 10))).kind, "held");
});

test("any operation expires overdue holds while ledger time stands", async () => {
  const made = await setBack(limited({ concurrent: 1 }));
  await made.apply(hold("h", credits(100), { ttlMs: minute }));
  made.clock.nowMs += minute;
  assert.equal((await made.apply(hold("next", credits(100)))).kind, "held");
});

test("a key expires when ledger time has passed its expiry", async () => {
  const made = await setBack();
  await addKey(made.store, keyOf("past", "ada", { expiresMs: start }));
  const past = await made.apply(hold("h", 1, { key: "past" }));
  assert.deepEqual(past, { kind: "invalid_api_key", why: "has expired" });
  await addKey(made.store, keyOf("short", "ada", { expiresMs: start + 1000 }));
  made.clock.nowMs += hour + 999;
  assert.equal((await made.apply(hold("h1", 1, { key: "short" }))).kind, "held");
  made.clock.nowMs += 1;
  const outcome = await made.apply(hold("h2", 1, { key: "short" }));
  assert.deepEqual(outcome, { kind: "invalid_api_key", why: "has expired" });
});
