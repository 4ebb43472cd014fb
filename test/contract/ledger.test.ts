/** The ledger with its batcher, on every store. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Outcome } from "../../src/ledger/outcomes.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle, settledBy } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";

const plans = plansOf(planOf("starter", 1, 0));

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
  });
}
