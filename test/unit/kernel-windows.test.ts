/** The kernel: the end of windows, and plan changes. */
import assert from "node:assert/strict";
import { example, journalOf, large, planTo, small, topup } from "../fixtures/kernel-examples.ts";
import { extend, hold, settle, settledBy } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, start } from "../fixtures/times.ts";

// Windows

example("refills a bucket when its window ends", small, async (made) => {
  await made.apply(hold("h", credits(12)));
  await made.apply(settle("h", credits(12)));
  made.clock.nowMs = start + day - 1;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [0, credits(3), 0]);
  made.clock.nowMs = start + day;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(3), 0]);
});

example("each bucket refills on its own grid (litellm#29576)", small, async (made) => {
  await made.apply(hold("h", credits(15)));
  await made.apply(settle("h", credits(15)));
  made.clock.nowMs = Date.UTC(2026, 1, 15, 12);
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.deepEqual(await journalOf(made), ["open open", "hold h", "settle h/end", "refresh refresh/4"]);
});

example("rolls over missed windows in one step and one entry", small, async (made) => {
  made.clock.nowMs = start + 400 * day + hour;
  await made.apply(settle("none", 0));
  const row = made.store.account("ada");
  assert.equal(row.baseStartsMs, start + 400 * day);
  assert.deepEqual(await journalOf(made), ["open open", "refresh refresh/2"]);
});

example("additional credits do not change with windows", small, async (made) => {
  await made.apply(topup("p", credits(7)));
  made.clock.nowMs += 1000 * day;
  await made.apply(settle("none", 0));
  assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(7)]);
});

example(
  "what was held from a window that has ended does not come back with the rest",
  small,
  async (made) => {
    await made.apply(topup("p", credits(1)));
    await made.apply(hold("h", credits(16), { ttlMs: 3 * day }));
    made.clock.nowMs += day;
    await made.apply(settle("h", 0));
    // The base of yesterday is gone; the overage of this month and what was bought are back.
    assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(1)]);
  },
);

example("spends the part of a hold from a past window first", small, async (made) => {
  await made.apply(hold("h", credits(4), { ttlMs: 3 * day }));
  made.clock.nowMs += day;
  await made.apply(extend("h", 1, credits(6)));
  assert.deepEqual(made.buckets(), [credits(4), credits(5), 0]);
  await made.apply(settle("h", credits(5)));
  assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
});

example("a hold over several windows returns credits only to the last window", small, async (made) => {
  await made.apply(hold("h", credits(2), { ttlMs: 90 * day }));
  for (let n = 1; n <= 40; n += 1) {
    made.clock.nowMs += day;
    await made.apply(extend("h", n, credits(2), { ttlMs: 90 * day }));
  }
  assert.deepEqual(made.buckets(), [credits(8), credits(5), 0]);
  assert.deepEqual(await made.apply(settle("h", credits(81))), settledBy({ base: credits(81) }));
  assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
});

example(
  "a clock set back by seconds over a window's beginning opens no second window",
  small,
  async (made) => {
    made.clock.nowMs = start + day;
    await made.apply(hold("h", credits(10)));
    made.clock.nowMs -= 5000;
    await made.apply(settle("h", credits(10)));
    assert.deepEqual(made.buckets(), [0, credits(5), 0]);
    assert.ok(made.store.account("ada").baseStartsMs === start + day);
    made.clock.nowMs += 5000;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [0, credits(5), 0]);
  },
);

example("a refused operation still rolls the windows", small, async (made) => {
  made.clock.nowMs += day;
  await made.apply(hold("h", credits(100)));
  assert.deepEqual(await journalOf(made), ["open open", "refresh refresh/2"]);
});

// Plans

example(
  "an upgrade raises cap and remaining by the difference at once, whatever was used before (BerriAI/litellm#34492)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(4)));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: false });
    assert.deepEqual(made.buckets(), [credits(26), credits(5), 0]);
    assert.equal(made.store.account("ada").baseCap, credits(30));
    await made.apply(settle("h", 0));
    assert.deepEqual(made.buckets(), [credits(30), credits(5), 0]);
  },
  large,
);

