/**
 * Accounts with thousands of holds of a dead node: commits stay short, and no request is refused
 * because of them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import { overdueMax } from "../../src/ledger/snapshot.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { minute } from "../fixtures/times.ts";

const limited = planOf("small", 10, 5, { limits: { concurrent: 700 } });
const left = 3 * overdueMax + 7;

/** All credits of the account are held by holds whose time has run out. */
async function leftBehind(): Promise<{ made: Bench; ledger: Ledger; ended: number[] }> {
  const made = await bench(limited);
  for (let n = 0; n < left; n += 1) {
    await made.apply(hold(`left-${n}`, Math.floor(credits(15) / left), { ttlMs: minute }));
  }
  made.clock.nowMs += minute;
  const ended: number[] = [];
  const ledger = new Ledger(made.store, {
    onCommit: ({ expired }) => ended.push(expired.length),
  });
  return { made, ledger, ended };
}

test("a hold waits for the commits that release the credits of overdue holds", async () => {
  const { made, ledger, ended } = await leftBehind();
  const held = await ledger.apply(hold("h1", credits(15)));
  assert.equal(held.kind, "held");
  assert.deepEqual(ended, [overdueMax, overdueMax, overdueMax, 7]);
  assert.deepEqual(
    made.store.openHolds("ada").map(({ id }) => id),
    ["h1"],
  );
});

test("a hold is not refused because of overdue holds that count as running", async () => {
  const { made, ledger } = await leftBehind();
  await addKey(made.store, keyOf("narrow", "ada", { concurrent: 1 }));
  const answers = [1, 2].map((n) => ledger.apply(hold(`h${n}`, credits(1), { key: "narrow" })));
  const [first, second] = await Promise.all(answers);
  assert.equal(first?.kind, "held");
  assert.partialDeepStrictEqual(second, { kind: "concurrency_limit_exceeded" });
});

test("operations of the account keep their order, and other accounts do not wait", async () => {
  const { made, ledger } = await leftBehind();
  await made.store.commit([{ kind: "open", account: "bob", plan: "small", by: "test" }]);
  const answered: string[] = [];
  await Promise.all([
    ledger.apply(hold("h1", credits(15))).then(() => answered.push("h1")),
    ledger.apply(settle("h1", credits(15))).then((outcome) => answered.push(outcome.kind)),
    ledger.apply(hold("h2", 1)).then((outcome) => {
      answered.push(outcome.kind);
    }),
    ledger
      .apply({ kind: "topup", account: "bob", payment: "p", amountMicro: 1, by: "test" })
      .then(() => answered.push("bob")),
  ]);
  assert.deepEqual(answered, ["bob", "h1", "settled", "insufficient_credits"]);
});

test("outcomes do not depend on the number of holds that a commit may end", async () => {
  const results = [];
  for (const max of [1, 10, left]) {
    const { made, ledger } = await leftBehind();
    made.store.ledger.overdueMax = max;
    const outcomes = [
      await ledger.apply(hold("h1", credits(3))),
      await ledger.apply(settle("h1", credits(1))),
    ];
    results.push([outcomes.map(({ expired, ...outcome }) => outcome), made.buckets()]);
  }
  assert.deepEqual(results[0], results[2]);
  assert.deepEqual(results[1], results[2]);
});
