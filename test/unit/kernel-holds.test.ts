/** The kernel: holds, and refusals because of credits, keys and limits. */
import assert from "node:assert/strict";
import { example, expire, planTo, promote, small, topup } from "../fixtures/kernel-examples.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, limited, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

// Holds

example("a refusal names no refresh if the plan never refills", planOf("bought", 0, 0), async (made) => {
  const outcome = await made.apply(hold("h", 1));
  assert.ok(outcome.kind === "insufficient_credits");
  assert.deepEqual(outcome.refreshes, []);
});

example(
  "the moment named is that of the next bucket that refills at all",
  planOf("o", 0, 5),
  async (made) => {
    await made.apply(hold("h", credits(5)));
    await made.apply(settle("h", credits(5)));
    const outcome = await made.apply(hold("h2", 1));
    assert.ok(outcome.kind === "insufficient_credits");
    const atMs = Date.UTC(2026, 1, 15, 12);
    assert.deepEqual(outcome.refreshes, [{ atMs, amountMicro: credits(5) }]);
  },
);

example(
  "what is named of a refresh has no promotion that ends before it",
  planOf("o", 5, 0),
  async (made) => {
    await made.apply(promote("gift", credits(3), { untilMs: start + hour }));
    await made.apply(hold("all", credits(5)));
    await made.apply(settle("all", credits(5)));
    const outcome = await made.apply(hold("h", credits(9)));
    assert.ok(outcome.kind === "insufficient_credits");
    assert.equal(outcome.leftMicro, credits(3));
    assert.deepEqual(outcome.refreshes, [{ atMs: start + day, amountMicro: credits(5) }]);
  },
);

example(
  "a moment is named only where the plan will refill something then, whatever it does now",
  planOf("full", 10, 0),
  async (made) => {
    await made.apply(planTo("bought", "down"));
    const down = await made.apply(hold("h", credits(11)));
    assert.ok(down.kind === "insufficient_credits");
    assert.deepEqual(down.refreshes, []);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [0, 0, 0]);

    await made.store.applyPlans(plansOf(planOf("bought", 20, 0)), { force: false, by: "test" });
    const raised = await made.apply(hold("h", credits(11)));
    assert.ok(raised.kind === "insufficient_credits");
    assert.deepEqual(raised.refreshes, [{ atMs: start + 2 * day, amountMicro: credits(20) }]);
    made.clock.nowMs += day;
    assert.equal((await made.apply(hold("h", credits(11)))).kind, "held");
  },
  planOf("bought", 0, 0),
);

example("names each refresh with what can be spent after it", small, async (made) => {
  await made.apply(topup("p", credits(7)));
  await made.apply(hold("spent", credits(15)));
  await made.apply(settle("spent", credits(15)));
  await made.apply(hold("running", credits(3)));
  const outcome = await made.apply(hold("h", credits(100)));
  assert.ok(outcome.kind === "insufficient_credits");
  assert.equal(outcome.leftMicro, credits(4));
  assert.deepEqual(outcome.refreshes, [
    { atMs: start + day, amountMicro: credits(17) },
    { atMs: Date.UTC(2026, 1, 15, 12), amountMicro: credits(22) },
  ]);
});

example(
  "a scheduled plan counts from the end of the base window, and no refresh after the end of the account",
  small,
  async (made) => {
    await made.apply(hold("spent", credits(15)));
    await made.apply(settle("spent", credits(15)));
    await made.apply(planTo("large", "up", "refresh"));
    const scheduled = await made.apply(hold("h", credits(100)));
    assert.ok(scheduled.kind === "insufficient_credits");
    assert.deepEqual(scheduled.refreshes, [
      { atMs: start + day, amountMicro: credits(40 + 50 - 5) },
      { atMs: start + 2 * day, amountMicro: credits(40 + 50) },
    ]);
    const to = { kind: "end", endsMs: start + 2 * day } as const;
    await made.apply({ kind: "state", account: "ada", op: "end", to, by: "test" });
    const ending = await made.apply(hold("h", credits(100)));
    assert.ok(ending.kind === "insufficient_credits");
    assert.deepEqual(ending.refreshes, [{ atMs: start + day, amountMicro: credits(40 + 50 - 5) }]);
  },
  planOf("large", 40, 50, { overage: { credits: 50, every: "P1D", align: "opening" } }),
);

example("the same hold id in two accounts is two holds", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  await addKey(made.store, keyOf("bob-key", "bob"));
  await made.apply(hold("h", 10));
  await made.apply(hold("h", 20, { account: "bob", key: "bob-key" }));
  await made.apply(settle("h", 7, { account: "bob" }));
  assert.deepEqual(made.buckets("bob"), [credits(10) - 7, credits(5), 0]);
  assert.deepEqual(made.buckets("ada"), [credits(10) - 10, credits(5), 0]);
});

example("rejects a hold of a negative amount", small, async (made) => {
  await assert.rejects(made.apply(hold("h", -5)), /whole amount/);
  await assert.rejects(made.apply(hold("h", 0, { minMicro: 0, wantMicro: Number.NaN })), /whole amount/);
  await made.apply(hold("h", 10));
  await assert.rejects(made.apply(extend("h", 1, -5)), /whole amount/);
  assert.deepEqual(made.buckets(), [credits(10) - 10, credits(5), 0]);
});

