/** Links by which many people join, and their seats, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { changeLogRow } from "../../src/store/change-log.ts";
import type { AccountDraft, DraftOutcome } from "../../src/store/contacts.ts";
import { addressKey, byLink, type LinkRow, type SeatDraft } from "../../src/store/links.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, type Backend, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { linkRow } from "../fixtures/link-rows.ts";
import { day, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("student", 100, 10));
let numbers = 0;
const next = () => {
  numbers += 1;
  return numbers;
};
const hashOf = (n: number) => n.toString(16).padStart(64, "0");
const logged = { kind: "link", by: "owner", atMs: start, before: null, after: null } as const;

interface Place {
  store: Store;
  other: Store;
  database: Pick<Database, "open" | "remove">;
}

/** Makes a link. */
async function linkIn({ store }: Place, parts: Partial<LinkRow> = {}): Promise<LinkRow> {
  const row = linkRow(next(), parts);
  assert.equal(await store.links.add(row, changeLogRow({ ...logged, subject: row.id })), true);
  return row;
}

interface Joining {
  joiner?: string;
  hash?: string;
  isMailed?: boolean;
  account?: string;
  email?: string | null;
  owner?: string;
}

const linkNow = async ({ store }: Place, { id }: LinkRow) => {
  const row = await store.links.link(id);
  assert.ok(row !== null);
  return row;
};

/** Somebody uses a link. */
async function join(node: Store, link: LinkRow, parts: Joining = {}) {
  const n = next();
  const { joiner = `browser-${n}`, hash = link.hash, isMailed = false, account = `a-${n}` } = parts;
  const { email = null, owner = `Student ${n}` } = parts;
  const person = { id: `person_${n.toString(16).padStart(16, "0")}`, sub: `sub-${n}` };
  const seat: SeatDraft = { link: link.id, joiner, hash, isMailed, person };
  const draft: AccountDraft = {
    id: account,
    plan: link.plan,
    contact: { owner, email },
    endsMs: link.accountsEndMs,
    seat,
  };
  const outcome = await node.putAccount(draft, { by: byLink(link.id), dryRun: false });
  return { outcome, account, person: person.id, owner, joiner };
}
const kindsOf = (all: readonly { outcome: DraftOutcome }[]) => all.map(({ outcome }) => outcome.kind).sort();

/** A seat that waits for its mailed code. */
async function ask({ store }: Place, link: LinkRow, email: string, endsMs = start + day) {
  const n = next();
  const joiner = addressKey(email);
  const typed = { name: `Student ${n}`, email };
  const nobody = { account: null, person: null, joinedMs: null };
  const row = { link: link.id, joiner, hash: hashOf(n), ...typed, askedMs: start, endsMs, ...nobody };
  return { row, isAdded: await store.links.ask(row) };
}

