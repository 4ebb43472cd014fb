/** Credits in the operator API: each payment and correction counts once and is in the journal. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests, refused, startOperator } from "../fixtures/operator.ts";
import { jsonOf, startService } from "../fixtures/service.ts";

const operatorTest = operatorTests();

const topups = "/admin/accounts/test/topups";
const adjustments = "/admin/accounts/test/adjustments";

function additionalIn(balance: unknown): unknown {
  return fieldsOf(fieldsOf(fieldsOf(balance).balances).additional).credits;
}

operatorTest("refuses more credits than can be counted exactly", async (operator, service) => {
  await service.ledger.apply({
    kind: "topup",
    account: "test",
    payment: "all",
    amountMicro: Number.MAX_SAFE_INTEGER - 5,
    by: "test",
  });
  refused(await operator.post(topups, { payment_id: "p", credits: 1 }), 409, "too_many_credits");
  const body = { operation_id: "o", credits: 1, reason: "r" };
  refused(await operator.post(adjustments, body), 409, "too_many_credits");
});

operatorTest("returns the balance that clients see", async (operator, service) => {
  await (await service.chat()).text();
  const shown = await operator.get("/admin/accounts/test/balance");
  assert.deepEqual(shown.body, await jsonOf(await service.request("GET", "/v1/balance")));
});

test("reports why a balance cannot be read", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const { accountSnapshot } = service.store;
  service.store.accountSnapshot = async (account) => {
    const found = await accountSnapshot.call(service.store, account);
    if (found?.account.base == null) return found;
    return { ...found, account: { ...found.account, base: { ...found.account.base, spentMicro: -5 } } };
  };
  const answer = await operator.get("/admin/accounts/test/balance");
  assert.match(refused(answer, 500, "balance_unavailable"), /account test: a bucket is negative/);
  service.store.accountSnapshot = accountSnapshot;
});

operatorTest(
  "lists the journal in pages, oldest first, and its amounts are the balance",
  async (operator, service) => {
    const nothing = { operation: null, bucket: null, amount_micro: null, grant: null };
    const plain = {
      account: "test",
      by: "test",
      ...nothing,
      subject: null,
      before: null,
      after: null,
      outcome: null,
    };
    const given = { by: "owner", bucket: "additional" };
    await operator.post(topups, { payment_id: "p", credits: 500 });
    await operator.post(adjustments, { operation_id: "up", credits: 30, reason: "goodwill" });
    await operator.post(adjustments, { operation_id: "down", credits: -20, reason: "a typing error" });
    const answer = await service.chat();
    await answer.text();
    const request = answer.headers.get("x-request-id");
    const charged = Number((await service.receipt(String(request)))?.costMicro);
    assert.ok(charged > 0);
    const window = { kind: "window", by: "service", after: { plan: "test" } };
    const promotion = { amount_micro: credits(30), ends_at: null, reason: "goodwill" };
    const taking = { grant: 6, after: { amount_micro: credits(20), grant: null, reason: "a typing error" } };
    const expected = [
      { kind: "open", after: { plan: "test" } },
      { ...window, bucket: "base", amount_micro: credits(1000) },
      { ...window, bucket: "overage", amount_micro: credits(200) },
      { kind: "key", subject: "key1" },
      { ...given, kind: "payment", operation: "payment:p", amount_micro: credits(500), subject: "p" },
      { ...given, kind: "promotion", operation: "operation:up", amount_micro: credits(30), after: promotion },
      { ...given, kind: "adjust", operation: "operation:down", amount_micro: credits(-20), ...taking },
      { kind: "charge", by: "service", amount_micro: -charged, subject: request },
    ].map((row, n) => ({ ...plain, ...row, seq: n + 1 }));
    for (const limit of [1, 2, 5, 100]) {
      const rows = await operator.all("/admin/accounts/test/journal", limit);
      const shown = rows.map(({ at: _, by_name, subject_name, sentence, ...row }) =>
        row.kind === "key" ? { ...row, after: null, outcome: null } : row,
      );
      assert.deepEqual(shown, expected);
      const sumOf = (name: string) =>
        rows.reduce((sum, row) => sum + (row.bucket === name ? Number(row.amount_micro) : 0), 0);
      const balance = await service.balance();
      assert.equal(sumOf("base") - charged, balance.base.remainingMicro);
      assert.equal(sumOf("additional"), balance.additionalMicro);
    }
  },
);

operatorTest("filters the journal by kind, in both orders, in pages", async (operator, service) => {
  for (const id of ["p1", "p2", "p3"]) await operator.post(topups, { payment_id: id, credits: 10 });
  await operator.post(adjustments, { operation_id: "a", credits: 5, reason: "goodwill" });
  await operator.post(adjustments, { operation_id: "b", credits: -5, reason: "why" });
  await (await service.chat()).text();
  const path = "/admin/accounts/test/journal";
  const shown = async (query: string, limit: number) =>
    (await operator.all(`${path}?${query}`, limit)).map(({ seq, kind }) => `${seq} ${kind}`);
  for (const limit of [1, 2, 100]) {
    const purchased = ["5 payment", "6 payment", "7 payment", "9 adjust"];
    assert.deepEqual(await shown("kind=adjust,payment", limit), purchased);
    assert.deepEqual(await shown("kind=payment,adjust&order=newest", limit), purchased.toReversed());
    assert.deepEqual(await shown("kind=charge,open&order=newest", limit), ["10 charge", "1 open"]);
    assert.deepEqual(await shown("kind=refund", limit), []);
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
    const paid = { amount_micro: 10_000_000, refunded_micro: 0, spent_micro: 0 };
    const expected = [
      { payment_id: "p3", ...paid, journal_seq: 7 },
      { payment_id: "p2", ...paid, refunded_micro: 7_000_000, journal_seq: 6 },
      { payment_id: "p1", ...paid, journal_seq: 5 },
    ];
    assert.deepEqual(
      rows.map(({ at: _, ...row }) => row),
      expected,
    );
  }
});

operatorTest("refunds what is free of a payment, once per refund id", async (operator, service) => {
  const refunds = "/admin/accounts/test/refunds";
  await operator.post(topups, { payment_id: "p", credits: 50 });
  const running = hold("running", credits(1000 + 200 + 10), { account: "test", key: "key1", model: "small" });
  assert.equal((await service.ledger.apply(running)).kind, "held");
  const values = { refund_id: "r1", payment_id: "p", credits: 45 };
  const asked = { ...values, reason: "returned" };
  const { status, body } = await operator.post(refunds, asked);
  assert.equal(status, 200);
  const { balance, ...shown } = body;
  assert.deepEqual(shown, {
    account: "test",
    ...values,
    refunded_micro: 40_000_000,
    rest_micro: 5_000_000,
    again: false,
  });
  assert.deepEqual(fieldsOf(fieldsOf(balance).balances).additional, { credits: 10 });
  assert.deepEqual((await operator.post(refunds, asked)).body, { ...body, again: true });
  const refusedWith = async (change: object, status: number, code: string) =>
    refused(await operator.post(refunds, { ...asked, ...change }), status, code);
  assert.match(
    await refusedWith({ refund_id: "r2", credits: 11 }, 409, "refund_too_large"),
    /^Of payment "p", 10 credits are neither spent nor refunded/,
  );
  await refusedWith({ refund_id: "r2", payment_id: "q" }, 404, "payment_not_found");
  await refusedWith({ reason: "a typing error" }, 409, "refund_differs");
  const { data } = (await operator.get("/admin/log?kind=refund")).body;
  assert.ok(Array.isArray(data));
  const kept = data.map(({ after }) => after);
  assert.deepEqual(kept, [{ amount_micro: credits(45), reason: "returned" }]);
  await operator.post("/admin/accounts", { id: "bob", plan: "test" });
  await operator.post("/admin/accounts/bob/topups", { payment_id: "b", credits: 50 });
  const elsewhere = { ...asked, payment_id: "b" };
  refused(await operator.post("/admin/accounts/bob/refunds", elsewhere), 409, "refund_used");
  const topup = { payment_id: "p", credits: 50 };
  refused(await operator.post("/admin/accounts/bob/topups", topup), 409, "payment_used");
  const memo = { operation_id: "m", credits: 1, reason: "cut off", request_id: "running" };
  refused(await operator.post(adjustments, memo), 409, "request_running");
  await service.ledger.apply(settle("running", 0, { account: "test", ending: "refused" }));
  const rest = await operator.post(refunds, { refund_id: "r3", payment_id: "p", credits: 10 });
  assert.deepEqual([rest.body.refunded_micro, rest.body.rest_micro], [10_000_000, 0]);
});

operatorTest("promotional credits have a last day, and end with it", async (operator, service) => {
  const give = (operation_id: string, expires_at: string) =>
    operator.post(adjustments, { operation_id, credits: 30, reason: "spring", expires_at });
  const given = await give("a", "2099-01-31");
  assert.deepEqual([given.status, additionalIn(given.body.balance)], [200, 30]);
  assert.equal(additionalIn((await give("b", "2099-02-01T00:00:00Z")).body.balance), 60);
  const snapshot = await service.store.accountSnapshot("test");
  assert.deepEqual(
    snapshot?.account.additional.map(({ amountMicro, untilMs, isPayment }) => ({
      amount: amountMicro,
      untilMs,
      isPayment,
    })),
    [{ amount: credits(60), untilMs: Date.UTC(2099, 1, 1), isPayment: false }],
    "the end of the last day and that time are the same",
  );
  refused(await give("c", "2020-01-31"), 400, "invalid_value");
});

operatorTest(
  "a memo makes up for a request, at most for what was paid",
  async (operator, service) => {
    const answer = await service.chat();
    await answer.text();
    const request_id = String(answer.headers.get("x-request-id"));
    const paid = Number((await service.receipt(request_id))?.costMicro);
    const whole = Math.floor(paid / 1_000_000);
    assert.ok(whole >= 2, `${paid}`);
    const memo = (operation_id: string, amount: number, request = request_id) =>
      operator.post(adjustments, { operation_id, credits: amount, reason: "cut off", request_id: request });
    refused(await memo("a", whole + 1), 409, "memo_too_large");
    assert.equal((await memo("a", whole - 1)).status, 200);
    refused(await memo("b", 2), 409, "memo_too_large");
    assert.equal(additionalIn((await memo("b", 1)).body.balance), whole);
    refused(await memo("c", 1, "nothing"), 404, "request_not_found");
    const [receipt] = await operator.all(`/admin/usage?request_id=${request_id}`, 10);
    assert.deepEqual([receipt?.cost_micro, receipt?.memo_micro], [paid, whole * 1_000_000]);
    const kinds = (await operator.all("/admin/accounts/test/journal?kind=memo", 10)).map(
      (row) => row.operation,
    );
    assert.deepEqual(kinds, ["operation:a", "operation:b"]);
  },
  { price: { prompt: 1_000_000, completion: 1_000_000 } },
);

operatorTest("a correction never takes what was paid for", async (operator) => {
  await operator.post(topups, { payment_id: "p", credits: 50 });
  await operator.post(adjustments, { operation_id: "a", credits: 5, reason: "goodwill" });
  const take = (amount: number, change: object = {}) =>
    operator.post(adjustments, { operation_id: "b", credits: amount, reason: "back", ...change });
  assert.match(refused(await take(-6), 409, "too_few_credits"), /has 5 promotional credits/);
  assert.match(refused(await take(0), 400, "invalid_value"), /must not be 0/);
  const [payment, promotion] = await operator.all("/admin/accounts/test/journal?kind=payment,promotion", 10);
  refused(await take(-1, { grant: payment?.seq }), 404, "grant_not_found");
  refused(await take(-1, { expires_at: "2099-01-31" }), 400, "invalid_value");
  refused(await take(1, { grant: promotion?.seq }), 400, "invalid_value");
  assert.equal(additionalIn((await take(-5, { grant: promotion?.seq })).body.balance), 50);
});
