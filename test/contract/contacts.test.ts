/** Contacts of accounts, and the opening of many accounts in one transaction, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type AccountDraft, type Contact, noContact } from "../../src/store/contacts.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";

const plans = plansOf(planOf("starter", 100, 10), planOf("big", 500, 10));
const write = { dryRun: false, updatesExisting: true, by: "test" };

function draft(id: string, plan: string | null, contact: Partial<Contact> = {}): AccountDraft {
  return { id, plan, contact, key: null };
}

for (const backend of backends) {
  describe(`contacts on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    before(async () => {
      database = backend.create(plans);
      store = await database.open();
    });
    after(() => database.remove());
    const idsOf = async (query: object) =>
      (await store.accounts({ ...query, limit: 100 })).map(({ id }) => id);

    test("are written with new accounts and their keys, once", async () => {
      const contact = { owner: "Ada Lovelace", email: "ada@example.com", externalId: "crm-1" };
      const key = keyOf("key_ada", "ada", { hash: "a".repeat(64) });
      const drafts = [{ ...draft("ada", "starter", contact), key }, draft("bob", "big")];
      const dry = await store.putAccounts(drafts, { ...write, dryRun: true });
      assert.deepEqual(dry, [{ kind: "opened" }, { kind: "opened" }]);
      assert.deepEqual(await idsOf({}), []);
      assert.deepEqual(await store.putAccounts(drafts, write), dry);
      assert.deepEqual(await store.contact("ada"), { ...noContact, ...contact });
      assert.deepEqual(await store.contact("bob"), noContact);
      assert.equal(await store.contact("carl"), null);
      assert.deepEqual(
        (await store.keys()).map(({ id }) => id),
        ["key_ada"],
      );
      assert.deepEqual(await store.putAccounts(drafts, write), [
        { kind: "exists", plan: "starter", changed: false },
        { kind: "exists", plan: "big", changed: false },
      ]);
      assert.equal((await store.keys()).length, 1, "no second key");
      assert.deepEqual(
        (await store.journal("ada", { limit: 9 })).map(({ kind }) => kind),
        ["open", "window", "window", "key"],
      );
    });

    test("of an existing account change alone, and its plan stays", async () => {
      const change = draft("ada", "big", { note: "pays by invoice", owner: null });
      assert.deepEqual(await store.putAccounts([change], { ...write, updatesExisting: false }), [
        { kind: "exists", plan: "starter", changed: false },
      ]);
      assert.equal((await store.contact("ada"))?.note, null);
      assert.deepEqual(await store.putAccounts([change], write), [
        { kind: "exists", plan: "starter", changed: true },
      ]);
      assert.deepEqual(await store.contact("ada"), {
        ...noContact,
        email: "ada@example.com",
        note: "pays by invoice",
        externalId: "crm-1",
      });
      const [ada] = await store.accounts({ limit: 1 });
      assert.deepEqual([ada?.plan, ada?.contact.note], ["starter", "pays by invoice"]);
    });

    for (const [what, refused, outcome] of [
      ["an unknown plan", draft("x", "none"), { kind: "unknown_plan", plans: ["starter", "big"] }],
      ["a missing account", draft("x", null), { kind: "no_account" }],
      [
        "a used external id",
        draft("x", "big", { externalId: "crm-1" }),
        { kind: "external_id_used", account: "ada" },
      ],
    ] as const) {
      test(`write nothing if one draft has ${what}`, async () => {
        const drafts = [draft("new", "big", { owner: "N" }), draft("bob", null, { owner: "B" }), refused];
        const outcomes = await store.putAccounts(drafts, write);
        assert.deepEqual(outcomes[2], outcome);
        assert.deepEqual(await idsOf({}), ["ada", "bob"]);
        assert.equal((await store.contact("bob"))?.owner, null);
      });
    }

    test("never move an external id to another account, even if the list gives both another one", async () => {
      await store.putAccounts([draft("bob", null, { externalId: "crm-2" })], write);
      const swap = [draft("ada", null, { externalId: "crm-2" }), draft("bob", null, { externalId: "crm-1" })];
      assert.deepEqual(await store.putAccounts(swap, write), [
        { kind: "external_id_used", account: "bob" },
        { kind: "external_id_used", account: "ada" },
      ]);
      const freed = draft("ada", null, { externalId: null });
      assert.deepEqual(await store.putAccounts([freed, draft("bob", null, { externalId: "crm-1" })], write), [
        { kind: "exists", plan: "starter", changed: true },
        { kind: "external_id_used", account: "ada" },
      ]);
      await store.putAccounts([freed], write);
      await store.putAccounts([draft("bob", null, { externalId: "crm-1" })], write);
      await store.putAccounts([draft("ada", null, { externalId: "crm-2" })], write);
      assert.deepEqual(await idsOf({ externalId: "crm-1" }), ["bob"]);
    });

    test("find accounts by external id, owner and e-mail", async () => {
      await store.putAccounts([draft("bob", null, { owner: "Bob 100% É", email: "b_b@EXAMPLE.com" })], write);
      assert.deepEqual(await idsOf({ externalId: "crm" }), []);
      assert.deepEqual(await idsOf({ externalId: "crm-1" }), ["bob"]);
      assert.deepEqual(await idsOf({ search: "ADA@" }), ["ada"]);
      assert.deepEqual(await idsOf({ search: "0% É" }), ["bob"]);
      assert.deepEqual(await idsOf({ search: "crm-" }), ["ada", "bob"]);
      assert.deepEqual(await idsOf({ search: "crm-", after: "ada" }), ["bob"]);
    });

    test("of one external id go to one account, whoever is first", async () => {
      const other = await database.open();
      const outcomes = await Promise.all(
        [store, other].map((each, n) =>
          each.putAccounts([draft(`race${n}`, "big", { externalId: "race" })], write),
        ),
      );
      assert.deepEqual(outcomes.map(([outcome]) => outcome?.kind).sort(), ["external_id_used", "opened"]);
      assert.equal((await idsOf({ externalId: "race" })).length, 1);
      await assertSound(database);
    });
  });
}
