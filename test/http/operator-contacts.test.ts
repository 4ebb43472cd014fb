/** Contacts and imports of accounts in the operator API. */
import assert from "node:assert/strict";
import { planOf } from "../fixtures/ledger-rows.ts";
import { listOf, operatorTests, refused } from "../fixtures/operator.ts";

const operatorTest = operatorTests({ otherPlans: [planOf("big", 5000, 200)] });

operatorTest("opens an account with its contact; a repetition changes nothing", async (operator) => {
  const asked = { id: "ada", plan: "big", owner: "Ada", email: "ada@example.com", external_id: "crm-1" };
  const made = await operator.post("/admin/accounts", asked);
  assert.equal(made.status, 201);
  await operator.patch("/admin/accounts/ada/contact", { owner: "Ada Ltd" });
  const again = await operator.post("/admin/accounts", asked);
  assert.deepEqual([again.status, again.body.owner], [200, "Ada Ltd"]);
  const other = { id: "bob", plan: "big", external_id: "crm-1" };
  refused(await operator.post("/admin/accounts", other), 409, "external_id_used");
  refused(await operator.get("/admin/accounts/bob"), 404, "account_not_found");
});

operatorTest("changes the given fields of a contact, and null removes a field", async (operator) => {
  const change = (fields: object) => operator.patch("/admin/accounts/test/contact", fields);
  await change({ owner: "Test Ltd", note: "pays late", external_id: "crm-9" });
  const { body } = await change({ note: null, email: "t@example.com" });
  assert.partialDeepStrictEqual(body, {
    ...{ owner: "Test Ltd", email: "t@example.com", note: null, external_id: "crm-9" },
  });
  assert.deepEqual((await operator.get("/admin/accounts/test")).body, body);
  await operator.post("/admin/accounts", { id: "ada", plan: "big" });
  refused(
    await operator.patch("/admin/accounts/ada/contact", { external_id: "crm-9" }),
    409,
    "external_id_used",
  );
});

operatorTest("finds accounts by their contact, in pages", async (operator) => {
  for (const id of ["a", "b", "c"]) {
    await operator.post("/admin/accounts", {
      id,
      plan: "big",
      owner: `Owner of ${id}`,
      external_id: `crm-${id}`,
    });
  }
  const ids = async (query: string) =>
    (await operator.all(`/admin/accounts?${query}`, 2)).map(({ id }) => id);
  assert.deepEqual(await ids("search=OWNER"), ["a", "b", "c"]);
  assert.deepEqual(await ids("search=CRM-"), ["a", "b", "c"]);
  assert.deepEqual(await ids("search=of%20b"), ["b"]);
  assert.deepEqual(await ids("external_id=crm-c"), ["c"]);
  assert.deepEqual(await ids("external_id=crm"), []);
});

operatorTest("imports accounts with what they bring along", async (operator) => {
  const today = new Date().toISOString();
  const load = (...accounts: object[]) => operator.post("/admin/accounts/import", { accounts });
  const ada = { id: "ada", plan: "big", base_left: 300, base_start: today, additional: 50, payment: "pi_1" };
  const full = { overage_left: 200, overage_start: today };
  for (const [result, balances_ignored] of [
    ["opened", false],
    ["unchanged", true],
  ]) {
    const { status, body } = await load({ ...ada, ...full });
    const expected = { id: "ada", result, plan: "big", plan_differs: false, balances_ignored };
    assert.deepEqual([status, body.accounts], [200, [expected]]);
  }
  const { body } = await operator.get("/admin/accounts/ada/balance");
  assert.partialDeepStrictEqual(body, { balances: { base: { credits: 300 }, additional: { credits: 50 } } });
  const bob = { id: "bob", plan: "big" };
  for (const [fields, param] of [
    [{ base_left: 5001, base_start: today }, "base_left"],
    [{ base_left: 1.5, base_start: today }, "base_left"],
    [{ base_left: 1e21, base_start: today }, "base_left"],
    [{ base_left: 5 }, "base_start"],
    [{ overage_left: 5, overage_start: "2020-01-01" }, "overage_start"],
    [{ overage_start: "" }, "overage_start"],
    [{ additional: -1 }, "additional"],
    [{ additional: 5, payment: "pi_1" }, "payment"],
    [{ payment: "pi_2" }, "additional"],
  ] as const) {
    const answer = await load({ ...bob, ...fields });
    refused(answer, 400, "invalid_value");
    assert.equal(Object.values(answer.body).map((error) => Object(error).param)[0], `accounts[0].${param}`);
  }
  refused(await load({ ...bob, base_left: "5", base_start: today }), 400, "invalid_type");
  refused(await operator.get("/admin/accounts/bob"), 404, "account_not_found");
});

