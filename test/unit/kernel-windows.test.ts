/** The kernel: the end of windows, and plan changes. */
import assert from "node:assert/strict";
import {
  example,
  journalOf,
  large,
  openedJournal,
  planTo,
  small,
  topup,
} from "../fixtures/kernel-examples.ts";
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
  assert.deepEqual(await journalOf(made), [...openedJournal, "charge h", "window base", "window overage"]);
});

example("rolls over missed windows in one step and one entry for each bucket", small, async (made) => {
  made.clock.nowMs = start + 400 * day + hour;
  await made.apply(settle("none", 0));
  const row = made.store.account("ada");
  assert.equal(row.base?.fromMs, start + 400 * day);
  assert.equal(row.overage?.fromMs, Date.UTC(2027, 1, 15, 12));
  assert.deepEqual(await journalOf(made), [...openedJournal, "window base", "window overage"]);
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
  assert.partialDeepStrictEqual(await made.apply(settle("h", credits(81))), settledBy({ base: credits(81) }));
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
    assert.equal(made.store.account("ada").base?.fromMs, start + day);
    made.clock.nowMs += 5000;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [0, credits(5), 0]);
  },
);

example("a refused operation still rolls the windows", small, async (made) => {
  made.clock.nowMs += day;
  await made.apply(hold("h", credits(100)));
  assert.deepEqual(await journalOf(made), [...openedJournal, "window base"]);
});

// Plans

example(
  "an upgrade raises cap and remaining by the difference at once, whatever was used before (BerriAI/litellm#34492)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(4)));
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: false });
    assert.deepEqual(made.buckets(), [credits(26), credits(5), 0]);
    assert.equal(made.store.account("ada").base?.amountMicro, credits(30));
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
    assert.equal(made.store.account("ada").base?.amountMicro, credits(10));
    assert.equal(made.store.account("ada").base?.untilMs, start + day);
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
      amountMicro: credits(6),
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
    const conflict = await made.apply(planTo("small", "c1"));
    assert.partialDeepStrictEqual(conflict, {
      kind: "operation_differs",
      entry: { after: '{"at":"now","plan":"large"}' },
    });
    assert.equal(made.store.account("ada").plan, "small");
  },
  large,
);

example(
  "a change to a plan that left the configuration changes nothing, and its accounts keep working",
  small,
  async (made) => {
    await made.store.applyPlans(plansOf(planOf("other", 1, 1), large), { force: false, by: "test" });
    assert.deepEqual(await made.apply(planTo("large", "c1")), { kind: "changed", replayed: false });
    await made.store.applyPlans(plansOf(planOf("other", 1, 1)), { force: false, by: "test" });
    assert.deepEqual(await made.apply(planTo("small", "c2")), { kind: "retired_plan", plan: "small" });
    made.clock.nowMs += day;
    assert.equal((await made.apply(hold("h", credits(30)))).kind, "held");
  },
);

example("a change to an unknown plan changes nothing", small, async (made) => {
  assert.deepEqual(await made.apply(planTo("gold", "c1")), {
    kind: "unknown_plan",
    plan: "gold",
    plans: ["small"],
  });
  assert.equal(made.store.account("ada").plan, "small");
  assert.deepEqual(await journalOf(made), openedJournal);
});

example(
  "a plan that grew or shrank in the configuration counts from the next refresh",
  small,
  async (made) => {
    await made.apply(hold("h", credits(9), { ttlMs: 9 * day }));
    await made.store.applyPlans(plansOf(planOf("small", 3, 5)), { force: false, by: "test" });
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(1), credits(5), 0]);
    made.clock.nowMs += day;
    await made.apply(settle("h", credits(2)));
    assert.deepEqual(made.buckets(), [credits(3), credits(5), 0]);
    await made.store.applyPlans(plansOf(planOf("small", 50, 5)), { force: false, by: "test" });
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
    await made.store.applyPlans(plansOf(monthly), { force: false, by: "test" });
    made.clock.nowMs += day;
    await made.apply(settle("h", 0));
    const { base } = made.store.account("ada");
    assert.deepEqual([base?.fromMs, base?.untilMs], [start + day, Date.UTC(2026, 1, 16, 12)]);
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
);

