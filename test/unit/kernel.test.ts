/** The ledger's rules, one example each, decided by the kernel over an in-memory store and audited afterwards. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { PlanOperation } from "../../src/credits/operations.ts";
import type { Plan } from "../../src/credits/plan.ts";
import { audit } from "../fixtures/ledger-audit.ts";
import {
  type Bench,
  bench,
  credits,
  day,
  extend,
  hold,
  hour,
  keyOf,
  limited,
  minute,
  planOf,
  plansOf,
  settle,
  settledBy,
  start,
  tokens,
} from "../fixtures/ledger-rows.ts";

/** 10 credits of base a day, 5 of overage a month. */
const small = planOf("small", 10, 5);
const large = planOf("large", 30, 5);

/** Runs an example on a fresh account `ada` and audits what it left. */
function example(name: string, plan: Plan, run: (bench: Bench) => Promise<void>, ...others: Plan[]): void {
  test(name, async () => {
    const made = await bench(plan, ...others);
    await run(made);
    await audit(made.store);
  });
}

function topup(payment: string, amount: number) {
  return { kind: "topup", account: "ada", payment, amount } as const;
}

function adjust(op: string, amount: number, reason = "a test") {
  return { kind: "adjust", account: "ada", op, amount, reason } as const;
}

function planTo(plan: string, op: string): PlanOperation {
  return { kind: "plan", account: "ada", op, plan };
}

function expire(id: string) {
  return { kind: "expire", account: "ada", hold: id } as const;
}

async function journalOf({ store }: Bench): Promise<string[]> {
  return (await store.journal("ada", { limit: 1000 })).map((row) => `${row.kind} ${row.op}`);
}

// Opening

example(
  "a new account begins with both buckets full and both windows at its opening",
  small,
  async (made) => {
    const row = made.store.account("ada");
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
    assert.equal(row.baseStartsMs, start);
    assert.equal(row.baseEndsMs, start + day);
    assert.equal(row.overageEndsMs, Date.UTC(2026, 1, 15, 12));
    assert.deepEqual(await journalOf(made), ["open open"]);
  },
);

example("opening an account again changes nothing and says on which plan it is", small, async (made) => {
  await made.apply(settle("none", 0));
  const before = made.store.account("ada");
  const outcome = await made.apply({ kind: "open", account: "ada", plan: "large" });
  assert.deepEqual(outcome, { kind: "exists", plan: "small" });
  assert.equal(made.store.account("ada"), before);
});

example("an account cannot be opened on a plan that does not exist", small, async (made) => {
  const outcome = await made.apply({ kind: "open", account: "bob", plan: "gold" });
  assert.equal(outcome.kind, "balance_invalid");
  assert.throws(() => made.store.account("bob"));
});

example("an account may be opened and used in the same batch", small, async (made) => {
  const outcomes = await made.store.commit([
    { kind: "open", account: "bob", plan: "small" },
    { kind: "topup", account: "bob", payment: "p", amount: 5 },
  ]);
  assert.deepEqual(outcomes, [{ kind: "opened" }, { kind: "added", additional: 5, again: false }]);
});

example("every operation on an account that does not exist is answered so", small, async ({ store }) => {
  const account = "bob";
  const outcomes = await store.commit([
    hold("h", 1, { account }),
    extend("h", 1, 1, { account }),
    settle("h", 1, { account }),
    { kind: "expire", account, hold: "h" },
    { kind: "topup", account, payment: "p", amount: 1 },
    { kind: "adjust", account, op: "a", amount: 1, reason: "" },
    { kind: "plan", account, op: "c", plan: "small" },
  ]);
  assert.deepEqual(
    outcomes,
    Array.from({ length: 7 }, () => ({ kind: "no_account" })),
  );
});

// Holds

