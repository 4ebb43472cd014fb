/**
 * Operator actions whose outcome is unknown: a repetition finds what the first attempt has done.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OperatorActions } from "../../src/accounts/operator-actions.ts";
import { accountActions } from "../../src/actions/account-runs.ts";
import { creditActions } from "../../src/actions/credit-runs.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { start } from "../fixtures/times.ts";

async function withAccount() {
  const plans = plansOf(planOf("starter", 100, 10), planOf("big", 200, 20));
  const store = new MemoryStore(plans, () => start);
  const ledger = new Ledger(store, { retriesMs: [] });
  const who = { by: "an operator", timezone: () => "UTC" };
  const actions = new OperatorActions({ store, ledger, modelIds: () => ["small"], ...who });
  await accountActions.openAccount.run(actions, { id: "ada", plan: "starter" });
  return { store, actions };
}

test("returns the row of a key that was stored before the store failed", async () => {
  const { store, actions } = await withAccount();
  store.hooks = { after: () => Promise.reject(new Error("the connection is lost")) };
  const { key, row } = await actions.keys.issueOnce("ada", "op", { name: "laptop" });
  assert.deepEqual([key, row.name, (await store.keys("ada")).length], [null, "laptop", 1]);
  store.hooks = {};
  const again = await actions.keys.issueOnce("ada", "op", { name: "laptop" });
  assert.deepEqual([again.key, again.row.id], [null, row.id]);
});

test("reports the store's failure if no key was stored", async () => {
  const { store, actions } = await withAccount();
  store.hooks = { before: () => Promise.reject(new Error("the connection is lost")) };
  await assert.rejects(actions.keys.issueOnce("ada", "op", {}), /the connection is lost/);
});

test("repeats a change of credits without an effect, and returns the present balance", async () => {
  const { actions } = await withAccount();
  const account = "ada";
  const changes = async () => [
    await creditActions.addCredits.run(actions, { account, payment_id: "p1", credits: 5 }),
    await creditActions.adjustCredits.run(actions, {
      ...{ account, operation_id: "i1", credits: 4, reason: "an apology" },
    }),
    await creditActions.adjustCredits.run(actions, {
      ...{ account, operation_id: "i2", credits: -3, reason: "by mistake" },
    }),
  ];
  const left = ({ result }: Awaited<ReturnType<typeof changes>>[number]) => [
    result.again,
    result.balance.balances.additional.credits,
  ];
  assert.deepEqual((await changes()).map(left), [
    [false, 5],
    [false, 9],
    [false, 6],
  ]);
  assert.deepEqual((await changes()).map(left), [
    [true, 6],
    [true, 6],
    [true, 6],
  ]);
});

test("opens an account once per plan, whatever its present plan is", async () => {
  const { actions } = await withAccount();
  const { changePlan, openAccount } = accountActions;
  await changePlan.run(actions, { account: "ada", operation_id: "up", plan: "big", at: "now" });
  const again = await openAccount.run(actions, { id: "ada", plan: "starter" });
  assert.deepEqual([again.isNew, again.result.plan], [false, "big"]);
  await assert.rejects(openAccount.run(actions, { id: "ada", plan: "big" }), { code: "account_exists" });
});
