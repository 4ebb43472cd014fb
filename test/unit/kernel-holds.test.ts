/** The kernel: holds, and refusals because of credits, keys and limits. */
import assert from "node:assert/strict";
import {
  example,
  expire,
  journalOf,
  openedJournal,
  planTo,
  promote,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
import { extend, hold, settle, settledBy, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, limited, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

// Holds

example("takes credits from base first, then overage, then additional", small, async (made) => {
  await made.apply(topup("p", credits(20)));
  await made.apply(hold("h1", credits(8)));
  assert.deepEqual(made.buckets(), [credits(2), credits(5), credits(20)]);
  await made.apply(hold("h2", credits(9)));
  assert.deepEqual(made.buckets(), [0, 0, credits(18)]);
  await made.apply(hold("h3", credits(18)));
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

example("a hold takes the wanted amount, or the available credits", small, async (made) => {
  const wants = { minMicro: 5, wantMicro: credits(100) };
  assert.deepEqual(await made.apply(hold("h", 0, wants)), {
    kind: "held",
    amountMicro: credits(15),
    reserved: false,
    rates: {},
  });
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

example("a hold below its minimum is refused and takes nothing", small, async (made) => {
  const outcome = await made.apply(hold("h", credits(15) + 1));
  assert.deepEqual(outcome, {
    kind: "insufficient_credits",
    cap: null,
    leftMicro: credits(15),
    mostMicro: credits(15),
    refreshes: [],
    rates: {},
  });
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.deepEqual(await journalOf(made), openedJournal);
  assert.equal(made.store.key("key").lastUsedMs, null);
});

example("grants a hold of exactly the available credits", small, async (made) => {
  const outcome = await made.apply(hold("h", credits(15)));
  assert.equal(outcome.kind, "held");
});

example(
  "credits that running requests hold are told apart from credits that are gone",
  small,
  async (made) => {
    await made.apply(hold("h", credits(14)));
    const outcome = await made.apply(hold("h2", credits(2)));
    assert.deepEqual(outcome, {
      kind: "credits_reserved",
      scope: "account",
      retryAfterMs: 1000,
      rates: {},
    });
    await made.apply(settle("h", credits(14)));
    const then = await made.apply(hold("h3", credits(2)));
    assert.equal(then.kind, "insufficient_credits");
  },
);

example(
  "credits held out of a window that has ended are not waited for",
  planOf("base", 10, 0),
  async (made) => {
    await made.apply(hold("old", credits(10), { ttlMs: 3 * day }));
    made.clock.nowMs += day;
    await made.apply(hold("new", credits(9)));
    const outcome = await made.apply(hold("more", credits(11)));
    assert.equal(outcome.kind, "insufficient_credits");
    await made.apply(settle("old", 0));
    assert.deepEqual(made.buckets(), [credits(1), 0, 0]);
  },
);

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

example(
  "a hold of nothing is granted on an empty account: free models stay free",
  planOf("none", 0, 0),
  async (made) => {
    const free = { price: { prompt: 0, completion: 0 } };
    assert.deepEqual(await made.apply(hold("h", 0, free)), {
      kind: "held",
      amountMicro: 0,
      reserved: false,
      rates: {},
    });
    assert.partialDeepStrictEqual(await made.apply(settle("h", 100)), settledBy({}));
  },
);

example(
  "fifty of two hundred holds in one batch are granted where fifty can be paid",
  small,
  async (made) => {
    const holds = Array.from({ length: 200 }, (_, n) => hold(`h${n}`, credits(0.3)));
    const outcomes = await made.store.commit(holds);
    assert.equal(outcomes.filter((outcome) => outcome.kind === "held").length, 50);
    assert.deepEqual(made.buckets(), [0, 0, 0]);
  },
);

example("a repeated hold returns the amount of the first", small, async (made) => {
  await made.apply(hold("h", 0, { minMicro: 1, wantMicro: credits(100) }));
  const again = await made.apply(hold("h", 0, { minMicro: 1, wantMicro: credits(100) }));
  assert.deepEqual(again, { kind: "held", amountMicro: credits(15), reserved: false, rates: {} });
  assert.equal(made.store.account("ada").holds, 1);
  assert.equal(made.store.key("key").holds, 1);
});

example("a repeated hold is refused after it has ended, and charges nothing", small, async (made) => {
  await made.apply(hold("h", 10));
  await made.apply(settle("h", 4));
  assert.deepEqual(await made.apply(hold("h", 10)), { kind: "ended" });
  assert.deepEqual(made.buckets(), [credits(10) - 4, credits(5), 0]);
});

example("the same hold twice in a batch is taken once", small, async (made) => {
  const outcomes = await made.store.commit([hold("h", 10), hold("h", 10), settle("h", 3), hold("h", 10)]);
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ["held", "held", "settled", "ended"],
  );
  assert.deepEqual(made.store.openHolds("ada"), []);
});

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

example("refuses holds of a revoked key from the next request on", small, async (made) => {
  await made.apply(hold("h", 10));
  await revokeKey(made.store, "key");
  assert.deepEqual(await made.apply(hold("h2", 1)), { kind: "invalid_api_key", why: "was revoked" });
  const running = await made.apply(settle("h", 4));
  assert.equal(running.kind, "settled", "what is running ends as it would have");
});

example("refuses a key from the moment of its expiry", small, async (made) => {
  await addKey(made.store, keyOf("short", "ada", { expiresMs: start + 1000 }));
  made.clock.nowMs = start + 999;
  assert.equal((await made.apply(hold("h", 1, { key: "short" }))).kind, "held");
  made.clock.nowMs = start + 1000;
  const outcome = await made.apply(hold("h2", 1, { key: "short" }));
  assert.deepEqual(outcome, { kind: "invalid_api_key", why: "has expired" });
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
