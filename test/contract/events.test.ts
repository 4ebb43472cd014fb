/** The outbox of events and the state of their deliveries, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { type EventType, eventTypes } from "../../src/ledger/events.ts";
import type { Attempt, ClaimedEvent } from "../../src/store/events.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

const plan = planOf("one", 10, 0);
const settings = { thresholdPercents: [80, 100] };
const all = new Set<EventType>(eventTypes);

function open(account: string) {
  return { kind: "open", account, plan: plan.id, by: "test" } as const;
}

function payment(account: string, id: string) {
  return { kind: "topup", account, payment: id, amountMicro: credits(1), by: "test" } as const;
}

function delivered({ number, attempts }: ClaimedEvent, change: Partial<Attempt> = {}): Attempt {
  const outcome = { state: "delivered", nextMs: 0, triedMs: start, status: 204, answer: "" } as const;
  return { number, attempts: attempts + 1, ...outcome, ...change };
}

const failed = { state: "pending", nextMs: start + 5, status: null, answer: "no answer" } as const;

for (const backend of backends) {
  describe(`events on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(plan));
      store = await database.open(settings);
      await store.commit([open("ada"), open("bob")]);
      await addKey(store, keyOf("key", "ada"));
    });
    afterEach(async () => {
      try {
        await assertSound(database);
      } finally {
        await database.remove();
      }
    });

    async function rows(): Promise<string[]> {
      const found = await database.sql("select account, seq, type from event order by number");
      return found.map(({ account, seq, type }) => `${account} ${seq} ${type}`);
    }

    /** Claims the first events for a minute. */
    async function claim(nowMs = start, endpoint = "hook"): Promise<ClaimedEvent[]> {
      const firsts = await store.events.firsts(endpoint, "", 100);
      const numbers = firsts.map(({ number }) => number);
      return await store.events.claim(endpoint, numbers, nowMs, nowMs + minute);
    }

    /** As `account type`, or `account payment`. */
    function named(events: readonly Pick<ClaimedEvent, "account" | "type" | "data">[]): string[] {
      return events.map(({ account, type, data }) => {
        const { payment = type }: { payment?: string } = JSON.parse(data);
        return `${account} ${payment}`;
      });
    }

    async function record(events: readonly ClaimedEvent[], change: Partial<Attempt> = {}): Promise<void> {
      await store.events.record(
        "hook",
        events.map((event) => delivered(event, change)),
      );
    }

    /** Lists the pending events in the order of their numbers. */
    async function pending(endpoint = "hook"): Promise<string[]> {
      return named((await store.events.deliveries({ endpoint, state: "pending", limit: 100 })).reverse());
    }

    async function queueAll(types: ReadonlySet<EventType> = all): Promise<void> {
      while (await store.events.queue([{ name: "hook", types }]));
    }

    test("are written with the rows that they are about, in the order of the account", async () => {
      await store.commit([hold("r", credits(8)), settle("r", credits(8)), payment("ada", "p1")]);
      assert.deepEqual(await rows(), [
        "ada 1 account.opened",
        "bob 1 account.opened",
        "ada 4 key.created",
        "ada 5 balance.low",
        "ada 6 payment.added",
      ]);
      const ids = (await database.sql("select id from event")).map(({ id }) => String(id));
      assert.equal(new Set(ids).size, 5);
      for (const id of ids) assert.match(id, /^evt_[0-9a-f]{32}$/);
    });

    test("are not written by a store without settings, nor by a commit that fails", async () => {
      const quiet = await database.open();
      await quiet.commit([payment("ada", "p1")]);
      const end = await database.refuseReceipts("no receipts");
      await assert.rejects(store.commit([payment("ada", "p2"), hold("r", 1), settle("r", 1)]));
      await end();
      assert.equal((await rows()).length, 3);
    });

    test("of a date that has come are written with the next operation of the account", async () => {
      const end = {
        kind: "state",
        account: "bob",
        op: "e",
        to: { kind: "end", endsMs: start + hour },
      } as const;
      await store.commit([{ ...end, by: "test" }]);
      database.clock.advance(day);
      const before = (await rows()).length;
      await store.commit([payment("ada", "p1")]);
      assert.deepEqual((await rows()).slice(before), ["ada 6 payment.added"]);
      await store.commit([payment("bob", "p2")]);
      assert.deepEqual((await rows()).slice(before + 1), ["bob 5 account.closed"]);
    });

    test("of repeated operations are written once", async () => {
      for (let n = 0; n < 3; n += 1) await store.commit([payment("ada", "p1")]);
      assert.equal((await rows()).filter((line) => line.endsWith("payment.added")).length, 1);
    });

    test("of an opening with a payment are those of the opening and of the payment", async () => {
      const additional = { amountMicro: credits(2), payment: "opening" };
      const draft = { id: "eve", plan: plan.id, contact: {}, additional };
      await store.putAccount(draft, { by: "test", dryRun: false });
      assert.deepEqual((await rows()).slice(3), ["eve 1 account.opened", "eve 4 payment.added"]);
    });

    test("of the service have one row for each cause", async () => {
      const event = { type: "key.expiring", atMs: start, data: { key: "key" } } as const;
      assert.equal(await store.events.add({ ...event, account: "ada", cause: "c" }), true);
      assert.equal(await store.events.add({ ...event, account: "ada", cause: "c" }), false);
      const down = { type: "model.down", atMs: start, data: {}, account: null, cause: null } as const;
      assert.equal(await store.events.add(down), true);
      assert.equal(await store.events.add(down), true);
      assert.deepEqual((await rows()).slice(3), [
        "ada 4 key.expiring",
        "null null model.down",
        "null null model.down",
      ]);
    });

    test("are queued once for each endpoint that wants their type", async () => {
      const opened = new Set<EventType>(["account.opened"]);
      const wanted = [
        { name: "hook", types: opened },
        { name: "other", types: all },
      ];
      assert.equal(await store.events.queue(wanted), false);
      assert.equal(await store.events.queue(wanted), false);
      assert.deepEqual(await pending(), ["ada account.opened", "bob account.opened"]);
      assert.equal((await pending("other")).length, 3);
    });

    test("are claimed one of an account at a time, in their order", async () => {
      await store.commit([payment("ada", "p1"), payment("bob", "p2"), payment("ada", "p3")]);
      await queueAll(new Set(["payment.added"]));
      const [first, second] = await claim();
      assert.ok(first !== undefined && second !== undefined);
      assert.deepEqual(named([first, second]), ["ada p1", "bob p2"]);
      await record([first], failed);
      await record([second]);
      // The first one of ada waits for its next attempt.
      assert.deepEqual(named(await claim()), []);
      await store.commit([payment("ada", "p4"), payment("bob", "p5"), payment("bob", "p6")]);
      await queueAll();
      const later = await claim();
      assert.deepEqual(named(later), ["bob p5"]);
      await record(later);
      const [again, next] = await claim(start + 5);
      assert.ok(again !== undefined && next !== undefined);
      assert.deepEqual(named([again, next]), ["ada p1", "bob p6"]);
      assert.equal(again.attempts, 1);
      await record([again], { state: "dead", status: 400 });
      await record([next]);
      assert.deepEqual(named(await claim(start + 5)), ["ada p3"]);
      const of = { endpoint: "hook", account: "ada", limit: 10 } as const;
      const listed = await store.events.deliveries(of);
      assert.deepEqual(
        listed.map(({ state, status, answer, id }) => [state, status, answer, id === first.id]),
        [
          ["pending", null, null, false],
          ["pending", null, null, false],
          ["dead", 400, "", true],
        ],
      );
      const after = listed[1]?.number;
      assert.equal((await store.events.deliveries({ ...of, after })).length, 1);
      assert.equal((await store.events.deliveries({ ...of, state: "dead" })).length, 1);
    });

    test("are claimed by one of several processes, and again when the claim has run out", async () => {
      await store.commit([payment("ada", "p1"), payment("ada", "p2")]);
      await queueAll(new Set(["payment.added"]));
      const other = await database.open(settings);
      const [{ number, dueMs } = { number: 0, dueMs: -1 }] = await store.events.firsts("hook", "", 9);
      assert.equal(dueMs, 0);
      const claims = [store, other, store, other].map(({ events }) =>
        events.claim("hook", [number], start, start + minute),
      );
      const claimed = (await Promise.all(claims)).flat();
      assert.deepEqual(named(claimed), ["ada p1"]);
      assert.deepEqual(
        (await other.events.firsts("hook", "", 9)).map((first) => first.dueMs),
        [start + minute],
      );
      assert.deepEqual(await claim(start + minute - 1), []);
      const taken = await other.events.claim("hook", [number], start + minute, start + 2 * minute);
      assert.deepEqual(named(taken), ["ada p1"]);
    });

    test("of more accounts than one look reads are found from the next account on", async () => {
      const accounts = ["carl", "dora", "eve", "fay"];
      await store.commit(accounts.map(open));
      const down = { type: "model.down", atMs: start, data: {}, account: null, cause: null } as const;
      await store.events.add(down);
      await queueAll(new Set(["account.opened", "model.down"]));
      const found = async (from: string, limit: number) =>
        (await store.events.firsts("hook", from, limit)).map(({ account }) => account);
      assert.deepEqual(await found("", 3), ["", "ada", "bob"]);
      assert.deepEqual(await found("bob", 3), ["bob", "carl", "dora"]);
      assert.deepEqual(await found("eve", 3), ["eve", "fay"]);
      assert.deepEqual(await found("g", 3), []);
      assert.deepEqual(await store.events.firsts("other", "", 3), []);
    });

    test("stay delivered if a process whose claim ran out records a failure, and the other way round", async () => {
      await store.commit([payment("ada", "p1"), payment("bob", "p2")]);
      await queueAll(new Set(["payment.added"]));
      const [late, lucky] = await claim();
      const [again, too] = await claim(start + minute);
      assert.ok(late !== undefined && lucky !== undefined && again !== undefined && too !== undefined);
      await record([again]);
      await record([late], failed);
      await record([too], failed);
      await record([lucky]);
      const listed = await store.events.deliveries({ endpoint: "hook", limit: 9 });
      assert.deepEqual(
        listed.map(({ state, status, answer }) => [state, status, answer]),
        [
          ["delivered", 204, ""],
          ["delivered", 204, ""],
        ],
      );
    });

    test("that failed or are dead are sent again by an operator", async () => {
      await store.commit([payment("ada", "p1"), payment("ada", "p2"), payment("bob", "p3")]);
      await queueAll(new Set(["payment.added"]));
      const [dead, held] = await claim();
      assert.ok(dead !== undefined && held !== undefined);
      await record([dead], { state: "dead", attempts: 1 });
      await record([held], { ...failed, nextMs: start + day, status: 503, answer: "later" });
      const endpoint = { name: "hook", pending: 2, dead: 1, failing: 1, nextMs: start + day };
      assert.deepEqual(await store.events.endpoints([{ name: "hook" }]), [
        { ...endpoint, problem: "503 later" },
      ]);
      // An attempt is under way.
      const [tried] = await store.events.claim("hook", [held.number], start + day, start + day + minute);
      assert.ok(tried !== undefined);
      assert.equal(await store.events.sendFailed("hook"), 2);
      assert.equal(await store.events.sendFailed("other"), 0);
      // The attempt began before, and does not begin the next pause.
      await record([tried], { ...failed, nextMs: start + 2 * day });
      const now = { name: "hook", pending: 3, dead: 0, failing: 0, nextMs: null, problem: null };
      assert.deepEqual(await store.events.endpoints([{ name: "hook" }]), [now]);
      assert.deepEqual(named(await claim(start + day)), ["ada p1"], "nobody sends what is under way");
      const all = await claim(start + day + minute);
      assert.deepEqual(named(all), ["ada p1", "bob p3"]);
      assert.deepEqual(
        all.map(({ attempts }) => attempts),
        [0, 0],
      );
    });

    test("are sent again one by one, also if they were delivered", async () => {
      await store.commit([payment("ada", "p1"), payment("ada", "p2")]);
      await queueAll(new Set(["payment.added"]));
      const [first] = await claim();
      assert.ok(first !== undefined);
      await record([first]);
      assert.equal(await store.events.sendAgain("hook", first.id), true);
      assert.deepEqual(await pending(), ["ada p1", "ada p2"]);
      assert.deepEqual(named(await claim()), ["ada p1"]);
      assert.equal(await store.events.sendAgain("other", first.id), false);
      assert.equal(await store.events.sendAgain("hook", `evt_${"0".repeat(32)}`), false);
    });

    test("that are old are deleted with their deliveries", async () => {
      await queueAll();
      database.clock.advance(hour);
      await store.commit([payment("ada", "p1")]);
      await queueAll();
      assert.equal(await store.events.prune(start + hour), false);
      assert.deepEqual(await rows(), ["ada 5 payment.added"]);
      assert.deepEqual(await pending(), ["ada p1"]);
      const [counts] = await database.sql("select count(*) as n from event_delivery");
      assert.equal(Number(counts?.n), 1);
      assert.equal(await store.events.prune(start + hour), false);
      await store.commit([payment("ada", "p2")]);
      assert.equal((await rows()).length, 2);
      // Another process has read the event before it was deleted.
      await database.sql(
        "insert into event_delivery (endpoint, number, account, state, attempts, next_ms, claimed_ms) values ('hook', 1, 'ada', 'pending', 0, 0, 0)",
      );
      assert.equal(await store.events.prune(start), false);
      assert.deepEqual(await database.sql("select number from event_delivery where number = 1"), []);
      database.clock.advance(hour);
      await store.events.prune(start + 3 * hour);
      assert.deepEqual((await rows()).length, 1);
    });

    test("stay while an event with a smaller number stays: the clock of its process was ahead", async () => {
      await store.commit([payment("ada", "p1"), payment("bob", "p2"), payment("ada", "p3")]);
      await queueAll(new Set(["payment.added"]));
      const numbers = await database.sql("select number from event order by number");
      await database.sql(
        `update event set at_ms = at_ms + ${2 * day} where type = 'payment.added' and account = 'ada'`,
      );
      await store.events.prune(start + day);
      assert.deepEqual(await pending(), ["ada p1", "bob p2", "ada p3"]);
      assert.deepEqual(await database.sql("select number from event order by number"), numbers.slice(-3));
    });

    test("know which keys expire, and which mail was sent", async () => {
      const keys = { soon: start + day, gone: start, late: start + 9 * day, revoked: start + day };
      for (const [n, [id, expiresMs]] of Object.entries(keys).entries())
        await addKey(store, keyOf(id, "bob", { expiresMs, hash: `${n}`.repeat(64) }));
      await revokeKey(store, "revoked");
      const expiring = { account: "bob", id: "soon", name: null, expiresMs: start + day };
      assert.deepEqual(await store.events.keysExpiring(start, start + day), [expiring]);
      await store.commit([payment("ada", "p1")]);
      const of = { endpoint: "hook", account: "ada", type: "payment.added" } as const;
      await queueAll(new Set([of.type]));
      const paid = await claim();
      await record(paid);
      assert.deepEqual(
        await store.events.deliveredSince(of, start - 1),
        paid.map(({ data }) => data),
      );
      assert.deepEqual(await store.events.deliveredSince(of, start), []);
      assert.deepEqual(await store.events.deliveredSince({ ...of, account: "bob" }, start - 1), []);
    });

    test("without a fact, or written twice, are found by the audit", async () => {
      const broken = async () => (await database.audit()).broken.map(({ invariant }) => invariant);
      const copy = (values: string) =>
        database.sql(`insert into event (id, account, seq, at_ms, type, data)
        select ${values} from event where account = 'ada' and type = 'account.opened' returning id`);
      await copy("'evt_1', account, seq, at_ms, type, data");
      assert.deepEqual(await broken(), ["an event is written once"]);
      await database.sql("delete from event where id = 'evt_1' returning id");
      await copy("'evt_2', account, seq, at_ms, 'payment.added', data");
      assert.deepEqual(await broken(), ["each event of an account follows from its fact"]);
      await database.sql("delete from event where id = 'evt_2' returning id");
      await copy("'evt_3', account, 99, at_ms, 'balance.low', data");
      assert.deepEqual(await broken(), ["each event of an account follows from its fact"]);
      await database.sql("delete from event where id = 'evt_3' returning id");
    });
  });
}
