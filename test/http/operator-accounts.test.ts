/** Accounts and keys in the operator API: created once, listed, changed, revoked. */
import assert from "node:assert/strict";
import { hashKey, parseKey } from "../../src/accounts/keys.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests, refused, startOperator } from "../fixtures/operator.ts";
import { clientOf } from "../fixtures/sdk.ts";

const operatorTest = operatorTests({
  otherPlans: [
    planOf("big", 5000, 200),
    planOf("hourly", 100, 200, { base: { credits: 100, every: "PT1H", align: "opening" } }),
    planOf("prepaid", 0, 0),
  ],
  otherModels: ["other"],
});

const keys = "/admin/accounts/test/keys";

/** A request of the first account that costs so many credits. */
function holdOf(amount: number) {
  const want = { promptTokens: amount, minMicro: credits(amount), wantMicro: credits(amount) };
  const price = { prompt: 1_000_000, completion: 1_000_000 };
  const request = { account: "test", requestId: "request", key: "key1", model: "small", ttlMs: 60_000 };
  return { kind: "hold", ...request, price, ...want } as const;
}

function settlementOf(promptTokens: number) {
  const used = { promptTokens, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const end = { ending: "stop", estimated: false, by: null } as const;
  return { kind: "settle", account: "test", requestId: "request", usage: used, ...end } as const;
}

operatorTest("accepts a repetition after the plan has changed", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  await operator.patch("/admin/accounts/ada", { operation_id: "up", plan: "big", at: "now" });
  const again = await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  assert.deepEqual([again.status, again.body.plan], [200, "big"]);
});

operatorTest("lists accounts in pages, in the order of their ids", async (operator) => {
  for (const id of ["c", "a", "b", "d"]) await operator.post("/admin/accounts", { id, plan: "test" });
  for (const limit of [1, 2, 3, 5, 500]) {
    const ids = (await operator.all("/admin/accounts", limit)).map(({ id }) => id);
    assert.deepEqual(ids, ["a", "b", "c", "d", "test"], `pages of ${limit}`);
  }
});

operatorTest("schedules a plan for the refresh, and cancels it", async (operator) => {
  const change = (operation_id: string, plan: string, at?: string) =>
    operator.patch("/admin/accounts/test", { operation_id, plan, at });
  const scheduled = await change("up", "big");
  assert.deepEqual([scheduled.body.plan, scheduled.body.next_plan], ["test", "big"]);
  assert.equal((await operator.get("/admin/accounts/test")).body.next_plan, "big");
  assert.deepEqual((await operator.all("/admin/accounts", 5))[0]?.next_plan, "big");
  assert.match(
    refused(await change("up", "big", "now"), 409, "operation_differs"),
    /before: plan \{"at":"refresh","plan":"big"\}\./,
  );
  assert.equal((await change("stay", "test", "refresh")).body.next_plan, null);
});

operatorTest("previews a change of the plan without changing anything", async (operator, service) => {
  const preview = (plan: string, at?: string) =>
    operator.post("/admin/accounts/test/plan-preview", { plan, at });
  const balance = (await operator.get("/admin/accounts/test/balance")).body;
  const { status, body } = await preview("big", "now");
  assert.equal(status, 200);
  assert.deepEqual(fieldsOf(body.before).balance, balance);
  const after = fieldsOf(body.after);
  assert.deepEqual([after.plan, after.next_plan, after.state], ["big", null, "active"]);
  const later = (await preview("big")).body;
  const ends = fieldsOf(fieldsOf(fieldsOf(later.before).balance).baseWindow).refreshesAt;
  assert.equal(later.effective_at, ends);
  assert.equal((await service.store.journal("test", { limit: 9 })).length, 4, "nothing was written");
  await operator.patch("/admin/accounts/test", { operation_id: "up", plan: "big", at: "now" });
  assert.deepEqual((await operator.get("/admin/accounts/test/balance")).body, after.balance);
});

