/**
 * Journals filtered by kind, in both orders and in pages, and the payments of an account, on every
 * store. A store in memory takes the same operations, and has the rows of payments.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Operation } from "../../src/ledger/operations.ts";
import { journalSql } from "../../src/store/journal.ts";
import type { SqlStatement } from "../../src/store/sql.ts";
import {
  type JournalQuery,
  type ListedEntry,
  type ListedKind,
  type ListedPayment,
  listedKinds,
  type Store,
} from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { type MemoryStore, memoryStore } from "../fixtures/memory-store.ts";
import { day, minute } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 20), planOf("big", 5000, 0));
const filters: readonly (readonly ListedKind[])[] = [
  ...listedKinds.map((kind) => [kind]),
  ["payment", "refund", "adjust"],
  ["charge", "payment"],
  listedKinds.filter((kind) => kind !== "charge"),
  listedKinds,
];

for (const backend of backends) {
  describe(`journals on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let memory: MemoryStore;

    async function apply(...operations: Operation[]): Promise<void> {
      for (const each of [store, memory]) await each.commit(operations);
    }

    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      memory = memoryStore(plans, () => database.clock.get());
      for (const account of ["ada", "bob"]) {
        await apply({ kind: "open", account, plan: "starter", by: "test" });
        for (const each of [store, memory]) {
          await addKey(each, keyOf(`key-${account}`, account));
        }
      }
      for (let n = 0; n < 12; n++) {
        const [payment, name] = [`pay-${n}`, { account: "ada", key: "key-ada" }];
        await apply({ kind: "topup", account: "ada", payment, amountMicro: credits(n + 1), by: "test" });
        await apply({
          kind: "topup",
          account: "bob",
          payment: `of-bob-${n}`,
          amountMicro: credits(1),
          by: "test",
        });
        if (n % 3 === 0) {
          const refunds = ["a", "b"].map((part) => ({
            refund: `${payment}${part}`,
            amountMicro: credits(n / 4 + 0.1),
          }));
          for (const each of refunds)
            await apply({ kind: "refund", account: "ada", payment, ...each, by: "test" });
        }
        await apply({
          kind: "promote",
          account: "ada",
          op: `adjust-${n}`,
          amountMicro: 5,
          reason: "why",
          untilMs: null,
          requestId: null,
          by: "test",
        });
        await apply(hold(`h-${n}`, 40, name), extend(`h-${n}`, 1, 20, { account: "ada" }));
        if (n % 4 !== 0) await apply(settle(`h-${n}`, 30, { account: "ada" }));
        database.clock.advance(n % 5 === 0 ? day : minute);
      }
      await apply({ kind: "plan", account: "ada", op: "up", plan: "big", at: "new_window", by: "test" });
      await apply({ kind: "state", account: "ada", op: "stop", to: { kind: "suspend" }, by: "test" });
    });
    after(() => database.remove());

    /** The payment with this number, with what the charges took of it. */
    function paid(id: string, n: number): ListedPayment {
      const { grants, charges } = memory.ledger;
      const { seq, fromMs } = grants.find(({ payment }) => payment === id) ?? assert.fail();
      const parts = charges.filter(({ account }) => account === "ada").flatMap((charge) => charge.paid);
      const taken = parts.filter(({ grant }) => grant === seq).map((part) => part.amountMicro);
      return {
        id,
        account: "ada",
        amountMicro: credits(n + 1),
        refundedMicro: n % 3 === 0 ? 2 * credits(n / 4 + 0.1) : 0,
        spentMicro: taken.reduce((sum, amount) => sum + amount, 0),
        seq,
        atMs: fromMs,
      };
    }

    async function pagesOf(from: Store, query: Omit<JournalQuery, "limit">, limit: number) {
      const rows: ListedEntry[] = [];
      for (;;) {
        const afterSeq = rows.at(-1)?.seq;
        const page = await from.journal("ada", { ...query, afterSeq, limit });
        rows.push(...page);
        if (page.length < limit) return rows;
      }
    }

    test("have the entries of the wanted kinds only, in each order, and exact pages", async () => {
      const found = new Set<string>();
      const all = await pagesOf(store, {}, 1000);
      for (const newestFirst of [false, true]) {
        for (const kinds of [undefined, ...filters]) {
          const query = { kinds, newestFirst };
          const wanted = all.filter(({ kind }) => kinds?.includes(kind) ?? true);
          const expected = newestFirst ? wanted.toReversed() : wanted;
          assert.deepEqual(await pagesOf(store, query, 1000), expected, JSON.stringify(query));
          assert.deepEqual(await pagesOf(store, query, 3), expected, `pages of ${JSON.stringify(query)}`);
          for (const { kind } of wanted) found.add(kind);
        }
      }
      assert.ok(found.size >= 10, `only ${[...found].join(", ")}`);
    });

    test("list payments with what was refunded of each, newest first", async () => {
      for (const limit of [1, 5, 12, 100]) {
        const rows: ListedPayment[] = [];
        for (let length = limit; length === limit; ) {
          const query = { afterSeq: rows.at(-1)?.seq, limit };
          const page = await store.payments("ada", query);
          rows.push(...page);
          length = page.length;
        }
        assert.deepEqual(rows, Array.from({ length: 12 }, (_, n) => paid(`pay-${n}`, n)).toReversed());
      }
      assert.deepEqual(await store.payments("nobody", { limit: 10 }), []);
    });

    test("number charges with the other facts, without gaps", async () => {
      const all = await store.journal("ada", { limit: 1000 });
      assert.deepEqual(
        all.map(({ seq }) => seq),
        all.map((_, n) => n + 1),
      );
      const charges = await store.usage({ account: "ada", limit: 1000 });
      assert.ok(charges.length > 5);
      assert.deepEqual(
        all
          .filter(({ kind }) => kind === "charge")
          .map(({ seq, subject, amountMicro, by }) => [seq, subject, amountMicro, by]),
        charges.map(({ seq, id, baseMicro, overageMicro, additionalMicro }) => [
          seq,
          id,
          0 - baseMicro - overageMicro - additionalMicro,
          "service",
        ]),
      );
    });

    test("read a page by the primary keys", async () => {
      await database.sql(`insert into journal (account, seq, at_ms, kind, by)
        with recursive n(n) as (select 1000 union all select n + 1 from n where n < 20000)
        select 'bob', n, 0, 'suspend', 'test' from n
        union all select 'ada', n, 0, 'suspend', 'test' from n
        union all select 'ada', n + 20000, 0, 'suspend', 'test' from n
        union all select 'ada', n + 40000, 0, 'suspend', 'test' from n`);
      await database.sql("analyze journal");
      const planOfStatement = async ({ text, values }: SqlStatement) => {
        const literal = (n: string) => {
          const value = values[Number(n) - 1];
          return typeof value === "string" ? `'${value}'` : String(value);
        };
        const explain = backend.name === "SQLite" ? "explain query plan" : "explain";
        const statement = text.replaceAll(/\?(\d+)/g, (_, n: string) => literal(n));
        return JSON.stringify(await database.sql(`${explain} ${statement}`));
      };
      const p = (n: number) => `?${n}`;
      for (const kinds of [undefined, ...filters]) {
        // All of an account's entries before that number are read for a page of kinds that it
        // lacks.
        const afterSeq = kinds?.includes("suspend") === false ? 1500 : 15_000;
        const query = { kinds, newestFirst: true, afterSeq, limit: 100 };
        const plan = await planOfStatement(journalSql("bob", query, p));
        assert.doesNotMatch(plan, /Seq Scan on journal|SCAN journal/, plan);
        if (kinds?.includes("charge") !== true || kinds.length > 1)
          assert.match(plan, /journal_pkey|SEARCH journal USING PRIMARY KEY/, plan);
      }
    });
  });
}