for (const backend of backends) {
  const name = `links on ${backend.name}`;
  describe(name, { skip: backend.skip ?? false }, () => {
    const place: Place = {} as Place;
    before(async () => {
      place.database = backend.create(plans);
      place.store = await place.database.open();
      place.other = await place.database.open();
    });
    after(() => place.database.remove());

    test("a seat opens an account, with its contact, its end and its person", async () => {
      const { store, other } = place;
      const link = await linkIn(place, { accountsEndMs: start + 9 * day });
      const { outcome, account, person, owner, joiner } = await join(store, link);
      assert.deepEqual(outcome, { kind: "opened" });
      const snapshot = await other.accountSnapshot(account);
      assert.partialDeepStrictEqual(snapshot?.account, { plan: "student", endsMs: start + 9 * day });
      const contact = await other.contact(account);
      assert.partialDeepStrictEqual(contact, { owner, email: null });
      assert.partialDeepStrictEqual(await other.person(person), {
        issuer: "invitation",
        name: owner,
        email: null,
        account,
        accountBy: byLink(link.id),
        seenMs: start,
      });
      const entries = await other.journal(account, { kinds: ["open", "end"], limit: 9 });
      assert.deepEqual(
        entries.map(({ kind, by }) => [kind, by]),
        [
          ["open", byLink(link.id)],
          ["end", byLink(link.id)],
        ],
      );
      const seat = await other.links.seat(link.id, joiner);
      assert.partialDeepStrictEqual(seat, { account, person, joinedMs: start, hash: null });
      assert.deepEqual(await other.links.withCode(link.hash), { ...link, taken: 1 });
    });

    test("the last seat goes to one of many, on two nodes", async () => {
      const link = await linkIn(place, { seats: 3 });
      const all = await Promise.all(
        Array.from({ length: 12 }, (_, n) => join(n % 2 === 0 ? place.store : place.other, link)),
      );
      const full = Array.from({ length: 9 }, () => "link_full");
      assert.deepEqual(kindsOf(all), [...full, "opened", "opened", "opened"]);
      for (const { outcome, account, person, joiner } of all) {
        const isOpened = outcome.kind === "opened";
        assert.equal((await place.store.accountSnapshot(account)) !== null, isOpened, account);
        assert.equal((await place.store.contact(account)) !== null, isOpened);
        assert.equal((await place.store.person(person)) !== null, isOpened);
        assert.equal((await place.store.links.seat(link.id, joiner)) !== null, isOpened);
      }
      assert.equal((await linkNow(place, link)).taken, 3);
    });

    test("one joiner gets one seat, however often and wherever they try", async () => {
      const link = await linkIn(place, { seats: 9 });
      const joiner = "two-tabs";
      const all = await Promise.all(
        Array.from({ length: 6 }, (_, n) => join(n % 2 === 0 ? place.store : place.other, link, { joiner })),
      );
      assert.deepEqual(kindsOf(all), [...Array.from({ length: 5 }, () => "already_joined"), "opened"]);
      assert.equal((await linkNow(place, link)).taken, 1);
      // Another link is another seat.
      assert.equal((await join(place.store, await linkIn(place), { joiner })).outcome.kind, "opened");
    });

    test("an account that exists stays as it is, and takes no seat", async () => {
      const { store } = place;
      const link = await linkIn(place, { accountsEndMs: start + 9 * day });
      const account = "taken-name";
      await store.putAccount(
        { id: account, plan: "student", contact: { owner: "Ada" } },
        { by: "test", dryRun: false },
      );
      const { outcome, person } = await join(store, link, { account });
      assert.equal(outcome.kind, "exists");
      assert.equal((await store.accountSnapshot(account))?.account.endsMs, null);
      assert.equal((await store.contact(account))?.owner, "Ada");
      assert.equal(await store.person(person), null);
      assert.equal((await linkNow(place, link)).taken, 0);
    });

    test("an end without a seat is refused for an account that exists, too", async () => {
      const { store } = place;
      const account = "without-end";
      const draft = { id: account, plan: "student", contact: {} };
      await store.putAccount(draft, { by: "test", dryRun: false });
      const again = await store.putAccount({ ...draft, endsMs: start + day }, { by: "test", dryRun: false });
      assert.equal(again.kind, "exists");
      assert.equal((await store.accountSnapshot(account))?.account.endsMs, null);
    });

    test("a code works until it is replaced, and a link until its end", async () => {
      const { store, other } = place;
      const link = await linkIn(place, { seats: 9 });
      assert.equal((await join(store, link, { hash: hashOf(next()) })).outcome.kind, "invalid_link");
      assert.equal((await join(store, { ...link, id: "link_0" })).outcome.kind, "invalid_link");
      const hash = hashOf(next());
      const change = (n: number) => changeLogRow({ ...logged, id: `${link.id} ${n}`, subject: link.id });
      assert.equal(await other.links.rotate(link.id, hash, change(1)), true);
      assert.equal((await join(store, link)).outcome.kind, "invalid_link");
      assert.equal(await store.links.withCode(link.hash), null);
      assert.equal((await join(store, { ...link, hash })).outcome.kind, "opened");
      assert.equal(await other.links.end(link.id, start, change(2)), true);
      assert.equal((await join(store, { ...link, hash })).outcome.kind, "link_ended");
      assert.equal(await store.links.end(link.id, start, change(3)), false);
      assert.equal(await store.links.rotate(link.id, hashOf(next()), change(4)), false);
      const now = await linkNow(place, link);
      assert.deepEqual(now, { ...link, hash, taken: 1, endedMs: start });
      assert.equal(await store.links.set(now, { ...now, seats: 10 }, change(5)), false);
      const over = await linkIn(place, { endsMs: start });
      assert.equal((await join(store, over)).outcome.kind, "link_ended");
      assert.equal(await store.links.set(over, { ...over, endsMs: start + 1 }, change(6)), true);
      assert.equal((await join(store, over)).outcome.kind, "opened", "a later end");
      assert.equal(
        (await join(store, await linkIn(place, { endsMs: start + 1 }))).outcome.kind,
        "opened",
        "the last millisecond",
      );
    });

    test("seats are added, and never taken from those who have one", async () => {
      const { store, other } = place;
      const link = await linkIn(place, { seats: 2 });
      const change = () => changeLogRow({ ...logged, subject: link.id });
      for (const kind of ["opened", "opened", "link_full"])
        assert.equal((await join(store, link)).outcome.kind, kind);
      const full = await linkNow(place, link);
      assert.equal(await store.links.set(full, { ...full, seats: 1 }, change()), false);
      assert.deepEqual(await linkNow(place, link), full);
      const settings = { name: "Informatics 2", seats: 3, endsMs: start + 2 * day };
      assert.equal(await other.links.set(full, settings, change()), true);
      assert.equal(await store.links.set(full, { ...full, name: "Other" }, change()), false, "read before");
      assert.equal((await join(other, link)).outcome.kind, "opened");
      assert.equal((await join(other, link)).outcome.kind, "link_full");
      assert.deepEqual(await linkNow(place, link), { ...full, ...settings, taken: 3 });
    });

    test("a closed account frees no seat", async () => {
      const { store } = place;
      const link = await linkIn(place, { seats: 1 });
      const { account } = await join(store, link);
      await store.commit([
        { kind: "state", account, op: `close ${account}`, to: { kind: "close" }, by: "test" },
      ]);
      assert.equal((await join(store, link)).outcome.kind, "link_full");
      const [row] = await store.links.accounts(link.id, { limit: 9 });
      assert.partialDeepStrictEqual(row, { account, state: "closed" });
    });

    test("an unknown plan, or one that is not offered, takes no seat", async () => {
      const link = await linkIn(place, { plan: "gone" });
      assert.equal((await join(place.store, link)).outcome.kind, "unknown_plan");
      assert.equal((await linkNow(place, link)).taken, 0);
    });

    test("a mailed code opens the account of its address once", async () => {
      const { store, other } = place;
      const link = await linkIn(place);
      const email = "Ada+class@Uni.example";
      const { row, isAdded } = await ask(place, link, email);
      assert.ok(isAdded);
      assert.equal((await linkNow(place, link)).taken, 0);
      assert.deepEqual(await other.links.seatWithCode(row.hash), row);
      const mailed = { joiner: row.joiner, hash: row.hash, isMailed: true, email };
      const wrong = await join(store, link, { ...mailed, hash: hashOf(next()) });
      assert.equal(wrong.outcome.kind, "invalid_invitation");
      const both = await Promise.all([join(store, link, mailed), join(other, link, mailed)]);
      assert.deepEqual(kindsOf(both), ["invalid_invitation", "opened"]);
      const { account, person } = both.find(({ outcome }) => outcome.kind === "opened") ?? assert.fail();
      assert.partialDeepStrictEqual(await store.contact(account), { email });
      assert.equal(await store.links.seatWithCode(row.hash), null);
      // A later link leads to the same person.
      assert.equal(await store.invitations.wasInvited(account, email), true);
      assert.equal((await store.invitations.personOf(account, email))?.id, person);
      assert.equal((await ask(place, link, "ADA@uni.example")).isAdded, false, "the address has a seat");
      assert.equal((await linkNow(place, link)).taken, 1);
    });

    test("a newer mail, its time, and a new code of the link end a mailed code", async () => {
      const { store } = place;
      const link = await linkIn(place, { seats: 9 });
      const use = async ({ row }: Awaited<ReturnType<typeof ask>>) => {
        const { joiner, hash, email } = row;
        return (await join(store, link, { joiner, hash, email, isMailed: true })).outcome.kind;
      };
      const first = await ask(place, link, "bob@x.example");
      const second = await ask(place, link, "bob+2@x.example");
      assert.equal(await use(first), "invalid_invitation", "replaced");
      assert.equal(await use(second), "opened");
      assert.equal(await use(await ask(place, link, "late@x.example", start)), "invalid_invitation");
      const waiting = await ask(place, link, "carl@x.example");
      const hash = hashOf(next());
      await store.links.rotate(link.id, hash, changeLogRow({ ...logged, subject: link.id }));
      assert.equal(await use(waiting), "invalid_invitation", "rotated");
      const last = await ask(place, link, "dora@x.example");
      await store.links.end(link.id, start, changeLogRow({ ...logged, subject: link.id }));
      assert.equal(await use(last), "link_ended");
    });

    test("codes that have ended are deleted, and those who joined stay", async () => {
      const { store } = place;
      const link = await linkIn(place);
      const { joiner } = await join(store, link);
      await ask(place, link, "old@x.example", start + 5);
      const { row } = await ask(place, link, "new@x.example", start + 6);
      assert.deepEqual(await store.links.counts(link.id, start), { waiting: 2, joined: 1, used: 0 });
      assert.deepEqual(await store.links.counts(link.id, start + 5), { waiting: 1, joined: 1, used: 0 });
      await store.links.removeWaiting(start + 5);
      assert.equal(await store.links.seat(link.id, "old@x.example"), null);
      assert.deepEqual(await store.links.seat(link.id, "new@x.example"), row);
      assert.notEqual(await store.links.seat(link.id, joiner), null);
    });

    test("lists have links from the newest, and accounts with what became of them", async () => {
      const { store } = place;
      const [one, two] = [
        await linkIn(place, { createdMs: start + 10 * day, seats: 9 }),
        await linkIn(place, { createdMs: start + 10 * day, seats: 9 }),
      ];
      const list = await store.links.list({ limit: 2 });
      assert.deepEqual(list, [two, one]);
      const [third] = await store.links.list({ limit: 1, after: one });
      assert.ok(third !== undefined && third.createdMs < one.createdMs);
      const joined = [await join(store, one), await join(store, one), await join(store, one)];
      const [first] = joined;
      assert.ok(first !== undefined);
      const { account } = first;
      await addKey(store, keyOf(`key-${account}`, account, { hash: hashOf(next()) }));
      await store.commit([hold(`r-${account}`, 5, { account, key: `key-${account}` })]);
      await store.commit([settle(`r-${account}`, 3, { account })]);
      const accounts = await store.links.accounts(one.id, { limit: 9 });
      const wanted = joined.map((each) => ({
        account: each.account,
        person: each.person,
        name: each.owner,
        joinedMs: start,
        state: "active",
        hasUsed: each === first,
      }));
      const inOrder = wanted.toSorted((a, b) => (a.account < b.account ? -1 : 1));
      assert.deepEqual(accounts, inOrder);
      const [, second] = inOrder;
      assert.deepEqual(await store.links.accounts(one.id, { limit: 1, after: inOrder[0]?.account }), [
        second,
      ]);
      assert.deepEqual(await store.links.counts(one.id, start), { waiting: 0, joined: 3, used: 1 });
      assert.deepEqual(await store.links.accounts(two.id, { limit: 9 }), []);
    });

    test("an address is known whatever its suffix, and never by a part of it", async () => {
      const { store } = place;
      const open = async (id: string, email: string) => {
        const draft = { id, plan: "student", contact: { email } };
        assert.equal((await store.putAccount(draft, { by: "test", dryRun: false })).kind, "opened");
      };
      await open("eve", "Eve+home@Know.example");
      await open("eva", "eva@know.example");
      await open("evil", "eve+x@other-know.example");
      await open("even", "even@know.example");
      const find = (email: string) => store.links.accountsWithAddress(addressKey(email));
      assert.deepEqual(await find("eve@know.example"), ["eve"]);
      assert.deepEqual(await find("EVE+class@know.EXAMPLE"), ["eve"]);
      assert.deepEqual(await find("eva+1+2@know.example"), ["eva"]);
      assert.deepEqual(await find("ev@know.example"), []);
      assert.deepEqual(await find("eve@other.example"), []);
      await store.commit([
        { kind: "state", account: "eva", op: "close eva", to: { kind: "close" }, by: "x" },
      ]);
      assert.deepEqual(await find("eva@know.example"), []);
      assert.equal(addressKey("+only@x.example"), "+only@x.example");
      assert.equal(addressKey('"a@b"+c@x.example'), '"a@b"@x.example');
    });
  });
}

