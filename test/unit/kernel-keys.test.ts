/** Changes of keys: settings, budgets and rotations, each applied once. */
import assert from "node:assert/strict";
import { keyAt } from "../../src/ledger/key-budget.ts";
import type { KeyOperation, KeySettings } from "../../src/ledger/operations.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { example, journalOf, openedJournal, planTo, small } from "../fixtures/kernel-examples.ts";
import type { Bench } from "../fixtures/ledger-bench.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, limited, revokeKey } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

function set(op: string, settings: KeySettings, key = "key"): KeyOperation {
  return { kind: "key", account: "ada", key, op, set: settings, by: "test" };
}

function rotation(digit: string, overlap: string | null): KeySettings {
  return { rotation: { hash: digit.repeat(64), lastFour: digit.repeat(4), overlap } };
}

async function spend(made: Bench, id: string, amount: number): Promise<string> {
  const outcome = await made.apply(hold(id, amount));
  if (outcome.kind === "held") await made.apply(settle(id, amount));
  return outcome.kind;
}

example(
  "a change of a key takes effect once and is in the journal without the secret",
  small,
  async (made) => {
    const change = set("a", {
      name: "laptop",
      budget: { amountMicro: 500, rule: { every: "P1M" } },
      ...rotation("2", "P1D"),
    });
    const first = await made.apply(change);
    assert.partialDeepStrictEqual(first, { kind: "changed", replayed: false });
    // Another change in between: the repetition must not undo it.
    await made.apply(set("b", { name: "desk", ...rotation("3", "P1D") }));
    const again = await made.apply(change);
    assert.partialDeepStrictEqual(again, { kind: "changed", replayed: true });
    const key = made.store.key("key");
    assert.deepEqual([key.name, key.hash, key.oldHash], ["desk", "3".repeat(64), "2".repeat(64)]);
    const [entry] = await made.store.journal("ada", { limit: 1, afterSeq: openedJournal.length });
    const budget = { amount_micro: 500, rule: { every: "P1M" } };
    assert.deepEqual(
      [
        entry?.subject,
        ...[entry?.before, entry?.after, entry?.outcome].map((text) => JSON.parse(text ?? "")),
      ],
      [
        "key",
        { budget: null, name: null },
        { budget, name: "laptop", rotation: { overlap: "P1D" } },
        // The beginning of the hash, with which the audit compares the key.
        { secret: "2".repeat(32), old_until_at: "2026-01-16T12:00:00.000Z" },
      ],
    );
    assert.deepEqual(await journalOf(made), [...openedJournal, "key operation:a", "key operation:b"]);
  },
);

example("another change with the same id is a conflict", small, async (made) => {
  await addKey(made.store, keyOf("other", "ada"));
  await made.apply(set("a", { name: "laptop" }));
  assert.equal((await made.apply(set("a", { name: "desk" }))).kind, "operation_differs");
  assert.equal((await made.apply(set("a", { name: "laptop" }, "other"))).kind, "operation_differs");
  assert.deepEqual([made.store.key("key").name, made.store.key("other").name], ["laptop", null]);
});

example("a repeated rotation with a fresh secret does not rotate again", small, async (made) => {
  await made.apply(set("r", rotation("2", "P1D")));
  made.clock.nowMs += minute;
  const again = await made.apply(set("r", rotation("3", "P1D")));
  assert.partialDeepStrictEqual(again, { kind: "changed", replayed: true });
  const { hash, oldHash, oldUntilMs } = made.store.key("key");
  assert.deepEqual([hash, oldHash, oldUntilMs], ["2".repeat(64), keyOf("key", "ada").hash, start + day]);
});

example(
  "a second rotation ends the oldest secret, and no overlap ends the old one at once",
  small,
  async (made) => {
    await made.apply(set("1", rotation("2", "P1M")));
    await made.apply(set("2", rotation("3", "PT1H")));
    assert.partialDeepStrictEqual(made.store.key("key"), {
      hash: "3".repeat(64),
      oldHash: "2".repeat(64),
      oldUntilMs: start + 60 * minute,
    });
    assert.equal(keyAt(made.store.key("key"), timesAt(start + 60 * minute)).oldUntilMs, null);
    await made.apply(set("3", rotation("4", null)));
    assert.partialDeepStrictEqual(made.store.key("key"), { oldHash: "3".repeat(64), oldUntilMs: start });
  },
);

example("a revoked key does not change, and neither does one of another account", small, async (made) => {
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  assert.equal((await made.apply({ ...set("a", { name: "x" }), account: "bob" })).kind, "key_not_found");
  assert.equal((await made.apply(set("a", { name: "x" }, "none"))).kind, "key_not_found");
  await made.apply(set("before", { name: "y" }));
  await revokeKey(made.store, "key");
  assert.equal((await made.apply(set("a", rotation("2", null)))).kind, "key_revoked");
  // A change from before the revocation is reported as done.
  assert.equal((await made.apply(set("before", { name: "y" }))).kind, "changed");
  assert.equal(made.store.key("key").hash, keyOf("key", "ada").hash);
});

