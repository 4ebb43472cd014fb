/** The live state of the portal: what it shows to whom, and what it costs. */

import assert from "node:assert/strict";
import type { Operation } from "../../src/ledger/operations.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { limits } from "../../src/limits/limits.ts";
import { type Fields, fieldsOf, listOf, refused, startOperator } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import { babble, type TestService } from "../fixtures/service.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";

const liveTest = portalTests({ script: babble("word ", { tokenDelayMs: 5 }) });

interface State {
  status: number;
  tag: string;
  body: Fields;
}

async function stateOf(portal: TestPortal, cookie: string, tag = ""): Promise<State> {
  const headers = { cookie, "if-none-match": tag, ...pageHeader };
  const response = await fetch(`${portal.url}/api/live`, { headers });
  const text = await response.text();
  assert.equal(response.headers.get("cache-control"), "no-store");
  return { status: response.status, tag: response.headers.get("etag") ?? "", body: JSON.parse(text || "{}") };
}

function running({ body }: State): Fields[] {
  return listOf(fieldsOf(body.requests).data);
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

liveTest("shows the balance and what runs, at checkpoints", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const first = await stateOf(portal, cookie);
  const account = await portal.as(cookie, "GET", "/api/account");
  const { balance, refills, plan, spending_caps } = account.body;
  assert.deepEqual(first.body.balance, balance);
  assert.deepEqual(first.body.account, { state: "active", ends_at: null, refills, plan, spending_caps });
  assert.deepEqual(running(first), []);
  const stop = await startAnswer(service);
  await until("a checkpoint", async () => {
    const [request] = running(await stateOf(portal, cookie));
    return Number(request?.completion_tokens) > 0;
  });
  const [request] = running(await stateOf(portal, cookie));
  assert.partialDeepStrictEqual(request, { key: "key1", model: "small" });
  assert.ok(Number(request?.held_micro) > 0);
  await stop();
  await until("the end", async () => running(await stateOf(portal, cookie)).length === 0);
  assert.notDeepEqual((await stateOf(portal, cookie)).body.balance, first.body.balance);
});

liveTest(
  "shows what the caps of the plan have left, and those of the key",
  async (portal, service) => {
    await using operator = await startOperator(service);
    const caps = [{ amountMicro: 2_000_000, every: "PT5H", byOperator: true }];
    await service.ledger.apply({
      ...{ kind: "key", account: "test", key: "key1", op: "cap", by: "test" },
      set: { caps },
    });
    assert.equal((await service.chat()).status, 200);
    const cookie = await portal.signIn(service.key);
    const { body } = await portal.as(cookie, "GET", "/api/account");
    const [ofPlan] = listOf(body.spending_caps);
    const spent = Number(ofPlan?.spent_micro);
    assert.ok(spent > 0);
    assert.partialDeepStrictEqual(ofPlan, {
      ...{ name: "dear", credits: 3, every: "P1W", align: "calendar", timezone: "UTC", models: ["sm*"] },
      ...{ left_micro: 3_000_000 - spent, held_micro: 0 },
    });
    assert.partialDeepStrictEqual(listOf(fieldsOf(body.key).spending_caps), [
      { name: "PT5H", credits: 2, left_micro: 2_000_000 - spent, spent_micro: spent },
    ]);
    assert.deepEqual(
      fieldsOf((await stateOf(portal, cookie)).body.account).spending_caps,
      body.spending_caps,
    );
    const live = await operator.get("/admin/accounts/test/live");
    assert.deepEqual(live.body.spending_caps, body.spending_caps);
    const balance = await service.request("GET", "/v1/balance");
    assert.doesNotMatch(await balance.text(), /spending_caps|dear/, "as its contract says");
  },
  { plan: { caps: [{ name: "dear", credits: 3, every: "P1W", align: "calendar", models: ["sm*"] }] } },
);

liveTest("an unchanged state is 304, and reads nothing", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const { store } = service;
  const { accountSnapshot, times } = store;
  const { atMs } = times();
  // Each minute is another state.
  store.times = () => timesAt(atMs);
  const first = await stateOf(portal, cookie);
  store.accountSnapshot = () => Promise.reject(new Error("read without a change"));
  // A proxy that compresses the response makes its tag a weak one.
  for (const known of [first.tag, `W/${first.tag}`, `"one,two" ,W/${first.tag}`, "*"]) {
    const again = await stateOf(portal, cookie, known);
    assert.deepEqual(again, { status: 304, tag: first.tag, body: {} }, known);
  }
  store.accountSnapshot = accountSnapshot;
  const unquoted = first.tag.slice(1, -1);
  assert.equal((await stateOf(portal, cookie, `W/"1", ${unquoted}`)).status, 200);
  store.times = times;
  // The first request breaks a whole credit, and the second only takes another part of it.
  let last = first;
  for (let n = 0; n < 2; n += 1) {
    await (await service.chat({ max_tokens: 1 })).text();
    const next = await stateOf(portal, cookie, last.tag);
    assert.equal(next.status, 200, "however short the request was");
    assert.notEqual(fieldsOf(next.body.requests).journal_seq, fieldsOf(last.body.requests).journal_seq);
    last = next;
  }
  const { body } = await portal.as(cookie, "GET", "/api/requests");
  assert.equal(listOf(body.data)[0]?.journal_seq, fieldsOf(last.body.requests).journal_seq);
});

