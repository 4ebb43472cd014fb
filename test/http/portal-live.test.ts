/** The live state of the portal: what it shows to whom, what it costs, and when it ends. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import type { Operation } from "../../src/ledger/operations.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { fieldsOf, listOf, refused } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { portalTests, startPortal, type TestPortal } from "../fixtures/portal.ts";
import { babble, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const liveTest = portalTests({ script: babble("word ", { tokenDelayMs: 5 }) });

interface Stream extends AsyncDisposable {
  /** The data of each event, oldest first. */
  readonly events: { event: string; data: Record<string, unknown> }[];
  /** Resolves when the stream has ended. */
  readonly ended: Promise<void>;
  last(event: string): Record<string, unknown> | undefined;
}

async function follow(portal: TestPortal, cookie: string): Promise<Stream> {
  const stopped = new AbortController();
  const response = await fetch(`${portal.url}/api/live`, {
    headers: { cookie, ...pageHeader },
    signal: stopped.signal,
  });
  assert.equal(response.status, 200, `${response.status}`);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.equal(response.headers.get("cache-control"), "no-store");
  assert.equal(response.headers.get("x-content-type-options"), "nosniff");
  const { body } = response;
  assert.ok(body !== null);
  const events: Stream["events"] = [];
  async function read(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    let text = "";
    try {
      for await (const chunk of chunks) {
        text += Buffer.from(chunk).toString();
        const parts = text.split("\n\n");
        text = parts.pop() ?? "";
        for (const part of parts) {
          const [, event = "", data = ""] = /^event: (\w+)\ndata: (.*)$/.exec(part) ?? [];
          events.push({ event, data: fieldsOf(JSON.parse(data)) });
        }
      }
    } catch {
      // The connection was closed, by the service or by this test.
    }
  }
  const ended = read(body);
  return {
    events,
    ended,
    last: (name) => events.findLast(({ event }) => event === name)?.data,
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await ended;
    },
  };
}

function running(stream: Stream): string[] {
  return listOf(stream.last("requests")?.data ?? []).map(({ key }) => String(key));
}

/** Starts an answer that does not end by itself. */
async function startAnswer(service: TestService, key = service.key): Promise<() => Promise<void>> {
  const left = new AbortController();
  const headers = { authorization: `Bearer ${key}` };
  const answer = await service.chat({ stream: true }, { headers, signal: left.signal });
  assert.equal(answer.status, 200);
  const read = answer.body?.pipeTo(new WritableStream()).catch(() => {});
  return async () => {
    left.abort();
    await read;
  };
}

liveTest("a stream has its log line at its end, with its key and session", async (portal, service) => {
  const lines = () => service.log.filter((line) => line.path === "/api/live");
  {
    await using stream = await follow(portal, await portal.signIn(service.key));
    await until("the first state", () => stream.last("requests") !== undefined);
    assert.deepEqual(lines(), []);
  }
  await until("the line", () => lines().length > 0);
  const [line, ...others] = lines();
  assert.equal(others.length, 0);
  const { method, status, account, keyId, msg } = line ?? {};
  assert.deepEqual([method, status, account, keyId, msg], ["GET", 200, "test", "key1", "GET /api/live 200"]);
  assert.match(String(line?.session), /^[\da-f]{8}$/);
});

liveTest("shows the balance and what runs, at checkpoints", async (portal, service) => {
  await using stream = await follow(portal, await portal.signIn(service.key));
  await until("the first state", () => stream.last("requests") !== undefined);
  const account = await portal.as(await portal.signIn(service.key), "GET", "/api/account");
  assert.deepEqual(stream.last("balance"), account.body.balance);
  assert.deepEqual(running(stream), []);
  const stop = await startAnswer(service);
  await until(
    "a checkpoint",
    () => Number(fieldsOf(listOf(stream.last("requests")?.data)[0] ?? {}).completion_tokens) > 0,
  );
  const [request = {}] = listOf(stream.last("requests")?.data);
  assert.partialDeepStrictEqual(request, { key: "key1", model: "small" });
  assert.ok(Number(request.held_micro) > 0);
  await stop();
  await until("the end of the answer", () => running(stream).length === 0);
  assert.notDeepEqual(stream.last("balance"), stream.events[0]?.data, "the balance has changed");
});

