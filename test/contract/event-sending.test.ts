/** Sending events to real receivers, on every store. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { EndpointConfig, EventsConfig } from "../../src/config/events.ts";
import { EventSending } from "../../src/events/event-sending.ts";
import { eventTypes } from "../../src/ledger/events.ts";
import type { ListedDelivery } from "../../src/store/events.ts";
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
      await receiver.close();
      await database.remove();
    });

    function send(
      config: EventsConfig,
      node = "a",
      of = store,
      onError?: (error: unknown) => void,
      timeMs = requestMs,
    ): EventSending {
      const jobs = testJobs(onError);
      const sending = new EventSending({
        ...{ store: of, catalog: { all: () => [] }, jobs, node, portalUrl: null, onAttempt: () => {} },
        times: { everyMs: 20, modelsEveryMs: 1000, slowEveryMs: 1000, leaseMs: minute, requestMs: timeMs },
        logger: { info: () => {}, error: () => {} },
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

    test("a receiver that fails gets one event after each pause, and then all in order", async () => {
      let works = false;
      receiver.answer = (_, response) => {
        response.writeHead(works ? 204 : 500).end("broken");
        return works;
      };
      await store.commit([payment("ada", "p1"), payment("ada", "p2")]);
      send(configOf([endpoint(receiver.url)]));
      await until("it has failed", async () => ((await store.events.endpoint("hook"))?.failures ?? 0) > 0);
      const attempts = receiver.requests.length;
      assert.ok(attempts <= 2, "the accounts that were under way");
      for (const [failures, pauseMs] of [5000, 5 * minute, 30 * minute].entries()) {
        database.clock.advance(Math.ceil(pauseMs * 1.1));
        await until(
          "it is tried again",
          async () => (await store.events.endpoint("hook"))?.failures === failures + 2,
        );
        assert.equal(receiver.requests.length, attempts + failures + 1);
      }
      const [first] = await deliveries();
      assert.deepEqual([first?.status, first?.answer], [500, "broken"]);
      works = true;
      database.clock.advance(3 * hour);
      await until("all arrive", () => receiver.accepted.length === 4);
      assert.deepEqual(names(receiver.accepted.filter(({ account }) => account === "ada")), [
        ...["ada account.opened", "ada p1", "ada p2"],
      ]);
    });

    test("an event that is always refused is set aside, while others pass", async () => {
      receiver.answer = ({ data }, response) => {
        response.writeHead(data.payment === "bad" ? 422 : 204).end("not this one");
        return data.payment !== "bad";
      };
      await store.commit([payment("ada", "bad"), payment("ada", "next"), payment("bob", "p0")]);
      send(configOf([endpoint(receiver.url)]));
      await until("others pass", () => names().includes("bob p0"));
      for (const pauseMs of [5000, 5 * minute, 30 * minute]) {
        await store.commit([payment("bob", `p${pauseMs}`)]);
        await until("others pass", () => names().includes(`bob p${pauseMs}`));
        assert.ok(!names().includes("ada next"));
        await untilRecorded();
        const refused = receiver.requests.length;
        database.clock.advance(Math.ceil(pauseMs * 1.1));
        await until("it is tried again", () => receiver.requests.length > refused);
      }
      await until("the next one arrives", () => names().includes("ada next"));
      const aside = await store.events.deliveries({ endpoint: "hook", state: "set_aside", limit: 9 });
      assert.deepEqual(
        aside.map(({ status, attempts, answer }) => [status, attempts, answer]),
        [[422, 4, "not this one"]],
      );
    });

    test("an endpoint that fails for days is parked, and goes on when it is resumed", async () => {
      receiver.answer = (_, response) => {
        response.writeHead(404).end();
        return false;
      };
      send(configOf([endpoint(receiver.url)]));
      await until("it is tried", () => receiver.requests.length === 2);
      for (let n = 0; n < 10; n += 1) {
        await untilRecorded();
        const before = receiver.requests.length;
        database.clock.advance(27 * hour);
        const isParked = async () => (await store.events.endpoint("hook"))?.parkedMs !== null;
        await until("it is tried", async () => receiver.requests.length > before || (await isParked()));
        if (await isParked()) break;
      }
      await until("it is parked", async () => (await store.events.endpoint("hook"))?.parkedMs !== null);
      // It refused all of them, so that none of them is at fault.
      await until("none is set aside", async () => (await store.events.endpoints())[0]?.pending === 2);
      const requests = receiver.requests.length;
      database.clock.advance(3 * day);
      await store.commit([payment("ada", "p1")]);
      await until("it is queued", async () => (await store.events.endpoints())[0]?.pending === 3);
      assert.equal(receiver.requests.length, requests);
      receiver.answer = (_, response) => {
        response.writeHead(200).end("ok");
        return true;
      };
      assert.equal(await store.events.resume("hook"), true);
      await until("all arrive", () => receiver.accepted.length === 3);
    });

    test("a receiver that is gone is parked at once", async () => {
      receiver.answer = (_, response) => {
        response.writeHead(410).end();
        return false;
      };
      send(configOf([endpoint(receiver.url)]));
      await until(
        "it is parked",
        async () => ((await store.events.endpoint("hook"))?.parkedMs ?? null) !== null,
      );
    });

    test("one of two processes sends, and the other one goes on when its lease has ended", async () => {
      const other = await database.open();
      send(configOf([endpoint(receiver.url)]));
      await until("all arrive", () => receiver.accepted.length === 2);
      const { node, leaseMs } = (await store.events.endpoint("hook")) ?? {};
      assert.equal(node, "a");
      await closing.shift()?.();
      await store.events.lead({ name: "hook", node: "died", leaseMs: (leaseMs ?? 0) + minute }, leaseMs ?? 0);
      send(configOf([endpoint(receiver.url)]), "b", other);
      await store.commit([payment("ada", "p1")]);
      await until("it is queued", async () => (await store.events.endpoints())[0]?.pending === 1);
      assert.equal(receiver.accepted.length, 2);
      database.clock.advance(3 * minute);
      await until("it arrives", () => receiver.accepted.length === 3);
      assert.equal((await store.events.endpoint("hook"))?.node, "b");
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

    test("an endpoint that is changed twice gets nothing before the request under way has ended", async () => {
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
      await store.commit([payment("bob", "p2")]);
      await until("the next one is queued", async () => (await deliveries()).length === 2);
      // Long enough for many looks for events.
      await sleep(200);
      assert.deepEqual([next.requests.length, receiver.requests.length], [0, 1]);
      release();
      await until("the next one arrives", () => next.accepted.length === 1);
      assert.deepEqual(names(next.accepted), ["bob p2"]);
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
        endpoint: async (name) => {
          if (name === "a") throw new Error("this row cannot be read");
          return await store.events.endpoint(name);
        },
      };
      const of: Store = Object.create(store, { events: { value: events } });
      const errors: unknown[] = [];
      const config = configOf([endpoint(receiver.url, { name: "a" }), endpoint(receiver.url)]);
      send(config, "a", of, (error) => errors.push(error));
      for (let n = 1; n <= 5; n += 1) {
        await store.commit([payment("ada", `p${n}`)]);
        await until("the other one gets it", () => receiver.accepted.length === 2 + n);
      }
      await until("the job fails", () => errors.length > 0);
    });

    test("no redirect is followed", async () => {
      const trap = await startReceiver();
      closing.push(() => trap.close());
      receiver.answer = (_, response) => {
        response.writeHead(307, { location: trap.url }).end();
        return false;
      };
      send(configOf([endpoint(receiver.url)]));
      await until("it has failed", async () => ((await store.events.endpoint("hook"))?.failures ?? 0) > 0);
      assert.match((await store.events.endpoint("hook"))?.problem ?? "", /^307/);
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
        await until(
          `${name} has failed`,
          async () => ((await store.events.endpoint(name))?.failures ?? 0) > 0,
        );
        const { problem } = (await store.events.endpoint(name)) ?? {};
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
      send(configOf([...endpoints, endpoint(receiver.url)]), "a", store, undefined, 4000);
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
      for (const name of ["hanging", "headers"])
        await until(
          `${name} has failed`,
          async () => ((await store.events.endpoint(name))?.failures ?? 0) > 0,
        );
    });
  });
}
