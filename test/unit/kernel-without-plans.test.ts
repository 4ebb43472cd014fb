/** Requests end in full and at their cost even if the database has lost its plans. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { day, minute, start } from "../fixtures/times.ts";

/** An account with 100 base credits a day, and plans that are gone after its first holds. */
async function begin() {
  let nowMs = start;
  const limits = { requestsPerMinute: 10, tokensPerMinute: 1_000_000 };
  const store = memoryStore(plansOf(planOf("small", 100, 0, { limits })), () => nowMs);
  await store.commit([
    { kind: "open", account: "ada", plan: "small", by: "test" },
    { kind: "topup", account: "ada", payment: "p", amountMicro: credits(50), by: "test" },
  ]);
  await addKey(store, keyOf("key", "ada"));
  await store.commit([hold("h1", credits(5), { ttlMs: 2 * day }), hold("h2", credits(5), { ttlMs: minute })]);
  await store.commit([extend("h2", 1, 0, { usage: tokens(0, 30), ttlMs: minute })]);
  store.losePlans();
  const advance = (ms: number) => {
    nowMs += ms;
  };
  return { store, advance };
}

test("settles, extends and expires in the current windows", async () => {
  const { store, advance } = await begin();
  const [extended, settled] = await store.commit([
    extend("h1", 1, credits(10), { ttlMs: 2 * day }),
    settle("h1", credits(14)),
  ]);
  assert.partialDeepStrictEqual(extended, { kind: "extended", amountMicro: credits(10) });
  assert.partialDeepStrictEqual(settled, { kind: "settled", costMicro: credits(14), shortfallMicro: 0 });
  advance(2 * minute);
  const [expired] = await store.commit([{ kind: "expire", account: "ada", requestId: "h2" }]);
  assert.equal(expired?.kind, "expired");
  assert.equal(store.receipt("ada", "h2")?.costMicro, 30);
  const { base } = store.account("ada");
  assert.deepEqual(
    [base?.amountMicro, base?.spentMicro, base?.heldMicro],
    [credits(100), credits(14) + 30, 0],
  );
});

test("takes what exceeds a hold from additional credits once the windows have ended", async () => {
  const { store, advance } = await begin();
  advance(day);
  const [extended, settled] = await store.commit([
    extend("h1", 1, credits(10), { ttlMs: 2 * day }),
    settle("h1", credits(15)),
  ]);
  assert.partialDeepStrictEqual(extended, { kind: "extended", amountMicro: credits(10) });
  assert.partialDeepStrictEqual(settled, {
    kind: "settled",
    paid: { base: credits(5), overage: 0, additional: credits(10) },
    shortfallMicro: 0,
  });
  assert.partialDeepStrictEqual(store.account("ada").additional, [
    { amountMicro: credits(50), spentMicro: credits(10), heldMicro: 0 },
  ]);
});

test("refuses a new request, and changes nothing", async () => {
  const { store } = await begin();
  const before = store.account("ada");
  const [refused] = await store.commit([hold("h3", 1)]);
  assert.deepEqual(refused, {
    kind: "balance_unavailable",
    account: "ada",
    problem: 'the database has no version of its plan "small"',
  });
  assert.deepEqual(store.account("ada"), before);
});
