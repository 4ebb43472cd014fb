/** Accounts and keys in the operator API: created once, listed, changed, revoked. */
import assert from "node:assert/strict";
import { hashKey, parseKey } from "../../src/accounts/keys.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests, refused, startOperator } from "../fixtures/operator.ts";
import { clientOf } from "../fixtures/sdk.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests({
  otherPlans: [
    planOf("big", 5000, 200),
    planOf("hourly", 100, 200, { base: { credits: 100, every: "PT1H", align: "opening" } }),
    planOf("prepaid", 0, 0),
  ],
  otherModels: ["other"],
});

const keys = "/admin/accounts/test/keys";

operatorTest("accepts a repetition after the plan has changed", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  await operator.patch("/admin/accounts/ada", { operation_id: "up", plan: "big", at: "now" });
  const again = await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  assert.deepEqual([again.status, again.body.plan], [200, "big"]);
});

operatorTest("schedules a plan for the refresh, and cancels it", async (operator) => {
  const change = (operation_id: string, plan: string, at?: string) =>
    operator.patch("/admin/accounts/test", { operation_id, plan, at });
  const scheduled = await change("up", "big");
  assert.deepEqual([scheduled.body.plan, scheduled.body.next_plan], ["test", "big"]);
  assert.equal((await operator.get("/admin/accounts/test")).body.next_plan, "big");
  assert.deepEqual((await operator.all("/admin/accounts", 5))[0]?.next_plan, "big");
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
  const held = hold("request", credits(30), { account: "test", key: "key1", model: "small" });
  assert.equal((await service.ledger.apply(held)).kind, "held");
  await service.ledger.apply(settle("request", credits(30), { account: "test" }));
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

operatorTest("lists accounts with balances, filtered and in each order, in pages", async (operator) => {
  const plans = { c: "test", a: "big", b: "test", d: "prepaid" };
  for (const [id, plan] of Object.entries(plans)) await operator.post("/admin/accounts", { id, plan });
  for (const [id, credits] of Object.entries({ c: 70, b: 300 }))
    await operator.post(`/admin/accounts/${id}/topups`, { payment_id: `p-${id}`, credits });
  await operator.post("/admin/accounts/a/state", { operation_id: "s", state: "suspended" });
  const ids = async (query: string) =>
    (await operator.all(`/admin/accounts?${query}`, 2)).map(({ id }) => id);
  for (const [query, expected] of [
    ["", "a b c d test"],
    ["direction=desc", "test d c b a"],
    ["order=plan", "a d b c test"],
    ["order=plan&direction=desc", "test c b d a"],
    ["order=additional&direction=desc", "b c test d a"],
    ["order=remaining", "d test c b a"],
    ["order=created", "test c a b d"],
    ["plan=test&order=remaining&direction=desc", "b c test"],
    ["state=suspended", "a"],
    ["state=active&plan=big", ""],
    ["low_balance=true", "d"],
  ] as const)
    assert.equal((await ids(query)).join(" "), expected, query);
  const [listed] = await operator.all("/admin/accounts?search=c", 2);
  assert.deepEqual(listed?.balance, (await operator.get("/admin/accounts/c/balance")).body);
  assert.deepEqual([listed?.id, listed?.low_balance], ["c", false]);
});

operatorTest(
  "lists all additional credits of an account with many grants, of which one ends",
  async (operator) => {
    const account = "/admin/accounts/test";
    for (let n = 0; n < 20; n += 1)
      await operator.post(`${account}/topups`, { payment_id: `p${n}`, credits: 10 });
    const expires_at = new Date(Date.now() + 4000).toISOString();
    const promotion = { operation_id: "spring", credits: 5, reason: "spring", expires_at };
    assert.equal((await operator.post(`${account}/adjustments`, promotion)).status, 200);
    const balance = async () => fieldsOf((await operator.get(`${account}/balance`)).body.balances).additional;
    await until("the promotion has ended", async () => fieldsOf(await balance()).credits === 200);
    const [listed] = await operator.all("/admin/accounts?search=test", 2);
    assert.deepEqual(fieldsOf(fieldsOf(listed?.balance).balances).additional, await balance());
  },
);

operatorTest("refuses cursors of another order", async (operator) => {
  for (const query of ["order=created&after=a", "order=remaining&after=a:b", "order=additional&after=a:"]) {
    assert.match(refused(await operator.get(`/admin/accounts?${query}`), 400, "invalid_value"), /unchanged/);
  }
});
