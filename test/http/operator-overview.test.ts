/** The overview of the operator API: one snapshot, shared by all clients, as a stream too. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { streamsMax, streamsPerSessionMax } from "../../src/http/admin/stream-slots.ts";
import { RunningRequests } from "../../src/http/public/running-requests.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import {
  type Fields,
  fieldsOf,
  listOf,
  operatorTests,
  operatorToken,
  refused,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { babble, startService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests({ script: babble("word ", { tokenDelayMs: 5 }) });
const token = { authorization: `Bearer ${operatorToken}` };

/** Opens a stream. `next` returns the next event, or null after the end. */
async function openStream(
  operator: TestOperator,
  headers: Record<string, string> = token,
  path = "/admin/overview/stream",
) {
  const answer = await fetch(operator.url + path, { headers });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.ok(answer.body);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    async next(): Promise<Fields | null> {
      for (;;) {
        const end = text.indexOf("\n\n");
        if (end >= 0) {
          const event = text.slice(0, end);
          text = text.slice(end + 2);
          const [, data] = /^data: (.*)$/m.exec(event) ?? [];
          if (data !== undefined) return fieldsOf(JSON.parse(data));
          continue;
        }
        const { value, done } = await reader.read();
        if (done) return null;
        text += value;
      }
    },
    cancel: () => reader.cancel(),
  };
}

operatorTest("shows health, running requests, models, sums and errors", async (operator, service) => {
  const going = new AbortController();
  const answer = await service.chat({ stream: true }, { signal: going.signal });
  await answer.body?.getReader().read();
  service.live.errors.logged(50, [{ code: "internal_error" }, "a request failed"]);
  const { body } = await operator.get("/admin/overview");
  const health = {
    ready: true,
    store: "ok",
    clock: "ok",
    draining: false,
    warnings: [],
    jobs: [],
    nodes: 0,
    node: null,
  };
  assert.deepEqual(body.health, health);
  const { running, waiting, requests } = fieldsOf(body.running);
  assert.deepEqual([running, waiting], [1, 0]);
  assert.equal(listOf(requests)[0]?.request_id, answer.headers.get("x-request-id"));
  assert.deepEqual([listOf(requests).length, listOf(requests)[0]?.here], [1, true]);
  assert.equal(listOf(body.models)[0]?.id, "small");
  assert.equal(fieldsOf(body.last_hour).requests, 0);
  assert.equal(listOf(body.errors)[0]?.message, "a request failed");
  going.abort();
});

operatorTest("shows the requests of other nodes, as of their last checkpoint", async (_operator, service) => {
  const going = new AbortController();
  const answer = await service.chat({ stream: true }, { signal: going.signal });
  await answer.body?.getReader().read();
  await using other = await startOperator(service, [], { requests: new RunningRequests() });
  // The first snapshots come without the database if it takes longer than half a second.
  const now = async () => fieldsOf((await other.get("/admin/overview")).body.running);
  await until("the database is read", async () => (await now()).elsewhere === 1);
  const { running, requests } = await now();
  assert.equal(running, 0);
  const [row] = listOf(requests);
  assert.equal(row?.request_id, answer.headers.get("x-request-id"));
  assert.deepEqual([row?.here, row?.account, row?.model, row?.state], [false, "test", "small", "running"]);
  assert.ok(Number(row?.held_micro) > 0);
  going.abort();
});