example("credits are taken from base first, then overage, then additional", small, async (made) => {
  await made.apply(topup("p", credits(20)));
  await made.apply(hold("h1", credits(8)));
  assert.deepEqual(made.buckets(), [credits(2), credits(5), credits(20)]);
  await made.apply(hold("h2", credits(9)));
  assert.deepEqual(made.buckets(), [0, 0, credits(18)]);
  await made.apply(hold("h3", credits(18)));
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

example("a hold takes what it wants, or what is there", small, async (made) => {
  const wants = { min: 5, want: credits(100) };
  assert.deepEqual(await made.apply(hold("h", 0, wants)), { kind: "held", amount: credits(15), rates: {} });
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

example("a hold that cannot have its least is refused and takes nothing", small, async (made) => {
  const outcome = await made.apply(hold("h", credits(15) + 1));
  assert.deepEqual(outcome, {
    kind: "refused",
    reason: "insufficient_credits",
    refreshesAtMs: start + day,
    rates: {},
  });
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.deepEqual(await journalOf(made), ["open open"]);
  assert.equal(made.store.key("key").lastUsedMs, null);
});

example("a hold of exactly all that is left is granted", small, async (made) => {
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
      kind: "refused",
      reason: "credits_reserved",
      retryAfterMs: 1000,
      rates: {},
    });
    await made.apply(settle("h", credits(14)));
    const then = await made.apply(hold("h3", credits(2)));
    assert.equal(then.kind === "refused" && then.reason, "insufficient_credits");
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
    assert.equal(outcome.kind === "refused" && outcome.reason, "insufficient_credits");
    await made.apply(settle("old", 0));
    assert.deepEqual(made.buckets(), [credits(1), 0, 0]);
  },
);

example("a plan that refills nothing names no moment to wait for", planOf("bought", 0, 0), async (made) => {
  const outcome = await made.apply(hold("h", 1));
  assert.ok(outcome.kind === "refused" && outcome.reason === "insufficient_credits");
  assert.equal(outcome.refreshesAtMs, null);
});

example(
  "the moment named is that of the next bucket that refills at all",
  planOf("o", 0, 5),
  async (made) => {
    await made.apply(hold("h", credits(5)));
    await made.apply(settle("h", credits(5)));
    const outcome = await made.apply(hold("h2", 1));
    assert.ok(outcome.kind === "refused" && outcome.reason === "insufficient_credits");
    assert.equal(outcome.refreshesAtMs, Date.UTC(2026, 1, 15, 12));
  },
);

example(
  "a hold of nothing is granted on an empty account: free models stay free",
  planOf("none", 0, 0),
  async (made) => {
    const free = { price: { prompt: 0, completion: 0 } };
    assert.deepEqual(await made.apply(hold("h", 0, free)), { kind: "held", amount: 0, rates: {} });
    assert.deepEqual(await made.apply(settle("h", 100)), settledBy({}));
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

example("a hold that is sent again is answered with what it first took", small, async (made) => {
  await made.apply(hold("h", 0, { min: 1, want: credits(100) }));
  const again = await made.apply(hold("h", 0, { min: 1, want: credits(100) }));
  assert.deepEqual(again, { kind: "held", amount: credits(15), rates: {} });
  assert.equal(made.store.account("ada").holds, 1);
  assert.equal(made.store.key("key").holds, 1);
});

example("a hold that is sent again after it ended is refused, and charges nobody", small, async (made) => {
  await made.apply(hold("h", 10));
  await made.apply(settle("h", 4));
  assert.deepEqual(await made.apply(hold("h", 10)), { kind: "refused", reason: "hold_ended" });
  assert.deepEqual(made.buckets(), [credits(10) - 4, credits(5), 0]);
});

example("the same hold twice in one batch is one hold", small, async (made) => {
  const outcomes = await made.store.commit([hold("h", 10), hold("h", 10), settle("h", 3), hold("h", 10)]);
  assert.deepEqual(
    outcomes.map((outcome) => ("reason" in outcome ? outcome.reason : outcome.kind)),
    ["held", "held", "settled", "hold_ended"],
  );
  assert.deepEqual(made.store.openHolds("ada"), []);
});

example("accounts may use the same hold id without meeting each other", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small" }]);
  await made.store.addKey(keyOf("bob-key", "bob"));
  await made.apply(hold("h", 10));
  await made.apply(hold("h", 20, { account: "bob", key: "bob-key" }));
  await made.apply(settle("h", 7, { account: "bob" }));
  assert.deepEqual(made.buckets("bob"), [credits(10) - 7, credits(5), 0]);
  assert.deepEqual(made.buckets("ada"), [credits(10) - 10, credits(5), 0]);
});

example("no amount below nothing can be asked for: a hold never pays its account", small, async (made) => {
  await assert.rejects(made.apply(hold("h", -5)), /whole amount/);
  await assert.rejects(made.apply(hold("h", 0, { min: 0, want: Number.NaN })), /whole amount/);
  await made.apply(hold("h", 10));
  await assert.rejects(made.apply(extend("h", 1, -5)), /whole amount/);
  assert.deepEqual(made.buckets(), [credits(10) - 10, credits(5), 0]);
});

// Keys

example("a key that is not known, or is another account's, holds nothing", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small" }]);
  await made.store.addKey(keyOf("bob-key", "bob"));
  const unknown = { kind: "refused", reason: "key_unknown" };
  assert.deepEqual(await made.apply(hold("h", 1, { key: "nobody" })), unknown);
  assert.deepEqual(await made.apply(hold("h", 1, { key: "bob-key" })), unknown);
});

example("a revoked key holds nothing from the next request on", small, async (made) => {
  await made.apply(hold("h", 10));
  await made.store.revokeKey("key", start);
  assert.deepEqual(await made.apply(hold("h2", 1)), { kind: "refused", reason: "key_revoked" });
  const running = await made.apply(settle("h", 4));
  assert.equal(running.kind, "settled", "what is running ends as it would have");
});

example("a key is refused from the very moment of its expiry", small, async (made) => {
  await made.store.addKey(keyOf("short", "ada", { expiresMs: start + 1000 }));
  made.clock.nowMs = start + 999;
  assert.equal((await made.apply(hold("h", 1, { key: "short" }))).kind, "held");
  made.clock.nowMs = start + 1000;
  const outcome = await made.apply(hold("h2", 1, { key: "short" }));
  assert.deepEqual(outcome, { kind: "refused", reason: "key_expired" });
});

example("a key is told when it was last used, by what was granted", small, async (made) => {
  made.clock.nowMs += 5;
  await made.apply(hold("h", 1));
  made.clock.nowMs += 5;
  await made.apply(hold("h2", credits(100)));
  assert.equal(made.store.key("key").lastUsedMs, start + 5);
});

// Limits

example("the limits are checked before the credits", limited({ requestsPerMinute: 1 }), async (made) => {
  await made.apply(hold("h", credits(100)));
  const outcome = await made.apply(hold("h2", credits(100)));
  assert.equal(outcome.kind === "refused" && outcome.reason, "rate_limit_exceeded");
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
    for (const id of ["k1", "k2", "k3"]) await made.store.addKey(keyOf(id, "ada"));
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
    await made.store.addKey(keyOf("one", "ada", { concurrent: 1 }));
    await made.apply(hold("h1", 1, { key: "one" }));
    const key = await made.apply(hold("h2", 1, { key: "one" }));
    assert.deepEqual(key, {
      kind: "refused",
      reason: "concurrency_limit_exceeded",
      scope: "key",
      limit: 1,
      rates: {},
    });
    await made.apply(hold("h3", 1));
    const account = await made.apply(hold("h4", 1));
    assert.equal(account.kind === "refused" && "scope" in account && account.scope, "account");
    await made.apply(settle("h1", 0));
    assert.equal((await made.apply(hold("h5", 1, { key: "one" }))).kind, "held");
  },
);

example(
  "cancelled and expired requests leave no running request behind (litellm#27639)",
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
    await made.apply(settle("h", 0, { used: tokens(10, 50) }));
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
    for (let n = 0; n < 3; n += 1) await made.apply(settle("h", 0, { used: tokens(10, 80) }));
    const next = await made.apply(hold("h2", 1, { promptTokens: 0 }));
    assert.equal(next.kind === "held" && next.rates.tokens?.remaining, 10);
  },
);

// Settlement

example("a settlement charges what was used and gives the rest back", small, async (made) => {
  await made.apply(hold("h", credits(12)));
  const outcome = await made.apply(settle("h", credits(11)));
  assert.deepEqual(outcome, settledBy({ base: credits(10), overage: credits(1) }));
  assert.deepEqual(made.buckets(), [0, credits(4), 0]);
});

example("the receipt has tokens, prices, split and ending, found by the request id", small, async (made) => {
  await made.apply(topup("p", credits(1)));
  await made.apply(hold("h", credits(16), { price: { prompt: 10, completion: 30, cachedPrompt: 1 } }));
  made.clock.nowMs += 70;
  const used = { promptTokens: 100, cachedTokens: 60, completionTokens: 20, reasoningTokens: 5 };
  await made.apply(settle("h", 0, { used, ending: "length", estimated: true }));
  assert.deepEqual(made.store.receipt("ada", "h"), {
    account: "ada",
    id: "h",
    seq: 4,
    atMs: start + 70,
    key: "key",
    model: "model",
    ending: "length",
    estimated: true,
    ...used,
    pricePrompt: 10,
    priceCompletion: 30,
    priceCachedPrompt: 1,
    cost: 40 * 10 + 60 + 20 * 30,
    base: 1060,
    overage: 0,
    additional: 0,
    shortfall: 0,
  });
});

example("the same settlement again charges nothing more and is answered the same", small, async (made) => {
  await made.apply(hold("h", 10));
  const first = await made.apply(settle("h", 7));
  const [again, other] = await made.store.commit([settle("h", 7), settle("h", 9)]);
  assert.deepEqual(again, first);
  assert.deepEqual(other, first, "what comes second does not count, whatever it says");
  assert.deepEqual(made.buckets(), [credits(10) - 7, credits(5), 0]);
});

example("a settlement of a hold that was never taken charges nothing", small, async (made) => {
  assert.deepEqual(await made.apply(settle("ghost", 5)), { kind: "unknown_hold" });
  assert.deepEqual(await journalOf(made), ["open open"]);
});

example(
  "a settlement of no tokens is a void: everything goes back where it came from",
  small,
  async (made) => {
    await made.apply(topup("p", credits(3)));
    await made.apply(hold("h", credits(17)));
    await made.apply(settle("h", 0, { ending: "refused" }));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(3)]);
    assert.deepEqual(await journalOf(made), ["open open", "topup payment:p", "hold h", "void h/end"]);
  },
);