example("a part of a budget changes alone, but not if there is no budget", small, async (made) => {
  assert.equal((await made.apply(set("1", { name: "n", budget: { amountMicro: 5 } }))).kind, "no_budget");
  assert.equal((await made.apply(set("1", { budget: { rule: { every: "P1D" } } }))).kind, "no_budget");
  assert.deepEqual([made.store.key("key").name, made.store.key("key").budgetMicro], [null, null]);
  await made.apply(set("1", { budget: { amountMicro: 100, rule: { every: "P1M" } } }));
  assert.equal(await spend(made, "h1", 60), "held");
  await made.apply(set("2", { budget: { amountMicro: 70 } }));
  assert.partialDeepStrictEqual(made.store.key("key"), {
    budgetMicro: 70,
    budgetEvery: "P1M",
    budgetSpentMicro: 60,
  });
  made.clock.nowMs += minute;
  await made.apply(set("3", { budget: { rule: { every: "P1D" } } }));
  assert.partialDeepStrictEqual(made.store.key("key"), {
    budgetMicro: 70,
    budgetEvery: "P1D",
    budgetSpentMicro: 60,
    budgetFromMs: start + minute,
    budgetUntilMs: start + minute + day,
  });
  assert.equal(await spend(made, "h2", 11), "key_budget_exceeded");
  assert.equal(await spend(made, "h2", 10), "held");
  await made.apply(set("4", { budget: null }));
  assert.partialDeepStrictEqual(made.store.key("key"), {
    budgetMicro: null,
    budgetEvery: null,
    budgetSpentMicro: null,
  });
});

example("the refusal names the key if its own requests hold the rest of its budget", small, async (made) => {
  await made.apply(set("1", { budget: { amountMicro: 100, rule: { every: "P1M" } } }));
  await made.apply(hold("h", 80));
  assert.partialDeepStrictEqual(await made.apply(hold("h2", 30)), {
    kind: "credits_reserved",
    scope: "key",
  });
  assert.partialDeepStrictEqual(await made.apply(hold("h2", 101)), {
    kind: "key_budget_exceeded",
    leftMicro: 20,
    refreshes: [{ atMs: start + 31 * day, amountMicro: 100 }],
  });
});

example("an extension after the end of the budget's window takes from the next one", small, async (made) => {
  await made.apply(set("1", { budget: { amountMicro: 100, rule: { every: "PT1H" } } }));
  await spend(made, "h0", 70);
  await made.apply(hold("h", 30, { ttlMs: day }));
  assert.partialDeepStrictEqual(await made.apply(extend("h", 1, 50)), { amountMicro: 0, reserved: false });
  made.clock.nowMs += 60 * minute;
  assert.partialDeepStrictEqual(await made.apply(extend("h", 2, 90, { usage: tokens(0, 30) })), {
    amountMicro: 70,
  });
  await made.apply(settle("h", 95));
  assert.partialDeepStrictEqual(made.store.key("key"), { heldMicro: 0, budgetSpentMicro: 95 });
});

example("a budget does not change with the plan, and counts whatever bucket pays", small, async (made) => {
  await made.apply(set("1", { budget: { amountMicro: credits(14), rule: { every: "P1M" } } }));
  assert.equal(await spend(made, "h1", credits(12)), "held");
  await made.apply(planTo("small", "p"));
  assert.equal(await spend(made, "h2", credits(3)), "key_budget_exceeded");
  assert.equal(await spend(made, "h3", credits(2)), "held");
});

example(
  "a debt of tokens follows a changed limit from the moment of the change",
  limited({}),
  async (made) => {
    await made.apply(set("1", { tokensPerMinute: 100 }));
    await made.apply(hold("h", 100, { promptTokens: 1 }));
    await made.apply(settle("h", 1, { usage: tokens(0, 1100) }));
    // 1,100 tokens are 11 minutes. The first one is the burst.
    made.clock.nowMs += minute;
    await made.apply(set("2", { tokensPerMinute: 1000 }));
    // The debt of 1,000 tokens is one minute now, which passes before anyone looks.
    made.clock.nowMs += minute;
    assert.equal((await made.apply(hold("h2", 1, { promptTokens: 1000 }))).kind, "held");
    await made.apply(settle("h2", 0, { usage: tokens(1000, 0) }));
    await made.apply(set("3", { tokensPerMinute: 500 }));
    // 1,000 tokens are two minutes.
    assert.partialDeepStrictEqual(await made.apply(hold("h3", 1, { promptTokens: 100 })), {
      kind: "rate_limit_exceeded",
      retryAfterMs: minute + 12_000,
    });
    await made.apply(set("4", { tokensPerMinute: null }));
    assert.equal((await made.apply(hold("h4", 1, { promptTokens: 5000 }))).kind, "held");
    await made.apply(settle("h4", 1));
  },
);
