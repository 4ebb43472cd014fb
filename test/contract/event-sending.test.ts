/** Sending events to real receivers, on every store. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { EndpointConfig, EventsConfig } from "../../src/config/events.ts";
import { EventSending } from "../../src/events/event-sending.ts";
import { eventTypes } from "../../src/ledger/events.ts";
import type { ListedDelivery, ListedEndpoint } from "../../src/store/events.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";
import { secrets, startReceiver, type WebhookReceiver } from "../fixtures/webhook-receiver.ts";

const plan = planOf("one", 10, 0);
/** A request that took too long would be sent again when the clock of the test has moved. */
const requestMs = 200_000;
/** The pauses that grow. Later ones take an hour. */
const pausesMs = [5000, minute, 10 * minute, hour];

function payment(account: string, id: string) {
  return { kind: "topup", account, payment: id, amountMicro: credits(1), by: "test" } as const;
}

function endpoint(url: string, change: Partial<EndpointConfig> = {}): EndpointConfig {
  return { name: "hook", url, secrets: [secrets.current], types: [...eventTypes], ...change };
}

function configOf(endpoints: EndpointConfig[], networks = ["127.0.0.0/8"]): EventsConfig {
  return { thresholdPercents: [80], expiringMs: day, networks, endpoints, mail: null };
}

