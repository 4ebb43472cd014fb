/** Credits in the operator API: each payment and correction counts once and is in the journal. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, operatorTests, refused, startOperator } from "../fixtures/operator.ts";
import { jsonOf, startService } from "../fixtures/service.ts";

const operatorTest = operatorTests();

const topups = "/admin/accounts/test/topups";
const adjustments = "/admin/accounts/test/adjustments";

function additionalIn(balance: unknown): unknown {
  return fieldsOf(fieldsOf(fieldsOf(balance).balances).additional).credits;
}

operatorTest("counts a payment once, even if it is sent many times at once", async (operator) => {
  const first = await operator.post(topups, { payment_id: "pay/1 ü", credits: 500 });
  assert.equal(first.status, 200);
  const { balance, ...rest } = first.body;
  assert.deepEqual(rest, { account: "test", payment_id: "pay/1 ü", credits: 500, again: false });
  assert.equal(additionalIn(balance), 500);
  const again = await Promise.all(
    Array.from({ length: 10 }, () => operator.post(topups, { payment_id: "pay/1 ü", credits: 500 })),
  );
  for (const { status, body } of again) {
    assert.deepEqual([status, body.again, additionalIn(body.balance)], [200, true, 500]);
  }
  const other = await operator.post(topups, { payment_id: "pay/2", credits: 1 });
  assert.equal(additionalIn(other.body.balance), 501);
});

operatorTest("refuses a known payment with another amount", async (operator) => {
  await operator.post(topups, { payment_id: "p", credits: 500 });
  const answer = await operator.post(topups, { payment_id: "p", credits: 50 });
  assert.match(
    refused(answer, 409, "payment_differs"),
    /with 500 credits instead of 50\. Nothing has changed/,
  );
  assert.equal(additionalIn((await operator.get("/admin/accounts/test/balance")).body), 500);
});

operatorTest("requires whole positive credits and an existing account", async (operator) => {
  for (const credits of [0, -1, 9_000_001]) {
    refused(await operator.post(topups, { payment_id: "p", credits }), 400, "invalid_value");
  }
  for (const payment_id of ["", "  ", "two\nlines", "x".repeat(201)]) {
    refused(await operator.post(topups, { payment_id, credits: 1 }), 400, "invalid_value");
  }
  refused(await operator.post(topups, { credits: 1 }), 400, "missing_required_parameter");
  const nobody = await operator.post("/admin/accounts/nobody/topups", { payment_id: "p", credits: 1 });
  refused(nobody, 404, "account_not_found");
});

operatorTest("refuses more credits than can be counted exactly", async (operator, service) => {
  await service.ledger.apply({
    kind: "topup",
    account: "test",
    payment: "all",
    amount: Number.MAX_SAFE_INTEGER - 5,
    by: "test",
  });
  refused(await operator.post(topups, { payment_id: "p", credits: 1 }), 409, "too_many_credits");
  const body = { operation_id: "o", credits: 1, reason: "r" };
  refused(await operator.post(adjustments, body), 409, "too_many_credits");
});

operatorTest("adjusts up or down, once, and never below zero", async (operator) => {
  const adjust = (operation_id: string, credits: number, reason = "goodwill") =>
    operator.post(adjustments, { operation_id, credits, reason });
  const up = await adjust("a", 30);
  const { balance, ...rest } = up.body;
  assert.deepEqual(rest, { account: "test", operation_id: "a", credits: 30, again: false });
  assert.equal(additionalIn(balance), 30);
  const down = await adjust("b", -20);
  assert.equal(additionalIn(down.body.balance), 10);
  const again = await adjust("a", 30);
  assert.deepEqual([again.body.again, additionalIn(again.body.balance)], [true, 10]);
  assert.match(
    refused(await adjust("a", -30), 409, "operation_differs"),
    /with 30 credits and the reason "goodwill" instead of -30 and "goodwill"/,
  );
  const otherReason = await adjust("a", 30, "a refund");
  assert.match(refused(otherReason, 409, "operation_differs"), /"goodwill" instead of 30 and "a refund"/);
  assert.equal(fieldsOf(otherReason.body.error).param, "reason");
  assert.match(refused(await adjust("c", -11), 409, "too_few_credits"), /has 10 additional credits/);
  refused(await adjust("d", 0), 400, "invalid_value");
  refused(
    await operator.post(adjustments, { operation_id: "e", credits: 1 }),
    400,
    "missing_required_parameter",
  );
});

operatorTest("returns the balance that clients see", async (operator, service) => {
  await (await service.chat()).text();
  const shown = await operator.get("/admin/accounts/test/balance");
  assert.deepEqual(shown.body, await jsonOf(await service.request("GET", "/v1/balance")));
  refused(await operator.get("/admin/accounts/nobody/balance"), 404, "account_not_found");
});

test("reports why a balance cannot be read", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const { accountSnapshot } = service.store;
  service.store.accountSnapshot = async (account) => {
    const found = await accountSnapshot.call(service.store, account);
    return found === null ? null : { ...found, account: { ...found.account, additional: -5 } };
  };
  const answer = await operator.get("/admin/accounts/test/balance");
  assert.match(refused(answer, 500, "balance_unavailable"), /account test: a bucket is negative/);
  service.store.accountSnapshot = accountSnapshot;
});

operatorTest(
  "lists the journal in pages, oldest first, and its sum is the balance",
  async (operator, service) => {
    await operator.post(topups, { payment_id: "p", credits: 500 });
    await operator.post(adjustments, { operation_id: "a", credits: -20, reason: "a typing error" });
    await (await service.chat()).text();
    for (const limit of [1, 2, 5, 100]) {
      const rows = await operator.all("/admin/accounts/test/journal", limit);
      assert.deepEqual(
        rows.map(({ seq, kind, note }) => `${seq} ${kind} ${note}`),
        ["1 open test", "2 topup p", "3 adjust a typing error", "4 hold key1", "5 settle stop"],
      );
      const sum = rows.reduce((total, row) => total + Number(row.base_delta_micro), 0);
      assert.equal(sum, (await service.balance()).base.micro);
    }
    refused(await operator.get("/admin/accounts/test/journal?after=x"), 400, "invalid_value");
    refused(await operator.get("/admin/accounts/nobody/journal"), 404, "account_not_found");
  },
);

operatorTest("filters the journal by kind, in both orders, in pages", async (operator, service) => {
  for (const id of ["p1", "p2", "p3"]) await operator.post(topups, { payment_id: id, credits: 10 });
  await operator.post(adjustments, { operation_id: "a", credits: -5, reason: "why" });
  await (await service.chat()).text();
  const path = "/admin/accounts/test/journal";
  const shown = async (query: string, limit: number) =>
    (await operator.all(`${path}?${query}`, limit)).map(({ seq, kind }) => `${seq} ${kind}`);
  for (const limit of [1, 2, 100]) {
    const purchased = ["2 topup", "3 topup", "4 topup", "5 adjust"];
    assert.deepEqual(await shown("kind=adjust,topup", limit), purchased);
    assert.deepEqual(await shown("kind=topup,adjust&order=newest", limit), purchased.toReversed());
    assert.deepEqual(await shown("kind=settle,open&order=newest", limit), ["7 settle", "1 open"]);
    assert.deepEqual(await shown("kind=refund", limit), []);
  }
});

operatorTest("refuses an unknown kind of entry and lists the kinds", async (operator) => {
  for (const kind of ["gift", "topup,gift", "", "topup,", " topup"]) {
    const answer = await operator.get(`/admin/accounts/test/journal?kind=${kind}`);
    assert.match(refused(answer, 400, "invalid_value"), /kind must be .*: open, refresh, .*, reverse/);
  }
});

operatorTest("lists payments newest first, with what was refunded of each", async (operator) => {
  for (const id of ["p1", "p2", "p3"]) await operator.post(topups, { payment_id: id, credits: 10 });
  for (const [refund_id, credits] of [
    ["r1", 3],
    ["r2", 4],
  ] as const) {
    await operator.post("/admin/accounts/test/refunds", { refund_id, payment_id: "p2", credits });
  }
  for (const limit of [1, 2, 100]) {
    const rows = await operator.all("/admin/accounts/test/payments", limit);
    assert.deepEqual(
      rows.map(({ at: _at, ...row }) => row),
      [
        { payment_id: "p3", amount_micro: 10_000_000, refunded_micro: 0, journal_seq: 4 },
        { payment_id: "p2", amount_micro: 10_000_000, refunded_micro: 7_000_000, journal_seq: 3 },
        { payment_id: "p1", amount_micro: 10_000_000, refunded_micro: 0, journal_seq: 2 },
      ],
    );
  }
  refused(await operator.get("/admin/accounts/test/payments?after=x"), 400, "invalid_value");
  refused(await operator.get("/admin/accounts/nobody/payments"), 404, "account_not_found");
});

operatorTest("refunds what is free of a payment, once per refund id", async (operator) => {
  const refunds = "/admin/accounts/test/refunds";
  await operator.post(topups, { payment_id: "p", credits: 50 });
  await operator.post(adjustments, { operation_id: "a", credits: -20, reason: "spent" });
  const asked = { refund_id: "r1", payment_id: "p", credits: 40 };
  const { status, body } = await operator.post(refunds, asked);
  assert.equal(status, 200);
  const { balance, ...shown } = body;
  assert.deepEqual(shown, {
    ...{ account: "test", ...asked, refunded_micro: 30_000_000, rest_micro: 10_000_000, again: false },
  });
  assert.deepEqual(fieldsOf(fieldsOf(balance).balances).additional, { credits: 0 });
  assert.deepEqual((await operator.post(refunds, asked)).body, { ...body, again: true });
  refused(await operator.post(refunds, { ...asked, credits: 41 }), 409, "refund_differs");
  refused(await operator.post(refunds, { ...asked, refund_id: "r2", credits: 21 }), 409, "refund_too_large");
  refused(
    await operator.post(refunds, { ...asked, refund_id: "r2", payment_id: "q" }),
    404,
    "payment_not_found",
  );
  refused(await operator.post(refunds, { ...asked, credits: 0 }), 400, "invalid_value");
  refused(await operator.post(refunds, { payment_id: "p", credits: 1 }), 400, "missing_required_parameter");
  await operator.post("/admin/accounts", { id: "bob", plan: "test" });
  await operator.post("/admin/accounts/bob/topups", { payment_id: "b", credits: 50 });
  const elsewhere = { ...asked, payment_id: "b" };
  refused(await operator.post("/admin/accounts/bob/refunds", elsewhere), 409, "refund_used");
});
