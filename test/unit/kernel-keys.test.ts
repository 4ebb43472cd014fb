/** Changes of keys: settings, caps and rotations, each applied once. */
import assert from "node:assert/strict";
import type { CapSettings, KeyOperation, KeySettings } from "../../src/ledger/operations.ts";
import { example, journalOf, openedJournal, small } from "../fixtures/kernel-examples.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, limited, revokeKey } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

function set(op: string, settings: KeySettings, key = "key"): KeyOperation {
  return { kind: "key", account: "ada", key, op, set: settings, by: "test" };
}

function rotation(digit: string, overlap: string | null): KeySettings {
  return { rotation: { hash: digit.repeat(64), lastFour: digit.repeat(4), overlap } };
}

function cap(amountMicro: number, every: string, more: Partial<CapSettings> = {}): CapSettings {
  return { amountMicro, every, byOperator: true, ...more };
}

example(
  "a change of a key takes effect once and is in the journal without the secret",
  small,
  async (made) => {
    const change = set("a", {
      name: "laptop",
      caps: [cap(500, "P1M")],
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
    const caps = [{ amount_micro: 500, by_operator: true, every: "P1M" }];
    assert.deepEqual(
      [
        entry?.subject,
        ...[entry?.before, entry?.after, entry?.outcome].map((text) => JSON.parse(text ?? "")),
      ],
      [
        "key",
        { caps: [], name: null },
        { caps, name: "laptop", rotation: { overlap: "P1D" } },
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

example(
  "two caps that count the same, and a period that no calendar has, are refused",
  small,
  async (made) => {
    const twice = [cap(5, "P7D", { name: "week" }), cap(6, "P1W", { name: "week" })];
    assert.deepEqual(await made.apply(set("1", { name: "n", caps: twice })), {
      kind: "cap_twice",
      name: "week",
    });
    assert.deepEqual(await made.apply(set("1", { caps: [cap(5, "PT5H", { align: "calendar" })] })), {
      ...{ kind: "no_calendar_period", name: "PT5H", every: "PT5H" },
    });
    assert.deepEqual([made.store.key("key").name, made.store.key("key").caps], [null, []]);
    // The name tells them apart.
    const apart = [cap(5, "P7D"), cap(6, "P1W")];
    assert.equal((await made.apply(set("1", { caps: apart }))).kind, "changed");
  },
);

example(
  "the refusal names the cap that refills last, and whose requests hold the rest",
  small,
  async (made) => {
    await made.apply(set("1", { caps: [cap(100, "P1M"), cap(90, "P1D"), cap(200, "P7D")] }));
    await made.apply(hold("h", 80));
    assert.partialDeepStrictEqual(await made.apply(hold("h2", 10)), { kind: "held" });
    await made.apply(settle("h2", 0));
    assert.partialDeepStrictEqual(await made.apply(hold("h3", 30)), {
      kind: "credits_reserved",
      scope: "key",
    });
    assert.partialDeepStrictEqual(await made.apply(hold("h4", 101)), {
      kind: "cap_reached",
      cap: { of: "key", name: "P1M", amountMicro: 100 },
      leftMicro: 20,
      // The daily cap gives less, now and at the end of the month.
      mostMicro: 10,
      refreshes: [{ atMs: start + 31 * day, amountMicro: 90 }],
    });
    assert.partialDeepStrictEqual(await made.apply(hold("h5", 95)), { cap: { name: "P1D" } });
  },
);

example("a repeated hold and extension name the cap that gave less", small, async (made) => {
  await made.apply(set("1", { caps: [cap(100, "P1M")] }));
  const short = { of: "key", name: "P1M" };
  const held = hold("h", 90, { minMicro: 1 });
  assert.deepEqual(Object.keys(await made.apply(held)).includes("cap"), false);
  const extended = extend("h", 1, 30);
  for (const _ of ["first", "again"])
    assert.partialDeepStrictEqual(await made.apply(extended), {
      amountMicro: 10,
      reserved: false,
      cap: short,
    });
  assert.equal("cap" in (await made.apply(held)), false);
  const more = hold("h2", 5, { minMicro: 0 });
  for (const _ of ["first", "again"])
    assert.partialDeepStrictEqual(await made.apply(more), { kind: "held", amountMicro: 0, cap: short });
});

example("what a lowered cap will not give back is not waited for", small, async (made) => {
  await made.apply(set("1", { caps: [cap(100, "P1M")] }));
  await made.apply(hold("h", 10));
  await made.apply(hold("h2", 60));
  await made.apply(extend("h2", 1, 0, { usage: tokens(0, 45) }));
  await made.apply(set("2", { caps: [cap(54, "P1M")] }));
  // When h2 has ended with 45, h holds more than is left.
  assert.partialDeepStrictEqual(await made.apply(extend("h", 1, 5)), { amountMicro: 0, reserved: false });
  await made.apply(set("3", { caps: [cap(56, "P1M")] }));
  assert.partialDeepStrictEqual(await made.apply(extend("h", 1, 5)), { amountMicro: 0, reserved: true });
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
