/**
 * A ledger that was made by a version without grants is carried over to this version and goes on,
 * on every store.
 *
 * test/fixtures/ledger-without-grants.sql has its rows as that version wrote them. Settled by that
 * version, its open holds left the credits in `leftAfterAll`.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import type { Plans } from "../../src/ledger/plan.ts";
import type { Store } from "../../src/store/store.ts";
import { type Backend, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle, settledBy, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { makeOldLedger, type OldLedger, oldLedgers } from "../fixtures/old-ledger.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

const starter = planOf("starter", 100, 10);
const plans = plansOf(
  starter,
  planOf("monthly", 30, 5, { base: { credits: 30, every: "P1M" }, limits: { tokensPerMinute: 600 } }),
);

/** The time at which the old version was stopped. */
const stoppedMs = start + day + hour + 4 * minute;

const leftAfterAll = {
  ada: [32_999_955, 0, 4_000_000],
  bob: [28_999_995, 10_000_000, 10_000_000],
  cy: [30_000_000, 5_000_000, 1_500_000],
};

/** Makes the database as the old version did, and fills it. */
async function fill(database: Database, old: OldLedger): Promise<void> {
  await makeOldLedger(database, old, "-clock.sql");
  const rows = readFileSync(new URL("../fixtures/ledger-without-grants.sql", import.meta.url), "utf8");
  await old.run(database, rows.replaceAll(":any", old.any));
}

/** The ledger is sound, except for the payment that was used on two accounts. */
async function assertCarriedOver(database: Database): Promise<void> {
  const rows = [{ payment: "p1", account: "bob", amount: credits(7), first_account: "ada" }];
  assert.deepEqual((await database.audit()).broken, [
    { invariant: "no payment was credited to two accounts", rows },
  ]);
}

for (const backend of backends) carriedOverOn(backend, oldLedgers[backend.name]);

