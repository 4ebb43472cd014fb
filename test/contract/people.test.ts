/** Rows of people, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { PersonRow } from "../../src/store/people.ts";
import {
  eraseChange,
  linkChange,
  moveChange,
  roleChange,
  suspensionChange,
} from "../../src/store/person-changes.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { issuer, personRow } from "../fixtures/person-rows.ts";
import { start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));

const rowOf = (n: number, change: Partial<PersonRow> = {}) =>
  personRow(n, { name: "Ada <b>Lovelace</b>", ...change });

const change = { by: "test", atMs: start };
const suspend = (store: Store, row: PersonRow, atMs: number | null) =>
  store.setPersonSuspended(row.id, atMs, suspensionChange(row, atMs, change));
const link = (store: Store, id: string, to: { account: string; by: string; isFirst: boolean }) =>
  store.linkPerson(id, to, linkChange(id, to.account, { ...change, by: to.by }));

for (const backend of backends) {
  describe(`people on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let other: Store;
    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      other = await database.open();
    });
    after(() => database.remove());
    const openAccount = async (id: string, email: string | null = null) => {
      const draft = { id, plan: "starter", contact: { email } };
      const options = { by: "test", dryRun: false };
      assert.deepEqual(await store.putAccount(draft, options), { kind: "opened" });
    };

    test("are found on another node by id and by issuer and sub, as they were written", async () => {
      const row = rowOf(1, { email: "ada@x.example", emailVerified: true, roleRule: "group it-staff" });
      assert.deepEqual(await store.addPerson(row), row);
      assert.deepEqual(await other.person(row.id), row);
      assert.deepEqual(await other.personOf(issuer, "sub-1"), row);
      assert.equal(await other.personOf("https://other.example", "sub-1"), null);
      assert.equal(await other.person("person_ffffffffffffffff"), null);
      assert.deepEqual(await other.people([]), []);
    });

    test("an issuer and a sub have one row, whoever adds it first", async () => {
      const rows = [rowOf(10, { sub: "same" }), rowOf(11, { sub: "same" })];
      const added = await Promise.all(rows.map((row, n) => (n === 0 ? store : other).addPerson(row)));
      assert.deepEqual(added[0], added[1]);
    });

    test("a sign-in replaces what it found out, and nothing else", async () => {
      const row = await store.addPerson(rowOf(20));
      assert.equal(await suspend(store, row, start + 5), true);
      const facts = {
        name: null,
        email: "new@x.example",
        emailVerified: true,
        roleRule: "group owners",
        roleMatchedMs: start + 7,
        accountMatchedMs: start + 8,
        seenMs: start + 9,
      };
      await other.setPersonFacts(row, facts, roleChange(row, null, "owner", change));
      assert.deepEqual(await store.person(row.id), { ...row, ...facts, suspendedMs: start + 5 });
      assert.equal(await suspend(store, rowOf(4095), 1), false);
    });

    test("a sign-in links no account that a person has, or ever had", async () => {
      const [one, two] = [await store.addPerson(rowOf(30)), await store.addPerson(rowOf(31))];
      await openAccount("shared");
      await openAccount("spare");
      const first = { account: "shared", by: "email", isFirst: true };
      const linked = await Promise.all([link(store, one.id, first), link(other, two.id, first)]);
      assert.deepEqual(linked.toSorted(), [false, true], "one of two at the same time");
      const { account } = (await store.person(one.id)) ?? {};
      const loser = account === "shared" ? two.id : one.id;
      assert.equal(await link(store, loser, first), false);
      const winner = loser === one.id ? two.id : one.id;
      assert.equal(await link(store, winner, { ...first, account: "spare" }), false, "it has one");
      // An operator may let several people have one account.
      assert.equal(await link(store, loser, { account: "shared", by: "operator", isFirst: false }), true);
      const ofAccount = await store.listPeople({ account: "shared", limit: 10 });
      assert.deepEqual(ofAccount.map(({ id }) => id).sort(), [one.id, two.id].sort());
    });

    test("changes of a person at the same time are recorded once, and those that fail are not", async () => {
      const [row, loser] = [await store.addPerson(rowOf(70)), await store.addPerson(rowOf(71))];
      await openAccount("once");
      const link_ = { account: "once", by: "email", isFirst: true };
      const both = <T>(ask: (node: Store, n: number) => Promise<T>) =>
        Promise.allSettled([store, other].map(ask));
      await both((node, n) => link(node, row.id, { ...link_, by: `node-${n}` }));
      assert.equal(await link(store, loser.id, link_), false);
      await both((node, n) => suspend(node, row, start + n));
      const suspended = (await store.person(row.id)) ?? row;
      await both((node) => suspend(node, suspended, null));
      const facts = { ...row, roleRule: "group owners" };
      await both((node) => node.setPersonFacts(row, facts, roleChange(row, null, "owner", change)));
      const changes = await other.changes({ kind: "person", limit: 100 });
      const of = (id: string) => changes.filter(({ subject }) => subject === id).map(({ after }) => after);
      assert.deepEqual(of(loser.id), []);
      const each = [{ account: "once" }, { role: "owner" }, { suspended: false }, { suspended: true }];
      assert.deepEqual(
        of(row.id).toSorted(),
        each.map((after) => JSON.stringify(after)),
      );
    });

    test("moves a person from one issuer to another once, and never onto somebody else", async () => {
      const row = await store.addPerson(rowOf(40));
      await store.addPerson(rowOf(41, { issuer: "https://new.example", sub: "taken" }));
      const to = { issuer: "https://new.example", sub: "fresh" };
      const move = (sub: string) =>
        store.movePerson(row.id, issuer, { ...to, sub }, moveChange(row.id, issuer, to.issuer, change));
      assert.equal(await move("taken"), false);
      assert.equal(await move("fresh"), true);
      assert.equal(await move("again"), false);
      assert.equal((await store.personOf(to.issuer, "fresh"))?.id, row.id);
      const changes = await store.changes({ subject: row.id, limit: 9 });
      assert.deepEqual(
        changes.map(({ after }) => after),
        [JSON.stringify({ issuer: to.issuer })],
      );
    });

    test("finds people by verified addresses only", async () => {
      await store.addPerson(rowOf(50, { email: "Bo@x.example", emailVerified: true }));
      await store.addPerson(rowOf(51, { email: "bo@x.example", emailVerified: false }));
      const found = await store.peopleWithEmail(issuer, "bo@X.example");
      assert.deepEqual(
        found.map(({ sub }) => sub),
        ["sub-50"],
      );
    });

    test("finds open accounts by their contact address", async () => {
      await openAccount("carl", "carl@x.example");
      assert.deepEqual(await store.openAccountsWithEmail("carl@x.example"), ["carl"]);
      await openAccount("carl-2", "carl@x.example");
      assert.deepEqual(await store.openAccountsWithEmail("carl@x.example"), ["carl", "carl-2"]);
      const close = {
        kind: "state",
        account: "carl",
        op: "close",
        to: { kind: "close" },
        by: "test",
      } as const;
      await store.commit([close]);
      assert.deepEqual(await store.openAccountsWithEmail("carl@x.example"), ["carl-2"]);
      assert.deepEqual(await store.openAccountsWithEmail("x.example"), []);
    });

    test("lists accounts of rules that nobody has used for long, until they are suspended", async () => {
      const row = await store.addPerson(rowOf(60, { accountMatchedMs: start - 100 }));
      const late = await store.addPerson(rowOf(61, { accountMatchedMs: start }));
      const linked = await store.addPerson(rowOf(62, { accountMatchedMs: start - 100 }));
      for (const [n, { id }] of [row, late, linked].entries()) {
        await openAccount(`rule-${n}`);
        const by = id === linked.id ? "operator" : "rule";
        assert.ok(await link(store, id, { account: `rule-${n}`, by, isFirst: true }));
      }
      const lapsing = async () => (await other.peopleToLapse(start - 50, 10)).map(({ id }) => id);
      assert.deepEqual(await lapsing(), [row.id]);
      await store.setPersonLapsed(row.id, start);
      assert.deepEqual(await lapsing(), []);
      await store.setPersonLapsed(row.id, null);
      assert.deepEqual(await lapsing(), [row.id]);
    });

    test("that are erased name nobody, and change no more", async () => {
      const { sub } = rowOf(80);
      const row = await store.addPerson(
        rowOf(80, { email: "eve@x.example", roleRule: "email eve@x.example" }),
      );
      await openAccount("eve", "eve@x.example");
      assert.ok(await link(store, row.id, { account: "eve", by: "operator", isFirst: false }));
      const erase = () => other.erasePerson(row.id, start + 9, eraseChange(row.id, change));
      assert.equal(await erase(), true);
      const erased = await store.person(row.id);
      assert.deepEqual(erased, {
        ...rowOf(80),
        sub: `erased:${row.id}`,
        name: null,
        account: "eve",
        accountBy: "operator",
        suspendedMs: start + 9,
        erasedMs: start + 9,
      });
      assert.equal((await store.contact("eve"))?.email, null);
      assert.equal(await suspend(store, row, null), false);
      assert.equal(await store.setPersonFacts(row, { ...row, name: "Eve" }, null), false);
      assert.deepEqual(await store.listPeople({ account: "eve", isPresent: true, limit: 10 }), []);
      assert.equal(await store.personOf(issuer, sub), null);
      assert.equal(await erase(), true);
      assert.deepEqual(await store.person(row.id), erased);
    });

    test("one of several requests asks the issuer again", async () => {
      const hash = "f".padStart(64, "0");
      const times = { createdMs: start, usedMs: start, idleMs: 1000, endsMs: start + 5000, endedMs: null };
      const owner = "person_0000000000000001";
      await store.addSession({
        hash,
        kind: "operator",
        owner,
        ...times,
        sealed: "one",
        checkedMs: start,
        authenticatedMs: null,
      });
      const claims = await Promise.all(
        [store, other, store].map((node) => node.claimCheck(hash, start, start + 10)),
      );
      assert.equal(claims.filter(Boolean).length, 1);
      await store.sealSession(hash, "two");
      const [row] = await other.sessions([hash]);
      assert.deepEqual([row?.sealed, row?.checkedMs], ["two", start + 10]);
    });
  });
}