liveTest("a request that begins and ends between two looks is an event", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  // The first request breaks a whole credit, and the second only takes another part of it.
  assert.equal((await service.chat({ max_tokens: 1 })).status, 200);
  await using stream = await follow(portal, cookie);
  await until("the first state", () => stream.last("requests") !== undefined);
  const before = stream.last("requests");
  const balance = stream.last("balance");
  assert.equal((await service.chat({ max_tokens: 1 })).status, 200);
  await until("the event", () => stream.last("requests")?.journal_seq !== before?.journal_seq);
  assert.deepEqual(running(stream), []);
  assert.deepEqual(stream.last("balance"), balance);
  const { body } = await portal.as(cookie, "GET", "/api/requests");
  assert.equal(listOf(body.data)[0]?.journal_seq, stream.last("requests")?.journal_seq);
});

liveTest("a suspension and an end date of the account are events", async (portal, service) => {
  await using stream = await follow(portal, await portal.signIn(service.key));
  await until("the first state", () => stream.last("account") !== undefined);
  const before = stream.last("account");
  const { body } = await portal.as(await portal.signIn(service.key), "GET", "/api/account");
  const { refills, plan } = body;
  assert.deepEqual(before, { state: "active", ends_at: null, refills, plan });
  const change = (op: string, to: Extract<Operation, { kind: "state" }>["to"]) =>
    service.ledger.apply({ kind: "state", account: "test", op, to, by: "test" });
  await change("pause", { kind: "suspend" });
  await until("the suspension", () => stream.last("account")?.state === "suspended");
  const endsMs = Date.now() + 60_000;
  await change("end", { kind: "end", endsMs });
  await until("the end", () => stream.last("account")?.ends_at === new Date(endsMs).toISOString());
  assert.deepEqual(stream.last("account")?.refills, [], "no refill comes before the end");
  await change("keep", { kind: "end", endsMs: null });
  await change("go on", { kind: "resume" });
  await until("the state before", () => isDeepStrictEqual(stream.last("account"), before));
});

liveTest(
  "shows a key its own requests, and all of the account only with the right to",
  async (portal, service) => {
    const other = await service.addKey({ portal: "account" });
    await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
    const foreign = await service.addKey({ account: "eve", portal: "account" });
    await using own = await follow(portal, await portal.signIn(service.key));
    await using all = await follow(portal, await portal.signIn(other));
    await using eve = await follow(portal, await portal.signIn(foreign));
    const stops = [
      await startAnswer(service),
      await startAnswer(service, other),
      await startAnswer(service, foreign),
    ];
    await until(
      "all running requests",
      () => running(own).length === 1 && running(all).length === 2 && running(eve).length === 1,
    );
    assert.deepEqual(running(own), ["key1"]);
    assert.deepEqual(running(all).toSorted(), ["key1", "key2"]);
    assert.deepEqual(running(eve), ["key3"]);
    // Rights that are taken count for streams that are open.
    await service.ledger.apply({
      kind: "key",
      account: "test",
      key: "key2",
      op: "lower",
      set: { portal: "own" },
      by: "test",
    });
    await until("the lowered rights", () => running(all).length === 1);
    assert.deepEqual(running(all), ["key2"]);
    await Promise.all(stops.map((stop) => stop()));
  },
);

liveTest("many pages of an account share one reading a second", async (portal, service) => {
  const { store } = service;
  const { accountSnapshot, holds } = store;
  let reads = 0;
  store.accountSnapshot = (account) => {
    reads += 1;
    return accountSnapshot.call(store, account);
  };
  store.holds = (query) => {
    reads += 1;
    return holds.call(store, query);
  };
  const cookies = [await portal.signIn(service.key), await portal.signIn(service.key)];
  const streams = await Promise.all(
    Array.from({ length: 20 }, (_, n) => follow(portal, cookies[n % 2] ?? "")),
  );
  const stop = await startAnswer(service);
  const from = performance.now();
  reads = 0;
  // The words of an answer change the balance all the time.
  await until("one request in each stream", () => streams.every((stream) => running(stream).length === 1));
  await until("two seconds", () => performance.now() - from > 2_000);
  const seconds = (performance.now() - from) / 1000;
  assert.ok(reads <= 2 * Math.ceil(seconds + 1), `${reads} reads in ${seconds} s`);
  for (const stream of streams) {
    const count = stream.events.filter(({ event }) => event === "balance").length;
    assert.ok(count <= seconds + 3, `${count} balances in ${seconds} s`);
  }
  await stop();
  await Promise.all(streams.map((stream) => stream[Symbol.asyncDispose]()));
});

