/** Receipts, sums, hours and models in the portal: those of the session's key or account only. */

import assert from "node:assert/strict";
import { fieldsOf, listOf, type OperatorAnswer, refused, startOperator } from "../fixtures/operator.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import type { TestService } from "../fixtures/service.ts";

const portalTest = portalTests({ otherModels: ["large"] });

/**
 * Requests of three keys: `key1` and `boss` of account `test`, and `foreign` of another one. Their
 * request ids, oldest first, and the cookies of the sessions.
 */
async function requests(portal: TestPortal, service: TestService) {
  await service.ledger.apply({ kind: "open", account: "other", plan: "test", by: "test" });
  const boss = await service.addKey({ id: "boss", portal: "account" });
  const foreign = await service.addKey({ id: "foreign", account: "other", portal: "account" });
  const ids: string[] = [];
  for (const [key, model] of [
    [service.key, "small"],
    [boss, "small"],
    [foreign, "small"],
    [service.key, "large"],
    [boss, "large"],
    [foreign, "large"],
  ] as const) {
    const answer = await service.chat({ model }, { headers: { authorization: `Bearer ${key}` } });
    await answer.text();
    assert.equal(answer.status, 200);
    ids.push(answer.headers.get("x-request-id") ?? "");
  }
  const [ownFirst = "", bossFirst = "", , ownLast = "", bossLast = "", foreignLast = ""] = ids;
  return {
    ownFirst,
    bossFirst,
    ownLast,
    bossLast,
    foreignLast,
    own: await portal.signIn(service.key),
    boss: await portal.signIn(boss),
    foreign: await portal.signIn(foreign),
  };
}

function idsIn({ body, text }: OperatorAnswer): unknown[] {
  assert.ok(Array.isArray(body.data), text);
  return listOf(body.data).map(({ request_id }) => request_id);
}

portalTest("receipts are those of the key or of its account, newest first", async (portal, service) => {
  const { own, boss, ownFirst, ownLast, bossFirst, bossLast } = await requests(portal, service);
  const list = async (cookie: string, query = "") =>
    idsIn(await portal.as(cookie, "GET", `/api/requests${query}`));
  assert.deepEqual(await list(own), [ownLast, ownFirst]);
  assert.deepEqual(await list(own, "?key=key1&model=large"), [ownLast]);
  assert.deepEqual(await list(boss), [bossLast, ownLast, bossFirst, ownFirst]);
  assert.deepEqual(await list(boss, "?key=key1"), [ownLast, ownFirst]);
  assert.deepEqual(await list(boss, "?model=small"), [bossFirst, ownFirst]);
  assert.deepEqual(await list(boss, "?from=2100-01-01"), []);
  assert.deepEqual(await list(boss, "?to=2000-01-01"), []);
  for (const limit of [1, 2, 3, 4]) {
    const pages: unknown[] = [];
    for (let after: unknown = null; ; ) {
      const query = `?limit=${limit}${after === null ? "" : `&after=${String(after)}`}`;
      const page = await portal.as(boss, "GET", `/api/requests${query}`);
      pages.push(...idsIn(page));
      after = page.body.next;
      if (after === null) break;
    }
    assert.deepEqual(pages, [bossLast, ownLast, bossFirst, ownFirst], `pages of ${limit}`);
  }
});

portalTest("receipts are the objects of the operator API", async (portal, service) => {
  const { own, ownLast } = await requests(portal, service);
  await using operator = await startOperator(service);
  const [mine] = listOf((await portal.as(own, "GET", "/api/requests")).body.data);
  const [theirs] = listOf((await operator.get(`/admin/usage?request_id=${ownLast}`)).body.data);
  assert.deepEqual(mine, theirs);
});

portalTest("keys that the session may not see cannot be named in a filter", async (portal, service) => {
  const { own, boss } = await requests(portal, service);
  for (const path of ["/api/requests", "/api/usage", "/api/usage/hours"]) {
    for (const key of ["boss", "foreign", "no-such-key"]) {
      refused(await portal.as(own, "GET", `${path}?key=${key}`), 404, "key_not_found");
    }
    for (const key of ["foreign", "no-such-key"]) {
      refused(await portal.as(boss, "GET", `${path}?key=${key}`), 404, "key_not_found");
    }
    for (const cookie of [own, boss]) {
      refused(await portal.as(cookie, "GET", `${path}?account=other`), 400, "unknown_parameter");
    }
  }
  refused(await portal.as(boss, "GET", "/api/usage?by=account"), 400, "invalid_value");
});

portalTest(
  "a cursor of another account or of another key leads to own receipts only",
  async (portal, service) => {
    const { own, boss, foreign, bossFirst, ownFirst, foreignLast } = await requests(portal, service);
    const page = await portal.as(foreign, "GET", "/api/requests?limit=1");
    assert.deepEqual(idsIn(page), [foreignLast]);
    const cursor = String(page.body.next);
    const mine = new Set([ownFirst, bossFirst]);
    const found = idsIn(await portal.as(boss, "GET", `/api/requests?after=${cursor}`));
    assert.ok(
      found.every((id) => mine.has(String(id))),
      "only receipts of the own account",
    );
    for (const after of ["other:1", "999999999", "0", `other:${cursor}`]) {
      const answer = await portal.as(own, "GET", `/api/requests?after=${encodeURIComponent(after)}`);
      if (answer.status === 200) {
        for (const { account, key } of listOf(answer.body.data))
          assert.deepEqual([account, key], ["test", "key1"]);
      } else refused(answer, 400, "invalid_value");
    }
    refused(await portal.as(own, "GET", "/api/requests?after=other:1"), 400, "invalid_value");
  },
);