for (const backend of backends) {
  describe(`the audit of links on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    audits(backend);
  });
}

function audits(backend: Backend): void {
  const open = async () => {
    const database = backend.create(plans);
    const store = await database.open({ thresholdPercents: [80] });
    return { database, store, other: store };
  };

  test("accepts what joins, ends and mails leave", async () => {
    const place = await open();
    try {
      const link = await linkIn(place, { seats: 2, accountsEndMs: start + 9 * day });
      const { row } = await ask(place, link, "ada@x.example");
      await join(place.store, link);
      const { joiner, hash, email } = row;
      await join(place.store, link, { joiner, hash, email, isMailed: true });
      await join(place.store, link);
      await assertSound(place.database);
      const events = await place.database.sql("select type, account, data, cause from event order by number");
      const full = events.filter(({ type }) => type === "link.full");
      assert.equal(full.length, 1);
      assert.partialDeepStrictEqual(full[0], { account: null, cause: `link.full:${link.id}:2` });
      assert.deepEqual(JSON.parse(String(full[0]?.data)), { link: link.id, name: "Informatics 1", seats: 2 });
      assert.equal(events.filter(({ type }) => type === "account.opened").length, 2);
      // Once for each filling.
      const now = await linkNow(place, link);
      await place.store.links.set(now, { ...now, seats: 3 }, changeLogRow({ ...logged, subject: link.id }));
      await join(place.store, link);
      const [again] = await place.database.sql("select count(*) as n from event where type = 'link.full'");
      assert.equal(Number(again?.n), 2);
      await assertSound(place.database);
    } finally {
      await place.database.remove();
    }
  });

  test("finds seats and accounts that do not belong together", async () => {
    const place = await open();
    try {
      const { database, store } = place;
      const link = await linkIn(place, { seats: 5 });
      const [one, two] = [await join(store, link), await join(store, link)];
      const broken = async (sql: string, back: string) => {
        await database.sql(sql);
        const found = (await database.audit()).broken.map(({ invariant }) => invariant);
        await database.sql(back);
        await assertSound(database);
        return found;
      };
      const counts = "a link has taken as many seats as it has accounts, and at most its seats";
      const belongs = "an account has a seat of the link that has opened it, and no other account has one";
      const taken = (n: number) => `update link set taken = ${n} where id = '${link.id}'`;
      assert.deepEqual(await broken(taken(3), taken(2)), [counts]);
      assert.deepEqual(await broken(taken(1), taken(2)), [counts]);
      await store.putAccount({ id: "other", plan: "student", contact: {} }, { by: "test", dryRun: false });
      const moved = (from: string, to: string) =>
        `update link_seat set account = '${to}' where account = '${from}'`;
      const swapped = await broken(moved(one.account, "other"), moved("other", one.account));
      assert.deepEqual(swapped, [belongs]);
      const removed = await database.sql(`select * from link_seat where account = '${two.account}'`);
      assert.equal(removed.length, 1);
      const gone = `delete from link_seat where account = '${two.account}'`;
      const back = `insert into link_seat (link, joiner, asked_ms, account, person, joined_ms)
        values ('${link.id}', '${two.joiner}', ${start}, '${two.account}', '${two.person}', ${start})`;
      assert.deepEqual((await broken(gone, back)).sort(), [counts, belongs].sort());
    } finally {
      await place.database.remove();
    }
  });
}
