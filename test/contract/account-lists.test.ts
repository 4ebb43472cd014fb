/**
 * Lists of accounts on every store: searched, filtered, in each order and in pages. A store in
 * memory takes the same operations, and `listOf` lists its rows with credits of the kernel: every
 * list must be equal.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { readBalance } from "../../src/ledger/balance.ts";
import { additionalOf } from "../../src/ledger/grants.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { PlanCatalog } from "../../src/ledger/plan.ts";
import type { Times } from "../../src/ledger/snapshot.ts";
import { type AccountInOrder, type ListedAccount, noContact } from "../../src/store/contacts.ts";
import { type AccountsQuery, accountOrders, type Store } from "../../src/store/store.ts";
import { applyDueChanges } from "../../src/store/sweeper.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { type MemoryStore, memoryStore } from "../fixtures/memory-store.ts";
import { some } from "../fixtures/thorough.ts";
import { day, hour, minute } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 20), planOf("big", 5000, 0), planOf("prepaid", 0, 0));
const planIds = [...plans.keys()];
const accounts = Array.from({ length: 40 }, (_, n) => `a${String(n).padStart(2, "0")}`);
const contacts = [
  { owner: "Ada Lovelace", email: "ada@Example.com", externalId: "CRM-1" },
  { owner: "Bob 100% É", email: "b_b@example.com", externalId: "crm-10" },
  { owner: "a05 of old", note: "ada" },
];

for (const backend of backends) {
  describe(`lists of accounts on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let memory: MemoryStore;

    async function apply(...operations: Operation[]): Promise<void> {
      for (const each of [store, memory]) {
        for (const { kind } of await each.commit(operations)) assert.notEqual(kind, "account_not_found");
      }
    }

    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      memory = memoryStore(plans, () => database.clock.get());
      for (const [n, account] of accounts.entries()) {
        await apply({ kind: "open", account, plan: planIds[n % 3] ?? "", by: "test" });
        if (n % 4 === 0) database.clock.advance(minute);
        const key = keyOf(`key-${account}`, account);
        for (const each of [store, memory]) await addKey(each, key);
      }
      for (const [n, account] of accounts.entries()) {
        // From next to nothing to more than all windows have.
        const bought = credits([0, 0, 3, 11, 400][n % 5] ?? 0);
        if (bought > 0)
          await apply({ kind: "topup", account, payment: `p-${account}`, amountMicro: bought, by: "test" });
        const spent = credits(n % 4 === 0 ? 4990 : (n * 7) % 121);
        const change = { account, key: `key-${account}`, minMicro: 0, wantMicro: spent };
        await apply(hold(`h-${account}`, spent, change));
        if (n % 6 !== 0) await apply(settle(`h-${account}`, spent, { account }));
        const set = (to: Extract<Operation, { kind: "state" }>["to"]) =>
          apply({ kind: "state", account, op: `s-${account}`, to, by: "test" });
        if (n % 11 === 3) await set({ kind: "suspend" });
        if (n % 11 === 5) await set({ kind: "close" });
        if (n % 11 === 7) await set({ kind: "end", endsMs: database.clock.get() + 3 * hour });
      }
      const drafts = contacts.map((contact, n) => ({ id: `a0${n}`, plan: null, contact }));
      for (const each of [store, memory]) {
        for (const draft of drafts) await each.putAccount(draft, { dryRun: false, by: "test" });
      }
    });
    after(() => database.remove());

    /** Computed with the kernel. */
    const kernelLists: Pick<Store, "accounts"> = {
      async accounts(query) {
        const rows = [...memory.ledger.accounts.values()].map(async (row) => {
          return { ...row, contact: (await memory.contact(row.id)) ?? noContact };
        });
        return listOf(await Promise.all(rows), query, { times: memory.times(), plans: memory.catalog });
      },
    };

    async function pagesOf(
      from: Pick<Store, "accounts">,
      query: Omit<AccountsQuery, "limit">,
      limit: number,
    ) {
      const rows: { id: string; orderValue: string | number }[] = [];
      for (;;) {
        const last = rows.at(-1);
        const place = { after: last?.id, afterValue: last?.orderValue };
        const page = await from.accounts({ ...query, ...place, limit });
        rows.push(...page.map(({ id, orderValue }) => ({ id, orderValue })));
        if (page.length < limit) return rows;
      }
    }

    async function assertLists(every = 4): Promise<void> {
      const filters = [
        {},
        ...planIds.map((plan) => ({ plan })),
        ...(["active", "suspended", "closed"] as const).map((state) => ({ state })),
        { hasLowBalance: true as const },
        { search: "a1", hasLowBalance: true as const, plan: "starter", state: "active" as const },
      ];
      const queries = accountOrders.flatMap((order) =>
        [false, true].flatMap((descending) => filters.map((filter) => ({ ...filter, order, descending }))),
      );
      const paged = new Set(some(queries, 5));
      for (const query of some(queries, every)) {
        const expected = await pagesOf(kernelLists, query, 1000);
        assert.deepEqual(await pagesOf(store, query, 1000), expected, JSON.stringify(query));
        if (!paged.has(query)) continue;
        assert.deepEqual(await pagesOf(store, query, 3), expected, `pages of ${JSON.stringify(query)}`);
      }
    }

    const idsOf = async (query: Omit<AccountsQuery, "limit">) => {
      const ids = (await store.accounts({ ...query, limit: 100 })).map(({ id }) => id);
      const expected = (await kernelLists.accounts({ ...query, limit: 100 })).map(({ id }) => id);
      assert.deepEqual(ids, expected, JSON.stringify(query));
      return ids;
    };

    test("are those of the kernel, in each order, with each filter, and in pages", async () => {
      await assertLists(2);
      const near = await idsOf({ hasLowBalance: true });
      assert.ok(near.length > 3 && near.length < 30, `${near.length} accounts`);
    });

    test("find ids by prefix, and owners, e-mails and external ids by the beginnings of words", async () => {
      assert.deepEqual(await idsOf({ search: "a0" }), accounts.slice(0, 10));
      assert.deepEqual(await idsOf({ search: "ADA@" }), ["a00"]);
      assert.deepEqual(await idsOf({ search: "example" }), ["a00", "a01"]);
      assert.deepEqual(await idsOf({ search: "xample" }), []);
      assert.deepEqual(await idsOf({ search: "crm-1" }), ["a00", "a01"]);
      assert.deepEqual(await idsOf({ search: "crm-10" }), ["a01"]);
      assert.deepEqual(await idsOf({ search: "lovelace" }), ["a00"]);
      assert.deepEqual(await idsOf({ search: "A05" }), ["a02", "a05"]);
      for (const search of ["100% e", "É bob", "b_b"]) assert.deepEqual(await idsOf({ search }), ["a01"]);
      for (const search of ["%", "_", "0% É", "'", "\\"]) assert.deepEqual(await idsOf({ search }), []);
      assert.deepEqual(await idsOf({ search: "crm", externalId: "CRM-1", descending: true }), ["a00"]);
    });

    test("count a window that has ended as full, and an account whose end has passed as closed", async () => {
      const closed = await idsOf({ state: "closed" });
      database.clock.advance(4 * hour);
      const later = await idsOf({ state: "closed" });
      assert.ok(later.length > closed.length);
      await assertLists();
      const before = await idsOf({ hasLowBalance: true });
      database.clock.advance(day);
      assert.ok((await idsOf({ hasLowBalance: true })).length < before.length);
      await assertLists();
      database.clock.advance(40 * day);
      await assertLists();
    });

    test("follow new plan versions and scheduled plans when a window ends", async () => {
      for (const each of [store, memory]) {
        await each.applyPlans(plansOf(planOf("starter", 7, 1), planOf("big", 50, 0)), {
          force: false,
          by: "test",
        });
      }
      await apply({ kind: "plan", account: "a06", op: "up", plan: "big", at: "refresh", by: "test" });
      // Until the next windows begin, the order counts the new versions.
      database.clock.advance(40 * day);
      assert.ok((await store.accounts({ plan: "starter", limit: 100 })).some(({ id }) => id === "a06"));
      for (const each of [store, memory]) await applyDueChanges(each, new Ledger(each), () => false);
      assert.ok((await idsOf({ plan: "big" })).includes("a06"));
      await assertLists();
    });
  });
}