example(
  "what costs more than its hold is paid from what is there, and the rest is a shortfall, never a debt (one-api#51)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(1)));
    const outcome = await made.apply(settle("h", credits(20)));
    assert.deepEqual(outcome, settledBy({ base: credits(10), overage: credits(5) }, credits(5)));
    assert.deepEqual(made.buckets(), [0, 0, 0]);
    const { base, overage, additional, shortfall } = made.store.receipt("ada", "h") ?? {};
    assert.deepEqual([base, overage, additional, shortfall], [credits(10), credits(5), 0, credits(5)]);
  },
);

example("what costs more than its hold takes nothing of what other requests hold", small, async (made) => {
  await made.apply(hold("h1", credits(1)));
  await made.apply(hold("h2", credits(12)));
  const outcome = await made.apply(settle("h1", credits(5)));
  assert.deepEqual(outcome, settledBy({ base: credits(1), overage: credits(2) }, credits(2)));
  assert.deepEqual(
    await made.apply(settle("h2", credits(12))),
    settledBy({ base: credits(9), overage: credits(3) }),
  );
});

example("prices are those of the moment of the hold", small, async (made) => {
  await made.apply(hold("h", 1000, { price: { prompt: 2, completion: 3 } }));
  made.store.plans = plansOf(planOf("small", 10, 5, { models: [] }));
  const outcome = await made.apply(settle("h", 0, { used: tokens(5, 10) }));
  assert.deepEqual(outcome, settledBy({ base: 40 }));
});

