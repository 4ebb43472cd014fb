/** The ledger: batches, their order, and failures of the store. */
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerStore } from "../../src/ledger/ledger.ts";
import type { Operation, TopupOperation } from "../../src/ledger/operations.ts";
import type { Outcome } from "../../src/ledger/outcomes.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";

function topup(payment: string, account = "ada"): TopupOperation {
  return { kind: "topup", account, payment, amountMicro: 1, by: "test" };
}

const unavailable = () => new StoreUnavailableError("the disk is full");

/**
 * A store that answers each top-up with the number of its payment, in commits that the test lets
 * through.
 */
class FakeStore implements LedgerStore {
  readonly batches: string[][] = [];
  /** Errors of the next commits; null for success. */
  readonly failures: (unknown | null)[] = [];
  /** While set, commits wait for it. */
  gate: Promise<void> | null = null;
  running = 0;

  async commit(operations: readonly Operation[]): Promise<Outcome[]> {
    this.running += 1;
    assert.equal(this.running, 1, "one commit at a time");
    this.batches.push(operations.map((operation) => ("payment" in operation ? operation.payment : "")));
    await this.gate;
    this.running -= 1;
    const failure = this.failures.shift() ?? null;
    if (failure !== null) throw failure;
    return operations.map((operation) => {
      const additional = "payment" in operation ? Number(operation.payment) : 0;
      return { kind: "added", additionalMicro: additional, replayed: false };
    });
  }
}

const noPauses = { retriesMs: [0, 0] };

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n);
}

test("operations of the same turn share a commit, and each gets its own outcome (llmgateway#2656)", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store);
  const outcomes = await Promise.all(numbers(50).map((n) => ledger.apply(topup(`${n}`))));
  assert.equal(store.batches.length, 1);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind === "added" && outcome.additionalMicro),
    numbers(50),
  );
});

async function turns(): Promise<void> {
  for (let n = 0; n < 4; n += 1) await nextTurn();
}

/** Waits until the store has been sent so many batches. */
async function sent(store: FakeStore, batches: number): Promise<void> {
  while (store.batches.length < batches) await nextTurn();
}

test("operations share a commit while the event loop has work, for some milliseconds at most", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store);
  const outcomes: Promise<unknown>[] = [];
  // About 40 operations in 4 ms. A batch has fewer if other processes interrupt this one.
  const largest = () => Math.max(0, ...store.batches.map((batch) => batch.length));
  while (store.batches.length < 10 || (largest() <= 5 && store.batches.length < 1000)) {
    outcomes.push(ledger.apply(topup(`${outcomes.length}`)));
    const workMs = performance.now() + 0.1;
    while (performance.now() < workMs);
    await nextTurn();
  }
  assert.ok(largest() > 5 && largest() <= 45, `the largest commit had ${largest()} operations`);
  await Promise.all(outcomes);
});

test("operations that arrive during a commit share the next commit", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store);
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  const first = ledger.apply(topup("0"));
  await sent(store, 1);
  const rest = [1, 2, 3].map((n) => ledger.apply(topup(`${n}`)));
  gate.resolve();
  await Promise.all([first, ...rest]);
  assert.deepEqual(store.batches, [["0"], ["1", "2", "3"]]);
});

test("accounts in different commit queues do not wait for each other, and each keeps its order", async () => {
  const gates = new Map<string, PromiseWithResolvers<void>>([
    ["ada", Promise.withResolvers()],
    ["bob", Promise.withResolvers()],
  ]);
  const committed: string[] = [];
  const store: LedgerStore = {
    commitQueues: 2,
    async commit(operations) {
      for (const account of new Set(operations.map((operation) => operation.account)))
        await gates.get(account)?.promise;
      committed.push(...operations.map((each) => `${each.account} ${"payment" in each ? each.payment : ""}`));
      return operations.map(() => ({ kind: "added", additionalMicro: 1, replayed: false }));
    },
  };
  const ledger = new Ledger(store, { batchMax: 2 });
  const adas = ["1", "2", "3"].map((payment) => ledger.apply(topup(payment, "ada")));
  const bobs = ["1", "2", "3"].map((payment) => ledger.apply(topup(payment, "bob")));
  gates.get("bob")?.resolve();
  await Promise.all(bobs);
  assert.deepEqual(committed, ["bob 1", "bob 2", "bob 3"]);
  gates.get("ada")?.resolve();
  await ledger.idle();
  assert.deepEqual(committed.slice(3), ["ada 1", "ada 2", "ada 3"]);
  await Promise.all(adas);
});

