/**
 * The rules of a time zone change while a ledger is in use, as those of Morocco did in 2026. An
 * update of Node then moves the boundaries of the calendar.
 */
import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import type { PlanCatalog } from "../../src/ledger/plan.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { day, hour, start } from "../fixtures/times.ts";

/** The zone is an hour east of UTC by its old rules. */
const old = "Etc/GMT-1";
/** By its new rules it is UTC. */
const present = "UTC";

const plan = planOf("calendar", 10, 5, {
  base: { credits: 10, every: "P1D", align: "calendar" },
  overage: { credits: 5, every: "P1M", align: "calendar" },
  caps: [{ name: "P1W", credits: 1000, every: "P1W", align: "calendar", models: ["*"] }],
  timezone: old,
});

describe("new rules of a time zone", () => {
  let made: Bench;
  let plans: PlanCatalog;
  beforeEach(async () => {
    made = await bench(plan);
    const { store, clock } = made;
    const rule = { every: "P1M", align: "calendar", timezone: old } as const;
    await addKey(store, keyOf("capped", "ada"), [{ amountMicro: credits(20), byOperator: true, ...rule }]);
    clock.nowMs = Date.UTC(2026, 1, 28, 12);
    await made.apply(hold("h", credits(12), { key: "capped" }));
    await made.apply(settle("h", credits(12)));
    plans = await store.plans();
  });

  /** From here on the zone has its new rules. */
  function changeRules(from = old, to = present): void {
    const versions = plans.versions.get(plan.id) ?? [];
    Object.assign(
      versions,
      versions.map((version) => ({ ...version, timezone: to })),
    );
    const { journal, keys, accounts } = made.store.ledger;
    for (const row of [...keys.values(), ...accounts.values()]) {
      const rules = [...row.counters, ...("caps" in row ? row.caps : [])];
      for (const rule of rules) if (rule.timezone === from) rule.timezone = to;
    }
    for (const entry of journal) {
      const { before, after, outcome } = entry;
      const moved = [before, after, outcome].map((text) => text?.replaceAll(from, to) ?? null);
      [entry.before = null, entry.after = null, entry.outcome = null] = moved;
    }
  }

  async function windows() {
    await made.apply(settle("none", 0));
    const { base, overage } = made.store.account("ada");
    return [base, overage].map((grant) => {
      assert.ok(grant !== null);
      return [grant.fromMs, grant.untilMs].map((ms) => new Date(ms).toISOString().slice(0, 16)).join(" ");
    });
  }

  function broken() {
    // A new database, with the plan as it is by the present rules.
    const [version] = made.store.catalog.versions.get(plan.id) ?? [];
    assert.ok(version !== undefined);
    let nowMs = start;
    const copy = memoryStore(plansOf(version), () => nowMs, made.store.ledger);
    nowMs = made.clock.nowMs;
    const { broken: found } = copy.audit();
    // It has no sums of usage.
    return found.filter(({ invariant }) => !/days|hours|spans/.test(invariant));
  }

  test("an open window keeps its end", async () => {
    const before = ["2026-02-27T23:00 2026-02-28T23:00", "2026-01-31T23:00 2026-02-28T23:00"];
    assert.deepEqual(await windows(), before);
    changeRules();
    assert.deepEqual(await windows(), before);
    assert.deepEqual(broken(), []);
  });

  test("the hour between the old and the new boundary gives nothing twice", async () => {
    changeRules();
    made.clock.nowMs = Date.UTC(2026, 1, 28, 23, 30);
    const after = ["2026-02-28T23:00 2026-03-02T00:00", "2026-02-28T23:00 2026-04-01T00:00"];
    assert.deepEqual(await windows(), after);
    made.clock.nowMs += hour;
    assert.deepEqual(await windows(), after);
    assert.deepEqual(broken(), []);
    made.clock.nowMs = Date.UTC(2026, 3, 1);
    assert.deepEqual(await windows(), [
      "2026-04-01T00:00 2026-04-02T00:00",
      "2026-04-01T00:00 2026-05-01T00:00",
    ]);
    assert.deepEqual(broken(), []);
  });

  test("the audit accepts first windows that ended at midnight by rules that are gone", async () => {
    changeRules();
    made.clock.nowMs = Date.UTC(2026, 1, 28, 23, 30);
    await made.apply({ kind: "open", account: "bob", plan: plan.id, by: "test" });
    const { base, overage } = made.store.account("bob");
    const midnight = Date.UTC(2026, 2, 1);
    assert.deepEqual([base?.untilMs, overage?.untilMs], [midnight, midnight]);
    // By these rules it was opened half an hour after midnight.
    changeRules(present, old);
    assert.deepEqual(broken(), []);
  });

  test("the audit finds a first window that ends a month late", async () => {
    made.clock.nowMs = Date.UTC(2026, 2, 20);
    await made.apply({ kind: "open", account: "bob", plan: plan.id, by: "test" });
    assert.deepEqual(broken(), []);
    const late = { untilMs: Date.UTC(2026, 3, 30, 23) };
    Object.assign(made.store.account("bob").overage ?? {}, late);
    for (const grant of made.store.ledger.grants)
      if (grant.account === "bob" && grant.bucket === "overage") Object.assign(grant, late);
    assert.deepEqual(
      broken().map(({ invariant }) => invariant),
      ["windows of a bucket do not overlap, and end as their plan version says"],
    );
  });

  test("the audit accepts windows and caps that follow the old rules", async () => {
    made.clock.nowMs = Date.UTC(2026, 2, 10);
    await made.apply(hold("h2", credits(3), { key: "capped" }));
    await made.apply(settle("h2", credits(3)));
    changeRules();
    assert.deepEqual(broken(), []);
    made.clock.nowMs += 30 * day;
    await made.apply(hold("h3", credits(2), { key: "capped" }));
    await made.apply(settle("h3", credits(2)));
    assert.deepEqual(broken(), []);
  });
});