example("counts that are absurd are a defect and end nothing (octopus#243)", small, async (made) => {
  await made.apply(hold("h", 10));
  for (const used of [
    tokens(-1, 0),
    tokens(0, 0.5),
    tokens(1, 0, 2),
    tokens(Number.NaN, 0),
    { ...tokens(0, 1), reasoningTokens: 2 },
    tokens(0, Number.MAX_SAFE_INTEGER + 1),
  ]) {
    await assert.rejects(made.apply(settle("h", 0, { used })), /invariant/);
  }
  assert.equal((await made.apply(settle("h", 1))).kind, "settled");
});

example("a settlement that calls itself an expiry is a defect", small, async (made) => {
  await made.apply(hold("h", 10));
  await assert.rejects(made.apply(settle("h", 1, { ending: "expired" })), /expiry/);
});

// Extensions and expiry

example("an extension takes the next slice in the order of the buckets", small, async (made) => {
  await made.apply(topup("p", credits(1)));
  await made.apply(hold("h", credits(9)));
  assert.deepEqual(await made.apply(extend("h", 1, credits(4))), {
    kind: "extended",
    amount: credits(4),
  });
  assert.deepEqual(made.buckets(), [0, credits(2), credits(1)]);
  await made.apply(settle("h", credits(13)));
  assert.deepEqual(made.buckets(), [0, credits(2), credits(1)]);
});

example("an extension takes less, or nothing, where less is there", small, async (made) => {
  await made.apply(hold("h", credits(14)));
  assert.deepEqual(await made.apply(extend("h", 1, credits(4))), {
    kind: "extended",
    amount: credits(1),
  });
  assert.deepEqual(await made.apply(extend("h", 2, credits(4))), { kind: "extended", amount: 0 });
});

example("the same extension again takes nothing more and is answered the same", small, async (made) => {
  await made.apply(hold("h", 10));
  const first = await made.apply(extend("h", 1, 5));
  assert.deepEqual(await made.apply(extend("h", 1, 5)), first);
  assert.deepEqual(await made.apply(extend("h", 2, 5)), first);
  assert.deepEqual(made.buckets(), [credits(10) - 20, credits(5), 0]);
});