liveTest("reads nothing for an account that does not change", async (portal, service) => {
  await using stream = await follow(portal, await portal.signIn(service.key));
  await until("the first state", () => stream.last("requests") !== undefined);
  const { store } = service;
  const { accountSnapshot } = store;
  store.accountSnapshot = () => Promise.reject(new Error("read without a change"));
  const { accountMarks } = store;
  let looks = 0;
  store.accountMarks = (accounts) => {
    looks += 1;
    return accountMarks.call(store, accounts);
  };
  await until("three looks", () => looks === 3);
  assert.deepEqual(
    service.log.filter(({ level }) => Number(level) >= 40),
    [],
  );
  assert.equal(stream.events.length, 3);
  store.accountSnapshot = accountSnapshot;
});

liveTest("a stream does not prolong the session", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const before = await portal.as(cookie, "GET", "/api/session");
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 3_600_000);
  await using stream = await follow(portal, cookie);
  await until("the first state", () => stream.last("balance") !== undefined);
  assert.deepEqual((await portal.as(cookie, "GET", "/api/session")).body, before.body);
  service.store.times = times;
});

liveTest("what a page reads by itself does not prolong the session", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const before = await portal.as(cookie, "GET", "/api/session");
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 3_600_000);
  const headers = { cookie, ...pageHeader };
  const unattended = { ...headers, "x-inkwell-unattended": "1" };
  assert.equal((await fetch(`${portal.url}/api/requests`, { headers: unattended })).status, 200);
  assert.deepEqual((await portal.as(cookie, "GET", "/api/session")).body, before.body);
  assert.equal((await fetch(`${portal.url}/api/requests`, { headers })).status, 200);
  await until("the use is written", async () => {
    const { body } = await portal.as(cookie, "GET", "/api/session");
    return body.idle_expires_at !== before.body.idle_expires_at;
  });
  service.store.times = times;
});

liveTest(
  "an account has a limited number of streams, and another account its own",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const streams = await Promise.all(Array.from({ length: 32 }, () => follow(portal, cookie)));
    refused(await portal.as(cookie, "GET", "/api/live"), 429, "concurrency_limit_exceeded");
    await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
    await using _eve = await follow(portal, await portal.signIn(await service.addKey({ account: "eve" })));
    await streams.pop()?.[Symbol.asyncDispose]();
    await until("a free place", async () => {
      const answer = await fetch(`${portal.url}/api/live`, { headers: { cookie, ...pageHeader } });
      await answer.body?.cancel();
      return answer.status === 200;
    });
    await Promise.all(streams.map((stream) => stream[Symbol.asyncDispose]()));
  },
);

liveTest("a damaged account keeps no other from being shown", async (portal, service) => {
  await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
  const { store } = service;
  const { accountSnapshot } = store;
  store.accountSnapshot = async (account) => {
    const found = await accountSnapshot.call(store, account);
    if (account !== "eve" || found?.account.base == null) return found;
    return {
      ...found,
      account: { ...found.account, base: { ...found.account.base, spentMicro: Number.NaN } },
    };
  };
  await using eve = await follow(portal, await portal.signIn(await service.addKey({ account: "eve" })));
  await using stream = await follow(portal, await portal.signIn(service.key));
  await until("the first state", () => stream.last("balance") !== undefined);
  await service.ledger.apply({
    kind: "topup",
    account: "test",
    payment: "p1",
    amountMicro: 5_000_000,
    by: "test",
  });
  await until("the top-up", () =>
    JSON.stringify(stream.last("balance")).includes('"additional":{"credits":5}'),
  );
  assert.deepEqual(eve.events, []);
  const lines = service.log.filter(({ msg }) => String(msg).includes("live state"));
  assert.equal(lines.length, 1, "logged once");
});

void test("streams do not delay the end of the portal", async () => {
  await using service = await startService();
  await using portal = await startPortal(service);
  const stream = await follow(portal, await portal.signIn(service.key));
  await until("the first state", () => stream.last("balance") !== undefined);
  const passedMs = startOwnTime();
  await portal[Symbol.asyncDispose]();
  assert.ok(passedMs() < 1_000);
  await stream.ended;
});

liveTest("the stream has no HEAD, and says so", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const { status, headers } = await portal.as(cookie, "HEAD", "/api/live");
  assert.deepEqual([status, headers.get("allow")], [405, "GET"]);
  assert.equal((await portal.as(cookie, "HEAD", "/api/account")).status, 200);
});
