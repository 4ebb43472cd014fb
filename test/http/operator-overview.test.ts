/** The overview of the operator API: one snapshot, shared by all clients. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RunningRequests } from "../../src/http/public/running-requests.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { limits } from "../../src/limits/limits.ts";
import { holdBack } from "../fixtures/held-back.ts";
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
import { pageHeader } from "../fixtures/page-header.ts";
import { babble, startService } from "../fixtures/service.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests({ script: babble("word ", { tokenDelayMs: 5 }) });
const token = { authorization: `Bearer ${operatorToken}` };

operatorTest("shows health, running requests, models, sums and errors", async (operator, service) => {
  const going = new AbortController();
  const answer = await service.chat({ stream: true }, { signal: going.signal });
  await answer.body?.getReader().read();
  service.live.errors.logged(50, [{ code: "internal_error" }, "a request failed"]);
  const { body } = await operator.get("/admin/overview");
  const ok = { ready: true, store: "ok", clock: "ok", draining: false };
  assert.deepEqual(body.health, { ...ok, warnings: [], jobs: [], nodes: 0, node: null });
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
  const paid = { costMicro: 1, baseMicro: 1, overageMicro: 0, additionalMicro: 0, shortfallMicro: 0 };
  store.usageHours = async ({ from, to }) =>
    Array.from({ length: to - from }, (_, n) => ({
      hour: from + n,
      model: null,
      requests: 1,
      late: 0,
      ...sums,
      ...paid,
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
    assert.equal(listOf(usage.hours).length, 48);
  }
  Object.assign(store, { times, usageHours });
});

operatorTest("has a tag, and is 304 while nothing has changed", async (operator, service) => {
  const ask = (tag: string | null) =>
    fetch(`${operator.url}/admin/overview`, { headers: { ...token, "if-none-match": tag ?? "" } });
  let tag: string | null = null;
  await until("the state rests", async () => {
    const answer = await ask(tag);
    tag = answer.headers.get("etag");
    return answer.status === 304 && (await answer.text()) === "";
  });
  await (await service.chat({ max_tokens: 3 })).text();
  await until("the request is in it", async () => {
    const answer = await ask(tag);
    return answer.status === 200 && fieldsOf(fieldsOf(await answer.json()).last_hour).requests === 1;
  });
});

test("takes one snapshot a second for all clients", async (t) => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const over = t.mock.method(service.live.activity, "over");
  using time = stopTime();
  await operator.get("/admin/overview");
  const ofOne = over.mock.callCount();
  await Promise.all(Array.from({ length: 20 }, () => operator.get("/admin/overview")));
  assert.equal(over.mock.callCount(), ofOne, "all within a second share the snapshot");
  time.advance(1001);
  await operator.get("/admin/overview");
  assert.equal(over.mock.callCount(), 2 * ofOne);
});

operatorTest("a session has a limited number of reads, and another session its own", async (operator) => {
  const ask = (headers: Record<string, string>) =>
    operator.ask("GET", "/admin/overview", { headers: { ...headers, authorization: undefined } });
  const [one, other] = [await sessionOf(operator), await sessionOf(operator)];
  using _ = stopTime();
  let answer = await ask(one);
  for (let n = 0; n < limits.sessionReads.most; n += 1) answer = await ask(one);
  assert.match(refused(answer, 429, "rate_limit_exceeded"), /^This session has made 240 reads within 60 s/);
  assert.equal((await ask(other)).status, 200);
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

operatorTest("goes on without the database, and says so", async (operator, service) => {
  const read = async () => (await operator.get("/admin/overview")).body;
  await until("the database is read", async () => (await read()).usage !== null);
  const first = await read();
  assert.equal(fieldsOf(first.health).store, "ok");
  service.store.holds = async () => {
    throw new Error("the disk is gone");
  };
  await until("it is gone", async () => fieldsOf((await read()).health).store === "unreachable");
  assert.deepEqual((await read()).usage, first.usage);
  const lines = service.log.filter(({ msg }) => /overview could not be read/.test(String(msg)));
  assert.equal(lines.length, 1);
});

operatorTest("is not ready while the database is read-only, as /readyz", async (_, service) => {
  await using operator = await startOperator(service, [], { isWritable: () => false });
  const { ready, store } = fieldsOf((await operator.get("/admin/overview")).body.health);
  assert.deepEqual([ready, store], [false, "read_only"]);
});

operatorTest(
  "shows the balance of an account and its requests, here and on other nodes",
  async (operator, service) => {
    await using other = await startOperator(service, [], { requests: new RunningRequests() });
    const ask = async (node: TestOperator, tag = "") => {
      const headers = { ...token, "if-none-match": tag };
      const answer = await fetch(`${node.url}/admin/accounts/test/live`, { headers });
      const body: Fields = JSON.parse((await answer.text()) || "{}");
      return { status: answer.status, tag: answer.headers.get("etag") ?? "", body };
    };
    const { store } = service;
    const { times } = store;
    const { atMs } = times();
    // Each minute is another state.
    store.times = () => timesAt(atMs);
    const first = await Promise.all([ask(operator), ask(other)]);
    for (const { body } of first) assert.deepEqual([body.running, body.held_micro], [0, 0]);
    assert.deepEqual((await ask(operator, first[0].tag)).status, 304);
    store.times = () => timesAt(atMs + 60_000);
    assert.deepEqual((await ask(operator, first[0].tag)).status, 200);
    store.times = times;
    const going = new AbortController();
    const answer = await service.chat({ stream: true }, { signal: going.signal });
    await answer.body?.getReader().read();
    for (const [node, isHere, { tag }] of [
      [operator, true, first[0]],
      [other, false, first[1]],
    ] as const) {
      const { status, body } = await ask(node, tag);
      assert.equal(status, 200);
      const [row] = listOf(body.requests);
      assert.deepEqual([row?.request_id, row?.here], [answer.headers.get("x-request-id"), isHere]);
      assert.deepEqual([body.running, Number(body.held_micro) > 0], [1, true]);
    }
    going.abort();
    for (const node of [operator, other]) {
      await until("it has ended", async () => (await ask(node)).body.running === 0);
      const { body } = await ask(node);
      assert.deepEqual(body.balance, (await operator.get("/admin/accounts/test/balance")).body);
      assert.deepEqual([body.held_micro, body.requests], [0, []]);
    }
    refused(await operator.get("/admin/accounts/nobody/live"), 404, "account_not_found");
  },
);

operatorTest(
  "a request whose client leaves before the answer has a log line too",
  async (operator, service) => {
    using away = holdBack(service.store, "accounts");
    const left = new AbortController();
    const answer = fetch(`${operator.url}/admin/accounts`, { headers: token, signal: left.signal });
    await until("it is read", () => away.asked === 1);
    left.abort();
    await assert.rejects(answer, { name: "AbortError" });
    await until("the line", () => service.log.some(({ msg }) => msg === "GET /admin/accounts client gone"));
    away.release();
    assert.equal((await operator.get("/admin/plans")).status, 200);
    const lines = service.log.filter((line) => line.path === "/admin/accounts");
    assert.deepEqual(
      lines.map(({ status }) => status),
      [null],
    );
  },
);

operatorTest("says what a new service has done, and what needs an operator", async (_, service) => {
  const { store } = service;
  await using operator = await startOperator(service, [], {
    invitations: () => ({ portalUrl: null, send: null }),
  });
  const read = async () => (await operator.get("/admin/overview")).body;
  await until("the database is read", async () => (await read()).first_steps !== null);
  const own = { model: true, plan: true, account: true, key: true };
  assert.deepEqual((await read()).first_steps, { ...own, request: false });
  assert.deepEqual((await read()).attention, []);
  const links = { api: service.url, portal: "https://portal.example", invitations: "none" };
  assert.deepEqual((await read()).links, links);
  service.live.errors.logged(50, [{ code: "balance_unavailable" }, "a request failed"]);
  await (await service.chat({ max_tokens: 3 })).text();
  await until("the request is in it", async () => fieldsOf((await read()).first_steps).request === true);
  // What was done once is not asked again.
  const usage = store.usage;
  store.usage = () => Promise.reject(new Error("not asked again"));
  await until("another look", async () => fieldsOf((await read()).last_hour).requests === 1);
  store.usage = usage;
  assert.deepEqual((await read()).attention, [
    { text: "An account is damaged: its requests are refused. Run the audit.", page: "health" },
  ]);
});

operatorTest("names failing mail, and invitations that nobody used for a week", async (_, service) => {
  const { store } = service;
  const endpoints = [{ name: "mail", pending: 1, dead: 0, failing: 1, nextMs: null, problem: "550 no" }];
  store.events.endpoints = async () => endpoints;
  await using operator = await startOperator(service);
  for (const id of ["ada", "bo"]) {
    await operator.post("/admin/accounts", { id, plan: "test", email: `${id}@x.example` });
    assert.equal((await operator.post(`/admin/accounts/${id}/invitation`, {})).status, 201);
  }
  const { times } = store;
  store.times = () => timesAt(times().nowMs + 8 * 86_400_000);
  await using later = await startOperator(service);
  const read = async () => listOf((await later.get("/admin/overview")).body.attention);
  await until("the database is read", async () => (await read()).length > 0);
  assert.deepEqual(await read(), [
    { text: "The mail server fails: 550 no.", page: "events" },
    { text: "2 invitations are older than a week, and nobody came.", page: "accounts" },
  ]);
  store.times = times;
});

operatorTest(
  "answers a chat request with a key that the sender has, and with no other",
  async (operator, service) => {
    const ask = (key: string, headers = {}) =>
      fetch(`${operator.url}/admin/chat`, {
        method: "POST",
        headers: { ...token, "content-type": "application/json", "x-inkwell-key": key, ...headers },
        body: JSON.stringify({
          model: "small",
          stream: true,
          max_tokens: 3,
          messages: [{ role: "user", content: "Hi" }],
        }),
      });
    const answer = await ask(service.key);
    assert.equal(answer.status, 200);
    const [last] = (await answer.text()).split("data: ").slice(-2);
    const { id, cost_micro } = fieldsOf(JSON.parse(last ?? ""));
    const receipt = await service.receipt(String(id).replace("chatcmpl-", ""));
    assert.equal(receipt?.costMicro, cost_micro);
    for (const key of ["", "wrong", service.key.replace(/.$/, "-")]) {
      const refusal = await ask(key);
      assert.equal(refusal.status, 400, await refusal.text());
    }
    assert.equal((await ask(service.key, { authorization: "Bearer wrong" })).status, 401);
    const made = await operator.post("/admin/operator-keys", {
      operation_id: "v",
      name: "v",
      role: "support",
    });
    assert.equal((await ask(service.key, { authorization: `Bearer ${made.body.key}` })).status, 403);
  },
);