example(
  "the same extension again after its window has ended takes nothing out of the new one",
  small,
  async (made) => {
    await made.apply(hold("h", credits(2), { ttlMs: 3 * day }));
    await made.apply(extend("h", 1, credits(3)));
    made.clock.nowMs += day;
    assert.deepEqual(await made.apply(extend("h", 1, credits(3))), {
      kind: "extended",
      amount: credits(3),
    });
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
    await made.apply(settle("h", credits(5)));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
);

example("an extension of a hold that has ended takes nothing", small, async (made) => {
  await made.apply(hold("h", 10));
  await made.apply(settle("h", 10));
  assert.deepEqual(await made.apply(extend("h", 1, 5)), { kind: "ended" });
  assert.deepEqual(await made.apply(extend("ghost", 1, 5)), { kind: "ended" });
  assert.deepEqual(made.buckets(), [credits(10) - 10, credits(5), 0]);
});

example("an extension keeps the hold alive, and is its checkpoint", small, async (made) => {
  await made.apply(hold("h", 100));
  made.clock.nowMs += minute - 1;
  await made.apply(extend("h", 1, 0, { used: tokens(10, 20) }));
  made.clock.nowMs += minute - 1;
  assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
  made.clock.nowMs += 1;
  assert.equal((await made.apply(expire("h"))).kind, "expired");
  assert.equal(made.store.receipt("ada", "h")?.cost, 30);
  assert.deepEqual(made.buckets(), [credits(10) - 30, credits(5), 0]);
});

example(
  "a checkpoint that arrives late takes back neither tokens nor time of a newer one",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 2, 0, { used: tokens(10, 20), ttlMs: hour }));
    await made.apply(extend("h", 1, 0, { used: tokens(10, 5), ttlMs: minute }));
    made.clock.nowMs += minute;
    assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
    made.clock.nowMs += hour;
    await made.apply(expire("h"));
    assert.equal(made.store.receipt("ada", "h")?.cost, 30);
  },
);

example(
  "a checkpoint from before the prompt was begun does not take the prompt back",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 2, 0, { used: tokens(10, 0) }));
    await made.apply(extend("h", 1, 0, { used: tokens(0, 0) }));
    made.clock.nowMs += hour;
    await made.apply(expire("h"));
    assert.equal(made.store.receipt("ada", "h")?.cost, 10);
  },
);

example(
  "a checkpoint that could never be charged is a defect, and does not strand the hold",
  small,
  async (made) => {
    await made.apply(hold("h", 100, { price: { prompt: 1000, completion: 1000 } }));
    const used = tokens(0, 2 ** 50);
    await assert.rejects(made.apply(extend("h", 1, 0, { used })), /invariant/);
    made.clock.nowMs += hour;
    assert.equal((await made.apply(expire("h"))).kind, "expired");
  },
);

example("a hold without a checkpoint expires for nothing", small, async (made) => {
  await made.apply(hold("h", credits(12)));
  made.clock.nowMs += minute;
  await made.apply(expire("h"));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.equal(made.store.receipt("ada", "h")?.ending, "expired");
});

example("whoever asks for an expiry second is told that it has ended", small, async (made) => {
  await made.apply(hold("h", 10));
  assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
  made.clock.nowMs += minute;
  const outcomes = await made.store.commit([expire("h"), expire("h"), expire("ghost")]);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind),
    ["expired", "ended", "ended"],
  );
});

example(
  "what a hold whose time has run out held is there for the next slice of another (tigerbeetle#2118)",
  small,
  async (made) => {
    await made.apply(hold("r1", credits(14), { ttlMs: 1000 }));
    await made.apply(hold("r2", credits(1)));
    assert.deepEqual(await made.apply(extend("r2", 1, credits(3))), { kind: "extended", amount: 0 });
    made.clock.nowMs += 1000;
    const { expired, ...outcome } = await made.apply(extend("r2", 1, credits(3)));
    assert.deepEqual(outcome, { kind: "extended", amount: credits(3) });
    assert.deepEqual(expired, [made.store.receipt("ada", "r1")]);
    assert.equal(made.store.receipt("ada", "r1")?.ending, "expired");
  },
);

example(
  "a hold whose time has run out counts no longer, before anybody has swept it (tigerbeetle#2118)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(15)));
    await made.apply(extend("h", 1, 0, { used: tokens(0, credits(3)) }));
    made.clock.nowMs += minute;
    const outcome = await made.apply(hold("h2", credits(12)));
    assert.equal(outcome.kind, "held");
    assert.equal(made.store.receipt("ada", "h")?.cost, credits(3));
  },
);

example(
  "whoever meets holds whose time has run out is told their receipts, once, a refused request too",
  small,
  async (made) => {
    await made.apply(hold("h1", credits(2)));
    await made.apply(extend("h1", 1, 0, { used: tokens(0, credits(1)) }));
    await made.apply(hold("h2", credits(12)));
    made.clock.nowMs += minute;
    const refused = await made.apply(hold("h3", credits(15)));
    assert.equal(refused.kind, "refused");
    assert.deepEqual(refused.expired, [made.store.receipt("ada", "h1"), made.store.receipt("ada", "h2")]);
    assert.deepEqual(
      refused.expired?.map(({ id, cost, base }) => [id, cost, base]),
      [
        ["h1", credits(1), credits(1)],
        ["h2", 0, 0],
      ],
    );
    for (const again of [hold("h3", credits(15)), expire("h1"), settle("h2", 0)]) {
      assert.equal((await made.apply(again)).expired, undefined);
    }
  },
);

