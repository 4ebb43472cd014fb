/** The kernel after a clock that was ahead is set back. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  example,
  expire,
  journalOf,
  openedJournal,
  promote,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, limited, planOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

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
    assert.ok(outcome.kind === "refused" && outcome.reason === "rate_limit_exceeded");
    return { count, retryAfterMs: outcome.retryAfterMs };
  }
  throw new Error("nothing is refused");
}

/**
 * An account that was opened while the clock was a year ahead, at the moment when it has been put
 * right. Ledger time is ahead from then on, at half the pace of real time.
 */
async function openedAhead(plan = small): Promise<Bench> {
  const made = await bench(plan);
  const backMs = start - 365 * day;
  made.clock.nowMs = backMs;
  made.store.times = () => {
    const { nowMs } = made.clock;
    const atMs = start + Math.floor((nowMs - backMs) / 2);
    return { nowMs, atMs, latestMs: atMs };
  };
  return made;
}

// Ledger time is ahead of the clock

test("rate limits follow the clock if ledger time is ahead", async () => {
  const made = await openedAhead(limited({ requestsPerMinute: 6 }));
  assert.deepEqual(await served(made, "a"), { count: 6, retryAfterMs: 10_000 });
  made.clock.nowMs += 10_000;
  assert.deepEqual(await served(made, "b"), { count: 1, retryAfterMs: 10_000 });
  made.clock.nowMs += hour;
  assert.deepEqual(await served(made, "c"), { count: 6, retryAfterMs: 10_000 });
});

test("tokens are counted by the clock if ledger time is ahead, late settlements included", async () => {
  const made = await openedAhead(limited({ tokensPerMinute: 100 }));
  await made.apply(hold("h", 300, { promptTokens: 10 }));
  await made.apply(settle("h", 0, { usage: tokens(10, 90) }));
  made.clock.nowMs += minute;
  await made.apply(hold("late", 300, { promptTokens: 100 }));
  made.clock.nowMs += minute;
  await made.apply(expire("late"));
  await made.apply(settle("late", 0, { usage: tokens(100, 50) }));
  const refused = await made.apply(hold("next", 1, { promptTokens: 100 }));
  assert.ok(refused.kind === "refused" && refused.reason === "rate_limit_exceeded");
  // The expiry took the prompt back; the late settlement counts it again with the answer, and then
  // there is the next.
  assert.equal(refused.retryAfterMs, 90_000);
});

test("a hold has its normal lifetime if ledger time is ahead", async () => {
  const made = await openedAhead(limited({ concurrent: 1 }));
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

test("any operation expires overdue holds if ledger time is ahead", async () => {
  const made = await openedAhead(limited({ concurrent: 1 }));
  await made.apply(hold("h", credits(100), { ttlMs: minute }));
  made.clock.nowMs += minute;
  assert.equal((await made.apply(hold("next", credits(100)))).kind, "held");
});

test("a key expires when ledger time has passed its expiry", async () => {
  const made = await openedAhead();
  await addKey(made.store, keyOf("past", "ada", { expiresMs: made.clock.nowMs + day }));
  const past = await made.apply(hold("h", 1, { key: "past" }));
  assert.deepEqual(past, { kind: "refused", reason: "key_expired" });
  await addKey(made.store, keyOf("short", "ada", { expiresMs: start + 1000 }));
  made.clock.nowMs += 1999;
  assert.equal((await made.apply(hold("h1", 1, { key: "short" }))).kind, "held");
  made.clock.nowMs += 1;
  const outcome = await made.apply(hold("h2", 1, { key: "short" }));
  assert.deepEqual(outcome, { kind: "refused", reason: "key_expired" });
});

test("facts are dated by ledger time", async () => {
  const made = await openedAhead();
  await made.apply(hold("h", 10));
  made.clock.nowMs += 2000;
  await made.apply(settle("h", 4));
  await made.apply(topup("p", 1));
  assert.equal(made.store.receipt("ada", "h")?.atMs, start + 1000);
  const journal = await made.store.journal("ada", { limit: 10, afterSeq: openedJournal.length });
  assert.deepEqual(
    journal.map(({ kind, atMs }) => [kind, atMs]),
    [
      ["charge", start + 1000],
      ["payment", start + 1000],
    ],
  );
});

test("a window ends when ledger time has reached its end", async () => {
  const made = await openedAhead();
  await made.apply(hold("h", credits(10)));
  await made.apply(settle("h", credits(10)));
  made.clock.nowMs += 2 * day - 2;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [0, credits(5), 0]);
  made.clock.nowMs += 2;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.equal(made.store.account("ada").base?.fromMs, start + day);
});

test("what has ended by a clock that is not believed is refused, and no window ends by it", async () => {
  const made = await bench(small);
  const nowMs = start + hour;
  await addKey(made.store, keyOf("short", "ada", { expiresMs: start + 2 * day }));
  await made.apply(topup("p", 7));
  await made.apply(promote("soon", 9, { untilMs: start + 40 * day }));
  made.store.times = () => ({ nowMs, atMs: nowMs, latestMs: start + 50 * day });
  const expired = await made.apply(hold("h", 1, { key: "short" }));
  assert.deepEqual(expired, { kind: "refused", reason: "key_expired" });
  const everything = { minMicro: 0, wantMicro: credits(100) };
  assert.partialDeepStrictEqual(await made.apply(hold("h", 0, everything)), {
    kind: "held",
    amountMicro: credits(15) + 7,
  });
  await made.apply(settle("h", 0));
  made.store.times = () => ({ nowMs, atMs: nowMs, latestMs: nowMs });
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 16]);
  assert.deepEqual((await journalOf(made)).slice(openedJournal.length), [
    "key",
    "payment payment:p",
    "promotion operation:soon",
    "charge h",
  ]);
  assert.equal((await made.apply(hold("h2", 1, { key: "short" }))).kind, "held");
});

