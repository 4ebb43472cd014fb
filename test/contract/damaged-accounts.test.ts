/**
 * Accounts whose rows a hand in the database has damaged, on every store. Their balance cannot be
 * read, and no operation moves their credits. Other accounts of the same commit are served. The
 * audit names the damage, and all works again once the row is repaired.
 */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { pino } from "pino";
import { keyCallerOf } from "../../src/accounts/keys.ts";
import { ServicePlans } from "../../src/app/service-plans.ts";
import { Refusal } from "../../src/errors.ts";
import { balanceOf } from "../../src/ledger/balance.ts";
import type { Store } from "../../src/store/store.ts";
import { accountDamages, bypassChecks } from "../fixtures/account-damage.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { some } from "../fixtures/thorough.ts";

const plans = plansOf(planOf("test", 100, 10), planOf("other", 50, 5));

for (const { name, skip = false, create } of backends) {
  describe(`damaged accounts on ${name}`, { skip }, () => {
    let database: Database;
    let store: Store;

    /** Runs statements that the constraints of the database would refuse. */
    async function run(...statements: string[]): Promise<void> {
      if (name !== "SQLite") {
        // Without foreign keys and triggers.
        const begin = "begin; set local session_replication_role = replica";
        await database.sql([begin, ...statements, "commit"].join("; "));
        return;
      }
      const db = new DatabaseSync(await database.locator(), { timeout: 5000 });
      try {
        db.exec(bypassChecks.SQLite);
        for (const statement of statements) db.exec(statement);
      } finally {
        db.close();
      }
    }

    async function unavailable(account: string): Promise<string> {
      const snapshot = await store.accountSnapshot(account);
      try {
        balanceOf(snapshot);
      } catch (error) {
        assert.ok(error instanceof Refusal && error.code === "balance_unavailable", String(error));
        return error.detail ?? "";
      }
      return assert.fail("the balance can be read");
    }

    before(async () => {
      database = create(plans);
      store = await database.open();
      for (const [account, plan] of [
        ["ada", "test"],
        ["bob", "test"],
        ["cy", "other"],
      ] as const) {
        await store.commit([{ kind: "open", account, plan, by: "test" }]);
        await addKey(store, keyOf(`key-${account}`, account, { hash: account.padStart(64, "0") }));
        const own = { account, key: `key-${account}` };
        await store.commit([hold(`h-${account}`, credits(5), own), settle(`h-${account}`, credits(2), own)]);
      }
      if (name === "PostgreSQL") await database.sql(bypassChecks.PostgreSQL);
    });
    after(() => database.remove());

    /** An operation on the account, together with one on a sound account. */
    async function beside(id: string, account = "ada") {
      const own = { account, key: `key-${account}` };
      const bobs = { account: "bob", key: "key-bob" };
      const [refused, held] = await store.commit([hold(id, 1, own), hold(`${id}-bob`, 1, bobs)]);
      assert.equal(held?.kind, "held", "a sound account is served by the same commit");
      await store.commit([settle(`${id}-bob`, 1, bobs)]);
      assert.equal(refused?.kind, "balance_unavailable", JSON.stringify(refused));
      return "problem" in refused ? refused.problem : "";
    }

    // One kernel finds them on each store.
    const damages = name === "SQLite" ? accountDamages : some(accountDamages, 3);
    for (const [n, { what, column, value, says }] of damages.entries()) {
      test(what, async () => {
        const before = (await store.accountSnapshot("ada"))?.account;
        await run(
          "drop table if exists damage_kept",
          `create table damage_kept as select ${column} as value from account where id = 'ada'`,
          `update account set ${column} = ${value} where id = 'ada'`,
        );
        try {
          assert.match(await unavailable("ada"), /^account ada: /);
          assert.match(await unavailable("ada"), says);
          assert.match(await beside(`damaged-${n}`), says);
          if (column !== "plan" && column !== "next_plan") {
            const [paid] = await store.commit([
              { kind: "topup", account: "ada", payment: `p${n}`, amountMicro: 1, by: "test" },
            ]);
            assert.equal(paid?.kind, "balance_unavailable");
          }
          const { broken } = await database.audit();
          const named = broken.filter(({ rows }) => rows.some(({ account }) => account === "ada"));
          assert.ok(named.length > 0, `the audit names the account: ${JSON.stringify(broken)}`);
          assert.equal((await store.accounts({ limit: 10 })).length, 3, "operators can list the accounts");
        } finally {
          await run(`update account set ${column} = (select value from damage_kept) where id = 'ada'`);
        }
        assert.deepEqual((await store.accountSnapshot("ada"))?.account, before, "nothing has moved");
        balanceOf(await store.accountSnapshot("ada"));
        assert.deepEqual((await database.audit()).broken, []);
      });
    }

    test("an account that is gone", async () => {
      await run(
        "create table account_kept as select * from account where id = 'ada'",
        "delete from account where id = 'ada'",
      );
      assert.equal(await unavailable("ada"), "account of the request: it has no row");
      const found = await store.findKey("ada".padStart(64, "0"));
      assert.ok(found !== null, "its key is known");
      assert.throws(() => keyCallerOf(found), {
        code: "balance_unavailable",
        detail: "account ada: it has no row",
      });
      const [refused] = await store.commit([hold("gone", 1, { account: "ada", key: "key-ada" })]);
      assert.equal(refused?.kind, "account_not_found");
      const { broken } = await database.audit();
      assert.ok(
        broken.some(({ rows }) => rows.some(({ account }) => account === "ada")),
        JSON.stringify(broken),
      );
      await run("insert into account select * from account_kept");
      balanceOf(await store.accountSnapshot("ada"));
    });

    test("a plan version that cannot be read, for the accounts of this plan alone", async () => {
      if (name === "SQLite") await run("drop trigger plan_version_is_never_changed");
      for (const [column, value, says] of [
        [
          "base_every",
          "'sometimes'",
          /version 1 of the plan "other" cannot be read: the period of base is "sometimes"/,
        ],
        ["overage_every", "''", /the period of overage is ""/],
        ["base_credits", "-1", /the credits of base are -1/],
        ["caps", `'[["day",-1,"P1D","opening",["*"]]]'`, /the credits of the cap "day" are -1/],
      ] as const) {
        await run(
          "drop table if exists plan_kept",
          `create table plan_kept as select ${column} as value from plan_version where plan = 'other'`,
          `update plan_version set ${column} = ${value} where plan = 'other'`,
        );
        // A node keeps the plans that it has read, because rows of versions never change.
        const fresh = await database.open();
        try {
          const [kept, own] = [store, fresh];
          store = own;
          assert.match(await unavailable("cy"), says);
          assert.match(await beside(`plan-${column}`, "cy"), says);
          balanceOf(await store.accountSnapshot("ada"));
          const lines: Record<string, unknown>[] = [];
          const logger = pino({ level: "warn" }, { write: (line: string) => lines.push(JSON.parse(line)) });
          const { kind, warnings } = await new ServicePlans(store, logger).apply(plans);
          assert.equal(kind, "unchanged", "the other plans are compared");
          assert.match(warnings.join(), says);
          assert.deepEqual(
            lines.map(({ plan }) => plan),
            ["other"],
          );
          store = kept;
        } finally {
          await fresh.close();
        }
        assert.notDeepEqual((await database.audit()).broken, []);
        await run(`update plan_version set ${column} = (select value from plan_kept) where plan = 'other'`);
      }
    });
  });
}
