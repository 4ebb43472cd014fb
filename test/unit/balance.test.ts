/** The balance of an account at the present moment. Nothing is written for it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "../../src/errors.ts";
import { type BalanceView, balanceOf } from "../../src/ledger/balance.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

const small = planOf("small", 10, 5);

async function viewOf({ store }: Bench): Promise<BalanceView> {
  const before = store.account("ada");
  const view = balanceOf(await store.accountSnapshot("ada"));
  assert.equal(store.account("ada"), before, "reading writes nothing");
  return view;
}

test("a new account has full buckets and windows that start with it", async () => {
  assert.deepEqual(await viewOf(await bench(small)), {
    plan: "small",
    limits: {},
    limitsLeft: [],
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

test("a window that a scheduled plan replaces before its end promises no refill", async () => {
  const weekly = planOf("weekly", 10, 70, { overage: { credits: 70, every: "P1W", align: "opening" } });
  const used = await bench(planOf("monthly", 10, 100), weekly);
  await used.apply(hold("h", credits(110)));
  await used.apply(settle("h", credits(110)));
  await used.apply({ kind: "plan", account: "ada", op: "p", plan: "weekly", at: "refresh", by: "test" });
  const view = await viewOf(used);
  assert.deepEqual([view.base.refillMicro, view.overage.refillMicro], [credits(10), 0]);
  used.clock.nowMs += day;
  assert.equal((await viewOf(used)).overage.refillMicro, credits(70));
});
