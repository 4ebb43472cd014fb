/**
 * The sweeper ends overdue holds behind holds that cannot be ended, and fails with its store.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import { endExpiredHolds } from "../../src/store/sweeper.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import { hold } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { minute } from "../fixtures/times.ts";

const small = planOf("small", 10, 5);
const gone = planOf("gone", 2000, 0);

const goesOn = () => false;

/** Sweeps once, which ends this number of holds. */
async function sweep({ store }: Bench, holds: number): Promise<void> {
  let expired = 0;
  const ledger = new Ledger(store, {
    onCommit: (commit) => {
      expired += commit.expired.length;
    },
  });
  await endExpiredHolds(store, ledger, goesOn);
  assert.equal(expired, holds);
}

/** A bench on which `bobHolds` holds of Bob are overdue, and after them hold `a` of Ada. */
async function benchWithOverdue(bobHolds: number): Promise<Bench> {
  const made = await bench(small, gone);
  await made.store.commit([{ kind: "open", account: "bob", plan: "gone", by: "test" }]);
  await addKey(made.store, keyOf("bobs", "bob"));
  for (let n = 0; n < bobHolds; n += 1) {
    await made.apply(hold(`b${n}`, credits(1), { account: "bob", key: "bobs", ttlMs: 1000 }));
  }
  await made.apply(hold("a", credits(3), { ttlMs: 2000 }));
  made.clock.nowMs += minute;
  return made;
}

test("ends holds that come after holds that cannot be ended", async () => {
  const made = await benchWithOverdue(1200);
  made.store.damage("bob", { holds: 0.5 });
  await sweep(made, 1);
  assert.equal(made.store.receipt("ada", "a")?.ending, "expired");
  assert.equal(made.store.openHolds("bob").length, 1200);
});

test("ends holds of other accounts while another session has locked one account", async () => {
  const made = await benchWithOverdue(100);
  const ledger = new Ledger(
    {
      async commit(operations) {
        const free = operations.filter(({ account }) => account !== "bob");
        const decided = (await made.store.commit(free)).values();
        return operations.map(({ account }) => {
          if (account === "bob") return { kind: "locked" };
          return decided.next().value ?? { kind: "locked" };
        });
      },
    },
    { giveUpMs: 30 },
  );
  await assert.rejects(endExpiredHolds(made.store, ledger, goesOn), /locked a row of account bob/);
  assert.equal(made.store.receipt("ada", "a")?.ending, "expired");
  assert.equal(made.store.openHolds("bob").length, 100);
});

test("ends more holds than one read returns in one sweep", async () => {
  const made = await bench(gone);
  for (let n = 0; n < 600; n += 1) await made.apply(hold(`h${n}`, credits(1), { ttlMs: 1000 }));
  made.clock.nowMs += minute;
  await sweep(made, 600);
  assert.deepEqual(made.store.openHolds("ada"), []);
});

test("uses the clock of the commits, not the clock of this machine", async () => {
  const made = await bench(small);
  // Months ago by the clock of this machine.
  await made.apply(hold("h", credits(1), { ttlMs: minute }));
  const asked: string[] = [];
  const ledger = new Ledger({
    commit(operations) {
      asked.push(...operations.map(({ kind }) => kind));
      return made.store.commit(operations);
    },
  });
  await endExpiredHolds(made.store, ledger, goesOn);
  assert.deepEqual(asked, []);
});

test("fails if the store does not respond", async () => {
  const made = await bench(small);
  const failure = new Error("the store is away");
  made.store.overdueHolds = () => Promise.reject(failure);
  await assert.rejects(endExpiredHolds(made.store, new Ledger(made.store), goesOn), failure);
});

test("ends no further holds once the service stops", async () => {
  const made = await bench(gone);
  for (let n = 0; n < 200; n += 1) await made.apply(hold(`h${n}`, credits(1), { ttlMs: 1000 }));
  made.clock.nowMs += minute;
  let reads = 0;
  const { overdueHolds } = made.store;
  made.store.overdueHolds = async (...query) => {
    reads += 1;
    return await overdueHolds.apply(made.store, query);
  };
  await endExpiredHolds(made.store, new Ledger(made.store), () => reads > 0);
  assert.equal(reads, 1);
});
