/** The kernel: settlements, extensions and expiries, once, late and repeated. */
import assert from "node:assert/strict";
import { example, expire, journalOf, openedJournal, small, topup } from "../fixtures/kernel-examples.ts";
import type { Bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, settledBy, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

/** Expires the hold `h` after this time. */
async function expireAfter(made: Bench, ms: number): Promise<void> {
  made.clock.nowMs += ms;
  await made.apply(expire("h"));
}

// Settlement

example(
  "a settlement charges what was used and gives the rest back (BerriAI/litellm#35569)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(12)));
    const outcome = await made.apply(settle("h", credits(11)));
    assert.partialDeepStrictEqual(outcome, settledBy({ base: credits(10), overage: credits(1) }));
    assert.deepEqual(made.buckets(), [0, credits(4), 0]);
  },
);

example(
  "the receipt has tokens, prices, bucket amounts and ending, under the request id",
  small,
  async (made) => {
    await made.apply(topup("p", credits(1)));
    await made.apply(hold("h", credits(16), { price: { prompt: 10, completion: 30, cachedPrompt: 1 } }));
    made.clock.nowMs += 70;
    const usage = { promptTokens: 100, cachedTokens: 60, completionTokens: 20, reasoningTokens: 5 };
    await made.apply(settle("h", 0, { usage, ending: "length", estimated: true, note: "odd" }));
    assert.deepEqual(made.store.receipt("ada", "h"), {
      account: "ada",
      id: "h",
      seq: 6,
      atMs: start + 70,
      key: "key",
      model: "model",
      ending: "length",
      by: null,
      estimated: true,
      note: "odd",
      ...usage,
      pricePrompt: 10,
      priceCompletion: 30,
      priceCachedPrompt: 1,
      costMicro: 40 * 10 + 60 + 20 * 30,
      baseMicro: 1060,
      overageMicro: 0,
      additionalMicro: 0,
      shortfallMicro: 0,
      late: false,
      paid: [{ grant: 2, bucket: "base", amountMicro: 1060 }],
    });
  },
);

example("a repeated settlement charges nothing more and returns the same outcome", small, async (made) => {
  await made.apply(hold("h", 10));
  const first = await made.apply(settle("h", 7));
  const [again, other] = await made.store.commit([settle("h", 7), settle("h", 9)]);
  assert.deepEqual(again, first);
  assert.deepEqual(other, first, "what comes second does not count, whatever it says");
  assert.deepEqual(made.buckets(), [credits(10) - 7, credits(5), 0]);
});

example("the settlement of an unknown hold charges nothing", small, async (made) => {
  assert.deepEqual(await made.apply(settle("ghost", 5)), { kind: "unknown_hold" });
  assert.deepEqual(await journalOf(made), openedJournal);
});

example(
  "a settlement of no tokens is a void: everything goes back where it came from, once (elizaOS/eliza#11484)",
  small,
  async (made) => {
    await made.apply(topup("p", credits(3)));
    await made.apply(hold("h", credits(17)));
    for (let n = 0; n < 2; n += 1) {
      await made.apply(settle("h", 0, { ending: "refused" }));
      assert.deepEqual(made.buckets(), [credits(10), credits(5), credits(3)]);
      assert.deepEqual(await journalOf(made), [...openedJournal, "payment payment:p", "charge h"]);
    }
  },
);

example(
  "what costs more than its hold is paid from what is there, each bucket named, and the rest is a shortfall, never a debt (one-api#51, llmgateway#3705)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(1)));
    const outcome = await made.apply(settle("h", credits(20)));
    assert.partialDeepStrictEqual(outcome, settledBy({ base: credits(10), overage: credits(5) }, credits(5)));
    assert.deepEqual(made.buckets(), [0, 0, 0]);
    const { baseMicro, overageMicro, additionalMicro, shortfallMicro } = made.store.receipt("ada", "h") ?? {};
    assert.deepEqual(
      [baseMicro, overageMicro, additionalMicro, shortfallMicro],
      [credits(10), credits(5), 0, credits(5)],
    );
  },
);