portalTest("sums add up to the receipts that the session may see", async (portal, service) => {
  const { own, boss } = await requests(portal, service);
  const costOf = async (cookie: string) =>
    listOf((await portal.as(cookie, "GET", "/api/requests")).body.data).reduce(
      (sum, { cost_micro }) => sum + Number(cost_micro),
      0,
    );
  for (const [cookie, count] of [
    [own, 2],
    [boss, 4],
  ] as const) {
    const cost = await costOf(cookie);
    assert.ok(cost > 0);
    for (const path of ["/api/usage", "/api/usage?by=model", "/api/usage?by=key"]) {
      const { body, text } = await portal.as(cookie, "GET", path);
      const { requests: summed, cost_micro } = fieldsOf(body.total);
      assert.deepEqual([summed, cost_micro], [count, cost], text);
    }
    const hours = listOf((await portal.as(cookie, "GET", "/api/usage/hours")).body.data);
    assert.equal(
      hours.reduce((sum, { cost_micro }) => sum + Number(cost_micro), 0),
      cost,
    );
  }
  const byKey = async (cookie: string) =>
    listOf((await portal.as(cookie, "GET", "/api/usage?by=key")).body.data).map(({ key }) => key);
  assert.deepEqual(await byKey(own), ["key1"]);
  assert.deepEqual(await byKey(boss), ["boss", "key1"]);
  const hours = (await portal.as(boss, "GET", "/api/usage/hours?key=key1&by=model")).body;
  assert.deepEqual(
    listOf(hours.data).map(({ model, requests: count }) => [model, count]),
    [
      ["large", 1],
      ["small", 1],
    ],
  );
  const csv = await portal.ask("GET", "/api/usage?by=key&format=csv", { headers: { cookie: own } });
  assert.match(csv.headers.get("content-type") ?? "", /^text\/csv/);
  assert.match(csv.text, /key1/);
  assert.doesNotMatch(csv.text, /boss|foreign/);
});

portalTest(
  "a session whose key lost the right `account` sees only itself from then on",
  async (portal, service) => {
    const { boss, bossFirst, bossLast } = await requests(portal, service);
    const set = { portal: "own" } as const;
    await service.ledger.apply({ kind: "key", account: "test", key: "boss", op: "own", set, by: "test" });
    assert.deepEqual(idsIn(await portal.as(boss, "GET", "/api/requests")), [bossLast, bossFirst]);
    refused(await portal.as(boss, "GET", "/api/requests?key=key1"), 404, "key_not_found");
  },
);

portalTest(
  "one account reads its receipts one after the other; others do not wait",
  async (portal, service) => {
    const { own, boss, foreign } = await requests(portal, service);
    const { store } = service;
    const usage = store.usage.bind(store);
    const gate = Promise.withResolvers<void>();
    const reads: string[] = [];
    store.usage = async (query) => {
      reads.push(String(query.account));
      if (query.account === "test") await gate.promise;
      return await usage(query);
    };
    const waiting = [own, boss, own].map((cookie) => portal.as(cookie, "GET", "/api/requests"));
    const more = Array.from({ length: 30 }, () => portal.as(own, "GET", "/api/requests"));
    const refusal = await Promise.race(more);
    refused(refusal, 503, "overloaded");
    assert.equal((await portal.as(foreign, "GET", "/api/requests")).status, 200);
    assert.equal(reads.filter((account) => account === "test").length, 1);
    gate.resolve();
    const statuses = (await Promise.all([...waiting, ...more])).map(({ status }) => status);
    assert.deepEqual(statuses.toSorted(), [...Array(32).fill(200), 503]);
    assert.equal(reads.filter((account) => account === "test").length, 32);
    assert.equal((await portal.as(own, "GET", "/api/requests")).status, 200);
    store.usage = usage;
  },
);

portalTest(
  "models are those that key and plan allow, with their prices",
  async (portal, service) => {
    const models = async (key: string) => {
      const answer = await portal.as(await portal.signIn(key), "GET", "/api/models");
      return listOf(answer.body.data);
    };
    const all = await models(service.key);
    assert.deepEqual(
      all.map(({ id }) => id),
      ["small", "large"],
    );
    assert.deepEqual(all[0], {
      id: "small",
      state: "ready",
      context_window: 8192,
      max_output_tokens: 8192,
      pricing: { prompt: 10, completion: 30, cached_prompt: 10 },
    });
    assert.deepEqual(
      (await models(await service.addKey({ models: ["large", "hidden"] }))).map(({ id }) => id),
      ["large"],
    );
  },
  { otherModels: ["large", "hidden"], plan: { models: ["small", "large"] } },
);
