/** The kernel: new accounts, top-ups, adjustments and invalid rows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { CapCounter } from "../../src/ledger/cap-rows.ts";
import type { AccountRow } from "../../src/ledger/rows.ts";
import {
  adjust,
  example,
  expire,
  large,
  planTo,
  promote,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

// Opening

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

example("an adjustment takes the grant of no payment", small, async (made) => {
  await made.apply(topup("p", 100));
  const grant = made.store.account("ada").additional[0]?.seq ?? 0;
  const outcome = await made.apply(adjust("a", 1, { grant }));
  assert.deepEqual(outcome, { kind: "grant_not_found", account: "ada", grant });
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

// Plans

example(
  "the same plan change again changes nothing",
  small,
  async (made) => {
    await made.apply(planTo("large", "c1"));
    await made.apply(planTo("small", "c2"));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: true });
    const conflict = await made.apply(planTo("small", "c1"));
    assert.partialDeepStrictEqual(conflict, {
      kind: "operation_differs",
      entry: { after: '{"at":"now","plan":"large"}' },
    });
    assert.equal(made.store.account("ada").plan, "small");
  },
  large,
);

// Rows that contradict themselves

// test/contract/damaged-accounts.test.ts has what a database can hold.
test("no operation changes an account with an invalid row", async () => {
  const payment = { seq: 5, amountMicro: 5, spentMicro: 0, heldMicro: 0, isPayment: true, untilMs: null };
  const counter: CapCounter = {
    ...{ name: "P1D", every: "P1D", align: "opening", timezone: "UTC", spentMicro: 0.5 },
    ...{ fromMs: start, untilMs: start + day, anchorMs: start },
  };
  const most = Number.MAX_SAFE_INTEGER;
  const later = { count: 1, freeMicro: most, heldMicro: 0, untilMs: null };
  const contradictions: ((row: AccountRow) => Partial<AccountRow>)[] = [
    ...[{ amountMicro: 0.5 }, { heldMicro: 2 ** 60 }, { fromMs: Number.NaN }, { anchorMs: 0.5 }].flatMap(
      (change) => [
        ({ base }: AccountRow) => ({ base: base && { ...base, ...change } }),
        ({ overage }: AccountRow) => ({ overage: overage && { ...overage, ...change } }),
      ],
    ),
    () => ({ overage: null }),
    () => ({ additional: [{ ...payment, spentMicro: 3, heldMicro: 3 }] }),
    () => ({ additional: [{ ...payment, amountMicro: most }, payment] }),
    () => ({ additional: [payment], later }),
    () => ({ running: [{ model: "m", heldMicro: -1, costMicro: 0 }] }),
    () => ({ counters: [counter] }),
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