example("a hold returns no credits to a window of a shortened period", small, async (made) => {
  await made.apply(hold("h", credits(5), { ttlMs: 40 * day }));
  const short = planOf("small", 10, 5, { base: { credits: 10, every: "PT1M", align: "opening" } });
  await made.store.applyPlans(plansOf(short), { force: false, by: "test" });
  made.clock.nowMs += day + 30_000;
  await made.apply(hold("h2", credits(3)));
  await made.apply(settle("h", 0));
  assert.deepEqual(made.buckets(), [credits(7), credits(5), 0]);
});

// Changes at once, and at the refresh

const monthly = planOf("monthly", 40, 5, { base: { credits: 40, every: "P1M", align: "opening" } });

example(
  "a change at once is refused if a bucket has other windows, and nothing changes",
  small,
  async (made) => {
    const berlin = { align: "calendar", every: "P1M", credits: 5 } as const;
    await made.store.applyPlans(
      plansOf(
        small,
        monthly,
        planOf("calendar", 10, 5, { overage: berlin, timezone: "Europe/Berlin" }),
        planOf("both", 10, 5, { ...monthly, id: "both", overage: berlin }),
        planOf("weekly", 70, 5, { base: { credits: 70, every: "P1W", align: "opening" } }),
        planOf("hours", 10, 5, { base: { credits: 10, every: "PT24H", align: "opening" } }),
      ),
      { force: false, by: "test" },
    );
    const refreshMs = start + day;
    for (const [plan, buckets] of [
      ["monthly", ["base"]],
      ["calendar", ["overage"]],
      ["both", ["base", "overage"]],
      ["weekly", ["base"]],
    ] as const) {
      const outcome = await made.apply(planTo(plan, plan));
      assert.deepEqual(outcome, { kind: "window_differs", plan, buckets, refreshMs });
    }
    assert.equal(made.store.account("ada").plan, "small");
    assert.deepEqual(await journalOf(made), openedJournal);
    // The same windows, written in another way.
    assert.equal((await made.apply(planTo("hours", "hours"))).kind, "changed");
  },
);

example(
  "a change of the zone is a change of the windows",
  planOf("here", 10, 5, {
    base: { credits: 10, every: "P1D", align: "calendar" },
    timezone: "Europe/Berlin",
  }),
  async (made) => {
    const refreshMs = made.store.account("ada").base?.untilMs;
    assert.deepEqual(await made.apply(planTo("there", "a")), {
      kind: "window_differs",
      plan: "there",
      buckets: ["base"],
      refreshMs,
    });
    // Windows that do not follow the calendar count in UTC in every zone.
    assert.equal((await made.apply(planTo("opening", "b", "new_window"))).kind, "changed");
    assert.equal((await made.apply(planTo("elsewhere", "c"))).kind, "changed");
  },
  planOf("there", 10, 5, { base: { credits: 10, every: "P1D", align: "calendar" }, timezone: "Asia/Tokyo" }),
  planOf("opening", 10, 5, { timezone: "Asia/Tokyo" }),
  planOf("elsewhere", 10, 5, { timezone: "Europe/Berlin" }),
);