test("limits the operations of a commit and keeps their order", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store, { batchMax: 4 });
  await Promise.all(numbers(10).map((n) => ledger.apply(topup(`${n}`))));
  assert.deepEqual(store.batches, [
    ["0", "1", "2", "3"],
    ["4", "5", "6", "7"],
    ["8", "9"],
  ]);
});

test("commits an operation that is sent when another is answered", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store);
  await ledger.apply(topup("1")).then(() => ledger.apply(topup("2")));
  assert.deepEqual(store.batches, [["1"], ["2"]]);
});

test("settled() waits for every operation", async () => {
  const ledger = new Ledger(new FakeStore(), { batchMax: 1 });
  let answered = 0;
  for (const n of numbers(5)) void ledger.apply(topup(`${n}`)).then(() => (answered += 1));
  await ledger.idle();
  assert.equal(answered, 5);
  await ledger.idle();
});

test("repeats a commit if the store is unavailable for a moment", async () => {
  const store = new FakeStore();
  store.failures.push(unavailable(), unavailable());
  const ledger = new Ledger(store, noPauses);
  const outcomes = await Promise.all([ledger.apply(topup("1")), ledger.apply(topup("2"))]);
  assert.equal(outcomes.length, 2);
  assert.deepEqual(store.batches, [
    ["1", "2"],
    ["1", "2"],
    ["1", "2"],
  ]);
});

test("repeats late operations until the store takes them, and close waits for them", async () => {
  const store = new FakeStore();
  store.failures.push(unavailable(), unavailable(), unavailable());
  const ledger = new Ledger(store, { retriesMs: [], latePauseMs: 1 });
  const outcome = ledger.applyLate(topup("7"));
  assert.equal(ledger.late, 1);
  await ledger.close(10_000);
  assert.deepEqual(await outcome, { kind: "added", additionalMicro: 7, replayed: false });
  assert.equal(ledger.late, 0);
  assert.equal(store.batches.length, 4);
});

test("gives up late operations after a defect, or after the grace period of close", async () => {
  const store = new FakeStore();
  const ledger = new Ledger(store, { retriesMs: [], latePauseMs: 1 });
  store.failures.push(unavailable(), new Error("eaten by a moth"));
  await assert.rejects(ledger.applyLate(topup("1")), /moth/);
  store.commit = () => Promise.reject(unavailable());
  const givenUp = assert.rejects(ledger.applyLate(topup("2")), { name: "AbortError" });
  await ledger.close(20);
  await givenUp;
  assert.equal(ledger.late, 0);
});

test("pauses between attempts as configured", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const store = new FakeStore();
  store.failures.push(unavailable(), unavailable());
  const ledger = new Ledger(store, { retriesMs: [10, 50] });
  const answer = ledger.apply(topup("1"));
  await sent(store, 1);
  assert.equal(store.batches.length, 1);
  t.mock.timers.tick(9);
  await turns();
  assert.equal(store.batches.length, 1);
  t.mock.timers.tick(1);
  await turns();
  assert.equal(store.batches.length, 2);
  t.mock.timers.tick(50);
  assert.equal((await answer).kind, "added");
});

test("makes no further attempt after the time limit", async () => {
  let attempts = 0;
  const store: LedgerStore = {
    async commit() {
      attempts += 1;
      // As long as a lock is waited for.
      await new Promise((resolve) => setTimeout(resolve, 30));
      throw unavailable();
    },
  };
  const ledger = new Ledger(store, { retriesMs: [0, 0, 0, 0], giveUpMs: 20 });
  await assert.rejects(ledger.apply(topup("1")), StoreUnavailableError);
  assert.equal(attempts, 1);
});

test("an operation that waits behind a commit that fails is rejected as soon as if it came first", async (t) => {
  let nowMs = 0;
  t.mock.method(performance, "now", () => nowMs);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const attempts: number[] = [];
  const store: LedgerStore = {
    async commit() {
      attempts.push(nowMs);
      throw unavailable();
    },
  };
  const ledger = new Ledger(store, { retriesMs: [100, 200, 400, 800], giveUpMs: 1000 });
  const rejected: string[] = [];
  const comingAt = [0, 20, 900, 1500];
  for (; rejected.length < comingAt.length && nowMs <= 10_000; nowMs += 10) {
    t.mock.timers.tick(10);
    if (comingAt.includes(nowMs)) {
      const cameMs = nowMs;
      ledger.apply(topup(`${cameMs}`)).catch(() => rejected.push(`${cameMs} at ${nowMs}`));
    }
    await turns();
  }
  assert.deepEqual(rejected, ["0 at 1000", "20 at 1020", "900 at 1020", "1500 at 2500"]);
  const further = [1500, 1600, 1800, 2200, 2500];
  assert.deepEqual(attempts, [0, 100, 300, 700, 1000, 1000, 1020, ...further]);
});

