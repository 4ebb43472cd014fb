/** The kernel: new accounts, top-ups, adjustments and invalid rows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { CapCounter } from "../../src/ledger/cap-rows.ts";
import type { AccountRow } from "../../src/ledger/rows.ts";
import {
  adjust,
  example,
  expire,
  journalOf,
  large,
  openedJournal,
  planTo,
  promote,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

// Opening

example(
  "a new account begins with both buckets full and both windows at its opening",
  small,
  async (made) => {
    const row = made.store.account("ada");
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
    const untilMs = { base: start + day, overage: Date.UTC(2026, 1, 15, 12) };
    const grant = { spentMicro: 0, heldMicro: 0, fromMs: start, anchorMs: start, plan: "small", version: 1 };
    assert.deepEqual(row.base, { seq: 2, amountMicro: credits(10), ...grant, untilMs: untilMs.base });
    assert.deepEqual(row.overage, { seq: 3, amountMicro: credits(5), ...grant, untilMs: untilMs.overage });
    assert.deepEqual(await journalOf(made), openedJournal);
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
  assert.deepEqual(outcome, { kind: "unknown_plan", plan: "gold", plans: ["small"] });
  assert.throws(() => made.store.account("bob"));
});

example(
  "rejects an account on a plan that left the configuration",
  small,
  async (made) => {
    await made.store.applyPlans(plansOf(small), { force: false, by: "test" });
    const outcome = await made.apply({ kind: "open", account: "bob", plan: "large", by: "test" });
    assert.deepEqual(outcome, { kind: "retired_plan", plan: "large" });
    assert.throws(() => made.store.account("bob"));
  },
  large,
);

example("opens and uses an account in the same batch", small, async (made) => {
  const outcomes = await made.store.commit([
    { kind: "open", account: "bob", plan: "small", by: "test" },
    { kind: "topup", account: "bob", payment: "p", amountMicro: 5, by: "test" },
  ]);
  assert.deepEqual(outcomes, [{ kind: "opened" }, { kind: "added", additionalMicro: 5, replayed: false }]);
});

example("every operation reports an unknown account", small, async ({ store }) => {
  const account = "bob";
  const outcomes = await store.commit([
    hold("h", 1, { account }),
    extend("h", 1, 1, { account }),
    settle("h", 1, { account }),
    { kind: "expire", account, requestId: "h" },
    { kind: "stop", account, requestId: "h", by: "test" },
    { kind: "topup", account, payment: "p", amountMicro: 1, by: "test" },
    promote("a", 1, { account }),
    adjust("b", 1, { account }),
    { kind: "plan", account, op: "c", plan: "small", at: "now", by: "test" },
    { kind: "refund", account, refund: "r", payment: "p", amountMicro: 1, by: "test" },
    { kind: "state", account, op: "s", to: { kind: "suspend" }, by: "test" },
    { kind: "key", account, key: "key", op: "k", set: {}, by: "test" },
    { kind: "revoke", account, key: "key", by: "test" },
  ]);
  assert.equal((await addKey(store, keyOf("new", account))).kind, "account_not_found");
  assert.deepEqual(
    outcomes,
    Array.from({ length: 13 }, () => ({ kind: "account_not_found", account })),
  );
});

// Credits bought and adjusted

example("a payment counts once, ever (lago-api#3618)", small, async (made) => {
  assert.deepEqual(await made.apply(topup("p1", 500)), {
    kind: "added",
    additionalMicro: 500,
    replayed: false,
  });
  assert.deepEqual(await made.apply(topup("p1", 500)), {
    kind: "added",
    additionalMicro: 500,
    replayed: true,
  });
  made.clock.nowMs += 900 * day;
  assert.deepEqual(await made.apply(topup("p1", 500)), {
    kind: "added",
    additionalMicro: 500,
    replayed: true,
  });
  assert.deepEqual(await made.apply(topup("p2", 500)), {
    kind: "added",
    additionalMicro: 1000,
    replayed: false,
  });
});

example("a repeated payment with another amount is a conflict and adds nothing", small, async (made) => {
  const outcomes = await made.store.commit([topup("p", 500), topup("p", 600)]);
  const differs = { kind: "payment_differs", payment: "p", beforeMicro: 500, nowMicro: 600 };
  assert.deepEqual(outcomes[1], differs);
  assert.deepEqual(await made.apply(topup("p", 600)), differs);
  assert.equal(made.buckets()[2], 500);
});

example("a payment counts for one account of the installation", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  const bob = { ...topup("p", 500), account: "bob" } as const;
  const outcomes = await made.store.commit([topup("p", 500), bob]);
  const used = { kind: "payment_used", payment: "p", account: "ada" };
  assert.deepEqual(outcomes[1], used);
  assert.deepEqual(await made.apply(bob), used);
  assert.deepEqual([made.buckets()[2], made.buckets("bob")[2]], [500, 0]);
});

example("a payment and a promotion may have the same id", small, async (made) => {
  await made.apply(topup("x", 500));
  await made.apply(promote("x", 20));
  await made.apply(hold("x", 10));
  assert.equal(made.buckets()[2], 520);
});

example("a promotion and an adjustment count once per operation id", small, async (made) => {
  const added = { kind: "added", additionalMicro: 100 };
  assert.deepEqual(await made.apply(promote("up", 100)), { ...added, replayed: false });
  assert.deepEqual(await made.apply(promote("up", 100)), { ...added, replayed: true });
  const conflict = async () => ({
    kind: "operation_differs",
    account: "ada",
    entry: (await made.store.journal("ada", { newestFirst: true, limit: 1 }))[0],
  });
  const upBefore = await conflict();
  assert.deepEqual(await made.apply(promote("up", 101)), upBefore);
  assert.deepEqual(await made.apply(promote("up", 100, { untilMs: start + day })), upBefore);
  assert.deepEqual(await made.apply(adjust("up", 100)), upBefore);

  const taken = { kind: "adjusted", additionalMicro: 70 };
  assert.deepEqual(await made.apply(adjust("down", 30)), { ...taken, replayed: false });
  assert.deepEqual(await made.apply(adjust("down", 30)), { ...taken, replayed: true });
  const downBefore = await conflict();
  assert.deepEqual(await made.apply(adjust("down", 31)), downBefore);
  assert.deepEqual(await made.apply(adjust("down", 30, { reason: "another reason" })), downBefore);

  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  const bobs = { ...upBefore, account: "bob" };
  assert.deepEqual(await made.apply(promote("up", 100, { account: "bob" })), bobs);
  assert.deepEqual(await made.apply(adjust("down", 30, { account: "bob" })), {
    ...bobs,
    entry: downBefore.entry,
  });
  assert.deepEqual(made.buckets("bob"), [credits(10), credits(5), 0]);
});

example(
  "an adjustment takes promotions that are not held, all of the amount or nothing",
  planOf("bought", 0, 0),
  async (made) => {
    await made.apply(promote("p", 100));
    await made.apply(hold("h", 60));
    assert.deepEqual(await made.apply(adjust("a", 41)), {
      kind: "too_few_credits",
      account: "ada",
      freeMicro: 40,
    });
    assert.equal((await made.apply(adjust("b", 40))).kind, "adjusted");
    await made.apply(settle("h", 10));
    assert.equal(made.buckets()[2], 50);
  },
);

example("an adjustment never takes a payment", planOf("bought", 0, 0), async (made) => {
  await made.apply(topup("p", 100));
  assert.deepEqual(await made.apply(adjust("a", 1)), {
    kind: "too_few_credits",
    account: "ada",
    freeMicro: 0,
  });
  await made.apply(promote("b", 10));
  assert.deepEqual(await made.apply(adjust("c", 11)), {
    kind: "too_few_credits",
    account: "ada",
    freeMicro: 10,
  });
  const payment = made.store.account("ada").additional.find(({ isPayment }) => isPayment);
  const ofPayment = adjust("d", 1, { grant: payment?.seq ?? 0 });
  assert.deepEqual(await made.apply(ofPayment), {
    kind: "grant_not_found",
    account: "ada",
    grant: payment?.seq,
  });
  assert.equal(made.buckets()[2], 110);
});

example("an adjustment takes the newest promotions first, or the named one", small, async (made) => {
  await made.apply(promote("old", 10));
  await made.apply(promote("soon", 20, { untilMs: start + day }));
  await made.apply(promote("new", 30, { untilMs: start + 2 * day }));
  const left = () =>
    made.store.account("ada").additional.map(({ amountMicro, untilMs }) => [amountMicro, untilMs]);
  await made.apply(adjust("a", 35));
  assert.deepEqual(left(), [
    [15, start + day],
    [10, null],
  ]);
  const [, oldest] = made.store.account("ada").additional;
  const named = { grant: oldest?.seq ?? 0 };
  assert.deepEqual(await made.apply(adjust("b", 11, named)), {
    kind: "too_few_credits",
    account: "ada",
    freeMicro: 10,
  });
  await made.apply(adjust("c", 4, named));
  assert.deepEqual(left(), [
    [15, start + day],
    [6, null],
  ]);
});

example("a promotion without an end, or with the end of an open one, adds to it", small, async (made) => {
  for (const untilMs of [null, start + day]) {
    await made.apply(promote(`first ${untilMs}`, 10, { untilMs }));
    await made.apply(promote(`second ${untilMs}`, 20, { untilMs }));
  }
  await made.apply(topup("p", 40));
  const grants = made.store.account("ada").additional;
  assert.deepEqual(
    grants.map(({ amountMicro, untilMs, isPayment }) => [amountMicro, untilMs, isPayment]),
    [
      [30, start + day, false],
      [30, null, false],
      [40, null, true],
    ],
  );
  made.clock.nowMs += day;
  assert.deepEqual(await made.apply(promote("late", 1, { untilMs: start + day })), {
    kind: "promotion_over",
    untilMs: start + day,
  });
  assert.equal(made.buckets()[2], 70, "what has ended is gone");
});

example(
  "more credits than can be counted exactly are refused, with those that are held",
  planOf("bought", 0, 0),
  async (made) => {
    const most = Number.MAX_SAFE_INTEGER;
    assert.equal((await made.apply(topup("p", most))).kind, "added");
    const tooMany = { kind: "too_many_credits", account: "ada" };
    assert.deepEqual(await made.apply(topup("q", 1)), tooMany);
    await made.apply(hold("h", 1000));
    assert.deepEqual(await made.apply(topup("r", 1)), tooMany);
    assert.deepEqual(await made.apply(promote("s", 1000)), tooMany);
    await made.apply(settle("h", 1000));
    assert.equal((await made.apply(topup("q", 1000))).kind, "added", "a refused payment may be sent again");
    assert.equal(made.buckets()[2], most);
  },
);

example("amounts near the limit are counted exactly", planOf("bought", 0, 0), async (made) => {
  const most = Number.MAX_SAFE_INTEGER;
  await made.apply(topup("p", most));
  await made.apply(hold("h", 6));
  await made.apply(settle("h", 6));
  const added = { kind: "added", additionalMicro: most - 1, replayed: false };
  assert.deepEqual(await made.apply(topup("q", 5)), added);
});

example("rejects a top-up that is not whole or not positive", small, async (made) => {
  for (const amount of [0, -5, 0.5, Number.NaN, Number.MAX_SAFE_INTEGER + 1]) {
    await assert.rejects(made.apply(topup("p", amount)), /invariant/);
  }
});

// Rows that contradict themselves

test("no operation changes an account with an invalid row", async () => {
  const payment = { seq: 5, amountMicro: 5, spentMicro: 0, heldMicro: 0, isPayment: true, untilMs: null };
  const counter: CapCounter = {
    ...{ name: "P1D", every: "P1D", align: "opening", timezone: "UTC", spentMicro: 0 },
    ...{ fromMs: start, untilMs: start + day, anchorMs: start },
  };
  const noLater = { count: 0, freeMicro: 0, heldMicro: 0, untilMs: null };
  const contradictions: ((row: AccountRow) => Partial<AccountRow>)[] = [
    ...[
      { amountMicro: 0.5 },
      { amountMicro: -1 },
      { spentMicro: -1 },
      { heldMicro: -1 },
      { heldMicro: 2 ** 60 },
    ].flatMap((change) => [
      ({ base }: AccountRow) => ({ base: base && { ...base, ...change } }),
      ({ overage }: AccountRow) => ({ overage: overage && { ...overage, ...change } }),
    ]),
    ...[
      { fromMs: Number.NaN },
      { untilMs: start },
      { untilMs: 9e15 },
      { anchorMs: 0.5 },
      { version: 2 },
      { version: 0 },
    ].flatMap((change) => [
      ({ base }: AccountRow) => ({ base: base && { ...base, ...change } }),
      ({ overage }: AccountRow) => ({ overage: overage && { ...overage, ...change } }),
    ]),
    () => ({ base: null }),
    () => ({ overage: null }),
    () => ({ state: "closed" }),
    () => ({ additional: [{ ...payment, amountMicro: -1 }] }),
    () => ({ additional: [{ ...payment, spentMicro: 6 }] }),
    () => ({ additional: [{ ...payment, heldMicro: -1 }] }),
    () => ({ additional: [{ ...payment, spentMicro: 3, heldMicro: 3 }] }),
    () => ({ additional: [{ ...payment, amountMicro: Number.MAX_SAFE_INTEGER }, payment] }),
    () => ({ additional: [payment], later: { ...noLater, count: 1, freeMicro: Number.MAX_SAFE_INTEGER } }),
    () => ({ later: { ...noLater, freeMicro: -1 } }),
    () => ({ later: { ...noLater, heldMicro: 0.5 } }),
    () => ({ later: { ...noLater, count: -1 } }),
    ({ base }) => ({ base: base && { ...base, heldMicro: 1 }, holds: 0 }),
    () => ({ holds: 0, running: [{ model: "m", heldMicro: 0, costMicro: 1 }] }),
    () => ({ holds: -1 }),
    () => ({ running: [{ model: "m", heldMicro: 0, costMicro: -1 }] }),
    () => ({ running: [{ model: "m", heldMicro: -1, costMicro: 0 }] }),
    () => ({ planSinceMs: 9e15 }),
    ...[
      ...[{ spentMicro: -1 }, { spentMicro: 0.5 }, { every: "often" }],
      ...[{ fromMs: Number.NaN }, { untilMs: start }, { untilMs: 9e15 }, { anchorMs: 0.5 }],
    ].map((change) => () => ({ counters: [{ ...counter, ...change }] })),
    () => ({ seq: 0 }),
    () => ({ endsMs: Number.NaN }),
    () => ({ requestsTatMs: Number.NaN }),
    () => ({ tokensTatMs: Number.POSITIVE_INFINITY }),
  ];
  for (const [n, changeOf] of contradictions.entries()) {
    const { store } = await bench(small);
    await store.commit([hold("h", 0)]);
    store.damage("ada", changeOf(store.account("ada")));
    const damaged = store.account("ada");
    const operations = [hold("h2", 1), extend("h", 1, 1), settle("h", 1), expire("h"), topup("p", 1)];
    const others = [promote("a", 1), adjust("b", 1), planTo("small", "c")];
    const outcomes = await store.commit([...operations, ...others]);
    for (const outcome of outcomes) assert.equal(outcome.kind, "balance_unavailable", `contradiction ${n}`);
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
    ["balance_unavailable", "extended", "settled", "added", "changed", "held"],
  );
  assert.equal(store.account("ada").plan, "small");
});

test("an invalid account does not affect other accounts", async () => {
  const { store } = await bench(small);
  await store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  store.damage("ada", { holds: 0.5 });
  const outcomes = await store.commit([topup("p", 1), { ...topup("q", 1), account: "bob" }]);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind),
    ["balance_unavailable", "added"],
  );
});
