/** Openings and contacts of accounts in the operator API. */
import assert from "node:assert/strict";
import { planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, listOf, operatorTests, refused } from "../fixtures/operator.ts";

const operatorTest = operatorTests({ otherPlans: [planOf("big", 5000, 200)] });

operatorTest("opens an account with its contact; a repetition changes nothing", async (operator) => {
  const asked = { id: "ada", plan: "big", owner: "Ada", email: "ada@example.com", external_id: "crm-1" };
  const made = await operator.post("/admin/accounts", asked);
  assert.equal(made.status, 201);
  await operator.patch("/admin/accounts/ada/contact", { owner: "Ada Ltd" });
  const again = await operator.post("/admin/accounts", asked);
  assert.deepEqual([again.status, again.body.owner], [200, "Ada Ltd"]);
  const other = { id: "bob", plan: "big", external_id: "crm-1" };
  const used = refused(await operator.post("/admin/accounts", other), 409, "external_id_used");
  assert.match(used, /belongs to account /);
  refused(await operator.get("/admin/accounts/bob"), 404, "account_not_found");
});

operatorTest("changes the given fields of a contact, and null removes a field", async (operator) => {
  const change = (fields: object) => operator.patch("/admin/accounts/test/contact", fields);
  await change({ owner: "Test Ltd", note: "pays late", external_id: "crm-9" });
  const { body } = await change({ note: null, email: "t@example.com" });
  assert.partialDeepStrictEqual(body, {
    owner: "Test Ltd",
    email: "t@example.com",
    note: null,
    external_id: "crm-9",
  });
  assert.deepEqual((await operator.get("/admin/accounts/test")).body, body);
  await operator.post("/admin/accounts", { id: "ada", plan: "big" });
  refused(
    await operator.patch("/admin/accounts/ada/contact", { external_id: "crm-9" }),
    409,
    "external_id_used",
  );
});

operatorTest("keeps no blanks at the ends of an owner", async (operator) => {
  const made = await operator.post("/admin/accounts", { id: "ada", plan: "big", owner: "  Ada L. " });
  assert.equal(made.body.owner, "Ada L.");
  const changed = await operator.patch("/admin/accounts/ada/contact", { owner: " Ada " });
  assert.equal(changed.body.owner, "Ada");
});

operatorTest("finds accounts by their contact, in pages", async (operator) => {
  for (const id of ["a", "b", "c"]) {
    const contact = { owner: `Owner of ${id}`, external_id: `crm-${id}` };
    await operator.post("/admin/accounts", { id, plan: "big", ...contact });
  }
  for (const [query, found] of [
    ["search=OWNER", "a b c"],
    ["search=CRM-", "a b c"],
    ["search=of%20b", "b"],
    ["external_id=crm-c", "c"],
    ["external_id=crm", ""],
  ] as const) {
    const ids = (await operator.all(`/admin/accounts?${query}`, 2)).map(({ id }) => id);
    assert.equal(ids.join(" "), found, query);
  }
});

operatorTest("opens an account with additional credits, once", async (operator) => {
  const open = (fields: object) => operator.post("/admin/accounts", { plan: "big", ...fields });
  const shown = async (id: string) => {
    const [balance, payments] = await Promise.all(
      ["balance", "payments"].map((what) => operator.get(`/admin/accounts/${id}/${what}`)),
    );
    const { additional } = fieldsOf(fieldsOf(balance?.body).balances);
    return [fieldsOf(additional).credits, listOf(payments?.body.data).map(({ payment_id }) => payment_id)];
  };
  const paid = { id: "ada", owner: "Ada", credits: 50, payment_id: "pi_1" };
  const given = { id: "bob", credits: 7 };
  for (const status of [201, 200]) {
    for (const each of [paid, given]) assert.equal((await open(each)).status, status);
    assert.deepEqual(await shown("ada"), [50, ["pi_1"]]);
    assert.deepEqual(await shown("bob"), [7, []]);
  }
  const { body: journal } = await operator.get("/admin/accounts/bob/journal?kind=promotion");
  assert.partialDeepStrictEqual(listOf(journal.data)[0]?.after, {
    amount_micro: 7_000_000,
    reason: "opening",
  });
  for (const dry_run of [true, false]) {
    for (const owner of [undefined, "Carl"]) {
      const used = await open({ id: "carl", owner, credits: 5, payment_id: "pi_1", dry_run });
      assert.match(refused(used, 409, "payment_used"), /credited to account ada before/);
    }
    for (const fields of [{ payment_id: "pi_2" }, { credits: 0 }])
      refused(await open({ id: "carl", ...fields, dry_run }), 400, "invalid_value");
  }
  refused(await operator.get("/admin/accounts/carl"), 404, "account_not_found");
});

