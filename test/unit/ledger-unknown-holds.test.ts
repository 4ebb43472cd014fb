/** Holds with an unknown outcome are voided when the store answers, and no other holds are. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.ts";
import { journalOf, openedJournal } from "../fixtures/kernel-examples.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";

const small = planOf("small", 10, 5);
const whole = [credits(10), credits(5), 0];

const gone = () => Promise.reject(new StoreUnavailableError("the server is gone"));
const refused = () => Promise.reject(new StoreUnavailableError("the disk is full", { mayBeDone: false }));

/** The next commit is written and then fails. From then on the store has these hooks. */
function failAfterCommit({ store }: Bench, fail: () => Promise<never>, hooks: Bench["store"]["hooks"] = {}) {
  store.hooks = {
    after: () => {
      store.hooks = hooks;
      return fail();
    },
  };
}

/** The next commit is written and its answer is lost. From then on the store is away. */
function loseAnswer(made: Bench): void {
  failAfterCommit(made, gone, { before: refused });
}

function ledgerOf({ store }: Bench, options: LedgerOptions = {}): Ledger {
  return new Ledger(store, { retriesMs: [0], latePauseMs: 1, ...options });
}

/** A bench whose store failed during hold `h1`, before it was written, and is available again. */
async function benchWithRejectedHold(before: () => Promise<never>) {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  made.store.hooks = { before };
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  made.store.hooks = {};
  return { made, ledger };
}

test("voids a hold that was written before a defect", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  failAfterCommit(made, () => Promise.reject(new Error("a cell cannot be read")));
  await assert.rejects(ledger.apply(hold("h1", credits(12))), /a cell cannot be read/);
  await ledger.close(5_000);
  assert.deepEqual(made.store.openHolds("ada"), []);
  assert.deepEqual(made.buckets(), whole);
});

test("voids a hold with a lost answer when the store is available again, once", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  assert.equal(made.store.openHolds("ada").length, 1);
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.deepEqual(made.store.openHolds("ada"), []);
  assert.deepEqual(made.buckets(), whole);
  assert.partialDeepStrictEqual(made.store.receipt("ada", "h1"), { ending: "refused", costMicro: 0 });
  assert.deepEqual(await journalOf(made), [...openedJournal, "charge h1"]);
});

test("the credits of a voided hold are available before the hold expires", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(15))), StoreUnavailableError);
  made.store.hooks = {};
  while (made.store.openHolds("ada").length > 0) await nextTurn();
  assert.equal((await ledger.apply(hold("h2", credits(15)))).kind, "held");
});

test("a void with a lost answer returns the credits once", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  loseAnswer(made);
  while (made.store.receipt("ada", "h1") === undefined) await nextTurn();
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.deepEqual(made.buckets(), whole);
  assert.deepEqual(await journalOf(made), [...openedJournal, "charge h1"]);
});

test("the void of a hold that was never taken changes nothing", async () => {
  const { made, ledger } = await benchWithRejectedHold(gone);
  await ledger.close(5_000);
  assert.deepEqual(await journalOf(made), openedJournal);
  assert.equal(made.store.receipt("ada", "h1"), undefined);
});

test("sends no void if the hold was certainly not taken", async () => {
  const { made, ledger } = await benchWithRejectedHold(refused);
  const commits = made.store.batches.length;
  await ledger.close(5_000);
  assert.equal(made.store.batches.length, commits);
});

test("keeps a hold that a later attempt answered", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  failAfterCommit(made, gone);
  assert.equal((await ledger.apply(hold("h1", credits(12)))).kind, "held");
  await ledger.close(5_000);
  assert.deepEqual(
    made.store.openHolds("ada").map(({ id }) => id),
    ["h1"],
  );
});

test("rejected extensions and settlements send no void", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  await ledger.apply(hold("h1", credits(5)));
  loseAnswer(made);
  const used = { promptTokens: 0, cachedTokens: 0, completionTokens: 5, reasoningTokens: 0 };
  const extend = {
    kind: "extend",
    account: "ada",
    requestId: "h1",
    n: 1,
    moreMicro: 1,
    usage: used,
    ttlMs: 60_000,
  } as const;
  await assert.rejects(ledger.apply(extend), StoreUnavailableError);
  made.store.hooks = { before: gone };
  await assert.rejects(ledger.apply(settle("h1", 1)), StoreUnavailableError);
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.equal(made.store.openHolds("ada").length, 1);
});

test("reports a hold that could not be voided before the ledger closed", async () => {
  const made = await bench(small);
  const left: string[] = [];
  const ledger = ledgerOf(made, { onHoldLeft: (id) => left.push(id) });
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  await ledger.close(20);
  assert.deepEqual(left, ["h1"]);
  assert.equal(made.store.openHolds("ada").length, 1, "it expires");
});

test("a void does not count as a late charge", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  assert.equal(ledger.late, 0);
  await ledger.close(0);
});