operatorTest("checks a list of accounts whole before it imports any", async (operator, service) => {
  const load = (accounts: object[], dry_run?: boolean) =>
    operator.post("/admin/accounts/import", { accounts, dry_run });
  const list = [
    { id: "ada", plan: "big", owner: "Ada" },
    { id: "test", plan: "big", note: "the first" },
  ];
  const expected = [
    { id: "ada", result: "opened", plan: "big", plan_differs: false, balances_ignored: false },
    { id: "test", result: "updated", plan: "test", plan_differs: true, balances_ignored: false },
  ];
  const dry = await load(list, true);
  assert.deepEqual([dry.status, dry.body], [200, { dry_run: true, accounts: expected }]);
  refused(await operator.get("/admin/accounts/ada"), 404, "account_not_found");
  assert.deepEqual((await load(list)).body, { dry_run: false, accounts: expected });
  const again = listOf((await load(list)).body.accounts).map(({ result }) => result);
  assert.deepEqual(again, ["unchanged", "unchanged"]);
  assert.equal((await service.store.keys("ada")).length, 0);

  const bad = async (accounts: object[], param: string, message: RegExp) => {
    const answer = await load([{ id: "new", plan: "big" }, ...accounts]);
    assert.match(refused(answer, 400, "invalid_value"), message);
    assert.equal(Object.values(answer.body).map((error) => Object(error).param)[0], param);
    refused(await operator.get("/admin/accounts/new"), 404, "account_not_found");
  };
  await bad([{ id: "x", plan: "bigg" }], "accounts[1].plan", /no plan "bigg"\. Did you mean big\?/);
  await bad([{ id: "x" }], "accounts[1].plan", /There is no account x yet/);
  await bad([{ id: "new", plan: "big" }], "accounts[1].id", /"new" occurs twice/);
  await bad([{ id: "x", plan: "big", email: "x" }], "accounts[1].email", /e-mail address/);
  await bad(
    [
      { id: "x", plan: "bigg", email: "nobody" },
      { id: "y", plan: "big", external_id: "crm-1" },
      { id: "z", plan: "big", external_id: "crm-1" },
      { id: "x", plan: "big" },
      { id: "Bad", plan: "big", owner: "\u0000" },
    ],
    "accounts[1].email",
    /^Nothing has changed\.\naccounts\[1\]\.email: .*\naccounts\[1\]\.plan: There is no plan .*\naccounts\[3\]\.external_id: .*\naccounts\[4\]\.id: .*\naccounts\[5\]\.id: .*\naccounts\[5\]\.owner: [^\n]*$/,
  );
  const many = Array.from({ length: 30 }, (_, n) => ({ id: `m${n}`, plan: "bigg" }));
  await bad(many, "accounts[1].plan", /(?:\n.*){20}\nAnd 10 more\.$/);
  refused(await load([]), 400, "invalid_value");
});

operatorTest("accepts an import larger than other requests, up to its own limit", async (operator) => {
  const accounts = Array.from({ length: 2000 }, (_, n) => ({
    id: `a${n}`,
    plan: "big",
    owner: `Owner ${n}`,
  }));
  const body = JSON.stringify({ accounts });
  assert.ok(body.length > 64 * 1024);
  const { status, text } = await operator.ask("POST", "/admin/accounts/import", { body });
  assert.equal(status, 200, text.slice(0, 300));
  const large = JSON.stringify({ accounts, padding: "x".repeat(4 * 1024 * 1024) });
  const answer = await operator.ask("POST", "/admin/accounts/import", { body: large });
  assert.match(refused(answer, 413, "request_too_large"), /larger than 4194304 bytes/);
});