for (const backend of backends) {
  describe(`sending events on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let receiver: WebhookReceiver;
    /** What the service has logged. */
    const errors: string[] = [];
    const closing: (() => Promise<void>)[] = [];
    beforeEach(async () => {
      database = backend.create(plansOf(plan));
      store = await database.open({ thresholdPercents: [80] });
      receiver = await startReceiver();
      for (const account of ["ada", "bob"])
        await store.commit([{ kind: "open", account, plan: plan.id, by: "test" }]);
    });
    afterEach(async () => {
      for (const close of closing.splice(0)) await close();
      errors.length = 0;
      await receiver.close();
      await database.remove();
    });

    function send(
      config: EventsConfig,
      of = store,
      onError?: (error: unknown) => void,
      timeMs = requestMs,
    ): EventSending {
      const jobs = testJobs(onError);
      const sending = new EventSending({
        store: of,
        catalog: { all: () => [] },
        jobs,
        node: "a",
        portalUrl: null,
        onAttempt: () => {},
        times: {
          everyMs: 20,
          modelsEveryMs: 1000,
          slowEveryMs: 1000,
          claimMs: minute,
          requestMs: timeMs,
          mailMs: 0,
        },
        logger: { info: () => {}, error: (...said: unknown[]) => void errors.push(String(said[1])) },
      });
      sending.configure(config);
      closing.push(async () => {
        await sending.close();
        await jobs.stop();
      });
      return sending;
    }

    async function deliveries(name = "hook"): Promise<ListedDelivery[]> {
      return (await store.events.deliveries({ endpoint: name, limit: 100 })).reverse();
    }

    async function untilStates(what: string, states: readonly string[]): Promise<void> {
      await until(`${what}: ${states}`, async () => {
        const found = (await deliveries()).map(({ state, attempts }) => `${state} ${attempts}`);
        return JSON.stringify(found) === JSON.stringify(states);
      });
    }

    /** An attempt that is recorded after the clock has advanced waits for another advance. */
    async function untilRecorded(): Promise<void> {
      await until("each attempt is recorded", async () => {
        const attempts = (await deliveries()).reduce((sum, each) => sum + each.attempts, 0);
        return attempts === receiver.requests.length;
      });
    }

    async function endpointOf(name = "hook"): Promise<ListedEndpoint | undefined> {
      return (await store.events.endpoints([{ name }]))[0];
    }

    async function untilFailing(name = "hook"): Promise<void> {
      await until(`${name} has failed`, async () => ((await endpointOf(name))?.failing ?? 0) > 0);
    }

    function names(events = receiver.accepted): string[] {
      return events.map(({ account, type, data }) => `${account} ${data.payment ?? type}`);
    }

    test("each event arrives, signed, in the order of its account, with one id", async () => {
      await store.commit([payment("ada", "p1"), payment("bob", "p2"), payment("ada", "p3")]);
      send(configOf([endpoint(receiver.url)]));
      await until("all arrive", () => receiver.accepted.length === 5);
      assert.deepEqual(receiver.faults, []);
      const of = (account: string) => names(receiver.accepted.filter((event) => event.account === account));
      assert.deepEqual(of("ada"), ["ada account.opened", "ada p1", "ada p3"]);
      assert.deepEqual(of("bob"), ["bob account.opened", "bob p2"]);
      const [added] = receiver.accepted.filter(({ data }) => data.payment === "p1");
      assert.deepEqual(added?.data, { payment: "p1", amount_micro: credits(1), by: "test" });
      assert.equal(added?.number, 4);
      await untilStates(
        "delivered",
        Array.from({ length: 5 }, () => "delivered 1"),
      );
      const ids = new Set((await database.sql("select id from event")).map(({ id }) => String(id)));
      assert.deepEqual(new Set(receiver.accepted.map(({ id }) => id)), ids);
    });

    test("each session of an operator is one event, which names a person or the owner", async () => {
      const sending = send(configOf([endpoint(receiver.url, { types: ["operator.signed_in"] })]));
      const id = "person_1f2e3d4c5b6a7988";
      for (const owner of ["operator", id, id]) await sending.signedIn({ hash: `${owner} 1`, owner });
      await untilStates("they arrive", ["delivered 1", "delivered 1"]);
      assert.deepEqual(
        receiver.accepted.map(({ data }) => data),
        [{ by: "owner" }, { by: `person:${id}` }],
      );
    });

    test("a receiver with the previous secret accepts events during a rotation", async () => {
      const old = await startReceiver(secrets.previous);
      closing.push(() => old.close());
      send(configOf([endpoint(old.url, { secrets: [secrets.current, secrets.previous] })]));
      await until("all arrive", () => old.accepted.length === 2);
      assert.deepEqual(old.faults, []);
    });

    test("an endpoint gets the types that it wants", async () => {
      await store.commit([payment("ada", "p1")]);
      send(configOf([endpoint(receiver.url, { types: ["payment.added"] })]));
      await until("one arrives", () => receiver.accepted.length === 1);
      assert.deepEqual(names(), ["ada p1"]);
    });

    test("a receiver that fails gets the first event of each account after each pause, and then all in order", async () => {
      let works = false;
      receiver.answer = (_, response) => {
        response.writeHead(works ? 204 : 500).end("broken");
        return works;
      };
      await store.commit([payment("ada", "p1"), payment("ada", "p2")]);
      send(configOf([endpoint(receiver.url)]));
      for (const [n, pauseMs] of pausesMs.entries()) {
        await until("it is tried", () => receiver.requests.length === 2 * (n + 1));
        await untilRecorded();
        database.clock.advance(pauseMs - 1);
        // Long enough for many looks for events.
        await sleep(100);
        assert.equal(receiver.requests.length, 2 * (n + 1), "it is not tried before");
        const [first] = await deliveries();
        assert.deepEqual([first?.status, first?.answer], [500, "broken"]);
        works = pauseMs === hour;
        database.clock.advance(Math.ceil(pauseMs * 0.1) + 1);
      }
      assert.deepEqual(
        new Set(names(receiver.requests.slice(0, 2 * pausesMs.length))),
        new Set(["ada account.opened", "bob account.opened"]),
      );
      await until("all arrive", () => receiver.accepted.length === 4);
      assert.deepEqual(names(receiver.accepted.filter(({ account }) => account === "ada")), [
        "ada account.opened",
        "ada p1",
        "ada p2",
      ]);
    });

    test("a receiver that fails gets one event at a time, until it takes one", async () => {
      let open = 0;
      let most = 0;
      let works = false;
      receiver.answer = async (_, response) => {
        open += 1;
        most = Math.max(most, open);
        await sleep(20);
        open -= 1;
        response.writeHead(works ? 204 : 503).end();
        return works;
      };
      const accounts = Array.from({ length: 20 }, (_, n) => `many-${n}`);
      await store.commit(
        accounts.map((account) => ({ kind: "open", account, plan: plan.id, by: "test" }) as const),
      );
      send(configOf([endpoint(receiver.url)]));
      await until("each account is tried", () => receiver.requests.length === 22);
      await untilRecorded();
      assert.ok(most <= 8, `${most} at the same time`);
      most = 0;
      database.clock.advance(6000);
      await until("each account is tried again", () => receiver.requests.length === 44);
      await untilRecorded();
      assert.equal(most, 1);
      works = true;
      database.clock.advance(2 * minute);
      await until("all arrive", () => receiver.accepted.length === 22);
      assert.ok(most > 1, "and then several at a time");
    });

    test("an event that is refused for three days is dead, and only its account waits for it", async () => {
      let isRepaired = false;
      receiver.answer = ({ data }, response) => {
        const isTaken = isRepaired || data.payment !== "bad";
        response.writeHead(isTaken ? 204 : 422).end("not this one");
        return isTaken;
      };
      await store.commit([payment("ada", "bad"), payment("ada", "next"), payment("bob", "p0")]);
      send(configOf([endpoint(receiver.url)]));
      await until("others pass", () => names().includes("bob p0"));
      const began = database.clock.get();
      let attempts = 1;
      const isDead = async () => (await endpointOf())?.dead === 1;
      for (; ; attempts += 1) {
        await until(
          "it is tried",
          async () => names(receiver.requests).filter((name) => name === "ada bad").length === attempts,
        );
        await untilRecorded();
        if (await isDead()) break;
        assert.ok(!names().includes("ada next"));
        if (attempts === 2) {
          await store.commit([payment("bob", "p1")]);
          await until("others pass", () => names().includes("bob p1"));
        }
        database.clock.advance(Math.ceil((pausesMs[attempts - 1] ?? hour) * 1.1));
      }
      const days = (database.clock.get() - began) / day;
      assert.ok(days >= 3 && days < 3.4, `it is tried for ${days} days`);
      await until("the next one arrives", () => names().includes("ada next"));
      const [dead] = await store.events.deliveries({ endpoint: "hook", state: "dead", limit: 9 });
      assert.deepEqual([dead?.status, dead?.attempts, dead?.answer], [422, attempts, "not this one"]);
      assert.match(errors.join(), /an event was tried for three days and is dead/);
      database.clock.advance(day);
      await store.commit([payment("ada", "later")]);
      await until("a later one arrives", () => names().includes("ada later"));
      assert.ok(!names().includes("ada bad"));
      isRepaired = true;
      assert.equal(await store.events.sendFailed("hook"), 1);
      await until("it arrives when it is sent again", () => names().at(-1) === "ada bad");
    });

    test("a pause is as long as the receiver asks, up to an hour", async () => {
      let asked = "60";
      receiver.answer = (_, response) => {
        response.writeHead(429, { "retry-after": asked }).end();
        return false;
      };
      await store.commit([payment("ada", "p1")]);
      send(configOf([endpoint(receiver.url, { types: ["payment.added"] })]));
      await untilFailing();
      const triedMs = (await deliveries())[0]?.triedMs ?? 0;
      assert.equal((await endpointOf())?.nextMs, triedMs + minute);
      asked = "7200";
      database.clock.advance(minute);
      await until("it is tried again", async () => (await deliveries())[0]?.attempts === 2);
      const [row] = await deliveries();
      assert.equal((row?.nextMs ?? 0) - (row?.triedMs ?? 0), hour);
    });

    test("two processes send, and each event once", async () => {
      const other = await database.open();
      const accounts = Array.from({ length: 10 }, (_, n) => `many-${n}`);
      await store.commit(
        accounts.map((account) => ({ kind: "open", account, plan: plan.id, by: "test" }) as const),
      );
      for (let n = 0; n < 5; n += 1)
        await store.commit(accounts.map((account) => payment(account, `${account} ${n}`)));
      send(configOf([endpoint(receiver.url)]));
      send(configOf([endpoint(receiver.url)]), other);
      await until("all arrive", () => receiver.accepted.length === 62);
      await untilRecorded();
      assert.equal(receiver.requests.length, 62);
      for (const account of accounts)
        assert.deepEqual(names(receiver.accepted.filter((event) => event.account === account)), [
          `${account} account.opened`,
          ...Array.from({ length: 5 }, (_, n) => `${account} ${account} ${n}`),
        ]);
    });

    test("a process goes on with the event of one that died, when its claim has run out", async () => {
      await store.commit([payment("ada", "p1")]);
      await store.events.queue([{ name: "hook", types: new Set(["payment.added"]) }]);
      const [first] = await store.events.firsts("hook", "", 1);
      const nowMs = store.times().nowMs;
      await store.events.claim("hook", [first?.number ?? 0], nowMs, nowMs + minute);
      send(configOf([endpoint(receiver.url)]));
      await store.commit([payment("ada", "p2"), payment("bob", "p3")]);
      await until("another account goes on", () => names().includes("bob p3"));
      assert.deepEqual(names(), ["bob p3"]);
      database.clock.advance(minute);
      await until("it arrives", () => receiver.accepted.length === 3);
      assert.deepEqual(names(), ["bob p3", "ada p1", "ada p2"]);
    });

    test("a stop waits for the requests under way, and records their answers", async () => {
      const { promise: held, resolve: release } = Promise.withResolvers<void>();
      receiver.answer = async (_, response) => {
        await held;
        response.writeHead(204).end();
        return true;
      };
      await store.commit([payment("ada", "p1"), payment("ada", "p2")]);
      const sending = send(configOf([endpoint(receiver.url, { types: ["payment.added"] })]));
      await until("it is under way", () => receiver.requests.length === 1);
      const closed = sending.close();
      release();
      await closed;
      assert.deepEqual(
        (await deliveries()).map(({ state }) => state),
        ["delivered", "pending"],
      );
      assert.equal(receiver.requests.length, 1);
    });

    test("a changed configuration sends to another URL", async () => {
      const sending = send(configOf([endpoint(receiver.url)]));
      await until("all arrive", () => receiver.accepted.length === 2);
      const next = await startReceiver();
      closing.push(() => next.close());
      sending.configure(configOf([endpoint(next.url)]));
      await store.commit([payment("ada", "p1")]);
      await until("it arrives", () => next.accepted.length === 1);
      sending.configure(null);
      await store.commit([payment("ada", "p2")]);
      sending.configure(configOf([endpoint(next.url)]));
      await until("the next one arrives", () => next.accepted.length === 2);
      assert.equal(receiver.requests.length, 2);
    });

    test("an endpoint that is changed twice gets nothing of an account before its request under way has ended", async () => {
      let release = () => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      receiver.answer = async (_, response) => {
        await held;
        response.writeHead(204).end();
        return true;
      };
      await store.commit([payment("ada", "p1")]);
      const sending = send(configOf([endpoint(receiver.url, { types: ["payment.added"] })]));
      await until("it is under way", () => receiver.requests.length === 1);
      const next = await startReceiver();
      closing.push(() => next.close());
      for (const name of ["first", "second"])
        sending.configure(configOf([endpoint(`${next.url}&${name}`, { types: ["payment.added"] })]));
      await store.commit([payment("ada", "p2"), payment("bob", "p3")]);
      await until("that of another account arrives", () => next.accepted.length === 1);
      // Long enough for many looks for events.
      await sleep(200);
      assert.deepEqual([next.requests.length, receiver.requests.length], [1, 1]);
      release();
      await until("the next one arrives", () => next.accepted.length === 2);
      assert.deepEqual(names(next.accepted), ["bob p3", "ada p2"]);
    });

    test("an answer that is cut inside a character is recorded", async () => {
      receiver.answer = (_, response) => {
        response.writeHead(200).end(`a\n${"\u{1f600}".repeat(300)}`);
        return true;
      };
      send(configOf([endpoint(receiver.url)]));
      await untilStates("delivered", ["delivered 1", "delivered 1"]);
      for (const { answer } of await deliveries()) assert.match(answer ?? "", /^a\\u000a(?:\u{1f600})+$/u);
    });

    test("an endpoint whose row cannot be read costs the others nothing", async () => {
      const events: Store["events"] = {
        ...store.events,
        firsts: async (name, ...rest) => {
          if (name === "a") throw new Error("this row cannot be read");
          return await store.events.firsts(name, ...rest);
        },
      };
      const of: Store = Object.create(store, { events: { value: events } });
      const failures: unknown[] = [];
      const config = configOf([endpoint(receiver.url, { name: "a" }), endpoint(receiver.url)]);
      send(config, of, (error) => failures.push(error));
      for (let n = 1; n <= 5; n += 1) {
        await store.commit([payment("ada", `p${n}`)]);
        await until("the other one gets it", () => receiver.accepted.length === 2 + n);
      }
      await until("the job fails", () => failures.length > 0);
    });

    test("no redirect is followed", async () => {
      const trap = await startReceiver();
      closing.push(() => trap.close());
      receiver.answer = (_, response) => {
        response.writeHead(307, { location: trap.url }).end();
        return false;
      };
      send(configOf([endpoint(receiver.url)]));
      await untilFailing();
      assert.match((await endpointOf())?.problem ?? "", /^307/);
      assert.equal(trap.requests.length + trap.faults.length, 0);
    });

    test("a private address is not connected to, as a name or as a number", async () => {
      const { port } = new URL(receiver.url);
      const hosts = {
        name: "localhost",
        number: "127.0.0.1",
        short: "0x7f.1",
        six: "[::1]",
        mapped: "[::ffff:7f00:1]",
      };
      const endpoints = Object.entries(hosts).map(([name, host]) =>
        endpoint(`http://${host}:${port}/`, { name }),
      );
      send(configOf(endpoints, ["10.0.0.0/8"]));
      for (const name of Object.keys(hosts)) {
        await untilFailing(name);
        const { problem } = (await endpointOf(name)) ?? {};
        assert.match(problem ?? "", /is in a private network that events\.networks does not list$/);
      }
      assert.equal(receiver.connections, 0);
    });

    test("a receiver that hangs, trickles or never stops costs the others nothing", async () => {
      const hanging = createTcpServer(() => {});
      const endless = createServer((_, response) => {
        response.writeHead(200);
        const chunk = Buffer.alloc(65_536, "x");
        const more = () => {
          while (!response.destroyed && response.write(chunk));
          if (!response.destroyed) response.once("drain", more);
        };
        more();
      });
      const trickling = createServer((_, response) => {
        response.writeHead(200);
        const timer = setInterval(() => response.write("x"), 20);
        response.on("close", () => clearInterval(timer));
      });
      const headers = createTcpServer((socket) => {
        socket.write("HTTP/1.1 200 OK\r\n");
        const timer = setInterval(() => socket.write(`x-${Math.random()}: ${"y".repeat(4000)}\r\n`), 1);
        socket.on("close", () => clearInterval(timer)).on("error", () => {});
      });
      const servers = { hanging, endless, trickling, headers };
      const endpoints: EndpointConfig[] = [];
      for (const [name, server] of Object.entries(servers)) {
        await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
        closing.push(async () => void server.close());
        endpoints.push(endpoint(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { name }));
      }
      send(configOf([...endpoints, endpoint(receiver.url)]), store, undefined, 4000);
      // On a busy machine, the endless answer fills the time of this process. Then the others have
      // no answer in time, and wait for another attempt.
      const untilLater = (what: string, isSo: () => boolean | Promise<boolean>) =>
        until(what, async () => {
          database.clock.advance(1000);
          return await isSo();
        });
      await untilLater("the right one has all", () => new Set(names()).size === 2);
      // The status counts, whatever the body does.
      for (const name of ["endless", "trickling"])
        await untilLater(`${name} has all`, async () =>
          (await deliveries(name)).every(({ state }) => state === "delivered"),
        );
      assert.ok((await deliveries("endless")).every(({ answer }) => answer === "x".repeat(500)));
      for (const name of ["hanging", "headers"]) await untilFailing(name);
    });
  });
}
