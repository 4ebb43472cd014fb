/**
 * Accounts that the store puts off: others do not wait, operations keep their order, and callers
 * get an answer in time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerOptions, type LedgerStore } from "../../src/ledger/ledger.ts";
import type { Operation, TopupOperation } from "../../src/ledger/operations.ts";
import type { Decision } from "../../src/ledger/outcomes.ts";
import { startOwnTime } from "../fixtures/own-time.ts";

function topup(account: string, payment: number): TopupOperation {
  return { kind: "topup", account, payment: `${payment}`, amountMicro: 1, by: "test" };
}

/** Answers each top-up, except those on accounts that the test has locked. */
class LockedStore implements LedgerStore {
  readonly locked = new Set<string>();
  /** Payments that the store refuses to decide. */
  readonly bad = new Set<string>();
  /** Accounts and payments in the order in which they were decided. */
  readonly decided: string[] = [];
  /** Accounts of each commit, in order. */
  readonly commits: string[][] = [];
  /** While set, commits wait for it. */
  gate: Promise<void> | null = null;
  error: Error | null = null;
  /** How long each commit takes. */
  attemptMs = 0;

  async commit(operations: readonly Operation[]): Promise<Decision[]> {
    this.commits.push([...new Set(operations.map(({ account }) => account))]);
    await this.gate;
    if (this.attemptMs > 0) await sleep(this.attemptMs);
    if (this.error !== null) throw this.error;
    for (const operation of operations) {
      if ("payment" in operation && this.bad.has(operation.payment)) throw new TypeError("no such amount");
    }
    return operations.map((operation) => {
      if (this.locked.has(operation.account)) return { kind: "locked" };
      this.decided.push(`${operation.account} ${"payment" in operation ? operation.payment : ""}`);
      return { kind: "added", additionalMicro: 1, replayed: false };
    });
  }

  attemptsOn(account: string): number {
    return this.commits.filter((accounts) => accounts.length === 1 && accounts[0] === account).length;
  }
}

/** A ledger on a store in which the account `ada` is locked. */
function ledgerWithLock(options: LedgerOptions = {}) {
  const store = new LockedStore();
  store.locked.add("ada");
  return { store, ledger: new Ledger(store, options) };
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await nextTurn();
}

test("answers the other accounts of a batch while one account is locked", async () => {
  const { store, ledger } = ledgerWithLock();
  const adas = [1, 2].map((n) => ledger.apply(topup("ada", n)));
  const bobs = [1, 2].map((n) => ledger.apply(topup("bob", n)));
  await Promise.all(bobs);
  for (let n = 3; n < 20; n += 1) await ledger.apply(topup("bob", n));
  assert.ok(store.decided.every((each) => each.startsWith("bob")));
  store.locked.clear();
  await Promise.all(adas);
  assert.deepEqual(store.decided.slice(-2), ["ada 1", "ada 2"]);
});

test("keeps the order of a locked account's operations, whether they came before or after the lock was found", async () => {
  const store = new LockedStore();
  store.locked.add("ada");
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  const ledger = new Ledger(store, { batchMax: 2 });
  const answers = [1, 2, 3, 4, 5].map((n) => ledger.apply(topup("ada", n)));
  await until(() => store.commits.length === 1);
  // Waits in the commit queue when the first two are found locked.
  answers.push(ledger.apply(topup("ada", 6)));
  gate.resolve();
  await until(() => store.attemptsOn("ada") > 3);
  answers.push(ledger.apply(topup("ada", 7)));
  store.locked.clear();
  await Promise.all(answers);
  answers.push(ledger.apply(topup("ada", 8)));
  await Promise.all(answers);
  assert.deepEqual(
    store.decided,
    [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `ada ${n}`),
  );
});

test("keeps the order of a locked account's operations if it is unlocked at once", async () => {
  const { store, ledger } = ledgerWithLock({ batchMax: 2 });
  const answers = [1, 2, 3, 4, 5].map((n) => ledger.apply(topup("ada", n)));
  await until(() => store.commits.length === 1);
  // The answer to the first commit is on its way; those that wait behind it would be next.
  store.locked.clear();
  await Promise.all(answers);
  assert.deepEqual(
    store.decided,
    [1, 2, 3, 4, 5].map((n) => `ada ${n}`),
  );
});

test("commits an account with others again after a separate commit", async () => {
  const { store, ledger } = ledgerWithLock();
  const first = ledger.apply(topup("ada", 1));
  await until(() => store.attemptsOn("ada") > 1);
  store.locked.clear();
  await first;
  await ledger.idle();
  await Promise.all([ledger.apply(topup("ada", 2)), ledger.apply(topup("bob", 2))]);
  assert.deepEqual(store.commits.at(-1), ["ada", "bob"]);
});