example("a settlement after the expiry charges what the checkpoint had not, once", small, async (made) => {
  await made.apply(hold("h", credits(5)));
  await made.apply(extend("h", 1, 0, { used: tokens(0, credits(1)) }));
  made.clock.nowMs += minute;
  await made.apply(expire("h"));
  assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
  const late = await made.apply(settle("h", credits(4), { ending: "length" }));
  assert.deepEqual(late, settledBy({ base: credits(4) }, 0, { base: credits(1) }));
  assert.deepEqual(await made.apply(settle("h", credits(4))), late);
  assert.deepEqual(await made.apply(settle("h", credits(9))), late);
  assert.deepEqual(made.buckets(), [credits(6), credits(5), 0]);
  assert.equal(made.store.receipt("ada", "h")?.ending, "length");
});

example("a late settlement of what is no longer there is a shortfall", small, async (made) => {
  await made.apply(hold("h", credits(5)));
  made.clock.nowMs += minute;
  await made.apply(expire("h"));
  await made.apply(hold("all", credits(15)));
  const late = await made.apply(settle("h", credits(4)));
  assert.deepEqual(late, settledBy({}, credits(4), {}));
});

example(
  "a late settlement that knows of less takes nothing back, and its receipt adds up",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 1, 0, { used: tokens(10, 0) }));
    made.clock.nowMs += minute;
    await made.apply(expire("h"));
    const late = await made.apply(settle("h", 0, { used: tokens(0, 0), ending: "engine_failed" }));
    assert.deepEqual(late, settledBy({ base: 10 }, 0, { base: 10 }));
    const receipt = made.store.receipt("ada", "h");
    assert.equal(receipt?.promptTokens, 10);
    assert.equal(receipt?.ending, "engine_failed");
  },
);

example(
  "a late settlement with more cached tokens than the checkpoint knew adds up too",
  small,
  async (made) => {
    await made.apply(hold("h", 100, { price: { prompt: 10, completion: 1, cachedPrompt: 1 } }));
    await made.apply(extend("h", 1, 0, { used: tokens(10, 5) }));
    made.clock.nowMs += minute;
    await made.apply(expire("h"));
    const late = await made.apply(settle("h", 0, { used: tokens(10, 6, 9) }));
    assert.deepEqual(late, settledBy({ base: 105 }, 0, { base: 105 }));
  },
);

// Windows

example("a bucket is refilled when its window ends, whatever was left", small, async (made) => {
  await made.apply(hold("h", credits(12)));
  await made.apply(settle("h", credits(12)));
  made.clock.nowMs = start + day - 1;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [0, credits(3), 0]);
  made.clock.nowMs = start + day;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(3), 0]);
});

example("both buckets refill on their own grids (litellm#29576)", small, async (made) => {
  await made.apply(hold("h", credits(15)));
  await made.apply(settle("h", credits(15)));
  made.clock.nowMs = Date.UTC(2026, 1, 15, 12);
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.deepEqual(await journalOf(made), ["open open", "hold h", "settle h/end", "refresh refresh/4"]);
});

example("missed windows are made up for in one step and one entry", small, async (made) => {
  made.clock.nowMs = start + 400 * day + hour;
  await made.apply(settle("none", 0));
  const row = made.store.account("ada");
  assert.equal(row.baseStartsMs, start + 400 * day);
  assert.deepEqual(await journalOf(made), ["open open", "refresh refresh/2"]);
});

example("additional credits stay through every window", small, async (made) => {
  await made.apply(topup("p", credits(7)));
  made.clock.nowMs += 1000 * day;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(7)]);
});

example(
  "what was held from a window that has ended does not come back with the rest",
  small,
  async (made) => {
    await made.apply(topup("p", credits(1)));
    await made.apply(hold("h", credits(16), { ttlMs: 3 * day }));
    made.clock.nowMs += day;
    await made.apply(settle("h", 0));
    // The base of yesterday is gone; the overage of this month and what was bought are back.
    assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(1)]);
  },
);

example("the part of a hold that is from a past window is spent first", small, async (made) => {
  await made.apply(hold("h", credits(4), { ttlMs: 3 * day }));
  made.clock.nowMs += day;
  await made.apply(extend("h", 1, credits(6)));
  assert.deepEqual(made.buckets(), [credits(4), credits(5), 0]);
  await made.apply(settle("h", credits(5)));
  assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
});

example("a hold that lives through many windows gives back only to the last", small, async (made) => {
  await made.apply(hold("h", credits(2), { ttlMs: 90 * day }));
  for (let n = 1; n <= 40; n += 1) {
    made.clock.nowMs += day;
    await made.apply(extend("h", n, credits(2), { ttlMs: 90 * day }));
  }
  assert.deepEqual(made.buckets(), [credits(8), credits(5), 0]);
  assert.deepEqual(await made.apply(settle("h", credits(81))), settledBy({ base: credits(81) }));
  assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
});