// Limits that were counted ahead of the clock

example(
  "a clock that is set back by an hour shuts nobody out: requests go on at their rate",
  limited({ requestsPerMinute: 6 }),
  async (made) => {
    await served(made, "before");
    made.clock.nowMs -= hour;
    assert.deepEqual(await served(made, "a"), { count: 0, retryAfterMs: 10_000 });
    made.clock.nowMs += 9_999;
    assert.deepEqual(await served(made, "b"), { count: 0, retryAfterMs: 1 });
    made.clock.nowMs += 1;
    assert.deepEqual(await served(made, "c"), { count: 1, retryAfterMs: 10_000 });
    made.clock.nowMs += minute;
    assert.deepEqual(await served(made, "d"), { count: 6, retryAfterMs: 10_000 });
  },
);

example(
  "a clock that is set back leaves a debt of tokens as long as it was, and it is worked off",
  limited({ tokensPerMinute: 100 }),
  async (made) => {
    await made.apply(hold("h", 2000, { promptTokens: 10 }));
    await made.apply(settle("h", 0, { usage: tokens(10, 990) }));
    const refusal = async (id: string) => {
      const outcome = await made.apply(hold(id, 1));
      assert.ok(outcome.kind === "refused" && outcome.reason === "rate_limit_exceeded");
      return outcome.retryAfterMs ?? 0;
    };
    const debtMs = await refusal("before");
    assert.equal(debtMs, 9 * minute + 600);
    made.clock.nowMs -= day;
    const waitMs = await refusal("after");
    assert.ok(waitMs >= debtMs && waitMs <= debtMs + minute, `${waitMs} ms`);
    made.clock.nowMs += waitMs - 1;
    assert.equal(await refusal("too soon"), 1);
    made.clock.nowMs += 1;
    assert.equal((await made.apply(hold("then", 1))).kind, "held");
  },
);

example(
  "a debt of hours is waited for where no clock was set back",
  limited({ tokensPerMinute: 100 }),
  async (made) => {
    await made.apply(hold("h", credits(1), { promptTokens: 1 }));
    await made.apply(settle("h", 0, { usage: tokens(1, 99_999) }));
    for (let hours = 0; hours < 16; hours += 1) {
      const outcome = await made.apply(hold(`at ${hours}`, 1));
      assert.ok(outcome.kind === "refused" && outcome.reason === "rate_limit_exceeded");
      assert.equal(outcome.retryAfterMs, 1000 * minute - minute + 600 - hours * hour);
      made.clock.nowMs += hour;
    }
  },
);

example(
  "what a running request makes after the clock was set back is a debt like any other",
  planOf("counted", 100, 0, { limits: { requestsPerMinute: 6 } }),
  async (made) => {
    await addKey(made.store, keyOf("counted", "ada", { requestsPerMinute: 6, tokensPerMinute: 100 }));
    await made.apply(hold("h", 1000, { key: "counted", promptTokens: 0 }));
    made.clock.nowMs -= hour;
    await made.apply(settle("h", 0, { usage: tokens(0, 600) }));
    const outcome = await made.apply(hold("next", 1, { key: "counted", promptTokens: 100 }));
    assert.ok(outcome.kind === "refused" && outcome.reason === "rate_limit_exceeded");
    made.clock.nowMs += 5 * minute;
    const then = await made.apply(hold("then", 1, { key: "counted", promptTokens: 100 }));
    assert.ok(then.kind === "refused" && then.reason === "rate_limit_exceeded" && then.of === "tokens");
    assert.equal(then.retryAfterMs, minute);
  },
);

example(
  "limits that follow a clock that was set back move nothing else of the account",
  limited({ requestsPerMinute: 1 }),
  async (made) => {
    await made.apply(hold("h", 1));
    const before = made.store.account("ada");
    const key = made.store.key("key");
    made.clock.nowMs -= hour;
    await made.apply(hold("refused", 1));
    const requestsTatMs = made.clock.nowMs + minute;
    assert.deepEqual(made.store.account("ada"), { ...before, requestsTatMs });
    assert.deepEqual(made.store.key("key"), key);
    assert.deepEqual(await journalOf(made), openedJournal);
  },
);