// Keys

example("refuses a hold with an unknown key or the key of another account", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  await addKey(made.store, keyOf("bob-key", "bob"));
  const unknown = { kind: "invalid_api_key", why: "is not known" };
  assert.deepEqual(await made.apply(hold("h", 1, { key: "nobody" })), unknown);
  assert.deepEqual(await made.apply(hold("h", 1, { key: "bob-key" })), unknown);
});

example("records the last use of a key when a hold is granted", small, async (made) => {
  made.clock.nowMs += 5;
  await made.apply(hold("h", 1));
  made.clock.nowMs += 5;
  await made.apply(hold("h2", credits(100)));
  assert.equal(made.store.key("key").lastUsedMs, start + 5);
});

// Limits

example("checks limits before credits", limited({ requestsPerMinute: 1 }), async (made) => {
  await made.apply(hold("h", credits(100)));
  const outcome = await made.apply(hold("h2", credits(100)));
  assert.equal(outcome.kind, "rate_limit_exceeded");
});

example(
  "a request that the credits refuse does not count against the limits",
  limited({ requestsPerMinute: 1 }),
  async (made) => {
    await made.apply(hold("h", credits(101)));
    assert.equal((await made.apply(hold("h2", 1))).kind, "held");
  },
);

example(
  "a batch admits no more than the limit, however many keys the account has",
  limited({ requestsPerMinute: 3 }),
  async (made) => {
    for (const id of ["k1", "k2", "k3"]) await addKey(made.store, keyOf(id, "ada"));
    const holds = Array.from({ length: 9 }, (_, n) => hold(`h${n}`, 1, { key: `k${1 + (n % 3)}` }));
    const outcomes = await made.store.commit(holds);
    assert.equal(outcomes.filter((outcome) => outcome.kind === "held").length, 3);
  },
);

example(
  "a hold that is sent again does not count again",
  limited({ requestsPerMinute: 2, concurrent: 2 }),
  async (made) => {
    for (let n = 0; n < 5; n += 1) assert.equal((await made.apply(hold("h", 1))).kind, "held");
    const next = await made.apply(hold("h2", 1));
    assert.ok(next.kind === "held");
    assert.equal(next.rates.requests?.remaining, 0);
  },
);

example(
  "running requests are counted for the account and the key, and no longer when they end",
  limited({ concurrent: 2 }),
  async (made) => {
    await addKey(made.store, keyOf("one", "ada", { concurrent: 1 }));
    await made.apply(hold("h1", 1, { key: "one" }));
    const key = await made.apply(hold("h2", 1, { key: "one" }));
    assert.deepEqual(key, {
      kind: "concurrency_limit_exceeded",
      scope: "key",
      limit: 1,
      rates: {},
    });
    await made.apply(hold("h3", 1));
    const account = await made.apply(hold("h4", 1));
    assert.equal("scope" in account && account.scope, "account");
    await made.apply(settle("h1", 0));
    assert.equal((await made.apply(hold("h5", 1, { key: "one" }))).kind, "held");
  },
);

example(
  "cancelled and expired requests leave no running request behind (litellm#27639, #30522)",
  limited({ concurrent: 1 }),
  async (made) => {
    await made.apply(hold("h1", 1));
    await made.apply(settle("h1", 0, { ending: "client_gone" }));
    assert.equal((await made.apply(hold("h2", 1))).kind, "held");
    made.clock.nowMs += minute;
    assert.equal((await made.apply(hold("h3", 1))).kind, "held");
  },
);

example(
  "tokens per minute count the prompt at once, and completion tokens when the request has ended",
  limited({ tokensPerMinute: 100 }),
  async (made) => {
    const first = await made.apply(hold("h", 100, { promptTokens: 10 }));
    assert.equal(first.kind === "held" && first.rates.tokens?.remaining, 90);
    await made.apply(settle("h", 0, { usage: tokens(10, 50) }));
    const next = await made.apply(hold("h2", 100, { promptTokens: 1 }));
    assert.equal(next.kind === "held" && next.rates.tokens?.remaining, 39);
  },
);

example(
  "tokens that no engine worked on are not counted",
  limited({ tokensPerMinute: 100 }),
  async (made) => {
    await made.apply(hold("h", 100, { promptTokens: 100 }));
    await made.apply(settle("h", 0));
    assert.equal((await made.apply(hold("h2", 100, { promptTokens: 100 }))).kind, "held");
  },
);

example(
  "a late settlement counts the tokens that the expiry did not know of, once",
  limited({ tokensPerMinute: 100 }),
  async (made) => {
    await made.apply(hold("h", 500, { promptTokens: 10 }));
    made.clock.nowMs += minute;
    await made.apply(expire("h"));
    for (let n = 0; n < 3; n += 1) await made.apply(settle("h", 0, { usage: tokens(10, 80) }));
    const next = await made.apply(hold("h2", 1, { promptTokens: 0 }));
    assert.equal(next.kind === "held" && next.rates.tokens?.remaining, 10);
  },
);