example(
  "a clock set back by seconds over a window's beginning opens no second window",
  small,
  async (made) => {
    made.clock.nowMs = start + day;
    await made.apply(hold("h", credits(10)));
    made.clock.nowMs -= 5000;
    await made.apply(settle("h", credits(10)));
    assert.deepEqual(made.buckets(), [0, credits(5), 0]);
    assert.ok(made.store.account("ada").baseStartsMs === start + day);
    made.clock.nowMs += 5000;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [0, credits(5), 0]);
  },
);

example("an operation that is refused still lets the windows roll", small, async (made) => {
  made.clock.nowMs += day;
  await made.apply(hold("h", credits(100)));
  assert.deepEqual(await journalOf(made), ["open open", "refresh refresh/2"]);
});

// Credits bought and adjusted

example("a payment counts once, ever (lago-api#3618)", small, async (made) => {
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, again: false });
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, again: true });
  made.clock.nowMs += 900 * day;
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, again: true });
  assert.deepEqual(await made.apply(topup("p2", 500)), { kind: "added", additional: 1000, again: false });
});

example("the same payment with another amount is told so and adds nothing", small, async (made) => {
  const outcomes = await made.store.commit([topup("p", 500), topup("p", 600)]);
  assert.deepEqual(outcomes[1], { kind: "differs", amount: 500 });
  assert.deepEqual(await made.apply(topup("p", 600)), { kind: "differs", amount: 500 });
  assert.equal(made.buckets()[2], 500);
});

example("a payment and an adjustment of the same name are two", small, async (made) => {
  await made.apply(topup("x", 500));
  await made.apply(adjust("x", 20));
  await made.apply(hold("x", 10));
  assert.equal(made.buckets()[2], 520);
});

example("an adjustment goes up and down, once for each operation id", small, async (made) => {
  await made.apply(adjust("up", 100));
  assert.deepEqual(await made.apply(adjust("down", -30)), {
    kind: "adjusted",
    additional: 70,
    again: false,
  });
  assert.deepEqual(await made.apply(adjust("down", -30)), {
    kind: "adjusted",
    additional: 70,
    again: true,
  });
  const before = { kind: "differs", amount: -30, reason: "a test" };
  assert.deepEqual(await made.apply(adjust("down", -31)), before);
  assert.deepEqual(await made.apply(adjust("down", -30, "another reason")), before);
});

example(
  "an adjustment never takes more than there is, held credits left alone",
  planOf("bought", 0, 0),
  async (made) => {
    await made.apply(topup("p", 100));
    await made.apply(hold("h", 60));
    assert.deepEqual(await made.apply(adjust("a", -41)), { kind: "too_little", additional: 40 });
    assert.equal((await made.apply(adjust("b", -40))).kind, "adjusted");
    await made.apply(settle("h", 10));
    assert.equal(made.buckets()[2], 50);
  },
);

example(
  "more credits than can be counted exactly are refused, with those that are held",
  planOf("bought", 0, 0),
  async (made) => {
    const most = Number.MAX_SAFE_INTEGER;
    assert.equal((await made.apply(topup("p", most))).kind, "added");
    assert.deepEqual(await made.apply(topup("q", 1)), { kind: "too_much" });
    await made.apply(hold("h", 1000));
    assert.deepEqual(await made.apply(topup("r", 1)), { kind: "too_much" });
    assert.deepEqual(await made.apply(adjust("s", 1000)), { kind: "too_much" });
    await made.apply(settle("h", 1000));
    assert.equal((await made.apply(topup("q", 1000))).kind, "added", "a refused payment may be sent again");
    assert.equal(made.buckets()[2], most);
  },
);

example("an amount that is not whole or not positive is no top-up", small, async (made) => {
  for (const amount of [0, -5, 0.5, Number.NaN, Number.MAX_SAFE_INTEGER + 1]) {
    await assert.rejects(made.apply(topup("p", amount)), /invariant/);
  }
});

// Plans

example(
  "an upgrade raises cap and remaining by the difference at once",
  small,
  async (made) => {
    await made.apply(hold("h", credits(4)));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", again: false });
    assert.deepEqual(made.buckets(), [credits(26), credits(5), 0]);
    assert.equal(made.store.account("ada").baseCap, credits(30));
    await made.apply(settle("h", 0));
    assert.deepEqual(made.buckets(), [credits(30), credits(5), 0]);
  },
  large,
);

example(
  "a downgrade leaves what there is until the next refresh",
  large,
  async (made) => {
    await made.apply(planTo("small", "c1"));
    assert.deepEqual(made.buckets(), [credits(30), credits(5), 0]);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
    assert.equal(made.store.account("ada").baseCap, credits(10));
  },
  small,
);