interface Now {
  times: Times;
  plans: PlanCatalog;
}

function listOf(rows: readonly ListedAccount[], query: AccountsQuery, now: Now): AccountInOrder[] {
  const { order = "id", descending = false, after, afterValue, limit } = query;
  const found = rows
    .map((row) => ({ row, ...creditsOf(row, now) }))
    .filter(({ row, left, granted, state }) => {
      const isNear = state !== "closed" && (left < credits(1) || left * 10 < granted);
      if (query.hasLowBalance === true && !isNear) return false;
      if (query.plan !== undefined && row.plan !== query.plan) return false;
      if (query.state !== undefined && state !== query.state) return false;
      return isFound(row, query);
    })
    .map(({ row, left }) => {
      const additional = additionalOf(row);
      const values = { id: row.id, created: row.createdMs, plan: row.plan, additional, remaining: left };
      return { ...row, problem: null, orderValue: values[order] };
    });
  const sign = descending ? -1 : 1;
  const compare = (a: Place, b: Place) => {
    if (a.orderValue !== b.orderValue) return (a.orderValue < b.orderValue ? -1 : 1) * sign;
    return a.id === b.id ? 0 : (a.id < b.id ? -1 : 1) * sign;
  };
  const last = after === undefined ? null : { id: after, orderValue: afterValue ?? after };
  return found
    .filter((row) => last === null || compare(last, row) < 0)
    .sort(compare)
    .slice(0, limit);
}

interface Place {
  id: string;
  orderValue: string | number;
}

function creditsOf(account: ListedAccount, now: Now) {
  const read = readBalance({ account, problem: null, ...now, overdue: [], later: [] });
  if ("problem" in read) return { left: 0, granted: 0, state: account.state };
  const { base, overage, additionalMicro, state } = read;
  return {
    left: base.remainingMicro + overage.remainingMicro + additionalMicro,
    granted: base.capMicro + overage.capMicro,
    state,
  };
}

function isFound({ id, contact }: ListedAccount, { search, externalId }: AccountsQuery): boolean {
  if (externalId !== undefined && contact.externalId !== externalId) return false;
  if (search === undefined) return true;
  const [words, wanted] = [
    [contact.owner, contact.email, contact.externalId].flatMap(asciiWords),
    asciiWords(search),
  ];
  const hasAll = wanted.every((text) => words.some((word) => word.startsWith(text)));
  return id.startsWith(search.toLowerCase()) || (wanted.length > 0 && hasAll);
}

/** The only accent of the contacts above is that of É. */
function asciiWords(text: string | null): string[] {
  return (text ?? "")
    .toLowerCase()
    .replaceAll("é", "e")
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}
