/** The ledger with its batcher, on every store. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Outcome } from "../../src/ledger/outcomes.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle, settledBy } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { isThorough } from "../fixtures/thorough.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";

const plans = plansOf(
  planOf("starter", 1, 0),
  planOf("small", 20, 10, { limits: { requestsPerMinute: 12, tokensPerMinute: 600, concurrent: 6 } }),
  planOf("large", 60, 5, { base: { credits: 60, every: "PT5H", align: "opening" } }),
);

function hashOf(n: number): string {
  return n.toString(16).padStart(64, "0");
}

async function prepare(store: Store, plan: string): Promise<void> {
  await store.commit([{ kind: "open", account: "ada", plan, by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: hashOf(1) }));
}

/** 200 requests at once. Each holds a fiftieth of the account's credits. */
const requests = 200;
const paid = 50;
const each = credits(1) / paid;

function idsOf(outcomes: readonly Outcome[], kind: Outcome["kind"]): string[] {
  return outcomes.flatMap((outcome, n) => (outcome.kind === kind ? [`h${n}`] : []));
}

for (const backend of backends) {
  describe(`the ledger on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    const databases: Database[] = [];
    after(async () => {
      for (const used of databases) await used.remove();
    });
    function create(): Database {
      const database = backend.create(plans);
      databases.push(database);
      return database;
    }

    for (const nodes of [1, 2]) {
      const where = nodes === 1 ? "one node" : "two nodes";
      test(`200 requests at once on ${where}, on an account with credits for 50: 50 run, and no bucket is below zero (QuantumNous/new-api#6609, songquanpeng/one-api#2440, maximhq/bifrost#3547)`, async () => {
        const database = create();
        const stores = await Promise.all(Array.from({ length: nodes }, () => database.open()));
        const [store] = stores;
        assert.ok(store !== undefined);
        await prepare(store, "starter");
        const ledgers = stores.map((each) => new Ledger(each));
        const apply = async (operation: Operation, n: number): Promise<Outcome> => {
          const ledger = ledgers[n % nodes];
          assert.ok(ledger !== undefined);
          return await ledger.apply(operation);
        };

        const outcomes = await Promise.all(
          Array.from({ length: requests }, (_, n) => apply(hold(`h${n}`, each), n)),
        );
        const held = idsOf(outcomes, "held");
        assert.equal(held.length, paid);
        for (const outcome of outcomes.filter(({ kind }) => kind !== "held")) {
          assert.deepEqual(outcome, {
            kind: "credits_reserved",
            scope: "account",
            retryAfterMs: 1000,
            rates: {},
          });
        }
        const { account } = (await store.accountSnapshot("ada")) ?? {};
        assert.ok(account !== undefined);
        assert.equal(freeIn(account).base, 0);
        await assertSound(database);

        const settled = await Promise.all(held.map((id, n) => apply(settle(id, each), n)));
        assert.partialDeepStrictEqual(
          settled,
          held.map(() => settledBy({ base: each })),
        );
        const refused = await apply(hold("late", each), 0);
        assert.equal(refused.kind, "insufficient_credits");
        await Promise.all(stores.map((each) => each.close()));
        await assertSound(database);
        const [sum] = await database.sql("select sum(cost) as cost, count(*) as receipts from charge");
        assert.deepEqual({ ...sum }, { cost: credits(1), receipts: paid });
      });
    }

    test("gives the same outcomes and rows as the store in memory for any operations in any order", async () => {
      const property = fc.asyncProperty(fc.array(stepArb, { minLength: 5, maxLength: 25 }), async (steps) => {
        const database = backend.create(plans);
        try {
          const store = await database.open();
          const memory = new MemoryStore(plans, database.clock.get);
          for (const [n, account] of accounts.entries()) {
            const key = keyOf(`key-of-${account}`, account, { hash: hashOf(n), tokensPerMinute: 70 });
            for (const each of [store, memory]) {
              await each.commit([{ kind: "open", account, plan: "small", by: "test" }]);
              await addKey(each, key);
            }
          }
          const sent: Operation[] = [];
          for (const { waitMs, drafts } of steps) {
            database.clock.advance(waitMs);
            const batch = drafts.map((draft, n) => operationOf(draft, sent, sent.length + n));
            sent.push(...batch);
            assert.deepEqual(await store.commit(batch), await memory.commit(batch));
          }
          for (const account of accounts) {
            assert.deepEqual(await store.accountSnapshot(account), await memory.accountSnapshot(account));
            assert.deepEqual(await store.journal(account, page), await memory.journal(account, page));
          }
          assert.deepEqual(await store.usage(page), await memory.usage(page));
          assert.deepEqual(await store.keysAfter(null, 500), await memory.keysAfter(null, 500));
          const openIn = async (each: Store) =>
            Object.groupBy(
              await each.overdueHolds(Number.MAX_SAFE_INTEGER, { limit: 1000 }),
              (row) => row.account,
            );
          assert.deepEqual(await openIn(store), await openIn(memory));
          await assertSound(database);
        } finally {
          await database.remove();
        }
      });
      // Limits the time to shrink a failure.
      await fc.assert(property, { numRuns: isThorough ? 40 : 4, interruptAfterTimeLimit: 120_000 });
    });
  });
}

