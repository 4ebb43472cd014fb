/** The balance of an account at the present moment. Nothing is written for it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "../../src/errors.ts";
import { type BalanceView, balanceOf } from "../../src/ledger/balance.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

const small = planOf("small", 10, 5);

async function viewOf({ store }: Bench): Promise<BalanceView> {
  const before = store.account("ada");
  const view = balanceOf(await store.accountSnapshot("ada"));
  assert.equal(store.account("ada"), before, "reading writes nothing");
  return view;
}

async function remaining(made: Bench): Promise<[base: number, overage: number, additional: number]> {
  const view = await viewOf(made);
  return [view.base.remainingMicro, view.overage.remainingMicro, view.additionalMicro];
}

test("a new account has full buckets and windows that start with it", async () => {
  assert.deepEqual(await viewOf(await bench(small)), {
    plan: "small",
    limits: {},
    nextPlan: null,
    state: "active",
    endsMs: null,
    base: {
      remainingMicro: credits(10),
      capMicro: credits(10),
      refillMicro: credits(10),
      startsMs: start,
      endsMs: start + day,
    },
    overage: {
      refillMicro: credits(5),
      remainingMicro: credits(5),
      capMicro: credits(5),
      startsMs: start,
      endsMs: Date.UTC(2026, 1, 15, 12),
    },
    additionalMicro: 0,
    caps: [],
    heldMicro: 0,
  });
});

test("the balance includes credits that running requests hold", async () => {
  const made = await bench(small);
  await made.apply({ kind: "topup", account: "ada", payment: "p", amountMicro: credits(2), by: "test" });
  await made.apply(hold("h", credits(16)));
  assert.deepEqual(await remaining(made), [credits(10), credits(5), credits(2)]);
  assert.equal((await viewOf(made)).heldMicro, credits(16));
  await made.apply(settle("h", credits(16)));
  assert.deepEqual(await remaining(made), [0, 0, credits(1)]);
  assert.equal((await viewOf(made)).heldMicro, 0);
});

test("shows a refill since the last write", async () => {
  const made = await bench(small);
  await made.apply(hold("h", credits(12)));
  await made.apply(settle("h", credits(12)));
  made.clock.nowMs = start + 3 * day + 5;
  const view = await viewOf(made);
  assert.equal(view.base.remainingMicro, credits(10));
  assert.equal(view.base.startsMs, start + 3 * day);
  assert.equal(view.base.endsMs, start + 4 * day);
  assert.equal(view.overage.remainingMicro, credits(3));
});

test("a window starts at the moment the last one ends", async () => {
  const made = await bench(small);
  made.clock.nowMs = start + day - 1;
  assert.equal((await viewOf(made)).base.endsMs, start + day);
  made.clock.nowMs = start + day;
  assert.equal((await viewOf(made)).base.startsMs, start + day);
});

test("a hold from a past window does not raise the balance above the cap", async () => {
  const made = await bench(small);
  await made.apply(hold("h", credits(10), { ttlMs: 9 * day }));
  made.clock.nowMs += day;
  assert.deepEqual(await remaining(made), [credits(10), credits(5), 0]);
});

test("shows an overdue hold as the charge of its checkpoint", async () => {
  const made = await bench(small);
  await made.apply(hold("h", credits(14)));
  await made.apply(extend("h", 1, 0, { usage: tokens(0, credits(11)) }));
  assert.deepEqual(await remaining(made), [credits(10), credits(5), 0]);
  made.clock.nowMs += minute;
  assert.deepEqual(await remaining(made), [0, credits(4), 0]);
  await made.apply({ kind: "expire", account: "ada", requestId: "h" });
  assert.deepEqual(await remaining(made), [0, credits(4), 0], "and that is what it comes to");
});

test("shows the present window if the clock was set back", async () => {
  const made = await bench(small);
  made.clock.nowMs = start + day;
  await made.apply(settle("none", 0));
  made.clock.nowMs -= 5000;
  const view = await viewOf(made);
  assert.equal(view.base.startsMs, start + day);
  assert.equal(view.base.remainingMicro, credits(10));
});

test("shows nothing left, and the new cap, after a downgrade below what was spent", async () => {
  const made = await bench(planOf("large", 30, 5), small);
  await made.apply(hold("h", credits(14)));
  await made.apply(settle("h", credits(12)));
  await made.apply({ kind: "plan", account: "ada", op: "c", plan: "small", at: "now", by: "test" });
  const view = await viewOf(made);
  assert.equal(view.plan, "small");
  assert.deepEqual([view.base.remainingMicro, view.base.capMicro], [0, credits(10)]);
  made.clock.nowMs += day;
  assert.deepEqual((await viewOf(made)).base.remainingMicro, credits(10));
});

test("shows a plan that takes effect at the refresh", async () => {
  const made = await bench(planOf("large", 30, 5), small);
  await made.apply({ kind: "plan", account: "ada", op: "c", plan: "small", at: "refresh", by: "test" });
  const before = await viewOf(made);
  assert.deepEqual([before.plan, before.nextPlan, before.base.capMicro], ["large", "small", credits(30)]);
  made.clock.nowMs += day;
  const after = await viewOf(made);
  assert.deepEqual([after.plan, after.nextPlan, after.base.capMicro], ["small", null, credits(10)]);
});

test("shows the credits of the current grant after the plan was edited", async () => {
  const made = await bench(small);
  made.clock.nowMs += 1;
  await made.store.applyPlans(plansOf(planOf("small", 4, 5)), { force: false, by: "test" });
  assert.equal((await viewOf(made)).base.capMicro, credits(10));
  made.clock.nowMs += day;
  assert.equal((await viewOf(made)).base.capMicro, credits(4));
});

test("promises the refills that will come, and no others", async () => {
  const refills = async (made: Bench) => {
    const { base, overage } = await viewOf(made);
    return [base.refillMicro, overage.refillMicro];
  };
  const bought = await bench(planOf("bought", 0, 0), planOf("large", 30, 5));
  assert.deepEqual(await refills(bought), [0, 0]);
  const toLarge = {
    kind: "plan",
    account: "ada",
    op: "up",
    plan: "large",
    at: "refresh",
    by: "test",
  } as const;
  await bought.apply(toLarge);
  assert.deepEqual(await refills(bought), [credits(30), credits(5)]);

  const made = await bench(small);
  made.clock.nowMs += 1;
  await made.store.applyPlans(plansOf(planOf("small", 4, 5)), { force: false, by: "test" });
  assert.deepEqual(await refills(made), [credits(4), credits(5)]);
  const end = (op: string, endsMs: number | null) =>
    made.apply({ kind: "state", account: "ada", op, to: { kind: "end", endsMs }, by: "test" });
  await end("between", start + 2 * day);
  assert.deepEqual(await refills(made), [credits(4), 0]);
  await end("with the window", start + day);
  assert.deepEqual(await refills(made), [0, 0]);
  await end("never", null);
  await made.apply({ kind: "state", account: "ada", op: "pause", to: { kind: "suspend" }, by: "test" });
  assert.deepEqual(await refills(made), [credits(4), credits(5)]);
  await made.apply({ kind: "state", account: "ada", op: "close", to: { kind: "close" }, by: "test" });
  assert.deepEqual(await refills(made), [0, 0]);
});

test("shows an empty bucket with a cap of 0", async () => {
  const made = await bench(planOf("bought", 0, 0));
  const view = await viewOf(made);
  assert.deepEqual([view.base.remainingMicro, view.base.capMicro], [0, 0]);
  assert.ok(view.base.startsMs < view.base.endsMs);
});

test("missing or invalid rows are refused with balance_unavailable, and only the operator gets the reason", async () => {
  const made = await bench(small);
  const isUnavailable = (detail: RegExp) => (error: unknown) => {
    assert.ok(error instanceof Refusal);
    assert.equal(error.code, "balance_unavailable");
    assert.equal(error.status, 500);
    assert.match(error.detail ?? "", detail);
    assert.doesNotMatch(error.message, /ada|bucket|plan/);
    return true;
  };
  assert.throws(() => balanceOf(null), isUnavailable(/no row/));
  made.store.losePlans();
  const snapshot = await made.store.accountSnapshot("ada");
  assert.throws(() => balanceOf(snapshot), isUnavailable(/ada.*no version of its plan "small"/));
  for (const change of [
    { amountMicro: 0.5 },
    { spentMicro: -1 },
    { heldMicro: 1 },
    { untilMs: Number.NaN },
  ]) {
    const damaged = await bench(small);
    const { base } = damaged.store.account("ada");
    damaged.store.damage("ada", { base: base && { ...base, ...change } });
    const read = await damaged.store.accountSnapshot("ada");
    assert.throws(() => balanceOf(read), isUnavailable(/account ada: /));
  }
});