operatorTest(
  "sums the usage of all nodes, and lists accounts with almost no credits",
  async (_, service) => {
    await using other = await startOperator(service, [], { requests: new RunningRequests() });
    const ids: string[] = [];
    for (let n = 0; n < 2; n++) {
      const answer = await service.chat({ max_tokens: 3 });
      await answer.text();
      ids.push(answer.headers.get("x-request-id") ?? "");
    }
    const receipts = await Promise.all(ids.map((id) => service.receipt(id)));
    const cost = receipts.reduce((sum, receipt) => sum + (receipt?.costMicro ?? 0), 0);
    // The first snapshots come without the database if it takes longer than half a second.
    const read = async () => (await other.get("/admin/overview")).body;
    await until("the database is read", async () => {
      const { usage, low_balance } = await read();
      return usage !== null && low_balance !== null;
    });
    const body = await read();
    const usage = fieldsOf(body.usage);
    for (const sums of [usage.this_hour, usage.today, listOf(usage.hours).at(-1)]) {
      const { requests, completion_tokens, cost_micro } = fieldsOf(sums);
      assert.deepEqual([requests, completion_tokens, cost_micro], [2, 6, cost]);
    }
    const [near] = listOf(fieldsOf(body.low_balance).accounts);
    assert.deepEqual([near?.id, near?.plan, near?.credits], ["test", "test", 0]);
  },
  {
    plan: {
      base: { credits: 1, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1M", align: "opening" },
    },
  },
);

operatorTest("today has the hours that began on the local day", async (_, service) => {
  const { store } = service;
  const { times, usageHours } = store;
  const sums = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const paid = { costMicro: 1, base: 1, overage: 0, additional: 0, shortfallMicro: 0 };
  store.usageHours = async ({ from, to }) =>
    Array.from({ length: to - from }, (_, n) => ({
      ...{ hour: from + n, model: null, requests: 1, late: 0, ...sums, ...paid },
    }));
  for (const [timezone, at, expected] of [
    ["UTC", "2027-01-01T18:30:00Z", 19],
    ["Asia/Tokyo", "2027-01-01T18:30:00Z", 4],
    ["America/New_York", "2027-01-01T04:59:00Z", 24],
    // The day has 25 hours.
    ["Europe/Berlin", "2027-10-31T22:59:00Z", 25],
  ] as const) {
    store.times = () => timesAt(Date.parse(at));
    await using other = await startOperator(service, [], { timezone: () => timezone });
    // The first snapshots come without the database if it takes longer than half a second.
    const read = async () => (await other.get("/admin/overview")).body.usage;
    await until("the database is read", async () => (await read()) !== null);
    const usage = fieldsOf(await read());
    assert.equal(fieldsOf(usage.today).requests, expected, timezone);
    assert.equal(listOf(usage.hours).length, 24);
  }
  Object.assign(store, { times, usageHours });
});

operatorTest(
  "streams a snapshot at once and after each change, the same to all",
  async (operator, service) => {
    const streams = [await openStream(operator), await openStream(operator)];
    const first = await Promise.all(streams.map((stream) => stream.next()));
    assert.deepEqual(first[0], first[1]);
    assert.equal(fieldsOf(first[0]?.running).running, 0);
    await (await service.chat({ max_tokens: 3 })).text();
    const second = await Promise.all(streams.map((stream) => stream.next()));
    assert.deepEqual(second[0], second[1]);
    assert.equal(fieldsOf(second[0]?.last_hour).requests, 1);
    for (const stream of streams) await stream.cancel();
  },
);

test("takes one snapshot a second for all clients", async (t) => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const over = t.mock.method(service.live.activity, "over");
  const nowMs = performance.now();
  const clock = t.mock.method(performance, "now", () => nowMs);
  const stream = await openStream(operator);
  await stream.next();
  const ofOne = over.mock.callCount();
  await Promise.all(Array.from({ length: 20 }, () => operator.get("/admin/overview")));
  assert.equal(over.mock.callCount(), ofOne, "all within a second share the snapshot");
  clock.mock.mockImplementation(() => nowMs + 1001);
  await operator.get("/admin/overview");
  assert.equal(over.mock.callCount(), 2 * ofOne);
  clock.mock.restore();
  await stream.cancel();
});

test("a stream ends with the listener, which does not wait for it", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const stream = await openStream(operator);
  await stream.next();
  const passedMs = startOwnTime();
  await operator[Symbol.asyncDispose]();
  assert.ok(passedMs() < 1500, "the stop was not delayed");
  assert.equal(await stream.next().catch(() => null), null);
});

/** Returns the headers of a new session. */
async function sessionOf(operator: TestOperator): Promise<Record<string, string>> {
  const signedIn = await fetch(`${operator.url}/admin/session`, {
    method: "POST",
    headers: { ...pageHeader, "content-type": "application/json" },
    body: JSON.stringify({ token: operatorToken }),
  });
  const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
  return { cookie, ...pageHeader };
}

operatorTest("a stream ends when its session is signed out", async (operator) => {
  const headers = await sessionOf(operator);
  const stream = await openStream(operator, headers);
  await stream.next();
  assert.equal((await fetch(`${operator.url}/admin/session`, { method: "DELETE", headers })).status, 204);
  assert.equal(await stream.next().catch(() => null), null);
});

operatorTest("a HEAD request opens no stream", async (operator) => {
  const answer = await operator.ask("HEAD", "/admin/overview/stream");
  assert.ok(answer.status === 404 || answer.status === 405);
});

operatorTest("a hundred streams of one address take no connection from its operators", async (operator) => {
  const streams = await Promise.all(Array.from({ length: 100 }, () => openStream(operator)));
  for (const stream of streams) assert.notEqual(await stream.next(), null);
  const answers = await Promise.all(Array.from({ length: 20 }, () => operator.get("/admin/nodes")));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  for (const stream of streams) await stream.cancel();
});

operatorTest("a process has a limited number of streams", async (operator) => {
  const streams = await Promise.all(Array.from({ length: streamsMax }, () => openStream(operator)));
  const another = await operator.ask("GET", "/admin/overview/stream");
  refused(another, 429, "concurrency_limit_exceeded");
  assert.equal(another.headers.get("retry-after"), "30");
  for (const stream of streams) await stream.cancel();
  await until("their places are free", async () => {
    const answer = await fetch(`${operator.url}/admin/overview/stream`, { headers: token });
    await answer.body?.cancel();
    return answer.status === 200;
  });
});