example("a cost above the hold takes nothing from the holds of other requests", small, async (made) => {
  await made.apply(hold("h1", credits(1)));
  await made.apply(hold("h2", credits(12)));
  const outcome = await made.apply(settle("h1", credits(5)));
  assert.partialDeepStrictEqual(outcome, settledBy({ base: credits(1), overage: credits(2) }, credits(2)));
  assert.partialDeepStrictEqual(
    await made.apply(settle("h2", credits(12))),
    settledBy({ base: credits(9), overage: credits(3) }),
  );
});

example("charges the prices at the time of the hold", small, async (made) => {
  await made.apply(hold("h", 1000, { price: { prompt: 2, completion: 3 } }));
  await made.store.applyPlans(plansOf(planOf("small", 10, 5, { models: [] })), { force: false, by: "test" });
  const outcome = await made.apply(settle("h", 0, { usage: tokens(5, 10) }));
  assert.partialDeepStrictEqual(outcome, settledBy({ base: 40 }));
});

example("throws for invalid token counts and keeps the hold open (octopus#243)", small, async (made) => {
  await made.apply(hold("h", 10));
  for (const usage of [
    tokens(-1, 0),
    tokens(0, 0.5),
    tokens(1, 0, 2),
    tokens(Number.NaN, 0),
    { ...tokens(0, 1), reasoningTokens: 2 },
    tokens(0, Number.MAX_SAFE_INTEGER + 1),
  ]) {
    await assert.rejects(made.apply(settle("h", 0, { usage })), /invariant/);
  }
  assert.equal((await made.apply(settle("h", 1))).kind, "settled");
});

example("throws for a settlement that ends as expired", small, async (made) => {
  await made.apply(hold("h", 10));
  await assert.rejects(made.apply(settle("h", 1, { ending: "expired" })), /expiry/);
});

// Extensions and expiry

example("an extension takes the next slice in spending order", small, async (made) => {
  await made.apply(topup("p", credits(1)));
  await made.apply(hold("h", credits(9)));
  assert.deepEqual(await made.apply(extend("h", 1, credits(4))), {
    kind: "extended",
    amountMicro: credits(4),
    reserved: false,
  });
  assert.deepEqual(made.buckets(), [0, credits(2), credits(1)]);
  await made.apply(settle("h", credits(13)));
  assert.deepEqual(made.buckets(), [0, credits(2), credits(1)]);
});

example("an extension takes less if less is available, or nothing", small, async (made) => {
  await made.apply(hold("h", credits(14)));
  assert.deepEqual(await made.apply(extend("h", 1, credits(4))), {
    kind: "extended",
    amountMicro: credits(1),
    reserved: false,
  });
  const nothing = { kind: "extended", amountMicro: 0, reserved: false };
  assert.deepEqual(await made.apply(extend("h", 2, credits(4))), nothing);
});

example("a repeated extension takes nothing more and returns the same outcome", small, async (made) => {
  await made.apply(hold("h", 10));
  const first = await made.apply(extend("h", 1, 5));
  assert.deepEqual(await made.apply(extend("h", 1, 5)), first);
  assert.deepEqual(await made.apply(extend("h", 2, 5)), first);
  assert.deepEqual(made.buckets(), [credits(10) - 20, credits(5), 0]);
});

example(
  "the same extension again after its window has ended takes nothing out of the new one",
  small,
  async (made) => {
    await made.apply(hold("h", credits(2), { ttlMs: 3 * day }));
    await made.apply(extend("h", 1, credits(3)));
    made.clock.nowMs += day;
    assert.deepEqual(await made.apply(extend("h", 1, credits(3))), {
      kind: "extended",
      amountMicro: credits(3),
      reserved: false,
    });
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
    await made.apply(settle("h", credits(5)));
    assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  },
);

example("the extension of an ended hold takes nothing", small, async (made) => {
  await made.apply(hold("h", 10));
  await made.apply(settle("h", 10));
  assert.deepEqual(await made.apply(extend("h", 1, 5)), { kind: "ended" });
  assert.deepEqual(await made.apply(extend("ghost", 1, 5)), { kind: "ended" });
  assert.deepEqual(made.buckets(), [credits(10) - 10, credits(5), 0]);
});