liveTest("a suspension and an end date of the account are new states", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  let { tag } = await stateOf(portal, cookie);
  const change = async (op: string, to: Extract<Operation, { kind: "state" }>["to"]) => {
    await service.ledger.apply({ kind: "state", account: "test", op, to, by: "test" });
    const next = await stateOf(portal, cookie, tag);
    assert.equal(next.status, 200);
    tag = next.tag;
    return fieldsOf(next.body.account);
  };
  assert.equal((await change("pause", { kind: "suspend" })).state, "suspended");
  const endsMs = Date.now() + 60_000;
  const { ends_at, refills } = await change("end", { kind: "end", endsMs });
  assert.equal(ends_at, new Date(endsMs).toISOString());
  assert.deepEqual(refills, [], "no refill comes before the end");
  assert.equal((await change("keep", { kind: "end", endsMs: null })).ends_at, null);
  assert.equal((await change("go on", { kind: "resume" })).state, "active");
});

liveTest(
  "shows a key its own requests, and all of the account only with the right to",
  async (portal, service) => {
    const other = await service.addKey({ portal: "account" });
    await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
    const foreign = await service.addKey({ account: "eve", portal: "account" });
    const [own = "", all = "", eve = ""] = await Promise.all(
      [service.key, other, foreign].map((key) => portal.signIn(key)),
    );
    const stops = [
      await startAnswer(service),
      await startAnswer(service, other),
      await startAnswer(service, foreign),
    ];
    const keysOf = async (cookie: string) =>
      running(await stateOf(portal, cookie)).map(({ key }) => String(key));
    assert.deepEqual(await keysOf(own), ["key1"]);
    assert.deepEqual((await keysOf(all)).toSorted(), ["key1", "key2"]);
    assert.deepEqual(await keysOf(eve), ["key3"]);
    const { tag } = await stateOf(portal, all);
    assert.notEqual((await stateOf(portal, own)).tag, tag, "another view has another tag");
    await service.ledger.apply({
      kind: "key",
      account: "test",
      key: "key2",
      op: "lower",
      set: { portal: "own" },
      by: "test",
    });
    assert.deepEqual(await keysOf(all), ["key2"], "the lowered right counts at once");
    await Promise.all(stops.map((stop) => stop()));
  },
);

liveTest("a key stops the requests that it sees, and no others", async (portal, service) => {
  // It carries out the stops of the database.
  await using _ = await startOperator(service);
  const other = await service.addKey({ portal: "account" });
  await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
  const foreign = await service.addKey({ account: "eve", portal: "account" });
  const [own = "", all = "", eve = ""] = await Promise.all(
    [service.key, other, foreign].map((key) => portal.signIn(key)),
  );
  const start = async (key: string) => {
    const answer = await service.chat({ stream: true }, { headers: { authorization: `Bearer ${key}` } });
    const id = answer.headers.get("x-request-id") ?? "";
    const stop = (cookie: string) => portal.as(cookie, "POST", `/api/requests/${id}/stop`);
    return { id, answer, stop };
  };
  const [mine, sibling] = [await start(service.key), await start(other)];
  const unknown = refused(await sibling.stop(own), 404, "request_not_found");
  assert.equal(unknown, `No request "${sibling.id}" of this key is running.`);
  for (const { stop } of [mine, sibling]) refused(await stop(eve), 404, "request_not_found");
  assert.equal(running(await stateOf(portal, all)).length, 2, "both still run");
  const withoutHeader = { method: "POST", headers: { cookie: own } };
  const forged = await fetch(`${portal.url}/api/requests/${mine.id}/stop`, withoutHeader);
  assert.equal(forged.status, 403, await forged.text());
  assert.deepEqual((await mine.stop(own)).body, { id: mine.id, outcome: "stopped" });
  assert.match(await mine.answer.text(), /A key of the account stopped this request.*request_stopped/);
  refused(await mine.stop(own), 404, "request_not_found");
  const third = await start(service.key);
  for (const { id, stop } of [sibling, third]) {
    assert.deepEqual((await stop(all)).body, { id, outcome: "stopped" });
  }
  for (const { answer } of [sibling, third]) await answer.text();
  const [receipt] = listOf((await portal.as(own, "GET", "/api/requests")).body.data);
  assert.partialDeepStrictEqual(receipt, { ending: "stopped", stopped_by: "key:key2" });
});

liveTest("does not prolong the session", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const before = await portal.as(cookie, "GET", "/api/session");
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 3_600_000);
  assert.equal((await stateOf(portal, cookie)).status, 200);
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

liveTest("an account has a limited number of reads, and another account its own", async (portal, service) => {
  await service.ledger.apply({ kind: "open", account: "eve", plan: "test", by: "test" });
  const [cookie, eve] = [await portal.signIn(service.key), await service.addKey({ account: "eve" })];
  using _ = stopTime();
  let { status, tag } = await stateOf(portal, cookie);
  for (let n = 1; n < limits.accountReads.most; n += 1)
    ({ status, tag } = await stateOf(portal, cookie, tag));
  assert.notEqual(status, 429);
  const refusal = await portal.as(cookie, "GET", "/api/live");
  assert.match(refused(refusal, 429, "rate_limit_exceeded"), /^This account has made 600 reads within 60 s/);
  assert.match(refusal.headers.get("retry-after") ?? "", /^\d+$/);
  assert.equal((await stateOf(portal, await portal.signIn(eve))).status, 200);
  assert.equal((await portal.as(cookie, "GET", "/api/account")).status, 200, "other reads go on");
});