example(
  "in a new window what was spent counts as spent, and holds stay with the closed grant",
  small,
  async (made) => {
    await made.apply(hold("spent", credits(3)));
    await made.apply(settle("spent", credits(3)));
    await made.apply(hold("h", credits(4)));
    made.clock.nowMs += hour;
    const at = made.clock.nowMs;
    assert.equal((await made.apply(planTo("monthly", "a", "new_window"))).kind, "changed");
    const { base, overage } = made.store.account("ada");
    assert.partialDeepStrictEqual(base, {
      amountMicro: credits(40),
      spentMicro: credits(3),
      heldMicro: 0,
      plan: "monthly",
      fromMs: at,
      untilMs: Date.UTC(2026, 1, 15, 13),
    });
    assert.equal(overage?.fromMs, start, "the bucket with the same windows keeps its grant");
    assert.deepEqual(made.buckets(), [credits(37), credits(5), 0]);
    assert.equal((await made.apply(settle("h", credits(1)))).kind, "settled");
    assert.deepEqual(made.store.charges("ada", "h")[0]?.paid, [
      { grant: 2, bucket: "base", amountMicro: credits(1) },
    ]);
    assert.deepEqual(made.buckets(), [credits(37), credits(5), 0], "the rest of the hold lapses");
  },
  monthly,
);

example(
  "there and back with new windows brings nothing back",
  small,
  async (made) => {
    await made.apply(hold("spent", credits(8)));
    await made.apply(settle("spent", credits(8)));
    await made.apply(planTo("monthly", "a", "new_window"));
    assert.deepEqual(made.buckets(), [credits(32), credits(5), 0]);
    await made.apply(hold("more", credits(20)));
    await made.apply(settle("more", credits(20)));
    await made.apply(planTo("small", "b", "new_window"));
    assert.deepEqual(made.buckets(), [credits(-18), credits(5), 0]);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  monthly,
);

example(
  "a change at the refresh changes both buckets when the base window ends",
  small,
  async (made) => {
    await made.apply(hold("spent", credits(12)));
    await made.apply(settle("spent", credits(12)));
    await made.apply(planTo("larger", "a", "refresh"));
    made.clock.nowMs = start + day - 1;
    await made.apply(settle("none", 0));
    const { plan, nextPlan } = made.store.account("ada");
    assert.deepEqual([plan, nextPlan], ["small", "larger"]);
    assert.deepEqual(made.buckets(), [0, credits(3), 0]);
    made.clock.nowMs += 1;
    await made.apply(settle("none", 0));
    const then = made.store.account("ada");
    assert.deepEqual([then.plan, then.nextPlan], ["larger", null]);
    assert.deepEqual(made.buckets(), [credits(30), credits(48), 0]);
    assert.equal(then.overage?.fromMs, start, "the overage window stays");
    assert.deepEqual((await journalOf(made)).slice(openedJournal.length), [
      "charge spent",
      "plan operation:a",
      "plan",
      "change overage",
      "window base",
    ]);
  },
  planOf("larger", 30, 50),
);

example(
  "a change at the refresh begins a window of overage if its windows differ, with what was spent",
  small,
  async (made) => {
    await made.apply(hold("spent", credits(12)));
    await made.apply(settle("spent", credits(12)));
    await made.apply(planTo("other", "a", "refresh"));
    // Nobody looks until long after.
    made.clock.nowMs = start + day + hour;
    await made.apply(settle("none", 0));
    const { base, overage } = made.store.account("ada");
    assert.partialDeepStrictEqual(base, { fromMs: start + day, untilMs: start + 8 * day, spentMicro: 0 });
    assert.partialDeepStrictEqual(overage, {
      fromMs: start + day,
      untilMs: start + 3 * day,
      amountMicro: credits(50),
      spentMicro: credits(2),
    });
    assert.deepEqual(made.buckets(), [credits(30), credits(48), 0]);
  },
  planOf("other", 30, 50, {
    base: { credits: 30, every: "P1W", align: "opening" },
    overage: { credits: 50, every: "P2D", align: "opening" },
  }),
);

example(
  "a scheduled change to the present plan cancels the other",
  small,
  async (made) => {
    await made.apply(planTo("large", "a", "refresh"));
    await made.apply(planTo("small", "b", "refresh"));
    assert.equal(made.store.account("ada").nextPlan, null);
    made.clock.nowMs += day;
    await made.apply(settle("none", 0));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
  large,
);