example(
  "going down and up again within a window grants nothing twice",
  small,
  async (made) => {
    for (let n = 0; n < 5; n += 1) {
      await made.apply(planTo("large", `up ${n}`));
      await made.apply(planTo("small", `down ${n}`));
    }
    assert.deepEqual(made.buckets(), [credits(30), credits(5), 0]);
  },
  large,
);

example(
  "a hold taken before a downgrade and ended after the refresh brings back nothing above the cap",
  large,
  async (made) => {
    await made.apply(hold("h", credits(30), { ttlMs: 3 * day }));
    await made.apply(planTo("small", "c1"));
    made.clock.nowMs += day;
    await made.apply(settle("h", credits(1)));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  small,
);

example(
  "the same plan change again changes nothing",
  small,
  async (made) => {
    await made.apply(planTo("large", "c1"));
    await made.apply(planTo("small", "c2"));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", again: true });
    assert.deepEqual(await made.apply(planTo("small", "c1")), { kind: "differs", plan: "large" });
    assert.equal(made.store.account("ada").plan, "small");
  },
  large,
);

example("a plan change to a plan that does not exist changes nothing", small, async (made) => {
  assert.equal((await made.apply(planTo("gold", "c1"))).kind, "balance_invalid");
  assert.equal(made.store.account("ada").plan, "small");
  assert.deepEqual(await journalOf(made), ["open open"]);
});

example(
  "a plan that grew or shrank in the configuration counts from the next refresh",
  small,
  async (made) => {
    await made.apply(hold("h", credits(9), { ttlMs: 9 * day }));
    made.store.plans = plansOf(planOf("small", 3, 5));
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(1), credits(5), 0]);
    made.clock.nowMs += day;
    await made.apply(settle("h", credits(2)));
    assert.deepEqual(made.buckets(), [credits(3), credits(5), 0]);
    made.store.plans = plansOf(planOf("small", 50, 5));
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(50), credits(5), 0]);
  },
);

example(
  "a period that changed in the configuration never begins a window before the last one ended",
  small,
  async (made) => {
    await made.apply(hold("h", credits(5), { ttlMs: 40 * day }));
    made.store.plans = plansOf(planOf("small", 10, 5, { base: { credits: 10, every: "P1M" } }));
    made.clock.nowMs += day;
    await made.apply(settle("h", 0));
    const { baseStartsMs, baseEndsMs } = made.store.account("ada");
    assert.deepEqual([baseStartsMs, baseEndsMs], [start + day, Date.UTC(2026, 1, 15, 12)]);
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
);

example("a longer hold through a shortened period comes back to no other window", small, async (made) => {
  await made.apply(hold("h", credits(5), { ttlMs: 40 * day }));
  made.store.plans = plansOf(planOf("small", 10, 5, { base: { credits: 10, every: "PT1M" } }));
  made.clock.nowMs += day + 30_000;
  await made.apply(hold("h2", credits(3)));
  await made.apply(settle("h", 0));
  assert.deepEqual(made.buckets(), [credits(7), credits(5), 0]);
});

// Rows that contradict themselves

test("an account whose row contradicts itself is decided on by no operation, and left as it is", async () => {
  const contradictions = [
    { base: -1 },
    { base: 0.5 },
    { overage: credits(5) + 1 },
    { baseCap: -1 },
    { heldBase: 1 },
    { heldAdditional: -1 },
    { additional: Number.MAX_SAFE_INTEGER, heldAdditional: 1 },
    { baseStartsMs: Number.NaN },
    { baseEndsMs: start },
    { overageAnchorMs: 0.5 },
    { holds: -1 },
  ];
  for (const change of contradictions) {
    const { store } = await bench(small);
    await store.commit([hold("h", 0)]);
    store.damage("ada", change);
    const damaged = store.account("ada");
    const operations = [hold("h2", 1), extend("h", 1, 1), settle("h", 1), expire("h"), topup("p", 1)];
    const outcomes = await store.commit([...operations, adjust("a", 1), planTo("small", "c")]);
    for (const outcome of outcomes) assert.equal(outcome.kind, "balance_invalid", JSON.stringify(change));
    assert.equal(store.account("ada"), damaged);
  }
});

test("an account whose plan has gone is decided on again once it is moved to another", async () => {
  const { store } = await bench(small);
  store.damage("ada", { plan: "gone" });
  const outcomes = await store.commit([topup("p", 1), planTo("small", "c"), topup("p", 1)]);
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ["balance_invalid", "changed", "added"],
  );
  assert.equal(store.account("ada").plan, "small");
});

test("an account that cannot be decided on stands in no other account's way", async () => {
  const { store } = await bench(small);
  await store.commit([{ kind: "open", account: "bob", plan: "small" }]);
  store.damage("ada", { base: -1 });
  const outcomes = await store.commit([topup("p", 1), { ...topup("p", 1), account: "bob" }]);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind),
    ["balance_invalid", "added"],
  );
});