operatorTest("begins other windows only if it is asked to", async (operator, service) => {
  await service.ledger.apply(holdOf(30));
  await service.ledger.apply(settlementOf(30));
  const before = (await operator.get("/admin/accounts/test/balance")).body;
  const change = (operation_id: string, at?: string) =>
    operator.patch("/admin/accounts/test", { operation_id, plan: "hourly", at });
  const refreshesAt = String(fieldsOf(before.baseWindow).refreshesAt);
  const message = refused(await change("a", "now"), 409, "window_differs");
  assert.ok(message.includes(refreshesAt) && message.includes("new_window"), message);
  const preview = (at: string) => operator.post("/admin/accounts/test/plan-preview", { plan: "hourly", at });
  refused(await preview("now"), 409, "window_differs");
  assert.deepEqual((await operator.get("/admin/accounts/test/balance")).body, before, "nothing has changed");

  const shown = fieldsOf(fieldsOf((await preview("new_window")).body.after).balance);
  const { status, body } = await change("a", "new_window");
  assert.deepEqual([status, body.plan], [200, "hourly"]);
  const after = (await operator.get("/admin/accounts/test/balance")).body;
  assert.deepEqual(shown.balances, after.balances);
});

operatorTest("suspends, resumes and closes an account once per operation id", async (operator, service) => {
  const change = (operation_id: string, state: string) =>
    operator.post("/admin/accounts/test/state", { operation_id, state });
  assert.equal((await change("s1", "suspended")).body.state, "suspended");
  assert.equal((await service.chat()).status, 403);
  assert.equal((await operator.get("/admin/accounts/test")).body.state, "suspended");
  assert.equal((await change("r1", "active")).body.state, "active");
  // Sent again late, it does not suspend the account again.
  assert.equal((await change("s1", "suspended")).body.state, "active");
  assert.equal((await service.chat()).status, 200);
  assert.equal((await change("c1", "closed")).body.state, "closed");
  assert.equal((await change("c1", "closed")).status, 200);
  assert.equal((await service.chat()).status, 403);
});

operatorTest("sets and removes the time at which an account closes", async (operator) => {
  const end = (operation_id: string, ends_at: unknown) =>
    operator.post("/admin/accounts/test/end", { operation_id, ends_at });
  assert.equal((await end("e1", "2100-01-01T00:00:00Z")).body.ends_at, "2100-01-01T00:00:00.000Z");
  assert.equal((await end("e2", null)).body.ends_at, null);
  assert.equal((await end("e3", "2020-01-01")).body.state, "closed");
});

operatorTest("a day ends at its end in the zone of the configuration", async (_, service) => {
  const timezone = "America/New_York";
  await using operator = await startOperator(service, [], { timezone: () => timezone });
  const today = Temporal.Instant.fromEpochMilliseconds(service.store.times().atMs)
    .toZonedDateTimeISO(timezone)
    .toPlainDate();
  const midnight = today.add({ days: 1 }).toZonedDateTime(timezone).epochMilliseconds;
  const ends_at = today.toString();
  const ended = await operator.post("/admin/accounts/test/end", { operation_id: "e1", ends_at });
  assert.deepEqual([ended.body.state, ended.body.ends_at], ["active", new Date(midnight).toISOString()]);
  const expiring = { operation_id: "k1", expires_at: "2100-07-01" };
  assert.equal((await operator.post(keys, expiring)).body.expires_at, "2100-07-02T04:00:00.000Z");
  const never = await operator.post(keys, { operation_id: "k2", expires_at: "9999-12-31" });
  assert.match(refused(never, 400, "invalid_value"), /^expires_at must be ISO 8601/);
  const program = { operation_id: "p1", name: "billing", role: "viewer", expires_at: ends_at };
  const { body } = await operator.post("/admin/operator-keys", program);
  assert.equal(body.expires_at, new Date(midnight).toISOString());
});

operatorTest("shows a key only in the response that creates it", async (operator, service) => {
  const asked = { operation_id: "k1", name: "laptop", models: ["small"], concurrent: 2 };
  const made = await operator.post(keys, asked);
  assert.equal(made.status, 201);
  const { key, ...shown } = made.body;
  assert.ok(typeof key === "string");
  assert.equal(parseKey(key), "ok");
  assert.equal((await clientOf(service, { key }).models.list()).data.length, 1);
  assert.deepEqual(shown.limits, { requests_per_minute: null, tokens_per_minute: null, concurrent: 2 });

  const again = await operator.post(keys, asked);
  assert.equal(again.status, 200);
  assert.deepEqual(again.body, { ...shown, key: null });
  for (const path of [keys, `/admin/keys/${shown.id}`]) {
    const { text } = await operator.get(path);
    assert.ok(!text.includes(key.slice(4, -4)) && !text.includes(hashKey(key)), "neither key nor hash");
  }
  assert.equal((await service.store.keys("test")).length, 2);
});