const page = { limit: 1000 };
const accounts = ["ada", "bob"];
const whens = ["refresh", "now", "new_window"] as const;

const whenArb = fc.nat({ max: 1000 });
const tokensArb = fc.nat({ max: 30 }).map((n) => ({
  promptTokens: 5,
  cachedTokens: n % 6,
  completionTokens: n,
  reasoningTokens: n >> 1,
}));
const amountArb = fc.oneof(fc.nat({ max: credits(9) }), fc.nat({ max: 3 }));
const draftArb = fc.record({
  kind: fc.constantFrom(
    "hold",
    "hold",
    "hold",
    "settle",
    "settle",
    "extend",
    "expire",
    "topup",
    "promote",
    "adjust",
    "refund",
    "stop",
    "plan",
    "again",
  ),
  account: fc.constantFrom(...accounts),
  which: whenArb,
  amountMicro: amountArb,
  usage: tokensArb,
});
type Draft = typeof draftArb extends fc.Arbitrary<infer T> ? T : never;

/**
 * Holds expire in the order in which they were taken, also after extensions. The order in which
 * overdue holds end differs between stores, and would make their outcomes differ.
 */
const stepArb = fc.record({
  waitMs: fc.oneof(
    { weight: 4, arbitrary: fc.nat({ max: 20 * second }) },
    { weight: 1, arbitrary: fc.constantFrom(minute, 6 * hour, 33 * day) },
  ),
  drafts: fc.array(draftArb, { minLength: 1, maxLength: 8 }),
});

function operationOf(draft: Draft, sent: readonly Operation[], serial: number): Operation {
  const { kind, account, which, amountMicro: amount, usage } = draft;
  const holds = sent.filter((operation) => operation.kind === "hold");
  const earlier = holds[holds.length - 1 - (which % 6)];
  const target = { account: earlier?.account ?? account, requestId: earlier?.requestId ?? "none" };
  switch (kind) {
    case "hold": {
      const price = { prompt: 20_000, completion: 100_000, cachedPrompt: 3 };
      return hold(`h${String(serial).padStart(4, "0")}`, amount, {
        account,
        key: `key-of-${account}`,
        price,
        promptTokens: 5,
        wantMicro: amount * 2,
      });
    }
    case "settle":
      return { kind, ...target, usage, ending: "stop", by: null, estimated: which % 2 === 0 };
    case "extend":
      return { kind, ...target, n: 1 + (which % 3), moreMicro: amount, usage, ttlMs: 0 - 99 * day };
    case "expire":
      return { kind, ...target };
    case "topup":
      return { kind, account, payment: `p${which % 9}`, amountMicro: amount + 1, by: "test" };
    case "adjust":
      return {
        kind,
        account,
        op: `a${which % 9}`,
        amountMicro: amount + 1,
        grant: null,
        reason: "why",
        by: "test",
      };
    case "promote": {
      const untilMs = which % 3 === 0 ? start + (1 + (which % 4)) * day : null;
      const requestId = which % 5 === 0 ? target.requestId : null;
      return {
        kind,
        account,
        op: `g${which % 9}`,
        amountMicro: amount + 1,
        untilMs,
        requestId,
        reason: "why",
        by: "test",
      };
    }
    case "refund":
      return {
        kind,
        account,
        refund: `r${which % 7}`,
        payment: `p${which % 9}`,
        amountMicro: 1 + (amount >> 1),
        by: "test",
      };
    case "stop":
      return { kind, ...target, by: "test" };
    case "plan":
      return {
        kind,
        account,
        op: `c${which % 9}`,
        plan: which % 2 === 0 ? "large" : "small",
        at: whens[which % 3] ?? "now",
        by: "test",
      };
    case "again":
      return sent[which % sent.length] ?? { kind: "open", account, plan: "small", by: "test" };
  }
}
