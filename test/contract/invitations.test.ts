/** Rows of invitations, and the people that come of them, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { changeLogRow } from "../../src/store/change-log.ts";
import { invitationIssuer } from "../../src/store/invitations.ts";
import { newPerson } from "../../src/store/people.ts";
import { eraseChange, linkChange, suspensionChange } from "../../src/store/person-changes.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));
let numbers = 0;
const next = () => {
  numbers += 1;
  return numbers;
};

for (const backend of backends) {
  describe(`invitations on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let other: Store;
    before(async () => {
      database = backend.create(plans);
      store = await database.open();
      other = await database.open();
    });
    after(() => database.remove());

    /** Opens an account, or changes the address of its contact. */
    const put = async (id: string, email: string | null) => {
      const plan = (await store.contact(id)) === null ? "starter" : null;
      const draft = { id, plan, contact: { email, owner: `Owner of ${id}` } };
      await store.putAccount(draft, { by: "test", dryRun: false });
    };
    /** Returns the hash of a new link. Null: it was not added. */
    const invite = async (account: string, email: string, change: { endsMs?: number; by?: string } = {}) => {
      const hash = next().toString(16).padStart(64, "0");
      const by = change.by ?? "owner";
      const row = { account, email, hash, by, createdMs: start, endsMs: change.endsMs ?? start + day };
      const logged = { kind: "invitation", account, before: null, after: { by } } as const;
      const isAdded = await store.invitations.add(row, changeLogRow({ ...logged, by, atMs: start }));
      return isAdded ? hash : null;
    };
    const exchange = (hash: string | null, node = store, nowMs = start + 5) => {
      const id = `person_${next().toString(16).padStart(16, "0")}`;
      const change = (account: string) => linkChange(id, account, { by: `person:${id}`, atMs: start });
      return node.invitations.exchange({ hash: hash ?? "", nowMs, person: { id, sub: `sub-${id}` } }, change);
    };
    const changesOf = async (account: string) => {
      const changes = await other.changes({ limit: 200 });
      return changes.filter(({ account: of, after }) => of === account || after?.includes(`"${account}"`));
    };

    test("a link makes a person with the account, once", async () => {
      await put("ada", "Ada@x.example");
      const hash = await invite("ada", "ada@x.example");
      const person = await exchange(hash);
      assert.partialDeepStrictEqual(person, {
        issuer: invitationIssuer,
        name: "Owner of ada",
        email: "Ada@x.example",
        emailVerified: false,
        roleRule: null,
        account: "ada",
        accountBy: "invitation",
        seenMs: start + 5,
        suspendedMs: null,
      });
      assert.deepEqual(await other.person(person?.id ?? ""), person);
      assert.deepEqual(await other.personOf(invitationIssuer, person?.sub ?? ""), person);
      assert.deepEqual(await other.invitations.personOf("ada", "ADA@X.example"), person);
      assert.equal(await exchange(hash), null, "replayed");
      assert.equal(await exchange(hash, other), null, "replayed on another node");
      assert.equal(await exchange("f".repeat(64)), null, "unknown");
      assert.equal(await store.invitations.wasInvited("ada", "ADA@x.example"), true);
      assert.equal(await store.invitations.wasInvited("ada", "bob@x.example"), false);
    });

    test("an address is the same in either case of a to z, whatever its other letters", async () => {
      await put("zoe", "Zoë.Ü@x.example");
      const person = await exchange(await invite("zoe", "zoë.Ü@x.example"));
      assert.equal(person?.account, "zoe");
      assert.equal(await store.invitations.wasInvited("zoe", "ZOë.Ü@x.example"), true);
      assert.equal((await store.invitations.personOf("zoe", "zoë.Ü@X.example"))?.id, person?.id);
      assert.deepEqual(await store.openAccountsWithEmail("zoë.Ü@X.example"), ["zoe"]);
      const facts = {
        issuer: "https://login.example",
        sub: "zoe",
        email: "Zoë.Ü@x.example",
        emailVerified: true,
      };
      await store.addPerson(newPerson(facts, start));
      assert.equal((await store.peopleWithEmail(facts.issuer, "zoë.Ü@x.example")).length, 1);
    });

    test("a newer link ends the one before, and has the same person", async () => {
      await put("bob", "bob@x.example");
      const first = await invite("bob", "bob@x.example");
      const second = await invite("bob", "BOB@x.example");
      assert.equal(await exchange(first), null);
      const person = await exchange(second);
      assert.notEqual(person, null);
      const third = await invite("bob", "bob@x.example");
      assert.equal(await exchange(second), null);
      const again = await exchange(third, other, start + 9);
      assert.deepEqual(again, { ...person, seenMs: start + 9 });
      assert.equal((await store.listPeople({ account: "bob", limit: 9 })).length, 1);
    });

    test("a link ends after its time", async () => {
      await put("late", "late@x.example");
      const hash = await invite("late", "late@x.example", { endsMs: start + 100 });
      assert.equal(await exchange(hash, store, start + 100), null);
      assert.notEqual(await exchange(hash, store, start + 99), null);
    });

    test("a link ends with the address of its contact, and none is made for another one", async () => {
      await put("carl", "carl@x.example");
      assert.equal(await invite("carl", "eve@x.example"), null);
      assert.equal(await invite("nobody", "carl@x.example"), null);
      const hash = await invite("carl", "carl@x.example");
      await put("carl", "carl@new.example");
      assert.equal(await exchange(hash), null);
      await put("carl", "carl@x.example");
      assert.equal(await exchange(hash), null, "the address has come back");
      assert.equal(await store.invitations.wasInvited("carl", "carl@x.example"), false);
      const kept = await invite("carl", "carl@x.example");
      await put("carl", "CARL@x.example");
      assert.equal((await exchange(kept))?.account, "carl", "the same address");
      const last = await invite("carl", "carl@x.example");
      await put("carl", null);
      assert.equal(await exchange(last), null);
      assert.equal(await invite("carl", "carl@x.example"), null);
      // Another address is another person.
      await put("carl", "carla@x.example");
      const carla = await exchange(await invite("carl", "carla@x.example"));
      await put("carl", "carl@x.example");
      const carl = await exchange(await invite("carl", "carl@x.example"));
      assert.ok(carl !== null && carla !== null && carl.id !== carla.id);
    });

    test("a link ends with its account", async () => {
      await put("dora", "dora@x.example");
      const hash = await invite("dora", "dora@x.example");
      const close = { kind: "state", account: "dora", op: "x", to: { kind: "close" }, by: "test" } as const;
      await store.commit([close]);
      assert.equal(await exchange(hash), null);
      assert.equal(await invite("dora", "dora@x.example"), null);
    });

    test("a link of a suspended person does nothing until the suspension ends", async () => {
      await put("emil", "emil@x.example");
      const person = await exchange(await invite("emil", "emil@x.example"));
      assert.ok(person !== null);
      const hash = await invite("emil", "emil@x.example");
      const suspension = suspensionChange(person, start, { by: "test", atMs: start });
      await other.setPersonSuspended(person.id, start, suspension);
      assert.equal(await exchange(hash), null);
      const resumed = suspensionChange({ ...person, suspendedMs: start }, null, { by: "test", atMs: start });
      await other.setPersonSuspended(person.id, null, resumed);
      assert.equal((await exchange(hash))?.id, person.id);
    });

    test("an erased person leaves no link, and who is invited then is somebody else", async () => {
      await put("ines", "ines@x.example");
      const person = await exchange(await invite("ines", "ines@x.example"));
      assert.ok(person !== null);
      const hash = await invite("ines", "ines@x.example");
      const erase = () =>
        other.erasePerson(person.id, start + 9, eraseChange(person.id, { by: "test", atMs: start }));
      assert.equal(await erase(), true);
      assert.equal(await exchange(hash), null);
      assert.equal(await store.invitations.wasInvited("ines", "ines@x.example"), false);
      assert.equal(await store.invitations.personOf("ines", "ines@x.example"), null);
      await put("ines", "ines@x.example");
      assert.equal(await exchange(hash), null, "also if the contact has the address again");
      const later = await exchange(await invite("ines", "ines@x.example"));
      assert.ok(later !== null && later.id !== person.id);
      // Another person of the account keeps link and contact.
      await put("ines", "jo@x.example");
      const jo = await invite("ines", "jo@x.example");
      assert.equal(await exchange(jo).then((row) => row?.account), "ines");
      const next = await invite("ines", "jo@x.example");
      await other.erasePerson(later.id, start + 9, eraseChange(later.id, { by: "test", atMs: start }));
      assert.equal(await store.invitations.wasInvited("ines", "ines@x.example"), false);
      assert.notEqual(await exchange(next), null);
    });

    test("an erase and an exchange at the same time leave no link and no data", async () => {
      for (let round = 0; round < 10; round += 1) {
        await put("kai", "kai@x.example");
        const person = await exchange(await invite("kai", "kai@x.example"));
        assert.ok(person !== null);
        const hash = await invite("kai", "kai@x.example");
        const change = eraseChange(person.id, { by: "test", atMs: start });
        await Promise.all([exchange(hash), other.erasePerson(person.id, start + 9, change)]);
        assert.equal(await exchange(hash), null);
        assert.equal((await store.person(person.id))?.email, null);
        assert.equal(await store.invitations.wasInvited("kai", "kai@x.example"), false);
      }
    });

    test("of several exchanges at the same time on two nodes, one succeeds", async () => {
      await put("fay", "fay@x.example");
      for (let round = 0; round < 10; round += 1) {
        const hash = await invite("fay", "fay@x.example");
        const nodes = [store, other, store, other];
        const results = await Promise.all(nodes.map((node) => exchange(hash, node)));
        assert.equal(results.filter((person) => person !== null).length, 1);
      }
      assert.equal((await store.listPeople({ account: "fay", limit: 9 })).length, 1);
    });

    test("an exchange and a newer link at the same time leave one person and one link that works", async () => {
      await put("gus", "gus@x.example");
      for (let round = 0; round < 10; round += 1) {
        const before = await invite("gus", "gus@x.example");
        const [, after] = await Promise.all([exchange(before, other), invite("gus", "gus@x.example")]);
        const last = await Promise.all([exchange(after), exchange(after, other), exchange(before)]);
        assert.equal(last.filter((person) => person !== null).length, 1);
      }
      assert.equal((await store.listPeople({ account: "gus", limit: 9 })).length, 1);
    });

    test("links and new people are in the list of changes, once, without codes", async () => {
      await put("hal", "hal@x.example");
      const hash = await invite("hal", "hal@x.example", { by: "operator_key:k" });
      const person = await exchange(hash);
      await exchange(hash);
      await exchange(await invite("hal", "hal@x.example", { by: "service:new_link" }));
      assert.equal(await invite("hal", "eve@x.example"), null);
      const found = (await changesOf("hal")).filter(({ kind }) => kind !== "contact" && kind !== "open");
      const by = `person:${person?.id}`;
      assert.deepEqual(
        found.map(({ kind, by: each, subject }) => [kind, each, subject]).toSorted(),
        [
          ["invitation", "operator_key:k", null],
          ["invitation", "service:new_link", null],
          ["person", by, person?.id],
        ].toSorted(),
      );
      assert.ok(!JSON.stringify(found).includes(hash ?? ""));
    });

    test("an erase and a new link at the same time leave no address behind", async () => {
      const left: string[] = [];
      for (let n = 0; n < 15; n += 1) {
        const [account, email] = [`erased-${n}`, `erased-${n}@x.example`];
        await put(account, email);
        const { id = "" } = (await exchange(await invite(account, email))) ?? {};
        const erase = other.erasePerson(id, start, eraseChange(id, { by: "owner", atMs: start }));
        // Not at once: the erase must be under way.
        for (let turn = 0; turn < n; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        await Promise.all([erase, invite(account, email)]);
        if (await store.invitations.wasInvited(account, email)) left.push(account);
      }
      assert.deepEqual(left, []);
    });

    test("an exchange and an erase of another person of the account at once both succeed", async () => {
      for (let n = 0; n < 15; n += 1) {
        const [account, email] = [`shared-${n}`, `shared-${n}@x.example`];
        await put(account, email);
        const row = await store.addPerson(
          newPerson({ issuer: "https://login.example", sub: account }, start),
        );
        const link = { account, by: "owner", isFirst: false };
        await store.linkPerson(row.id, link, linkChange(row.id, account, { by: "owner", atMs: start }));
        const hash = await invite(account, email);
        const change = eraseChange(row.id, { by: "owner", atMs: start });
        // The erase may end the link first.
        await Promise.all([other.erasePerson(row.id, start, change), exchange(hash)]);
      }
    });
  });
}
