/** Lists of receipts of a key or a model, which end with their last receipt. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { receiptsOf } from "../../src/accounts/receipts.ts";
import type { UsageQuery } from "../../src/store/store.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

/** An account with 8 receipts of a key and 3 of another one, the last of each a day later. */
async function withReceipts() {
  const made = await bench(planOf("small", 1000, 0));
  await made.store.addKey(keyOf("rare", "ada"));
  for (let n = 0; n < 7; n += 1) await finish(made, `often-${n}`, "key");
  for (let n = 0; n < 2; n += 1) await finish(made, `rare-${n}`, "rare");
  made.clock.nowMs += day;
  await finish(made, "rare-2", "rare");
  await finish(made, "often-7", "key");
  const { store } = made;
  const { usage } = store;
  const limits: number[] = [];
  /** Called before each read of receipts. */
  let meanwhile = async () => {};
  store.usage = async (query) => {
    limits.push(query.limit);
    await meanwhile();
    return await usage.call(store, query);
  };
  const list = async (query: Partial<UsageQuery>) => {
    limits.length = 0;
    const found = await receiptsOf(store, { account: "ada", newestFirst: true, limit: 50, ...query });
    return { ids: found.map(({ id }) => id), limits: [...limits] };
  };
  return { made, list, whileReading: (run: () => Promise<void>) => (meanwhile = run) };
}

async function finish(made: Bench, id: string, key: string): Promise<void> {
  await made.apply(hold(id, 1000, { key }));
  await made.apply(settle(id, 10));
}

test("a list of a key reads no further than its last receipt", async () => {
  const { list } = await withReceipts();
  const rare = ["rare-2", "rare-1", "rare-0"];
  assert.deepEqual(await list({ key: "rare" }), { ids: rare, limits: [3] });
  assert.deepEqual(await list({ key: "rare", limit: 2 }), { ids: rare.slice(0, 2), limits: [2] });
  assert.deepEqual(await list({ key: "rare", fromMs: start + day }), { ids: ["rare-2"], limits: [1] });
  assert.deepEqual(await list({ key: "rare", fromMs: start + 2 * day }), { ids: [], limits: [] });
  assert.deepEqual(await list({ model: "unused" }), { ids: [], limits: [] });
  assert.equal((await list({})).limits[0], 50, "all receipts of the account");
});

test("an account and a page limit a list of a key as before", async () => {
  const { made, list } = await withReceipts();
  const rows = await made.store.usage({ account: "ada", key: "rare", newestFirst: true, limit: 50 });
  const [newest] = rows;
  assert.ok(newest);
  const after = { account: "ada", seq: newest.seq };
  assert.deepEqual((await list({ key: "rare", after })).ids, ["rare-1", "rare-0"]);
  assert.deepEqual((await list({ account: "eve", key: "rare" })).ids, []);
});

test("a receipt that comes while the list is read hides no other receipt", async () => {
  const { made, list, whileReading } = await withReceipts();
  let added = 0;
  whileReading(async () => {
    if (added < 2) await finish(made, `rare-${3 + added++}`, "rare");
  });
  const { ids } = await list({ key: "rare" });
  assert.deepEqual(ids.slice(-3), ["rare-2", "rare-1", "rare-0"], ids.join());
});
