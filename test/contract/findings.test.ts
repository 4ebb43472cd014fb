/** One search over accounts, people, keys, payments and requests, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eraseChange } from "../../src/store/person-changes.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { personRow } from "../fixtures/person-rows.ts";
import { hour, minute } from "../fixtures/times.ts";

const by = "test";
const write = { by, dryRun: false };
const person = personRow(7, { name: "Zoë Ångström", email: "zoe@müller.example", account: null });
const requests = ["019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e", "019a0c3e-77aa-7a52-9c3e-8d1f5a529c3e"] as const;

/** A text with what it finds, in order. */
const finds: readonly (readonly [text: string, ...ids: string[]])[] = [
  // Accounts by id, owner, e-mail and external id, people by name and e-mail.
  ["hans", "account hans-1", "account zz"],
  ["HANS-", "account hans-1", "account zz"],
  ["hans-1", "account hans-1"],
  ["muller", "account zz", `person ${person.id}`],
  ["Mu\u0308ll hán", "account zz"],
  ["ller"],
  ["lodz@ex", "account lodz"],
  ["EXAMPLE", "account lodz", `person ${person.id}`],
  ["strasse 9", "account lodz"],
  ["crm 77", "account zz"],
  ["CRM-7", "account zz"],
  ["太郎", "account hans-1"],
  ["angstr zo", `person ${person.id}`],
  ["0000000000000007", `person ${person.id}`],
  ["person_00000000", `person ${person.id}`],
  // Keys by id, name and the end of the secret.
  ["key_ab", "key key_ab12cd34ef567890"],
  ["ab12", "key key_ab12cd34ef567890"],
  ["buro", "key key_ab12cd34ef567890"],
  ["büro lap", "key key_ab12cd34ef567890"],
  ["ABCD", "key key_ab12cd34ef567890", "key key_without"],
  // Payments and requests by id.
  ["inv-20", "payment INV-2041", "payment inv-2042"],
  ["INV-2041", "payment INV-2041"],
  ["019a0c3e", ...requests.map((id) => `request ${id}`)],
  ["019A0C3E-5d", `request ${requests[0]}`],
  [`chatcmpl-${requests[1]}`, `request ${requests[1]}`],
  ["chatcmpl-019a0c3e-7", `request ${requests[1]}`],
  // No text is a pattern, and some find nothing.
  ["%"],
  ["_"],
  ["\\"],
  ["'"],
  ["019a0c3f"],
  ["nobody"],
];

for (const backend of backends) {
  describe(`a search on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    const found = async (text: string, limit = 20) =>
      (await store.find({ text, limit })).map(({ kind, id }) => `${kind} ${id}`);

    before(async () => {
      database = backend.create(plansOf(planOf("starter", 100, 10)));
      store = await database.open();
      const contacts = {
        "hans-1": { owner: "田中太郎" },
        zz: { owner: "Hans Müller", externalId: "CRM-77" },
        lodz: { owner: "Łódź, Straße 9", email: "lodz@example.com" },
      };
      for (const [id, contact] of Object.entries(contacts)) {
        assert.deepEqual(await store.putAccount({ id, plan: "starter", contact }, write), { kind: "opened" });
      }
      await addKey(store, keyOf("key_ab12cd34ef567890", "zz", { name: "Büro, Laptop" }));
      await addKey(store, keyOf("key_without", "lodz", { name: null }));
      const payment = (id: string, account: string) =>
        ({ kind: "topup", account, payment: id, amountMicro: credits(5), by }) as const;
      await store.commit([payment("INV-2041", "zz"), payment("inv-2042", "lodz")]);
      await store.addPerson(person);
      const of = { account: "zz", key: "key_ab12cd34ef567890" };
      for (const id of requests) await store.commit([hold(id, 9, of)]);
      for (const id of requests) await store.commit([settle(id, 4, { account: "zz" })]);
    });
    after(async () => {
      await assertSound(database);
      await database.remove();
    });

    test("finds the beginnings of ids and words, without accents and in any case", async () => {
      for (const [text, ...ids] of finds) assert.deepEqual(await found(text), ids, text);
    });

    test("says what it has found, and whose it is", async () => {
      const one = async (text: string) => (await store.find({ text, limit: 1 }))[0];
      assert.partialDeepStrictEqual(await one("zz"), {
        account: "zz",
        name: "Hans Müller",
        email: null,
        detail: "CRM-77",
        amountMicro: null,
      });
      assert.partialDeepStrictEqual(await one("buro"), {
        account: "zz",
        name: "Büro, Laptop",
        detail: "abcd",
      });
      const payment = { account: "zz", name: "Hans Müller", amountMicro: credits(5) };
      assert.partialDeepStrictEqual(await one("INV-2041"), payment);
      assert.partialDeepStrictEqual(await one(requests[0]), {
        account: "zz",
        name: "Hans Müller",
        detail: "model",
        amountMicro: 4,
      });
      assert.partialDeepStrictEqual(await one("zoe"), { account: null, email: "zoe@müller.example" });
    });

    test("finds at most so many of each kind, those with the beginning of their id first", async () => {
      assert.deepEqual(await found("hans", 1), ["account hans-1"]);
      assert.deepEqual(await found("019a", 1), [`request ${requests[0]}`]);
    });

    test("finds present names, and none that was replaced or erased", async () => {
      const contact = { owner: "Jérôme" };
      await store.putAccount({ id: "zz", plan: null, contact }, write);
      assert.deepEqual(await found("jerome"), ["account zz"]);
      assert.deepEqual(await found("hans mu"), []);
      const set = { name: "Zürich" };
      const rename = { kind: "key", account: "zz", key: "key_ab12cd34ef567890", op: "n", set, by } as const;
      await store.commit([rename]);
      assert.deepEqual(await found("zurich"), ["key key_ab12cd34ef567890"]);
      assert.deepEqual(await found("buro"), []);
      const facts = { ...person, name: "Chloé", seenMs: person.seenMs + minute };
      assert.equal(await store.setPersonFacts(person, facts, null), true);
      assert.deepEqual(await found("chloe"), [`person ${person.id}`]);
      assert.deepEqual(await found("angstrom"), []);
      const atMs = person.seenMs + hour;
      await store.erasePerson(person.id, atMs, eraseChange(person.id, { by, atMs }));
      for (const text of ["chloe", "zoe", "müller"]) assert.deepEqual(await found(text), [], text);
      assert.deepEqual(await found(person.id), [`person ${person.id}`]);
    });

    test("finds people in the list of people by the same rule", async () => {
      const other = personRow(8, { name: "Zoë Ångström" });
      await store.addPerson(other);
      const idsOf = async (search: string) =>
        (await store.listPeople({ search, limit: 9 })).map(({ id }) => id);
      for (const search of ["zoe", "ANGST", "person_0000000000000008", "0000000000000008"])
        assert.deepEqual(await idsOf(search), [other.id], search);
      assert.deepEqual(await idsOf("ngst"), []);
    });
  });
}