test("rejects the operations of an account that stays locked, and answers later ones after the unlock", async () => {
  const { store, ledger } = ledgerWithLock({ giveUpMs: 30 });
  const answers = await Promise.allSettled([1, 2].map((n) => ledger.apply(topup("ada", n))));
  for (const answer of answers) {
    assert.ok(answer.status === "rejected" && answer.reason instanceof StoreUnavailableError);
    assert.match(answer.reason.message, /locked a row of account ada/);
  }
  store.locked.clear();
  await ledger.apply(topup("ada", 3));
  assert.deepEqual(store.decided, ["ada 3"]);
});

test("keeps the order of a locked account's operations after a defect in another one", async () => {
  const store = new LockedStore();
  store.locked.add("ada");
  store.bad.add("13");
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  const ledger = new Ledger(store);
  const bad = assert.rejects(ledger.apply(topup("bob", 13)), TypeError);
  const answers = [1, 2, 3].map((n) => ledger.apply(topup("ada", n)));
  await until(() => store.commits.length === 1);
  // Waits in the commit queue while those before it are committed one by one.
  answers.push(ledger.apply(topup("ada", 4)));
  gate.resolve();
  await bad;
  await until(() => store.attemptsOn("ada") > 3);
  store.locked.clear();
  await Promise.all(answers);
  assert.deepEqual(
    store.decided,
    [1, 2, 3, 4].map((n) => `ada ${n}`),
  );
});

test("rejects all waiting operations of a locked account in time", async () => {
  const { ledger } = ledgerWithLock({ batchMax: 2, giveUpMs: 200 });
  const passedMs = startOwnTime();
  const answers = Array.from({ length: 40 }, (_, n) =>
    assert.rejects(ledger.apply(topup("ada", n)), StoreUnavailableError),
  );
  await Promise.all(answers);
  // One pause longer than its limit; 20 batches one after another would take 20 limits.
  const tookMs = passedMs();
  assert.ok(tookMs < 2000, `the last one was rejected after ${tookMs} ms`);
});

test("rejects the operations of many locked accounts in time if the store stops answering", async () => {
  const store = new LockedStore();
  const ledger = new Ledger(store, { giveUpMs: 200 });
  const accounts = Array.from({ length: 40 }, (_, n) => `account-${n}`);
  for (const account of accounts) store.locked.add(account);
  const answers = accounts.map((account) =>
    assert.rejects(ledger.apply(topup(account, 1)), StoreUnavailableError),
  );
  // A process that stood still has rejected them.
  let isOver = false;
  void Promise.all(answers).then(() => {
    isOver = true;
  });
  await until(() => store.commits.length > accounts.length || isOver);
  store.attemptMs = 100;
  store.error = new StoreUnavailableError("the server is gone");
  const passedMs = startOwnTime();
  await Promise.all(answers);
  // An attempt for each of the accounts would take 4 s, and 8 s for all to be rejected.
  const tookMs = passedMs();
  assert.ok(tookMs < 2000, `the last one was rejected after ${tookMs} ms`);
});

test("the wait for a locked account began with that for the store", async () => {
  const { store, ledger } = ledgerWithLock({ giveUpMs: 300 });
  store.attemptMs = 400;
  await assert.rejects(ledger.apply(topup("ada", 1)), StoreUnavailableError);
  assert.equal(store.commits.length, 2, "once with others, and once alone");
});

test("pauses between attempts on a locked account", async () => {
  const { store, ledger } = ledgerWithLock({ giveUpMs: 300 });
  await assert.rejects(ledger.apply(topup("ada", 1)), StoreUnavailableError);
  // 10 ms, and twice as long each time.
  assert.ok(store.commits.length <= 10, `${store.commits.length} attempts in 300 ms`);
});

test("rejects only the operation with a defect, of all operations of a locked account", async () => {
  const { store, ledger } = ledgerWithLock();
  const answers = [1, 2, 3].map((n) => ledger.apply(topup("ada", n)));
  await until(() => store.attemptsOn("ada") > 1);
  store.bad.add("2");
  store.locked.clear();
  const settled = await Promise.allSettled(answers);
  assert.deepEqual(
    settled.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
});

test("repeats a locked account's operations after the store was unavailable", async () => {
  const { store, ledger } = ledgerWithLock();
  const answer = ledger.apply(topup("ada", 1));
  await until(() => store.attemptsOn("ada") > 1);
  store.error = new StoreUnavailableError("the server is gone");
  const asked = store.commits.length;
  await until(() => store.commits.length > asked + 1);
  store.error = null;
  store.locked.clear();
  assert.equal((await answer).kind, "added");
});

test("close rejects the waiting operations of a locked account", async () => {
  const { store, ledger } = ledgerWithLock({ giveUpMs: 3_600_000 });
  const refused = assert.rejects(ledger.apply(topup("ada", 1)), StoreUnavailableError);
  await until(() => store.attemptsOn("ada") > 1);
  await ledger.close(20);
  await refused;
});
