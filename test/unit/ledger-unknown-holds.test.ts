/** Holds of which nobody knows whether they were taken: they are given back as soon as the store answers, and no other is. */
import assert from "node:assert/strict";
import { test as testOf } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.ts";
import { StoreUnavailableError } from "../../src/ledger/retry.ts";
import { audit } from "../fixtures/ledger-audit.ts";
import { type Bench, bench, credits, hold, planOf, settle } from "../fixtures/ledger-rows.ts";

const small = planOf("small", 10, 5);
const whole = [credits(10), credits(5), 0];

function test(name: string, run: () => Promise<void>): void {
  testOf(name, { timeout: 10_000 }, run);
}

const gone = () => Promise.reject(new StoreUnavailableError("the server is gone"));
const refused = () => Promise.reject(new StoreUnavailableError("the disk is full", { mayBeDone: false }));

/** The next commit is written and its answer is lost; from then on the store is away. */
function loseAnswer({ store }: Bench): void {
  store.hooks = {
    after: () => {
      store.hooks = { before: refused };
      return gone();
    },
  };
}

function ledgerOf({ store }: Bench, options: LedgerOptions = {}): Ledger {
  return new Ledger(store, { retriesMs: [0], latePauseMs: 1, ...options });
}

test("a hold whose answer was lost is given back when the store is back, once", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  assert.equal(made.store.openHolds("ada").length, 1);
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.deepEqual(made.store.openHolds("ada"), []);
  assert.deepEqual(made.buckets(), whole);
  assert.partialDeepStrictEqual(made.store.receipt("ada", "h1"), { ending: "refused", cost: 0 });
  const journal = await made.store.journal("ada", { limit: 10 });
  assert.deepEqual(
    journal.map(({ kind }) => kind),
    ["open", "hold", "void"],
  );
  await audit(made.store);
});

test("the credits are free for others before the hold would have expired", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(15))), StoreUnavailableError);
  made.store.hooks = {};
  while (made.store.openHolds("ada").length > 0) await nextTurn();
  assert.equal((await ledger.apply(hold("h2", credits(15)))).kind, "held");
});

test("an answer to giving back that is lost too gives back once", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  loseAnswer(made);
  while (made.store.receipt("ada", "h1") === undefined) await nextTurn();
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.deepEqual(made.buckets(), whole);
  assert.equal(made.store.account("ada").seq, 3);
  await audit(made.store);
});

test("a hold that was never taken leaves no trace", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  made.store.hooks = { before: gone };
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.equal(made.store.account("ada").seq, 1);
  assert.equal(made.store.receipt("ada", "h1"), undefined);
});

test("nothing is given back if it is known that nothing was taken", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  made.store.hooks = { before: refused };
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  made.store.hooks = {};
  const commits = made.store.batches.length;
  await ledger.close(5_000);
  assert.equal(made.store.batches.length, commits);
});

test("a hold whose answer came with a later attempt is kept", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  made.store.hooks = {
    after: () => {
      made.store.hooks = {};
      return gone();
    },
  };
  assert.equal((await ledger.apply(hold("h1", credits(12)))).kind, "held");
  await ledger.close(5_000);
  assert.deepEqual(
    made.store.openHolds("ada").map(({ id }) => id),
    ["h1"],
  );
});

test("an extension or a settlement that is rejected voids nothing", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  await ledger.apply(hold("h1", credits(5)));
  loseAnswer(made);
  const used = { promptTokens: 0, cachedTokens: 0, completionTokens: 5, reasoningTokens: 0 };
  const extend = { kind: "extend", account: "ada", hold: "h1", n: 1, more: 1, used, ttlMs: 60_000 } as const;
  await assert.rejects(ledger.apply(extend), StoreUnavailableError);
  made.store.hooks = { before: gone };
  await assert.rejects(ledger.apply(settle("h1", 1)), StoreUnavailableError);
  made.store.hooks = {};
  await ledger.close(5_000);
  assert.equal(made.store.openHolds("ada").length, 1);
});

test("a hold that cannot be given back before the ledger is closed is reported", async () => {
  const made = await bench(small);
  const left: string[] = [];
  const ledger = ledgerOf(made, { onHoldLeft: (id) => left.push(id) });
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  await ledger.close(20);
  assert.deepEqual(left, ["h1"]);
  assert.equal(made.store.openHolds("ada").length, 1, "it expires");
});

test("a hold that is being given back is no charge that waits for the store", async () => {
  const made = await bench(small);
  const ledger = ledgerOf(made);
  loseAnswer(made);
  await assert.rejects(ledger.apply(hold("h1", credits(12))), StoreUnavailableError);
  assert.equal(ledger.late, 0);
  await ledger.close(0);
});
