/** The kernel: new accounts, top-ups, adjustments and invalid rows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  adjust,
  example,
  expire,
  journalOf,
  large,
  planTo,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

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

example("opening an account again changes nothing and returns its plan", small, async (made) => {
  await made.apply(settle("none", 0));
  const before = made.store.account("ada");
  const outcome = await made.apply({ kind: "open", account: "ada", plan: "large", by: "test" });
  assert.deepEqual(outcome, { kind: "exists", plan: "small" });
  assert.equal(made.store.account("ada"), before);
});

example("rejects an account on an unknown plan", small, async (made) => {
  const outcome = await made.apply({ kind: "open", account: "bob", plan: "gold", by: "test" });
  assert.deepEqual(outcome, { kind: "unknown_plan", plans: ["small"] });
  assert.throws(() => made.store.account("bob"));
});

example(
  "rejects an account on a plan that left the configuration",
  small,
  async (made) => {
    await made.store.applyPlans(plansOf(small), false);
    const outcome = await made.apply({ kind: "open", account: "bob", plan: "large", by: "test" });
    assert.deepEqual(outcome, { kind: "retired_plan" });
    assert.throws(() => made.store.account("bob"));
  },
  large,
);

example("opens and uses an account in the same batch", small, async (made) => {
  const outcomes = await made.store.commit([
    { kind: "open", account: "bob", plan: "small", by: "test" },
    { kind: "topup", account: "bob", payment: "p", amount: 5, by: "test" },
  ]);
  assert.deepEqual(outcomes, [{ kind: "opened" }, { kind: "added", additional: 5, replayed: false }]);
});

example("every operation reports an unknown account", small, async ({ store }) => {
  const account = "bob";
  const outcomes = await store.commit([
    hold("h", 1, { account }),
    extend("h", 1, 1, { account }),
    settle("h", 1, { account }),
    { kind: "expire", account, hold: "h" },
    { kind: "topup", account, payment: "p", amount: 1, by: "test" },
    { kind: "promote", account, op: "a", amount: 1, reason: "", untilMs: null, request: null, by: "test" },
    { kind: "plan", account, op: "c", plan: "small", at: "now", by: "test" },
    { kind: "refund", account, refund: "r", payment: "p", amount: 1, by: "test" },
    { kind: "state", account, op: "s", to: { kind: "suspend" }, by: "test" },
    { kind: "key", account, key: "key", op: "k", set: {}, by: "test" },
  ]);
  assert.deepEqual(
    outcomes,
    Array.from({ length: 10 }, () => ({ kind: "no_account" })),
  );
});

// Credits bought and adjusted

example("a payment counts once, ever (lago-api#3618)", small, async (made) => {
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, replayed: false });
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, replayed: true });
  made.clock.nowMs += 900 * day;
  assert.deepEqual(await made.apply(topup("p1", 500)), { kind: "added", additional: 500, replayed: true });
  assert.deepEqual(await made.apply(topup("p2", 500)), { kind: "added", additional: 1000, replayed: false });
});

example("a repeated payment with another amount is a conflict and adds nothing", small, async (made) => {
  const outcomes = await made.store.commit([topup("p", 500), topup("p", 600)]);
  assert.deepEqual(outcomes[1], { kind: "conflict", amount: 500 });
  assert.deepEqual(await made.apply(topup("p", 600)), { kind: "conflict", amount: 500 });
  assert.equal(made.buckets()[2], 500);
});

example("a payment counts for one account of the installation", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  const bob = { ...topup("p", 500), account: "bob" } as const;
  const outcomes = await made.store.commit([topup("p", 500), bob]);
  assert.deepEqual(outcomes[1], { kind: "payment_used", account: "ada" });
  assert.deepEqual(await made.apply(bob), { kind: "payment_used", account: "ada" });
  assert.deepEqual([made.buckets()[2], made.buckets("bob")[2]], [500, 0]);
});

example("a payment and an adjustment may have the same id", small, async (made) => {
  await made.apply(topup("x", 500));
  await made.apply(adjust("x", 20));
  await made.apply(hold("x", 10));
  assert.equal(made.buckets()[2], 520);
});

example("an adjustment goes up or down, once per operation id", small, async (made) => {
  await made.apply(adjust("up", 100));
  assert.deepEqual(await made.apply(adjust("down", -30)), {
    kind: "adjusted",
    additional: 70,
    replayed: false,
  });
  assert.deepEqual(await made.apply(adjust("down", -30)), {
    kind: "adjusted",
    additional: 70,
    replayed: true,
  });
  const before = { kind: "conflict", amount: -30, reason: "a test" };
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

example("rejects a top-up that is not whole or not positive", small, async (made) => {
  for (const amount of [0, -5, 0.5, Number.NaN, Number.MAX_SAFE_INTEGER + 1]) {
    await assert.rejects(made.apply(topup("p", amount)), /invariant/);
  }
});

// Rows that contradict themselves

test("no operation changes an account with an invalid row", async () => {
  const contradictions = [
    { base: credits(10) + 1 },
    { base: 0.5 },
    { baseHeld: -1 },
    { overage: credits(5) + 1 },
    { baseCap: -1 },
    { baseHeld: 1 },
    { additional: -1 },
    { additionalHeld: -1 },
    { additional: Number.MAX_SAFE_INTEGER, additionalHeld: 1 },
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

test("an account with a missing plan takes no holds until its plan is changed", async () => {
  const { store } = await bench(small);
  await store.commit([hold("h", 10)]);
  store.damage("ada", { plan: "gone" });
  const operations = [hold("h2", 1), extend("h", 1, 1), settle("h", 1), topup("p", 1)];
  const outcomes = await store.commit([...operations, planTo("small", "c"), hold("h3", 1)]);
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ["balance_invalid", "extended", "settled", "added", "changed", "held"],
  );
  assert.equal(store.account("ada").plan, "small");
});

test("an invalid account does not affect other accounts", async () => {
  const { store } = await bench(small);
  await store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  store.damage("ada", { base: 0.5 });
  const outcomes = await store.commit([topup("p", 1), { ...topup("q", 1), account: "bob" }]);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind),
    ["balance_invalid", "added"],
  );
});
