/** The kernel: settlements, extensions and expiries, once, late and repeated. */
import assert from "node:assert/strict";
import { example, expire, small, topup } from "../fixtures/kernel-examples.ts";
import type { Bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, settledBy, tokens } from "../fixtures/ledger-operations.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { day, hour, minute } from "../fixtures/times.ts";

/** Expires the hold `h` after this time. */
async function expireAfter(made: Bench, ms: number): Promise<void> {
  made.clock.nowMs += ms;
  await made.apply(expire("h"));
}

// Settlement

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

example("a receipt names the grants that paid, and no others", small, async (made) => {
  await made.apply(topup("p", credits(1)));
  await made.apply(hold("h", credits(16)));
  await made.apply(settle("h", credits(9)));
  const paid = [{ grant: 2, bucket: "base", amountMicro: credits(9) }];
  assert.deepEqual(made.store.receipt("ada", "h")?.paid, paid);
});

example("throws for a settlement that ends as expired", small, async (made) => {
  await made.apply(hold("h", 10));
  await assert.rejects(made.apply(settle("h", 1, { ending: "expired" })), /expiry/);
});

// Extensions and expiry

example("an extension takes less if less is available, or nothing", small, async (made) => {
  await made.apply(hold("h", credits(14)));
  const extended = { kind: "extended", amountMicro: credits(1), reserved: false };
  assert.deepEqual(await made.apply(extend("h", 1, credits(4))), extended);
  assert.deepEqual(await made.apply(extend("h", 2, credits(4))), { ...extended, amountMicro: 0 });
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