test("rejects every operation of a batch after one round of attempts if the store stays unavailable", async () => {
  const store = new FakeStore();
  store.failures.push(unavailable(), unavailable(), unavailable());
  const ledger = new Ledger(store, noPauses);
  const answers = await Promise.allSettled(numbers(20).map((n) => ledger.apply(topup(`${n}`))));
  assert.ok(answers.every((answer) => answer.status === "rejected"));
  for (const answer of answers) {
    assert.ok(answer.status === "rejected" && answer.reason instanceof StoreUnavailableError);
  }
  assert.equal(store.batches.length, 3);
  assert.equal((await ledger.apply(topup("1"))).kind, "added", "and it works again when the store does");
});

test("a defect in one operation does not affect the others", async () => {
  const made = await bench(planOf("small", 10, 5));
  const ledger = new Ledger(made.store, noPauses);
  const bad = { ...topup("bad"), amountMicro: 0.5 };
  const [first, second, third] = await Promise.allSettled([
    ledger.apply(topup("1")),
    ledger.apply(bad),
    ledger.apply(topup("2")),
  ]);
  assert.equal(first.status, "fulfilled");
  assert.equal(second.status, "rejected");
  assert.equal(third.status, "fulfilled");
  assert.equal(made.buckets()[2], 2);
});

test("waits once for a store that becomes unavailable while operations are committed one by one", async () => {
  const store = new FakeStore();
  const defect = () => new TypeError("undefined is no function");
  store.failures.push(defect(), defect(), null);
  for (let n = 0; n < 60; n += 1) store.failures.push(unavailable());
  const ledger = new Ledger(store, { ...noPauses, giveUpMs: 20 });
  const answers = await Promise.allSettled(numbers(20).map((n) => ledger.apply(topup(`${n}`))));
  assert.equal(answers[0]?.status, "fulfilled");
  for (const answer of answers.slice(1)) {
    assert.ok(answer.status === "rejected" && answer.reason instanceof StoreUnavailableError);
  }
  // All operations twice, the first alone, and the others together.
  assert.deepEqual(
    store.batches.slice(0, 4).map(({ length }) => length),
    [20, 20, 1, 19],
  );
  assert.ok(store.batches.length < 20, `${store.batches.length} attempts`);
});

test("does not repeat a commit after a defect", async () => {
  const store = new FakeStore();
  store.failures.push(new TypeError("undefined is no function"));
  await assert.rejects(new Ledger(store, noPauses).apply(topup("1")), TypeError);
  assert.equal(store.batches.length, 1);
});

test("rejects operations for which the store returns no decision", async () => {
  const ledger = new Ledger({ commit: async () => [{ kind: "added", additionalMicro: 1, replayed: false }] });
  const [first, second] = await Promise.allSettled([ledger.apply(topup("1")), ledger.apply(topup("2"))]);
  assert.equal(first.status, "fulfilled");
  assert.match(String(second.status === "rejected" && second.reason), /fewer operations/);
});

test("handles a store that throws synchronously", async () => {
  const ledger = new Ledger({
    commit() {
      throw new TypeError("no promise at all");
    },
  });
  await assert.rejects(ledger.apply(topup("1")), TypeError);
  await assert.rejects(ledger.apply(topup("1")), TypeError);
});

test("a lost acknowledgement does not charge twice (sample-agentic-ai-acceleration-kr#79)", async () => {
  const made = await bench(planOf("small", 10, 5));
  const ledger = new Ledger(made.store, noPauses);
  const lose = mock.fn(() => {
    if (lose.mock.callCount() < 2) throw unavailable();
  });
  for (const operation of [hold("h", credits(4)), topup("p"), settle("h", credits(3))]) {
    lose.mock.resetCalls();
    made.store.hooks = { after: lose };
    const outcome = await ledger.apply(operation);
    assert.ok(outcome.kind === "held" || outcome.kind === "added" || outcome.kind === "settled");
  }
  assert.deepEqual(made.buckets(), [credits(7), credits(5), 1]);
});