example("an extension renews the hold and writes its checkpoint", small, async (made) => {
  await made.apply(hold("h", 100));
  made.clock.nowMs += minute - 1;
  await made.apply(extend("h", 1, 0, { usage: tokens(10, 20) }));
  made.clock.nowMs += minute - 1;
  assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
  made.clock.nowMs += 1;
  assert.equal((await made.apply(expire("h"))).kind, "expired");
  assert.equal(made.store.receipt("ada", "h")?.costMicro, 30);
  assert.deepEqual(made.buckets(), [credits(10) - 30, credits(5), 0]);
});

example(
  "a checkpoint that arrives late takes back neither tokens nor time of a newer one",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 2, 0, { usage: tokens(10, 20), ttlMs: hour }));
    await made.apply(extend("h", 1, 0, { usage: tokens(10, 5), ttlMs: minute }));
    made.clock.nowMs += minute;
    assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
    await expireAfter(made, hour);
    assert.equal(made.store.receipt("ada", "h")?.costMicro, 30);
  },
);

example(
  "a checkpoint from before the prompt was begun does not take the prompt back",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 2, 0, { usage: tokens(10, 0) }));
    await made.apply(extend("h", 1, 0, { usage: tokens(0, 0) }));
    await expireAfter(made, hour);
    assert.equal(made.store.receipt("ada", "h")?.costMicro, 10);
  },
);

example(
  "a checkpoint that could never be charged is a defect, and does not strand the hold",
  small,
  async (made) => {
    await made.apply(hold("h", 100, { price: { prompt: 1000, completion: 1000 } }));
    const usage = tokens(0, 2 ** 50);
    await assert.rejects(made.apply(extend("h", 1, 0, { usage })), /invariant/);
    made.clock.nowMs += hour;
    assert.equal((await made.apply(expire("h"))).kind, "expired");
  },
);

example("the expiry of a hold without a checkpoint charges nothing", small, async (made) => {
  await made.apply(hold("h", credits(12)));
  await expireAfter(made, minute);
  assert.deepEqual(made.buckets(), [credits(10), credits(5), 0]);
  assert.equal(made.store.receipt("ada", "h")?.ending, "expired");
});

example("a second expiry reports that the hold has ended", small, async (made) => {
  await made.apply(hold("h", 10));
  assert.deepEqual(await made.apply(expire("h")), { kind: "alive" });
  made.clock.nowMs += minute;
  const outcomes = await made.store.commit([expire("h"), expire("h"), expire("ghost")]);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind),
    ["expired", "ended", "ended"],
  );
});

example(
  "what a hold whose time has run out held is there for the next slice of another (tigerbeetle#2118)",
  small,
  async (made) => {
    await made.apply(hold("r1", credits(14), { ttlMs: 1000 }));
    await made.apply(hold("r2", credits(1)));
    const reserved = { kind: "extended", amountMicro: 0, reserved: true };
    assert.deepEqual(await made.apply(extend("r2", 1, credits(3))), reserved);
    made.clock.nowMs += 1000;
    const { expired, ...outcome } = await made.apply(extend("r2", 1, credits(3)));
    assert.deepEqual(outcome, { kind: "extended", amountMicro: credits(3), reserved: false });
    assert.deepEqual(expired, [made.store.receipt("ada", "r1")]);
    assert.equal(made.store.receipt("ada", "r1")?.ending, "expired");
  },
);

example(
  "a hold whose time has run out counts no longer, before anybody has swept it (tigerbeetle#2118, #2000)",
  small,
  async (made) => {
    await made.apply(hold("h", credits(15)));
    await made.apply(extend("h", 1, 0, { usage: tokens(0, credits(3)) }));
    made.clock.nowMs += minute;
    const outcome = await made.apply(hold("h2", credits(12)));
    assert.equal(outcome.kind, "held");
    assert.equal(made.store.receipt("ada", "h")?.costMicro, credits(3));
  },
);