operatorTest("a session has four streams, and another session has its own", async (operator) => {
  const headers = await sessionOf(operator);
  const streams = await Promise.all(
    Array.from({ length: streamsPerSessionMax }, () => openStream(operator, headers)),
  );
  const withoutToken = { headers: { ...headers, authorization: undefined } };
  const another = await operator.ask("GET", "/admin/overview/stream", withoutToken);
  refused(another, 429, "concurrency_limit_exceeded");
  const ofOther = await openStream(operator, await sessionOf(operator));
  await streams[0]?.cancel();
  await until("a place is free", async () => {
    const answer = await fetch(`${operator.url}/admin/overview/stream`, { headers });
    await answer.body?.cancel();
    return answer.status === 200;
  });
  for (const stream of [...streams.slice(1), ofOther]) await stream.cancel();
});

operatorTest("goes on without the database, and says so", async (operator, service) => {
  const { body } = await operator.get("/admin/overview");
  assert.equal(fieldsOf(body.health).store, "ok");
  const stream = await openStream(operator);
  let first = await stream.next();
  // The first snapshots come without the database if it takes longer than half a second.
  while (first !== null && first.usage === null) first = await stream.next();
  service.store.holds = async () => {
    throw new Error("the disk is gone");
  };
  const second = await stream.next();
  assert.equal(fieldsOf(second?.health).store, "unreachable");
  assert.deepEqual(second?.usage, first?.usage);
  await stream.cancel();
  const lines = service.log.filter(({ msg }) => /overview could not be read/.test(String(msg)));
  assert.equal(lines.length, 1);
});

operatorTest(
  "streams the balance of an account and its requests, here and on other nodes",
  async (operator, service) => {
    await using other = await startOperator(service, [], { requests: new RunningRequests() });
    const path = "/admin/accounts/test/live/stream";
    const streams = [await openStream(operator, token, path), await openStream(other, token, path)];
    const first = await Promise.all(streams.map((stream) => stream.next()));
    for (const each of first) assert.deepEqual([each?.running, each?.held_micro], [0, 0]);
    const going = new AbortController();
    const answer = await service.chat({ stream: true }, { signal: going.signal });
    await answer.body?.getReader().read();
    const [here, there] = await Promise.all(streams.map((stream) => stream.next()));
    for (const [shown, isHere] of [
      [here, true],
      [there, false],
    ] as const) {
      const [row] = listOf(shown?.requests);
      assert.deepEqual([row?.request_id, row?.here], [answer.headers.get("x-request-id"), isHere]);
      assert.deepEqual([shown?.running, Number(shown?.held_micro) > 0], [1, true]);
    }
    going.abort();
    for (const stream of streams) {
      let last = await stream.next();
      while (last?.running !== 0) last = await stream.next();
      assert.deepEqual(last.balance, (await operator.get("/admin/accounts/test/balance")).body);
      assert.equal(last.held_micro, 0);
      await stream.cancel();
    }
    const { body } = await operator.get("/admin/accounts/test/live");
    assert.deepEqual([body.running, body.requests], [0, []]);
  },
);

operatorTest("an account that does not exist has no stream", async (operator) => {
  refused(await operator.get("/admin/accounts/nobody/live"), 404, "account_not_found");
  refused(await operator.get("/admin/accounts/nobody/live/stream"), 404, "account_not_found");
});

for (const path of ["/admin/overview/stream", "/admin/accounts/test/live/stream"]) {
  for (const end of ["its client leaves", "the listener closes"]) {
    void test(`${path} has its log line when ${end}`, async () => {
      await using service = await startService();
      const lines = () => service.log.filter((line) => String(line.path).endsWith("/stream"));
      {
        await using operator = await startOperator(service);
        const stream = await openStream(operator, token, path);
        await stream.next();
        assert.deepEqual(lines(), []);
        if (end === "its client leaves") {
          await stream.cancel();
          await until("the line", () => lines().length > 0);
        }
      }
      await until("the line", () => lines().length > 0);
      const [line, ...others] = lines();
      assert.equal(others.length, 0);
      const route = path.replace("test", ":account");
      assert.deepEqual([line?.method, line?.path, line?.status, line?.level], ["GET", route, 200, 30]);
      assert.equal(line?.msg, `GET ${route} 200`);
      assert.equal(line?.account, path.includes("test") ? "test" : undefined);
      assert.equal(typeof line?.durationMs, "number");
    });
  }
}

operatorTest(
  "a request whose client leaves before the answer has a log line too",
  async (operator, service) => {
    const { accounts } = service.store;
    const asked = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    service.store.accounts = async (query) => {
      asked.resolve();
      await release.promise;
      return await accounts.call(service.store, query);
    };
    const left = new AbortController();
    const answer = fetch(`${operator.url}/admin/accounts`, { headers: token, signal: left.signal });
    await asked.promise;
    left.abort();
    await assert.rejects(answer, { name: "AbortError" });
    await until("the line", () => service.log.some(({ msg }) => msg === "GET /admin/accounts client gone"));
    release.resolve();
    assert.equal((await operator.get("/admin/plans")).status, 200);
    const lines = service.log.filter((line) => line.path === "/admin/accounts");
    assert.deepEqual(
      lines.map(({ status }) => status),
      [null],
    );
  },
);
