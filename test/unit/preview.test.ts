/** The preview of a plan change says what the change does. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { previewPlan } from "../../src/ledger/preview.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";
import { minute } from "../fixtures/times.ts";

test("a hold that is overdue counts with its checkpoint, before and after the change", async () => {
  const { store, clock, apply } = await bench(planOf("small", 1000, 0), planOf("big", 3000, 0));
  await apply(hold("dead", credits(500), { ttlMs: minute }));
  await apply(extend("dead", 1, 0, { usage: tokens(0, credits(100)), ttlMs: minute }));
  clock.nowMs += 2 * minute;
  const snapshot = await store.accountSnapshot("ada");
  assert.ok(snapshot !== null);
  const preview = previewPlan(snapshot, { plan: "big", at: "now" });
  assert.ok(preview.kind === "preview", preview.kind);
  assert.equal(preview.earlyMicro, credits(2000));
  assert.deepEqual(
    [preview.before.base.remainingMicro, preview.after.base.remainingMicro],
    [900, 2900].map(credits),
  );
  await apply({ kind: "plan", account: "ada", op: "change", by: "test", plan: "big", at: "now" });
  const [entry] = await store.journal("ada", { kinds: ["plan"], limit: 10 });
  assert.equal(entry?.amountMicro, preview.earlyMicro);
});