example(
  "whoever meets holds whose time has run out is told their receipts, once, a refused request too",
  small,
  async (made) => {
    await made.apply(hold("h1", credits(2)));
    await made.apply(extend("h1", 1, 0, { usage: tokens(0, credits(1)) }));
    await made.apply(hold("h2", credits(12)));
    made.clock.nowMs += minute;
    const refused = await made.apply(hold("h3", credits(15)));
    assert.ok(refused.kind === "insufficient_credits");
    assert.deepEqual(refused.expired, [made.store.receipt("ada", "h1"), made.store.receipt("ada", "h2")]);
    assert.deepEqual(
      refused.expired?.map(({ id, costMicro, baseMicro }) => [id, costMicro, baseMicro]),
      [
        ["h1", credits(1), credits(1)],
        ["h2", 0, 0],
      ],
    );
    for (const again of [hold("h3", credits(15)), expire("h1"), settle("h2", 0)]) {
      assert.equal((await made.apply(again)).expired, undefined);
    }
  },
);

example(
  "a settlement after the expiry charges the tokens since the checkpoint, once",
  small,
  async (made) => {
    await made.apply(hold("h", credits(5)));
    await made.apply(extend("h", 1, 0, { usage: tokens(0, credits(1)) }));
    await expireAfter(made, minute);
    assert.deepEqual(made.buckets(), [credits(9), credits(5), 0]);
    made.clock.nowMs += minute;
    const late = await made.apply(settle("h", credits(4), { ending: "length" }));
    assert.partialDeepStrictEqual(late, settledBy({ base: credits(4) }, 0, { base: credits(1) }));
    assert.deepEqual(await made.apply(settle("h", credits(4))), late);
    assert.deepEqual(await made.apply(settle("h", credits(9))), late);
    assert.deepEqual(made.buckets(), [credits(6), credits(5), 0]);
    const lines = made.store.charges("ada", "h");
    assert.deepEqual(
      lines.map(({ ending, late, costMicro, completionTokens, atMs }) => ({
        ending,
        late,
        costMicro: costMicro,
        completionTokens,
        atMs,
      })),
      [
        {
          ending: "expired",
          late: false,
          costMicro: credits(1),
          completionTokens: credits(1),
          atMs: start + minute,
        },
        {
          ending: "length",
          late: true,
          costMicro: credits(3),
          completionTokens: credits(3),
          atMs: start + 2 * minute,
        },
      ],
    );
  },
);

example("a late settlement above the available credits records a shortfall", small, async (made) => {
  await made.apply(hold("h", credits(5)));
  await expireAfter(made, minute);
  await made.apply(hold("all", credits(15)));
  const late = await made.apply(settle("h", credits(4)));
  assert.partialDeepStrictEqual(late, settledBy({}, credits(4), {}));
});

example(
  "a late settlement that knows of less takes nothing back, and its charges add up",
  small,
  async (made) => {
    await made.apply(hold("h", 100));
    await made.apply(extend("h", 1, 0, { usage: tokens(10, 0) }));
    await expireAfter(made, minute);
    const late = await made.apply(settle("h", 0, { usage: tokens(0, 0), ending: "engine_failed" }));
    assert.partialDeepStrictEqual(late, settledBy({ base: 10 }, 0, { base: 10 }));
    const lines = made.store.charges("ada", "h");
    assert.deepEqual(
      lines.map(({ ending, costMicro, promptTokens }) => ({ ending, costMicro: costMicro, promptTokens })),
      [
        { ending: "expired", costMicro: 10, promptTokens: 10 },
        { ending: "engine_failed", costMicro: 0, promptTokens: 0 },
      ],
    );
  },
);

example(
  "a late settlement with more cached tokens than the checkpoint knew adds up too",
  small,
  async (made) => {
    await made.apply(hold("h", 100, { price: { prompt: 10, completion: 1, cachedPrompt: 1 } }));
    await made.apply(extend("h", 1, 0, { usage: tokens(10, 5) }));
    await expireAfter(made, minute);
    const late = await made.apply(settle("h", 0, { usage: tokens(10, 6, 9) }));
    assert.partialDeepStrictEqual(late, settledBy({ base: 105 }, 0, { base: 105 }));
  },
);