function carriedOverOn(backend: Backend, old: OldLedger | undefined): void {
  describe(`a ledger without grants on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    assert.ok(old !== undefined);
    const used: Database[] = [];
    let database: Database;

    async function make(configured: Plans): Promise<Database> {
      const made = backend.create(configured);
      used.push(made);
      made.clock.set(stoppedMs);
      return made;
    }

    beforeEach(async () => {
      database = await make(plans);
      await fill(database, old);
    });
    afterEach(async () => {
      for (const each of used.splice(0)) await each.remove();
    });

    async function credited(store: Store): Promise<Record<string, number[]>> {
      const accounts = await store.accounts({ limit: 10 });
      return Object.fromEntries(
        accounts.map(({ id, base, overage, additional }) => [id, [base, overage, additional]]),
      );
    }

    test("has the same credits, and the audit names the payment that was used twice", async () => {
      const store = await database.open();
      await assertCarriedOver(database);
      assert.deepEqual(await credited(store), {
        ada: [0, 0, credits(3)],
        bob: [28_999_995, credits(10), credits(10)],
        cy: [credits(30), credits(5), credits(1.5)],
      });
      const found = await store.findKey("2".repeat(64));
      assert.partialDeepStrictEqual(found, {
        key: { id: "ada-2", holds: 1, held: credits(30), used: 0, tokensLimit: 6000, budget: null },
        plan: { id: "starter", version: 1 },
      });
      assert.partialDeepStrictEqual(await store.keyById("ada-1"), {
        holds: 3,
        held: credits(23 + 79 + 4),
        used: 1100,
      });
      assert.equal((await store.holdTotals()).micro, credits(23 + 30 + 79 + 4 + 1));
      assert.partialDeepStrictEqual((await store.accountSnapshot("ada"))?.account, {
        baseHeld: credits(100),
        overageHeld: credits(10),
        additionalHeld: credits(2),
        used: 1100,
        basePlan: "starter",
        baseVersion: 1,
        baseEvery: "P1D",
        overageEvery: "P1M",
      });
    });

    test("has a grant for what each account has, and for each payment and adjustment", async () => {
      await database.open();
      const rows = await database.sql(
        "select account, seq, bucket, cause, amount, ref, spent, held from credit_grant order by account, seq, bucket",
      );
      assert.deepEqual(
        rows.map((row) => Object.values(row)),
        [
          ["ada", 2, "additional", "payment", credits(5), "p1", null, null],
          ["ada", 18, "base", "carried_over", credits(100), null, 0, credits(100)],
          ["ada", 18, "overage", "carried_over", credits(10), null, 0, credits(10)],
          ["bob", 2, "additional", "duplicate", credits(7), "p1", null, null],
          ["bob", 3, "additional", "payment", credits(3), "p2", null, null],
          ["bob", 8, "base", "carried_over", credits(30), null, 1_000_005, 0],
          ["bob", 8, "overage", "carried_over", credits(10), null, 0, 0],
          ["cy", 2, "additional", "adjustment", credits(2), "a1", null, null],
          ["cy", 3, "additional", "adjustment", credits(-0.5), "a2", null, null],
          ["cy", 3, "base", "carried_over", credits(30), null, 0, 0],
          ["cy", 3, "overage", "carried_over", credits(5), null, 0, 0],
        ],
      );
    });

    test("settles its open and expired holds as the old version would have", async () => {
      const store = await database.open();
      const outcomes = await store.commit([
        settle("extended", 0, { used: tokens(100, credits(2)) }),
        settle("past", 500),
        settle("now", 5),
        settle("mixed", credits(78)),
        settle("expired", 0, { used: tokens(10, 90) }),
        settle("late", 0, { used: tokens(10, 300) }),
        settle("bobs", 0, { account: "bob", used: tokens(3, 80) }),
      ]);
      assert.deepEqual(outcomes, [
        settledBy({ base: 2_000_100 }),
        settledBy({ base: 500 }),
        settledBy({ base: 5 }),
        settledBy({ base: credits(67), overage: credits(10), additional: credits(1) }),
        settledBy({ base: 100 }, 0, { base: 60 }),
        // It was settled late before.
        settledBy({ base: 310 }),
        settledBy({ base: 83 }),
      ]);
      assert.deepEqual(await credited(store), leftAfterAll);
      for (const account of await store.accounts({ limit: 10 })) {
        const { baseHeld, overageHeld, additionalHeld, holds, used: usedUp } = account;
        assert.deepEqual([baseHeld, overageHeld, additionalHeld, holds, usedUp], [0, 0, 0, 0, 0]);
      }
      for (const { holds, held, used: usedUp } of await store.keys()) {
        assert.deepEqual([holds, held, usedUp], [0, 0, 0]);
      }
      const lines = await store.usage({ id: "expired", limit: 10 });
      assert.deepEqual(
        lines.map(({ ending, late, cost }) => [ending, late, cost]),
        [
          ["expired", false, 60],
          ["stop", true, 40],
        ],
      );
      await assertCarriedOver(database);
    });

    test("gives nothing back to a window that has ended, and everything to the present one", async () => {
      const store = await database.open();
      const nothing = { used: tokens(0, 0) };
      await store.commit([settle("past", 0, nothing), settle("extended", 0, nothing)]);
      assert.equal((await store.accountSnapshot("ada"))?.account.base, credits(3));
      await store.commit([settle("now", 0, nothing), settle("mixed", 0, nothing)]);
      assert.equal((await store.accountSnapshot("ada"))?.account.base, credits(100));
      await assertCarriedOver(database);
    });

    test("knows its payments: the first account that used one has it", async () => {
      const store = await database.open();
      const outcomes = await store.commit([
        { kind: "topup", account: "cy", payment: "p1", amount: credits(5) },
        { kind: "topup", account: "bob", payment: "p1", amount: credits(7) },
        { kind: "refund", account: "bob", refund: "r1", payment: "p1", amount: 1 },
        { kind: "refund", account: "ada", refund: "r2", payment: "p1", amount: credits(5) },
        { kind: "adjust", account: "cy", op: "a1", amount: credits(2), reason: "a gift" },
      ]);
      assert.deepEqual(outcomes, [
        { kind: "payment_used", account: "ada" },
        { kind: "added", additional: credits(10), replayed: true },
        { kind: "unknown_payment" },
        { kind: "refunded", amount: credits(3), rest: credits(2), additional: 0, replayed: false },
        { kind: "adjusted", additional: credits(1.5), replayed: true },
      ]);
      await assertCarriedOver(database);
    });

    test("refills at the end of the windows that it had, also for holds that go on", async () => {
      const store = await database.open();
      database.clock.set(start + 2 * day);
      await store.commit([{ kind: "topup", account: "ada", payment: "p3", amount: 1 }]);
      const { account } = (await store.accountSnapshot("ada")) ?? {};
      assert.deepEqual([account?.base, account?.baseStartsMs], [credits(100), start + 2 * day]);
      assert.equal(account?.overage, 0);
      database.clock.set(start + 31 * day);
      await store.commit([
        { kind: "topup", account: "bob", payment: "p4", amount: 1 },
        hold("h1", credits(1), { account: "bob", key: "bob-1" }),
      ]);
      const bob = (await store.accountSnapshot("bob"))?.account;
      assert.deepEqual([bob?.base, bob?.overage, bob?.overageCap], [credits(29), credits(5), credits(5)]);
      await assertCarriedOver(database);
    });

    test("is opened by several processes at once", async () => {
      await Promise.all(Array.from({ length: 3 }, () => database.open()));
      assert.equal((await database.sql("select 1 from plan_file")).length, 1);
      await assertCarriedOver(database);
    });

    test("is not touched if the configuration lacks one of its plans, which is named", async () => {
      const other = await make(plansOf(starter, planOf("new", 1, 1)));
      await fill(other, old);
      const content = async () => {
        const names = await other.sql(old.tables);
        const tables = ["account", "api_key", "hold", "journal", "usage", "migration"];
        const rows = await Promise.all(tables.map((table) => other.sql(`select * from ${table}`)));
        return { names, rows };
      };
      const unchanged = await content();
      await assert.rejects(other.open(), (error) => {
        assert.ok(error instanceof OperatorError, String(error));
        assert.match(
          error.message,
          /accounts have plans that .* "monthly" \(accounts: 2\)\. Nothing was changed/,
        );
        assert.doesNotMatch(error.message, /starter/);
        return true;
      });
      assert.deepEqual(await content(), unchanged);
    });
  });
}
