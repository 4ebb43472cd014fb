/** Slices: a long answer holds only the credits that it needs next, and does not wait for them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Catalog } from "../../src/chat/catalog.ts";
import { type AnswerEvent, type Charge, generate } from "../../src/chat/generate.ts";
import { Refusal, StoreUnavailableError } from "../../src/errors.ts";
import { byBucket, sumOf } from "../../src/ledger/grants.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { eventsOf } from "../fixtures/batches.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { PuppetEngine, type PuppetGeneration } from "../fixtures/puppet-engine.ts";
import { until } from "../fixtures/until.ts";

const price = { prompt: 10, completion: 30 };
/** The puppet's prompt has ten tokens. */
const promptCost = 100;
const sliceTokens = 256;
const broke = planOf("broke", 0, 0);

interface Setup extends Bench {
  engine: PuppetEngine;
  receipts: Charge[];
  begin(requestId: string): Promise<{ generation: PuppetGeneration; rest: Promise<AnswerEvent[]> }>;
}

/** An account with `micro` bought micro-credits and nothing else. */
async function setup(micro: number, stream = true): Promise<Setup> {
  const made = await bench(broke);
  await made.apply({ kind: "topup", account: "ada", payment: "p", amountMicro: micro, by: "test" });
  const engine = new PuppetEngine();
  engine.contextWindow = 5000;
  const receipts: Charge[] = [];
  const dependencies = {
    catalog: new Catalog([{ id: "model", engine, price, outputTokensMax: null, created: 0 }]),
    ledger: new Ledger(made.store, { retriesMs: [], batchDelayMs: 0 }),
    holdTtlMs: 60_000,
  };
  const caller = { accountId: "ada", plan: broke, key: keyOf("key", "ada") };
  const request = { model: "model", messages: [], sampling: { stop: [] }, reasoning: {}, stream };
  return {
    ...made,
    engine,
    receipts,
    async begin(requestId) {
      const record = {
        requestId,
        model: null,
        work: null,
        charged: (charge: Charge) => receipts.push(charge),
        unsettled: (reason: unknown) => assert.fail(String(reason)),
      };
      const events = eventsOf(generate(dependencies, caller, request, record, new AbortController().signal));
      await events.next();
      const generation = engine.last;
      generation.begin();
      return { generation, rest: collect(events) };
    },
  };
}

