/** The outbox of events and the state of their deliveries, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { type EventType, eventTypes } from "../../src/ledger/events.ts";
import type { Attempt, DueEvent } from "../../src/store/events.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

const plan = planOf("one", 10, 0);
const settings = { thresholdPercents: [80, 100] };
const all = new Set<EventType>(eventTypes);
const lease = { name: "hook", node: "a", leaseMs: start + minute };

function open(account: string) {
  return { kind: "open", account, plan: plan.id, by: "test" } as const;
}

function payment(account: string, id: string) {
  return { kind: "topup", account, payment: id, amountMicro: credits(1), by: "test" } as const;
}

function delivered({ number, account, attempts }: DueEvent, change: Partial<Attempt> = {}): Attempt {
  const outcome = { state: "delivered", nextMs: 0, triedMs: start, status: 204, answer: "" } as const;
  return { number, account: account ?? "", attempts: attempts + 1, ...outcome, ...change };
}

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

    /** Lists what is due as `account type`, or `account payment`. */
    async function due(nowMs = start): Promise<string[]> {
      return (await store.events.due("hook", nowMs, 100)).map(({ account, type, data }) => {
        const { payment = type }: { payment?: string } = JSON.parse(data);
        return `${account} ${payment}`;
      });
    }

    async function queueAll(types: ReadonlySet<EventType> = all): Promise<void> {
      while (await store.events.queue([{ name: "hook", types }]));
    }

    test("are written with the rows that they are about, in the order of the account", async () => {
      await store.commit([hold("r", credits(8)), settle("r", credits(8)), payment("ada", "p1")]);
      assert.deepEqual(await rows(), [
        ...["ada 1 account.opened", "bob 1 account.opened", "ada 4 key.created"],
        ...["ada 5 balance.low", "ada 6 payment.added"],
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

    test("of an import are those of openings and payments, and no low balance", async () => {
      const balances = {
        base: { fromMs: start, leftMicro: 0 },
        additional: { amountMicro: credits(2), payment: "brought" },
      };
      const draft = { id: "eve", plan: plan.id, contact: {}, balances, key: null };
      await store.putAccounts([draft], { by: "test", dryRun: false, updatesExisting: false });
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
        ...["ada 4 key.expiring", "null null model.down", "null null model.down"],
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
      assert.deepEqual(await due(), ["ada account.opened", "bob account.opened"]);
      assert.equal((await store.events.due("other", start, 100)).length, 3);
    });

    test("are due in their order, and those of an account wait for each other", async () => {
      await store.commit([payment("ada", "p1"), payment("bob", "p2"), payment("ada", "p3")]);
      await queueAll(new Set(["payment.added"]));
      assert.deepEqual(await due(), ["ada p1", "bob p2", "ada p3"]);
      const [first, second, third] = await store.events.due("hook", start, 100);
      assert.ok(first !== undefined && second !== undefined && third !== undefined);
      const failed = { state: "pending", nextMs: start + 5, status: null, answer: "no answer" } as const;
      await store.events.record("hook", [delivered(first, failed), delivered(second)]);
      assert.deepEqual([await due(), await due(start + 5)], [[], ["ada p1", "ada p3"]]);
      await store.commit([payment("ada", "p4"), payment("bob", "p5")]);
      await queueAll();
      assert.deepEqual(await due(), ["bob p5"]);
      const [again] = await store.events.due("hook", start + 5, 1);
      assert.equal(again?.attempts, 1);
      await store.events.record("hook", [delivered(again, { state: "set_aside", status: 400 })]);
      assert.deepEqual(await due(), ["ada p3", "ada p4", "bob p5"]);
      const limit = 10;
      const listed = await store.events.deliveries({ endpoint: "hook", account: "ada", limit });
      assert.deepEqual(
        listed.map(({ state, status, answer, id }) => [state, status, answer, id === first.id]),
        [
          ["pending", null, null, false],
          ["pending", null, null, false],
          ["set_aside", 400, "", true],
        ],
      );
      const after = listed[1]?.number;
      assert.equal((await store.events.deliveries({ endpoint: "hook", after, limit })).length, 2);
      const aside = await store.events.deliveries({ endpoint: "hook", state: "set_aside", limit });
      assert.equal(aside.length, 1);
      await store.events.retrySetAside("hook", start);
      assert.deepEqual(await due(), ["ada p1", "ada p3", "ada p4", "bob p5"]);
    });

    test("are sent by one process at a time", async () => {
      const lead = (node: string, nowMs: number) =>
        store.events.lead({ ...lease, node, leaseMs: nowMs + minute }, nowMs);
      assert.equal((await lead("a", start))?.node, "a");
      assert.equal(await lead("b", start + minute - 1), null);
      assert.equal((await lead("a", start + minute - 1))?.leaseMs, start + 2 * minute - 1);
      assert.equal(await lead("b", start + minute), null);
      const taken = await lead("b", start + 2 * minute);
      assert.ok(taken !== null);
      const late = { ...taken, node: "a", failures: 7, problem: "late" };
      assert.equal(await store.events.setEndpoint(late, taken), false);
      assert.equal((await lead("b", start + 2 * minute))?.failures, 0);
      await store.events.release("hook", "b");
      assert.equal((await lead("a", start + 2 * minute))?.node, "a");
    });

    test("stay delivered if a process that lost its lease records an earlier attempt", async () => {
      await store.commit([payment("ada", "p1")]);
      await queueAll(new Set(["payment.added"]));
      const [event] = await store.events.due("hook", start, 1);
      assert.ok(event !== undefined);
      await store.events.record("hook", [delivered(event)]);
      const failed = { state: "pending", nextMs: start + 5, status: null, answer: "no answer" } as const;
      await store.events.record("hook", [delivered(event, failed)]);
      const [row] = await store.events.deliveries({ endpoint: "hook", limit: 1 });
      assert.deepEqual([row?.state, row?.status, row?.answer], ["delivered", 204, ""]);
      assert.deepEqual(await due(start + 5), []);
    });

    test("go on after an operator resumes the endpoint", async () => {
      assert.equal(await store.events.resume("hook"), false);
      await queueAll();
      const row = await store.events.lead(lease, start);
      assert.ok(row !== null);
      const state = { failures: 3, failingMs: start, nextMs: start + hour, parkedMs: start, problem: "down" };
      assert.equal(await store.events.setEndpoint({ ...row, ...state }, row), true);
      const [first] = await store.events.due("hook", start, 1);
      assert.ok(first !== undefined);
      await store.events.record("hook", [delivered(first, { state: "pending", nextMs: start + day })]);
      const [parked] = await store.events.endpoints();
      assert.deepEqual(parked, { ...row, ...state, pending: 3, setAside: 0 });
      const tried = await store.events.due("hook", start + day, 2);
      assert.equal(await store.events.resume("hook"), true);
      // An attempt that began before fails.
      assert.equal(await store.events.setEndpoint({ ...parked, failures: 4 }, parked), false);
      await store.events.record(
        "hook",
        tried.slice(0, 1).map((event) => delivered(event, { state: "set_aside" })),
      );
      const [resumed] = await store.events.endpoints();
      assert.deepEqual([resumed?.failures, resumed?.parkedMs, resumed?.nextMs], [0, null, 0]);
      assert.equal((await due()).length, 3);
      await store.events.record(
        "hook",
        tried.map((event) => delivered(event)),
      );
      assert.equal((await due()).length, 1, "what was delivered counts");
    });

    test("of a time are sent again", async () => {
      await queueAll();
      const found = await store.events.due("hook", start, 100);
      await store.events.record(
        "hook",
        found.map((event) => delivered(event)),
      );
      database.clock.advance(hour);
      await store.commit([payment("ada", "p1")]);
      const query = { name: "hook", types: all };
      assert.equal(await store.events.replay({ ...query, fromMs: start, toMs: start + hour }), 3);
      assert.equal((await due()).length, 3);
      const types = new Set<EventType>(["payment.added"]);
      assert.equal(await store.events.replay({ name: "new", types, fromMs: start, toMs: start + day }), 1);
      assert.equal((await store.events.due("new", start, 100)).length, 1);
      await queueAll();
      assert.equal((await due()).length, 4);
    });

    test("that are old are deleted with their deliveries", async () => {
      await store.events.lead(lease, start);
      await queueAll();
      database.clock.advance(hour);
      await store.commit([payment("ada", "p1")]);
      await queueAll();
      assert.equal(await store.events.prune(start + hour), false);
      assert.deepEqual(await rows(), ["ada 5 payment.added"]);
      assert.deepEqual(await due(), ["ada p1"]);
      const [counts] = await database.sql("select count(*) as n from event_delivery");
      assert.equal(Number(counts?.n), 1);
      assert.equal(await store.events.prune(start + hour), false);
      await store.commit([payment("ada", "p2")]);
      assert.equal((await rows()).length, 2);
      // Another process has read the event before it was deleted.
      await database.sql(
        "insert into event_delivery (endpoint, number, account, state, attempts, next_ms) values ('hook', 1, 'ada', 'pending', 0, 0)",
      );
      database.clock.advance(hour);
      await store.events.prune(start + 3 * hour);
      assert.deepEqual(await database.sql("select number from event_delivery where number = 1"), []);
    });

    test("know which keys expire, and which mail was sent", async () => {
      const keys = { soon: start + day, gone: start, late: start + 9 * day, revoked: start + day };
      for (const [n, [id, expiresMs]] of Object.entries(keys).entries())
        await addKey(store, keyOf(id, "bob", { expiresMs, hash: `${n}`.repeat(64) }));
      await revokeKey(store, "revoked");
      const expiring = { account: "bob", id: "soon", name: null, expiresMs: start + day };
      assert.deepEqual(await store.events.keysExpiring(start, start + day), [expiring]);
      await store.commit([payment("ada", "p1")]);
      await queueAll();
      const found = await store.events.due("hook", start, 100);
      await store.events.record(
        "hook",
        found.map((event) => delivered(event)),
      );
      const of = { endpoint: "hook", account: "ada", type: "payment.added" } as const;
      const paid = found.filter(({ type }) => type === of.type);
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

test("the store in memory has the same statements", async () => {
  const memory = new MemoryStore(plansOf(plan), () => start);
  memory.ledger.eventSettings = settings;
  await memory.commit([open("ada"), payment("ada", "p1")]);
  const { events } = memory;
  await events.queue([{ name: "hook", types: all }]);
  assert.equal((await events.due("hook", start, 100)).length, 2);
  const down = { type: "model.down", atMs: start, data: {}, account: null, cause: null } as const;
  assert.equal(await events.add(down), true);
});
