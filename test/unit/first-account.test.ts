/** The first account of an installation, and nodes that start together. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openFirstAccount } from "../../src/accounts/first-account.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));

function newStore() {
  const store = new MemoryStore(plans, () => start);
  return { store, ledger: new Ledger(store) };
}

test("issues one key if another node opens the account and issues the key in between", async () => {
  const { store, ledger } = newStore();
  const keys = store.keys.bind(store);
  // The second node has read the keys before the first one issued its key.
  const [noKeys] = [await keys()];
  const first = await openFirstAccount(store, ledger);
  store.keys = async () => noKeys;
  const second = await openFirstAccount(store, ledger);
  assert.match(first?.key ?? "", /^ink_/);
  assert.equal(second, null);
  assert.equal((await keys()).length, 1);
});

test("completes a start that ended before the key was issued", async () => {
  const { store, ledger } = newStore();
  await ledger.apply({ kind: "open", account: "default", plan: "starter" });
  const first = await openFirstAccount(store, ledger);
  assert.match(first?.key ?? "", /^ink_/);
  assert.equal(await openFirstAccount(store, ledger), null);
});

test("uses the plans of the database, even if another node replaces them in between", async () => {
  const { store, ledger } = newStore();
  const read = store.plans.bind(store);
  store.plans = async () => {
    const before = await read();
    store.plans = read;
    await store.applyPlans(plansOf(planOf("pro", 100, 10)), false);
    return before;
  };
  assert.equal((await openFirstAccount(store, ledger))?.plan, "pro");
});