operatorTest("refuses a repeated opening with other credits, and changes nothing", async (operator) => {
  const paid = { id: "ada", plan: "big", credits: 5, payment_id: "pi_1" };
  const given = { id: "bob", plan: "big", credits: 5 };
  const bare = { id: "carl", plan: "big" };
  const post = async (asked: object) => await operator.post("/admin/accounts", asked);
  for (const asked of [paid, given, bare]) {
    const opened = await post(asked);
    assert.equal(opened.status, 201);
    const again = await post(asked);
    assert.deepEqual([again.status, again.body], [200, opened.body]);
  }
  for (const dry_run of [true, false]) {
    for (const other of [
      { ...paid, credits: 6 },
      { ...paid, payment_id: "pi_2" },
      { id: "ada", plan: "big", credits: 5 },
      { ...given, credits: 6 },
      { ...given, payment_id: "pi_3" },
      { ...bare, credits: 5 },
    ])
      refused(await post({ ...other, dry_run }), 409, "account_exists");
  }
  const message = refused(await post({ ...bare, credits: 5 }), 409, "account_exists");
  assert.match(message, /carl already exists, opened without these credits\. Nothing has changed\./);
  const credits = async (id: string) => {
    const { body } = await operator.get(`/admin/accounts/${id}/balance`);
    return fieldsOf(fieldsOf(body.balances).additional).credits;
  };
  assert.deepEqual([await credits("ada"), await credits("bob"), await credits("carl")], [5, 5, 0]);
  // A promotion after the opening is no part of it.
  const gift = { operation_id: "gift-1", credits: 5, reason: "a prize" };
  assert.equal((await operator.post("/admin/accounts/carl/adjustments", gift)).status, 200);
  refused(await post({ ...bare, credits: 5 }), 409, "account_exists");
});

operatorTest("shows with dry_run what an opening would do, and opens nothing", async (operator) => {
  const asked = { id: "ada", plan: "big", owner: "Ada", external_id: "crm-1", credits: 5 };
  const dry = await operator.post("/admin/accounts", { ...asked, dry_run: true });
  assert.equal(dry.status, 200);
  const { credits: _, ...contact } = asked;
  assert.partialDeepStrictEqual(dry.body, { ...contact, email: null, state: "active" });
  refused(await operator.get("/admin/accounts/ada"), 404, "account_not_found");
  const made = await operator.post("/admin/accounts", { ...asked, dry_run: false });
  assert.equal(made.status, 201);
  assert.deepEqual(Object.keys(made.body), Object.keys(dry.body));
  const again = await operator.post("/admin/accounts", { ...asked, owner: "Eve", dry_run: true });
  assert.deepEqual([again.status, again.body], [200, made.body]);
  const other = { id: "bob", plan: "big", external_id: "crm-1", dry_run: true };
  refused(await operator.post("/admin/accounts", other), 409, "external_id_used");
  refused(
    await operator.post("/admin/accounts", { ...asked, plan: "test", dry_run: true }),
    409,
    "account_exists",
  );
});
