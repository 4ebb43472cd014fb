/** Erasing what names a person, on both databases. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { changeObject } from "../../src/accounts/log-objects.ts";
import { changeLogRow } from "../../src/store/change-log.ts";
import { addressKey, byLink } from "../../src/store/links.ts";
import type { PersonRow } from "../../src/store/people.ts";
import { eraseChange, linkChange, moveChange, roleChange } from "../../src/store/person-changes.ts";
import type { SessionKind } from "../../src/store/sessions.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { linkRow } from "../fixtures/link-rows.ts";
import { issuer, personRow } from "../fixtures/person-rows.ts";
import { minute, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));
const options = { by: "ann", dryRun: false };
const change = { by: "owner", atMs: start };

/** Texts that name Ada. */
const names = {
  name: "Ada Lovelace",
  email: "ada@x.example",
  sub: "sub-of-ada",
  owner: "Countess",
  note: "called on Monday",
  externalId: "student-1815",
};

const personOf = (n: number, parts: Partial<PersonRow> = {}) =>
  personRow(n, { emailVerified: true, accountMatchedMs: start, ...parts });

for (const backend of backends) {
  describe(`erased people on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let other: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      store = await database.open({ thresholdPercents: [80] });
      other = await database.open();
    });
    afterEach(async () => {
      try {
        await assertSound(database);
      } finally {
        await database.remove();
      }
    });

    async function openAccount(id: string): Promise<void> {
      const { owner, email, note, externalId } = names;
      const contact = { owner, email, note, externalId: `${externalId}-${id}` };
      await store.putAccount({ id, plan: "starter", contact }, options);
    }
    async function link(id: string, account: string): Promise<void> {
      const linked = await store.linkPerson(
        id,
        { account, by: "owner", isFirst: false },
        linkChange(id, account, change),
      );
      assert.ok(linked);
    }
    async function session(owner: string, kind: SessionKind, n: number): Promise<string> {
      const hash = `${n}`.padStart(64, "0");
      const times = { createdMs: start + n, usedMs: start + n, idleMs: 1000, endsMs: start + 5000 };
      await store.addSession({
        hash,
        kind,
        owner,
        ...times,
        endedMs: null,
        sealed: "s",
        checkedMs: start,
        authenticatedMs: null,
      });
      return hash;
    }
    /** Ada with an account, its ledger, a role that has changed, two sessions, and events. */
    async function ada(account = "ada"): Promise<PersonRow> {
      const row = await store.addPerson(
        personOf(1, { name: names.name, email: names.email, sub: names.sub, roleRule: "group owners" }),
      );
      await openAccount(account);
      await link(row.id, account);
      const facts = { ...row, roleRule: "group support" };
      await store.setPersonFacts(row, facts, roleChange(row, "owner", "support", change));
      await session(row.id, "operator", 1);
      await session(row.id, "portal", 2);
      await addKey(store, keyOf("key_1", account));
      await store.commit([{ kind: "topup", account, payment: "pay-1", amountMicro: credits(5), by: "ann" }]);
      await store.commit([hold("r1", 5, { account, key: "key_1" })]);
      await store.commit([settle("r1", 3, { account })]);
      await store.events.queue([{ name: "mail", types: new Set(["payment.added"]) }]);
      const answer = `550 <${names.email}> is unknown`;
      const attempt = { state: "dead", attempts: 1, nextMs: 0, triedMs: start, status: 550 } as const;
      for (const { number } of await store.events.firsts("mail", account, 1))
        await store.events.record("mail", [{ number, ...attempt, answer }]);
      return row;
    }
    const erase = (node: Store, id: string) =>
      node.erasePerson(id, start + minute, eraseChange(id, { ...change, atMs: start + minute }));

    /** Returns the rows of all tables that name Ada. */
    async function traces(): Promise<string[]> {
      const tables = await database.sql(
        backend.name === "SQLite"
          ? "select name from sqlite_master where type = 'table'"
          : "select table_name as name from information_schema.tables where table_schema = current_schema()",
      );
      assert.ok(tables.length > 20);
      const found: string[] = [];
      for (const { name } of tables) {
        for (const row of await database.sql(`select * from "${name}"`)) {
          const text = JSON.stringify(row, (_, value) => (typeof value === "bigint" ? Number(value) : value));
          if (Object.values(names).some((each) => text.includes(each))) found.push(`${name} ${text}`);
        }
      }
      return found;
    }

    test("leave nothing that names them, and the account with its ledger", async () => {
      const { id } = await ada();
      assert.ok((await traces()).length >= 4, "person, contact, change and answer");
      const [journal, receipts] = [
        await store.journal("ada", { limit: 100 }),
        await store.usage({ account: "ada", limit: 100 }),
      ];
      assert.equal(await erase(other, id), true);
      assert.deepEqual(await traces(), []);
      assert.deepEqual(await store.person(id), {
        ...personOf(1, { sub: `erased:${id}`, emailVerified: false, account: "ada" }),
        accountBy: "owner",
        suspendedMs: start + minute,
        erasedMs: start + minute,
      });
      assert.deepEqual(await store.journal("ada", { limit: 100 }), journal);
      assert.deepEqual(await store.usage({ account: "ada", limit: 100 }), receipts);
      assert.deepEqual(await store.sessionsOf(id), []);
      assert.equal((await store.keys("ada")).length, 1);
      const changes = (await store.changes({ subject: id, limit: 10 })).map(changeObject.of);
      assert.deepEqual(
        changes.map(({ by, kind, before, after }) => [by, kind, before, after]),
        [
          ["owner", "person", { erased: false }, { erased: true }],
          ["owner", "person", null, null],
          ["owner", "person", null, null],
        ],
      );
    });

    test("leave no name and no address in seats of links", async () => {
      const at = { kind: "link", by: "owner", atMs: start, before: null, after: null } as const;
      const [one, two] = [linkRow(1, { plan: "starter" }), linkRow(2, { plan: "starter" })];
      const seatAt = async (link: typeof one, email: string) => {
        const { id, hash } = link;
        await store.links.add(link, changeLogRow(at));
        const joiner = addressKey(email);
        const seat = { link: id, joiner, hash, name: names.name, email, askedMs: start };
        const nobody = { endsMs: start + minute, account: null, person: null, joinedMs: null };
        assert.ok(await store.links.ask({ ...seat, ...nobody }));
        return { link: id, joiner, hash, isMailed: true };
      };
      const { email } = names;
      const seat = await seatAt(one, email.replace("@", "+class@"));
      await seatAt(two, email);
      const person = { id: personOf(7).id, sub: names.sub };
      const contact = { owner: names.name, email };
      const draft = { id: "a-class-1", plan: "starter", contact, seat: { ...seat, person } };
      const opened = await store.putAccount(draft, { by: byLink(one.id), dryRun: false });
      assert.equal(opened.kind, "opened");
      assert.ok((await traces()).length >= 5, "person, contact, change, and both seats");
      const seats = await store.links.seatsOf({ id: person.id, email });
      assert.deepEqual(
        seats.map(({ link, account }) => [link, account]),
        [
          [one.id, "a-class-1"],
          [two.id, null],
        ],
      );
      assert.ok(await erase(other, person.id));
      assert.deepEqual(await traces(), []);
      const [row] = await store.links.accounts(one.id, { limit: 9 });
      assert.partialDeepStrictEqual(row, { account: "a-class-1", person: person.id, name: null });
      assert.deepEqual(await store.links.counts(one.id, start), { waiting: 0, joined: 1, used: 0 });
    });

    test("are erased once, and a repetition erases what has come since", async () => {
      const { id } = await ada();
      await Promise.all([erase(store, id), erase(other, id)]);
      assert.equal((await store.changes({ subject: id, limit: 10 })).length, 3);
      const { email } = names;
      const draft = { id: "ada", plan: null, contact: { email } };
      await store.putAccount(draft, options);
      assert.notDeepEqual(await traces(), []);
      assert.equal(await store.erasePerson(id, start + 2 * minute, eraseChange(id, change)), true);
      assert.deepEqual(await traces(), []);
      assert.equal((await store.person(id))?.erasedMs, start + minute);
      assert.equal((await store.changes({ subject: id, limit: 10 })).length, 3);
      assert.equal(await erase(store, "person_ffffffffffffffff"), false);
      assert.deepEqual(await store.changes({ subject: "person_ffffffffffffffff", limit: 10 }), []);
    });

    test("are strangers when they sign in again, and get nothing of what they had", async () => {
      const { id } = await ada();
      await erase(store, id);
      assert.equal(await other.personOf(issuer, names.sub), null);
      const again = await other.addPerson(personOf(2, { sub: names.sub, name: names.name }));
      assert.equal(again.id, personOf(2).id);
      const byEmail = { account: "ada", by: "email", isFirst: true };
      assert.equal(await other.linkPerson(again.id, byEmail, linkChange(again.id, "ada", change)), false);
    });

    test("are changed by no sign-in and no operator any more", async () => {
      const row = await ada();
      await erase(store, row.id);
      const facts = { ...row, roleRule: "group owners" };
      const later = roleChange({ ...row, seenMs: start + 1 }, null, "owner", change);
      assert.equal(await other.setPersonFacts(row, facts, later), false);
      assert.equal(await other.setPersonSuspended(row.id, null, eraseChange("resumed", change)), false);
      const moved = { issuer: "https://new.example", sub: names.sub };
      assert.equal(
        await other.movePerson(row.id, issuer, moved, moveChange(row.id, issuer, moved.issuer, change)),
        false,
      );
      assert.deepEqual(await traces(), []);
      assert.equal((await store.changes({ subject: row.id, limit: 10 })).length, 3);
      const free = await store.addPerson(personOf(3));
      await erase(store, free.id);
      const to = { account: "ada", by: "owner", isFirst: false };
      assert.equal(await other.linkPerson(free.id, to, linkChange(free.id, "ada", change)), false);
    });

    test("leave the contact of an account that another person has", async () => {
      const { id } = await ada();
      const bob = await store.addPerson(personOf(2));
      await link(bob.id, "ada");
      await erase(store, id);
      assert.equal((await store.contact("ada"))?.email, names.email);
      assert.equal((await store.changes({ kind: "contact", limit: 10 }))[0]?.before === null, false);
      await erase(store, bob.id);
      assert.equal((await store.contact("ada"))?.email, null);
      assert.deepEqual(await traces(), []);
    });

    test("leave no contact if both people of an account are erased at the same time", async () => {
      for (let round = 0; round < 5; round += 1) {
        const account = `shared-${round}`;
        await openAccount(account);
        const people = [personOf(100 + 2 * round), personOf(101 + 2 * round)];
        for (const person of people) {
          await store.addPerson(person);
          await link(person.id, account);
        }
        await Promise.all(people.map(({ id }, n) => erase(n === 0 ? store : other, id)));
        assert.deepEqual(await traces(), []);
      }
    });

    test("leave no contact of the account that their first sign-in has opened and not linked", async () => {
      const row = await store.addPerson(personOf(255));
      await openAccount("p-00000000000000ff");
      await erase(other, row.id);
      assert.deepEqual(await traces(), []);
    });

    test("leave everything of others", async () => {
      const { id } = await ada();
      const bob = personOf(2, { name: "Bob", email: "bob@x.example", roleRule: "group viewers" });
      await store.addPerson(bob);
      await store.putAccount({ id: "bob", plan: "starter", contact: { owner: "Bob" } }, options);
      await link(bob.id, "bob");
      const hash = await session(bob.id, "portal", 3);
      await session("operator", "operator", 4);
      const before = await store.changes({ account: "bob", limit: 10 });
      await erase(other, id);
      assert.deepEqual(await store.person(bob.id), { ...bob, account: "bob", accountBy: "owner" });
      assert.equal((await store.contact("bob"))?.owner, "Bob");
      assert.deepEqual(await store.changes({ account: "bob", limit: 10 }), before);
      assert.equal((await store.sessions([hash, "4".padStart(64, "0")])).length, 2);
    });

    test("keep their place among those whose accounts a rule suspends later", async () => {
      const row = await store.addPerson(personOf(9, { accountMatchedMs: start - 100 }));
      await openAccount("p-0000000000000009");
      const to = { account: "p-0000000000000009", by: "rule", isFirst: true };
      await store.linkPerson(row.id, to, linkChange(row.id, to.account, change));
      await erase(store, row.id);
      assert.deepEqual(
        (await store.peopleToLapse(start, 10)).map(({ id }) => id),
        [row.id],
      );
    });
  });
}
