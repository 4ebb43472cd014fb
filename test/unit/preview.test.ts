/** The preview of a plan change says what the change does. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { previewPlan } from "../../src/ledger/preview.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";
import { day, minute } from "../fixtures/times.ts";

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

test("names the caps that begin with nothing spent, and none that go on", async () => {
  const cap = { name: "day", credits: 500, every: "P1D", align: "opening", models: ["*"] } as const;
  const { store, clock, apply } = await bench(
    planOf("small", 1000, 0, { caps: [cap, { ...cap, name: "week", every: "P1W" }] }),
    planOf("big", 3000, 0, {
      caps: [
        { ...cap, credits: 900 },
        { ...cap, name: "month", every: "P1M" },
      ],
    }),
  );
  await apply(hold("r1", credits(100)));
  await apply(settle("r1", credits(100)));
  clock.nowMs += minute;
  const look = async (plan: string, at: "now" | "refresh") => {
    const snapshot = await store.accountSnapshot("ada");
    assert.ok(snapshot !== null);
    const preview = previewPlan(snapshot, { plan, at });
    assert.ok(preview.kind === "preview", preview.kind);
    const states = preview.after.caps.map(({ name, leftMicro }) => [name, leftMicro / credits(1)]);
    return { newCaps: preview.newCaps, left: Object.fromEntries(states) };
  };
  assert.deepEqual(await look("big", "now"), { newCaps: ["month"], left: { day: 800, month: 500 } });
  // At the refresh of the base credits, the window of the day ends too.
  assert.deepEqual(await look("big", "refresh"), { newCaps: ["month"], left: { day: 900, month: 500 } });
  await apply({ kind: "plan", account: "ada", op: "there", by: "test", plan: "big", at: "now" });
  clock.nowMs += minute;
  // The counter of the week stands still until its window ends.
  assert.deepEqual(await look("small", "now"), { newCaps: [], left: { day: 400, week: 400 } });
  clock.nowMs += 8 * day;
  assert.deepEqual((await look("small", "now")).newCaps, ["week"]);
});