operatorTest(
  "twenty simultaneous requests with one operation id issue one key and show it once",
  async (operator, service) => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => operator.post(keys, { operation_id: "k1" })),
    );
    assert.deepEqual(answers.map(({ status }) => status).sort(), [
      ...Array.from({ length: 19 }, () => 200),
      201,
    ]);
    assert.equal(answers.filter(({ body }) => body.key !== null).length, 1);
    assert.equal((await service.store.keys("test")).length, 2);
  },
);

operatorTest("refuses a key that could not work", async (operator) => {
  const post = (body: object) => operator.post(keys, { operation_id: "k", ...body });
  assert.match(
    refused(await post({ models: ["small", "huge"] }), 400, "invalid_value"),
    /no model "huge"\. Defined: small, other\./,
  );
  refused(await post({ expires_at: "2020-01-01" }), 400, "invalid_value");
  assert.equal((await operator.all(keys, 10)).length, 1);
});

operatorTest("lists keys in pages, in the order of their creation", async (operator) => {
  const made = ["key1"];
  for (const n of [1, 2, 3]) {
    made.push(String((await operator.post(keys, { operation_id: `k${n}` })).body.id));
  }
  for (const limit of [1, 2, 4]) {
    const rows = await operator.all(keys, limit);
    assert.deepEqual(new Set(rows.map(({ id }) => id)), new Set(made));
    const times = rows.map(({ created_at }) => String(created_at));
    assert.deepEqual(times, times.toSorted());
  }
});

operatorTest("revokes a key at once, and only once", async (operator, service) => {
  const { body } = await operator.post(keys, { operation_id: "k1" });
  const headers = { authorization: `Bearer ${body.key}` };
  assert.equal((await service.request("GET", "/v1/models", { headers })).status, 200);
  const revoked = await operator.delete(`/admin/keys/${body.id}`);
  assert.equal(revoked.status, 200);
  assert.ok(typeof revoked.body.revoked_at === "string");
  assert.equal((await service.request("GET", "/v1/models", { headers })).status, 401);
  const again = await operator.ask("DELETE", `/admin/keys/${body.id}`, {
    headers: { "content-type": "application/json" },
  });
  assert.deepEqual([again.status, fieldsOf(again.body)], [200, revoked.body]);
});

operatorTest("lists accounts with balances, filtered and in each order, in pages", async (operator) => {
  for (const [id, plan] of [
    ["c", "test"],
    ["a", "big"],
    ["b", "test"],
    ["d", "prepaid"],
  ] as const) {
    await operator.post("/admin/accounts", { id, plan });
  }
  const topup = (id: string, credits: number) =>
    operator.post(`/admin/accounts/${id}/topups`, { payment_id: `p-${id}`, credits });
  await topup("c", 70);
  await topup("b", 300);
  await operator.post("/admin/accounts/a/state", { operation_id: "s", state: "suspended" });
  const ids = async (query: string) =>
    (await operator.all(`/admin/accounts?${query}`, 2)).map(({ id }) => id);
  assert.deepEqual(await ids("direction=desc"), ["test", "d", "c", "b", "a"]);
  assert.deepEqual(await ids("order=plan"), ["a", "d", "b", "c", "test"]);
  assert.deepEqual(await ids("order=plan&direction=desc"), ["test", "c", "b", "d", "a"]);
  assert.deepEqual(await ids("order=additional&direction=desc"), ["b", "c", "test", "d", "a"]);
  assert.deepEqual(await ids("order=remaining"), ["d", "test", "c", "b", "a"]);
  assert.deepEqual(await ids("order=created"), ["test", "c", "a", "b", "d"]);
  assert.deepEqual(await ids("plan=test&order=remaining&direction=desc"), ["b", "c", "test"]);
  assert.deepEqual(await ids("state=suspended"), ["a"]);
  assert.deepEqual(await ids("state=active&plan=big"), []);
  assert.deepEqual(await ids("low_balance=true"), ["d"]);
  const [listed] = await operator.all("/admin/accounts?search=c", 2);
  assert.deepEqual(listed?.balance, (await operator.get("/admin/accounts/c/balance")).body);
  assert.deepEqual([listed?.id, listed?.low_balance], ["c", false]);
});

operatorTest("refuses cursors of another order", async (operator) => {
  for (const query of ["order=created&after=a", "order=remaining&after=a:b", "order=additional&after=a:"]) {
    assert.match(refused(await operator.get(`/admin/accounts?${query}`), 400, "invalid_value"), /unchanged/);
  }
});