example(
  "a downgrade lowers cap and remaining at once, and the window stays",
  large,
  async (made) => {
    await made.apply(hold("h", credits(4)));
    await made.apply(settle("h", credits(4)));
    await made.apply(planTo("small", "c1"));
    assert.deepEqual(made.buckets(), [credits(6), credits(5), 0]);
    assert.equal(made.store.account("ada").baseCap, credits(10));
    assert.equal(made.store.account("ada").baseEndsMs, start + day);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  small,
);

example(
  "a deficit after a downgrade is not forgotten, and is not taken from other buckets",
  large,
  async (made) => {
    await made.apply(topup("p", credits(1)));
    await made.apply(hold("h", credits(25)));
    await made.apply(settle("h", credits(25)));
    await made.apply(planTo("small", "c1"));
    assert.deepEqual(made.buckets(), [credits(-15), credits(5), credits(1)]);
    assert.deepEqual(await made.apply(hold("h2", credits(6))), {
      kind: "held",
      amount: credits(6),
      reserved: false,
      rates: {},
    });
    await made.apply(settle("h2", 0));
    await made.apply(planTo("large", "c2"));
    assert.deepEqual(made.buckets(), [credits(5), credits(5), credits(1)]);
  },
  small,
);

example(
  "going down and up again within a window grants nothing twice",
  small,
  async (made) => {
    for (let n = 0; n < 5; n += 1) {
      await made.apply(planTo("large", `up ${n}`));
      await made.apply(planTo("small", `down ${n}`));
    }
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  large,
);

example(
  "a hold taken before a downgrade and ended after the refresh brings back nothing above the cap",
  large,
  async (made) => {
    await made.apply(hold("h", credits(30), { ttlMs: 3 * day }));
    await made.apply(planTo("small", "c1"));
    made.clock.nowMs += day;
    await made.apply(settle("h", credits(1)));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  small,
);

example(
  "the same plan change again changes nothing",
  small,
  async (made) => {
    await made.apply(planTo("large", "c1"));
    await made.apply(planTo("small", "c2"));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: true });
    assert.deepEqual(await made.apply(planTo("small", "c1")), { kind: "conflict", plan: "large" });
    assert.equal(made.store.account("ada").plan, "small");
  },
  large,
);

example(
  "a change to a plan that left the configuration changes nothing, and its accounts keep working",
  small,
  async (made) => {
    await made.store.applyPlans(plansOf(planOf("other", 1, 1), large), false);
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: false });
    await made.store.applyPlans(plansOf(planOf("other", 1, 1)), false);
    assert.deepEqual(await made.apply(planTo("small", "c2")), { kind: "retired_plan" });
    made.clock.nowMs += day;
    assert.equal((await made.apply(hold("h", credits(30)))).kind, "held");
  },
);

example("a change to an unknown plan changes nothing", small, async (made) => {
  assert.deepEqual(await made.apply(planTo("gold", "c1")), { kind: "unknown_plan", plans: ["small"] });
  assert.equal(made.store.account("ada").plan, "small");
  assert.deepEqual(await journalOf(made), ["open open"]);
});

example(
  "a plan that grew or shrank in the configuration counts from the next refresh",
  small,
  async (made) => {
    await made.apply(hold("h", credits(9), { ttlMs: 9 * day }));
    await made.store.applyPlans(plansOf(planOf("small", 3, 5)), false);
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(1), credits(5), 0]);
    made.clock.nowMs += day;
    await made.apply(settle("h", credits(2)));
    assert.deepEqual(made.buckets(), [credits(3), credits(5), 0]);
    await made.store.applyPlans(plansOf(planOf("small", 50, 5)), false);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(50), credits(5), 0]);
  },
);

example(
  "a period that changed in the configuration never begins a window before the last one ended",
  small,
  async (made) => {
    await made.apply(hold("h", credits(5), { ttlMs: 40 * day }));
    const monthly = planOf("small", 10, 5, { base: { credits: 10, every: "P1M", align: "opening" } });
    await made.store.applyPlans(plansOf(monthly), false);
    made.clock.nowMs += day;
    await made.apply(settle("h", 0));
    const { baseStartsMs, baseEndsMs } = made.store.account("ada");
    assert.deepEqual([baseStartsMs, baseEndsMs], [start + day, Date.UTC(2026, 1, 16, 12)]);
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
);

example("a hold returns no credits to a window of a shortened period", small, async (made) => {
  await made.apply(hold("h", credits(5), { ttlMs: 40 * day }));
  const short = planOf("small", 10, 5, { base: { credits: 10, every: "PT1M", align: "opening" } });
  await made.store.applyPlans(plansOf(short), false);
  made.clock.nowMs += day + 30_000;
  await made.apply(hold("h2", credits(3)));
  await made.apply(settle("h", 0));
  assert.deepEqual(made.buckets(), [credits(7), credits(5), 0]);
});
