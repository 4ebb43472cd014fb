/** Imports on every store: what accounts bring along, and other accounts beside a large import. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { type ImportedAccount, importAccounts } from "../../src/accounts/account-import.ts";
import { balanceOf } from "../../src/ledger/balance.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));
const options = { by: "test", dryRun: false, timezone: "Europe/Berlin", issueKeys: null };

function account(id: string, balances: ImportedAccount["balances"]): ImportedAccount {
  return { id, plan: "starter", contact: { externalId: `crm-${id}` }, balances };
}

for (const backend of backends) {
  describe(`imports on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("key", "ada"));
    });
    after(() => database.remove());

    test("open accounts with what they bring along, once", async () => {
      const began = new Date(start - hour).toISOString();
      const window = { base_left: "40", base_start: began, overage_left: "0", overage_start: began };
      const list = [
        account("paid", { ...window, additional: "7", payment: "pi_1" }),
        account("given", { ...window, additional: "9" }),
      ];
      for (const result of ["opened", "unchanged"]) {
        const done = await importAccounts(store, list, options);
        assert.deepEqual(
          done.lines.map((line) => [line.id, line.result, line.balancesIgnored]),
          list.map(({ id }) => [id, result, result === "unchanged"]),
        );
        assert.equal(done.kind, "done");
      }
      const snapshot = await store.accountSnapshot("paid");
      assert.partialDeepStrictEqual(balanceOf(snapshot), {
        base: {
          remainingMicro: credits(40),
          capMicro: credits(100),
          startsMs: start - hour,
          endsMs: start - hour + day,
        },
        overage: { remainingMicro: 0 },
        additionalMicro: credits(7),
      });
      const journal = await store.journal("paid", { limit: 9 });
      assert.deepEqual(
        journal.map(({ kind, op, subject, outcome }) => [kind, op, subject, outcome]),
        [
          ["open", null, null, null],
          ["window", null, null, `{"from_at":"${began}","spent_micro":60000000}`],
          ["window", null, null, `{"from_at":"${began}","spent_micro":10000000}`],
          ["payment", "payment:pi_1", "pi_1", null],
        ],
      );
      assert.deepEqual((await store.payments("given", { limit: 9 })).length, 0);
      const refused = await importAccounts(
        store,
        [account("third", { additional: "7", payment: "pi_1" })],
        options,
      );
      assert.ok(refused.kind === "refused");
      assert.match(refused.problems[0]?.message ?? "", /credited to account paid before/);
      await assertSound(database);
    });

    test("let other accounts take turns", async () => {
      const importer = await database.open();
      let steps = 0;
      let answered = 0;
      const counted: Pick<Store, "putAccounts"> = {
        async putAccounts(drafts, put) {
          steps += 1;
          return await importer.putAccounts(drafts, put);
        },
      };
      const list = Array.from({ length: 1500 }, (_, n) => account(`many-${n}`, { additional: "1" }));
      let isOver = false;
      const importing = importAccounts(counted, list, options).finally(() => {
        isOver = true;
      });
      // Steps that began while a request waited.
      let overtaken = 0;
      for (; !isOver; answered += 1) {
        const before = steps;
        const outcomes = await store.commit([hold(`h${answered}`, 1), settle(`h${answered}`, 1)]);
        assert.deepEqual(
          outcomes.map(({ kind }) => kind),
          ["held", "settled"],
        );
        overtaken += steps - before;
        await setTimeout(10);
      }
      assert.equal((await importing).kind, "done");
      assert.ok(steps >= 8, `${steps} steps`);
      const found = `${answered} requests beside ${steps} steps, and ${overtaken} that began while one waited`;
      assert.ok(answered >= steps / 2, found);
      assert.ok(overtaken <= answered, found);
      await assertSound(database);
    });
  });
}