async function collect(events: AsyncIterable<AnswerEvent>): Promise<AnswerEvent[]> {
  const all: AnswerEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

/** Long enough for what was asked of the store to be answered. */
async function settleDown(): Promise<void> {
  for (let n = 0; n < 20; n += 1) await new Promise(setImmediate);
}

function think(generation: PuppetGeneration, tokens: number): void {
  for (let n = 0; n < tokens; n += 1) generation.token();
}

function heldBy({ store }: Setup): number {
  return store.openHolds("ada").reduce((sum, hold) => sum + sumOf(byBucket(hold.takings)), 0);
}

test("a request holds its prompt and one slice, for any maximum length of the answer", async () => {
  const made = await setup(1_000_000);
  const { generation, rest } = await made.begin("r1");
  assert.equal(heldBy(made), promptCost + sliceTokens * 30);
  assert.equal(generation.options.maxTokens, 4990);
  assert.equal(generation.options.paidTokens, sliceTokens);
  generation.end("stop");
  await rest;
  assert.equal(heldBy(made), 0);
});

test("holds the whole answer if the engine reports usage late", async () => {
  const made = await setup(1_000_000);
  made.engine.reportsUsageLate = true;
  const { generation, rest } = await made.begin("r1");
  assert.equal(heldBy(made), promptCost + 4990 * 30);
  assert.deepEqual([generation.options.maxTokens, generation.options.paidTokens], [4990, 4990]);
  think(generation, 4990);
  generation.end("length");
  await rest;
  assert.equal(generation.paid.length, 0);
  assert.deepEqual(
    [made.receipts[0]?.costMicro, made.receipts[0]?.shortfallMicro],
    [promptCost + 4990 * 30, 0],
  );
});

test("asks such an engine for the tokens that the balance buys", async () => {
  const made = await setup(promptCost + 300 * 30 + 29);
  made.engine.reportsUsageLate = true;
  const { generation, rest } = await made.begin("r1");
  assert.deepEqual([generation.options.maxTokens, generation.options.paidTokens], [300, 300]);
  think(generation, 300);
  generation.end("length");
  await rest;
  const [receipt] = made.receipts;
  assert.deepEqual(
    [receipt?.ending, receipt?.costMicro, receipt?.shortfallMicro],
    ["credits", promptCost + 9000, 0],
  );
});

test("many requests run at once if the balance pays for their slices (litellm#38647)", async () => {
  // Ten windows of 5,000 tokens would cost 1,498,000.
  const made = await setup(100_000);
  const requests = [];
  for (let n = 0; n < 10; n += 1) requests.push(await made.begin(`r${n}`));
  for (const { generation, rest } of requests) {
    generation.token("x");
    generation.end("stop");
    await rest;
  }
  assert.equal(made.receipts.length, 10);
});

test("requests the next slice when half of the last is left, and informs the decoder", async () => {
  const made = await setup(1_000_000);
  const { generation, rest } = await made.begin("r1");
  think(generation, sliceTokens / 2 - 1);
  await settleDown();
  assert.deepEqual(generation.paid, []);
  think(generation, 1);
  await settleDown();
  assert.deepEqual(generation.paid, [{ paidTokens: 2 * sliceTokens, isLast: false }]);
  assert.equal(heldBy(made), promptCost + 2 * sliceTokens * 30);
  const checkpoint = made.store.openHolds("ada")[0]?.completionTokens;
  assert.equal(checkpoint, sliceTokens / 2, "each slice is a checkpoint");
  think(generation, 3 * sliceTokens);
  generation.end("stop");
  await rest;
  assert.equal(made.receipts[0]?.costMicro, promptCost + 3.5 * sliceTokens * 30);
});

test("the last slice is the rest of the balance, and the answer ends there with length", async () => {
  const made = await setup(promptCost + 300 * 30 + 29);
  const { generation, rest } = await made.begin("r1");
  think(generation, 200);
  await settleDown();
  assert.deepEqual(generation.paid, [{ paidTokens: 300, isLast: true }]);
  think(generation, 100);
  generation.end("length");
  const last = (await rest).at(-1);
  assert.equal(last?.type === "end" && last.finishReason, "length");
  assert.equal(made.receipts[0]?.ending, "credits");
  assert.deepEqual(made.buckets(), [0, 0, 29]);
});

test("an answer ends with its last slice if no further slice is granted", async () => {
  const made = await setup(promptCost + sliceTokens * 30);
  const { generation, rest } = await made.begin("r1");
  think(generation, 200);
  await settleDown();
  assert.deepEqual(generation.paid, [{ paidTokens: sliceTokens, isLast: true }]);
  think(generation, 56);
  generation.end("length");
  await rest;
  assert.equal(made.receipts[0]?.ending, "credits");
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

test("a balance below a slice is known as the end before the first token", async () => {
  const made = await setup(promptCost + 7 * 30);
  const { generation, rest } = await made.begin("r1");
  assert.equal(generation.options.maxTokens, 7);
  think(generation, 7);
  generation.end("length");
  await rest;
  assert.equal(made.receipts[0]?.ending, "credits");
  assert.deepEqual(generation.paid, []);
});

test("repeats an extension after an error of the store, and the answer continues", async () => {
  const made = await setup(1_000_000);
  const { generation, rest } = await made.begin("r1");
  let failures = 0;
  made.store.hooks = {
    before: () => {
      failures += 1;
      made.store.hooks = {};
      return Promise.reject(new StoreUnavailableError("busy"));
    },
  };
  think(generation, 200);
  while (generation.paid.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(failures, 1);
  assert.deepEqual(generation.paid, [{ paidTokens: 2 * sliceTokens, isLast: false }]);
  generation.end("stop");
  await rest;
  assert.equal(made.receipts[0]?.costMicro, promptCost + 200 * 30);
});

test("an answer that is longer than its extension is charged in full after a lost answer of the store", async () => {
  const made = await setup(50_000);
  const { generation, rest } = await made.begin("r1");
  made.store.hooks = { after: () => Promise.reject(new StoreUnavailableError("the connection is cut")) };
  think(generation, 700);
  await until("an extension", () => made.store.batches.flat().some(({ kind }) => kind === "extend"));
  made.store.hooks = {};
  generation.end("stop");
  await rest;
  assert.deepEqual(
    made.receipts.map(({ costMicro }) => costMicro),
    [promptCost + 700 * 30],
  );
});

test("an answer whose last extension fails by a defect is settled with what it holds", async () => {
  const made = await setup(1_000_000);
  const { generation, rest } = await made.begin("r1");
  made.store.hooks = {
    before: (operations) => {
      if (operations.some(({ kind }) => kind === "extend")) throw new TypeError("a defect");
    },
  };
  think(generation, sliceTokens + 9);
  generation.end("stop");
  assert.equal((await rest).at(-1)?.type, "end");
  assert.deepEqual(
    made.receipts.map(({ costMicro }) => costMicro),
    [promptCost + sliceTokens * 30],
  );
  assert.deepEqual(made.store.openHolds("ada"), []);
});

test("an answer waits for the credits that another answer holds, and continues with what it gives back", async () => {
  const made = await setup(2 * promptCost + 1.5 * sliceTokens * 30);
  const first = await made.begin("r1");
  const second = await made.begin("r2");
  think(second.generation, 100);
  await settleDown();
  assert.deepEqual(second.generation.paid, []);
  think(first.generation, 50);
  first.generation.end("stop");
  await first.rest;
  await until("the second answer is extended", () => second.generation.paid.length > 0);
  assert.deepEqual(second.generation.paid, [{ paidTokens: 128 + 206, isLast: true }]);
  think(second.generation, 234);
  second.generation.end("length");
  await second.rest;
  assert.deepEqual(
    made.receipts.map(({ ending }) => ending),
    ["stop", "credits"],
  );
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

/** An account with enough credits, whose key may spend so many micro-credits in an hour. */
async function capped(micro: number): Promise<Setup> {
  const made = await setup(1_000_000);
  const set = { caps: [{ amountMicro: micro, every: "PT1H", byOperator: true }] };
  await made.apply({ kind: "key", account: "ada", key: "key", op: "cap", set, by: "test" });
  return made;
}

test("an answer that a cap stops waits for what another answer gives back to the cap, and goes on", async () => {
  const capMicro = 2 * promptCost + 1.5 * sliceTokens * 30;
  const made = await capped(capMicro);
  const first = await made.begin("r1");
  const second = await made.begin("r2");
  think(second.generation, 128);
  await settleDown();
  assert.deepEqual(second.generation.paid, [], "it has what is left, and neither more nor an end");
  think(first.generation, 50);
  first.generation.end("stop");
  await first.rest;
  await until("the second answer is extended", () => second.generation.paid.length > 0);
  assert.deepEqual(second.generation.paid, [{ paidTokens: 128 + 206, isLast: true }]);
  think(second.generation, 206);
  second.generation.end("length");
  await second.rest;
  assert.deepEqual(
    made.receipts.map(({ ending }) => ending),
    ["stop", "cap"],
  );
  assert.equal(made.store.key("key").counters[0]?.spentMicro, capMicro);
  assert.deepEqual(made.buckets(), [0, 0, 1_000_000 - capMicro]);
});

test("an answer that a cap stops goes on in the next window of the cap", async () => {
  const capMicro = 3 * promptCost + 2 * sliceTokens * 30;
  const made = await capped(capMicro);
  const spending = await made.begin("r1");
  think(spending.generation, 128);
  spending.generation.end("stop");
  await spending.rest;
  // The hour ends while the other two run.
  made.clock.nowMs += 3_590_000;
  const other = await made.begin("r2");
  const paused = await made.begin("r3");
  think(paused.generation, 128);
  await settleDown();
  assert.deepEqual(paused.generation.paid, []);
  made.clock.nowMs += 20_000;
  await until("the answer is extended", () => paused.generation.paid.length > 0);
  const paidTokens = 256 + Math.floor(promptCost / 30);
  assert.deepEqual(paused.generation.paid, [{ paidTokens, isLast: false }], "the other may give back more");
  paused.generation.end("stop");
  other.generation.end("stop");
  await Promise.all([paused.rest, other.rest]);
  assert.equal(made.store.key("key").counters[0]?.spentMicro, 2 * promptCost + 128 * 30, "of the new window");
});

test("an answer ends without a wait once the others have used what they hold", async () => {
  const made = await setup(2 * promptCost + 1.5 * sliceTokens * 30);
  const first = await made.begin("r1");
  const second = await made.begin("r2");
  think(first.generation, 256);
  think(second.generation, 128);
  await until("both know their end", () => [first, second].every((one) => one.generation.paid.length > 0));
  assert.deepEqual(first.generation.paid, [{ paidTokens: 256, isLast: true }]);
  assert.deepEqual(second.generation.paid, [{ paidTokens: 128, isLast: true }]);
  for (const { generation, rest } of [first, second]) {
    generation.end("length");
    await rest;
  }
  assert.deepEqual(made.buckets(), [0, 0, 0]);
});

for (const [to, words] of [
  [{ kind: "suspend" }, /This account is suspended/],
  [{ kind: "close" }, /This account is closed/],
] as const) {
  test(`an account that is ${to.kind}ed pays for what is held, and no further slice`, async () => {
    const made = await setup(1_000_000);
    const { generation, rest } = await made.begin("r1");
    const refused = assert.rejects(rest, (error) => {
      assert.ok(error instanceof Refusal && words.test(error.message));
      assert.equal(error.code, "account_suspended");
      return true;
    });
    await made.apply({ kind: "state", account: "ada", op: "s", to, by: "ann" });
    think(generation, sliceTokens / 2);
    await until("the engine knows the end of the held slice", () => generation.paid.length === 1);
    assert.deepEqual(generation.paid, [{ paidTokens: sliceTokens, isLast: true }]);
    think(generation, sliceTokens / 2);
    generation.end("length");
    await refused;
    const [receipt] = made.receipts;
    assert.deepEqual(
      [receipt?.ending, receipt?.usage.completionTokens, receipt?.costMicro, receipt?.shortfallMicro],
      ["stopped", sliceTokens, promptCost + sliceTokens * 30, 0],
    );
    assert.equal(heldBy(made), 0);
  });
}

test("an answer that ends by itself within what is held is whole, whatever the account is now", async () => {
  const made = await setup(1_000_000);
  const { generation, rest } = await made.begin("r1");
  await made.apply({ kind: "state", account: "ada", op: "s", to: { kind: "close" }, by: "ann" });
  think(generation, sliceTokens - 1);
  await settleDown();
  generation.end("stop");
  const end = (await rest).at(-1);
  assert.equal(end?.type === "end" && end.finishReason, "stop");
  assert.equal(made.receipts[0]?.ending, "stop");
});

test("a whole answer of an account that is suspended is delivered as far as it was paid for", async () => {
  const made = await setup(1_000_000, false);
  const { generation, rest } = await made.begin("r1");
  await made.apply({ kind: "state", account: "ada", op: "s", to: { kind: "suspend" }, by: "ann" });
  think(generation, sliceTokens / 2);
  await until("the engine knows the end of the held slice", () => generation.paid.length === 1);
  think(generation, sliceTokens / 2);
  generation.end("length");
  const end = (await rest).at(-1);
  assert.equal(end?.type === "end" && end.finishReason, "length");
  const [receipt] = made.receipts;
  assert.deepEqual([receipt?.ending, receipt?.usage.completionTokens], ["stopped", sliceTokens]);
});
