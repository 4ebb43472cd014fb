/**
 * Operator actions whose outcome is unknown: a repetition finds what the first attempt has done.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OperatorActions } from "../../src/accounts/operator-actions.ts";
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
  await actions.openAccount("ada", "starter");
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
  const first = await actions.addCredits("ada", "p1", 5);
  const given = { op: "i1", credits: 4, reason: "an apology" };
  const taken = { op: "i2", credits: -3, reason: "by mistake" };
  const [promoted, adjusted] = [
    await actions.adjustCredits("ada", given),
    await actions.adjustCredits("ada", taken),
  ];
  assert.deepEqual([first.replayed, first.additional], [false, 5_000_000]);
  assert.deepEqual([promoted.replayed, promoted.additional], [false, 9_000_000]);
  assert.deepEqual([adjusted.replayed, adjusted.additional], [false, 6_000_000]);
  for (const again of [
    await actions.addCredits("ada", "p1", 5),
    await actions.adjustCredits("ada", given),
    await actions.adjustCredits("ada", taken),
  ]) {
    assert.deepEqual([again.replayed, again.balance.additionalMicro], [true, 6_000_000]);
  }
});

test("opens an account once per plan, whatever its present plan is", async () => {
  const { actions } = await withAccount();
  await actions.changePlan("ada", "up", "big", "now");
  const again = await actions.openAccount("ada", "starter");
  assert.deepEqual([again.isNew, again.account.plan], [false, "big"]);
  await assert.rejects(actions.openAccount("ada", "big"), { code: "account_exists" });
});
