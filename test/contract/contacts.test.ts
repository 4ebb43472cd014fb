/** Contacts, and openings with a contact and credits in one transaction, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { balanceOf } from "../../src/ledger/balance.ts";
import { type AccountDraft, type Contact, noContact } from "../../src/store/contacts.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";

const plans = plansOf(planOf("starter", 100, 10), planOf("big", 500, 10));
const write = { dryRun: false, by: "test" };

function draft(id: string, plan: string | null, contact: Partial<Contact> = {}): AccountDraft {
  return { id, plan, contact };
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

    test("are written with new accounts and their credits, once", async () => {
      const contact = { owner: "Ada Lovelace", email: "ada@example.com", externalId: "crm-1" };
      const additional = { amountMicro: credits(7), payment: "pi_1" };
      const ada = { ...draft("ada", "starter", contact), additional };
      const bob = { ...draft("bob", "big"), additional: { amountMicro: credits(9), payment: null } };
      for (const each of [ada, bob])
        assert.deepEqual(await store.putAccount(each, { ...write, dryRun: true }), { kind: "opened" });
      assert.deepEqual(await idsOf({}), []);
      for (const kind of ["opened", "exists"])
        for (const each of [ada, bob]) assert.deepEqual(await store.putAccount(each, write), { kind });
      assert.deepEqual(await store.contact("ada"), { ...noContact, ...contact });
      assert.deepEqual(await store.contact("bob"), noContact);
      assert.equal(await store.contact("carl"), null);
      for (const [id, amountMicro, fourth] of [
        ["ada", credits(7), ["payment", "payment:pi_1", "pi_1"]],
        ["bob", credits(9), ["promotion", null, null]],
      ] as const) {
        assert.equal(balanceOf(await store.accountSnapshot(id)).additionalMicro, amountMicro);
        assert.deepEqual(
          (await store.journal(id, { limit: 9 })).map(({ kind, op, subject }) => [kind, op, subject]),
          [["open", null, null], ["window", null, null], ["window", null, null], fourth],
        );
      }
      assert.deepEqual(
        (await store.payments("ada", { limit: 9 })).map(({ id }) => id),
        ["pi_1"],
      );
    });

    test("of an existing account change alone, and its plan and credits stay", async () => {
      const additional = { amountMicro: credits(5), payment: "pi_2" };
      const change = { ...draft("ada", "big", { note: "pays by invoice", owner: null }), additional };
      const { contact: before } = (await store.accounts({ limit: 1 }))[0] ?? {};
      const setting = { ...change, plan: null };
      for (const [each, dryRun] of [
        [change, false],
        [setting, true],
      ] as const) {
        assert.deepEqual(await store.putAccount(each, { ...write, dryRun }), { kind: "exists" });
        assert.deepEqual(await store.contact("ada"), before);
      }
      assert.deepEqual(await store.putAccount(setting, write), { kind: "exists" });
      assert.deepEqual(await store.contact("ada"), {
        ...noContact,
        email: "ada@example.com",
        note: "pays by invoice",
        externalId: "crm-1",
      });
      const [ada] = await store.accounts({ limit: 1 });
      assert.deepEqual([ada?.plan, ada?.contact.note], ["starter", "pays by invoice"]);
      assert.equal((await store.payments("ada", { limit: 9 })).length, 1);
    });

    for (const [what, refused, outcome] of [
      [
        "an unknown plan",
        draft("x", "none", { owner: "X" }),
        { kind: "unknown_plan", plan: "none", plans: ["starter", "big"] },
      ],
      ["a missing account", draft("x", null, { owner: "X" }), { kind: "account_not_found", account: "x" }],
      [
        "a used external id",
        draft("x", "big", { externalId: "crm-1" }),
        { kind: "external_id_used", externalId: "crm-1", account: "ada" },
      ],
      [
        "a used external id, of an account that exists,",
        draft("bob", null, { owner: "B", externalId: "crm-1" }),
        { kind: "external_id_used", externalId: "crm-1", account: "ada" },
      ],
      [
        "a payment that was counted",
        {
          ...draft("x", "big", { owner: "X" }),
          additional: { amountMicro: credits(7), payment: "pi_1" },
        },
        { kind: "payment_used", payment: "pi_1", account: "ada" },
      ],
    ] as const) {
      test(`write nothing if a draft has ${what}`, async () => {
        for (const dryRun of [true, false])
          assert.deepEqual(await store.putAccount(refused, { ...write, dryRun }), outcome);
        assert.deepEqual(await idsOf({}), ["ada", "bob"]);
        assert.equal((await store.contact("bob"))?.owner, null);
      });
    }

    test("give an external id to another account when the first one has it no more", async () => {
      const putAll = async (...drafts: AccountDraft[]) => {
        const outcomes = [];
        for (const each of drafts) outcomes.push((await store.putAccount(each, write)).kind);
        return outcomes;
      };
      assert.deepEqual(
        await putAll(
          draft("bob", null, { externalId: "crm-2" }),
          draft("ada", null, { externalId: "crm-2" }),
          draft("ada", null, { externalId: null }),
          draft("bob", null, { externalId: "crm-1" }),
          draft("ada", null, { externalId: "crm-2" }),
        ),
        ["exists", "external_id_used", "exists", "exists", "exists"],
      );
      assert.deepEqual(await idsOf({ externalId: "crm-1" }), ["bob"]);
    });

    test("find accounts by external id, owner and e-mail", async () => {
      await store.putAccount(draft("bob", null, { owner: "Bob 100% É", email: "b_b@EXAMPLE.com" }), write);
      assert.deepEqual(await idsOf({ externalId: "crm" }), []);
      assert.deepEqual(await idsOf({ externalId: "crm-1" }), ["bob"]);
      assert.deepEqual(await idsOf({ search: "ADA@" }), ["ada"]);
      assert.deepEqual(await idsOf({ search: "e 100% BOB" }), ["bob"]);
      assert.deepEqual(await idsOf({ search: "ob" }), []);
      assert.deepEqual(await idsOf({ search: "crm-" }), ["ada", "bob"]);
      assert.deepEqual(await idsOf({ search: "crm-", after: "ada" }), ["bob"]);
    });

    test("of one external id, and openings with one payment, go to one account, whoever is first", async () => {
      const other = await database.open();
      for (const [of, refused] of [
        [{ contact: { externalId: "race" } }, "external_id_used"],
        [{ additional: { amountMicro: credits(1), payment: "race" } }, "payment_used"],
      ] as const) {
        const outcomes = await Promise.all(
          [store, other].map((each, n) =>
            each.putAccount({ ...draft(`${refused}${n}`, "big"), ...of }, write),
          ),
        );
        assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), [refused, "opened"].sort());
      }
      assert.equal((await idsOf({ externalId: "race" })).length, 1);
      await assertSound(database);
    });
  });
}
