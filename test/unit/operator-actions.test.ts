/**
 * Operator actions whose outcome is unknown: a repetition finds what the first attempt has done.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OperatorActions } from "../../src/accounts/operator-actions.ts";
import { accountActions } from "../../src/actions/account-runs.ts";
import { owner } from "../../src/actors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { start } from "../fixtures/times.ts";

async function withAccount() {
  const plans = plansOf(planOf("starter", 100, 10), planOf("big", 200, 20));
  const store = memoryStore(plans, () => start);
  const ledger = new Ledger(store, { retriesMs: [] });
  const who = { actor: owner, timezone: () => "UTC", token: async () => "token" };
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
