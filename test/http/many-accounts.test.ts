/**
 * Many accounts topped up, moved to a plan, suspended and resumed over HTTP, as the console does:
 * the preview, some rows at a time, and repetitions after a stop or a lost answer.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import { planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, listOf, refused, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";

const accounts = Array.from({ length: 12 }, (_, n) => `s${String(n).padStart(2, "0")}`);
const closed = "s03";

/** Twelve accounts, of which one is closed. */
async function startClass() {
  await using opened = new AsyncDisposableStack();
  const hourly = { ...planOf("hourly", 50, 0), base: { ...planOf("hourly", 50, 0).base, every: "PT1H" } };
  const service = opened.use(await startService({ otherPlans: [planOf("big", 5000, 200), hourly] }));
  const operator = opened.use(await startOperator(service));
  for (const id of accounts)
    assert.equal((await operator.post("/admin/accounts", { id, plan: "test" })).status, 201);
  const closing = { operation_id: "close", state: "closed" };
  assert.equal((await operator.post(`/admin/accounts/${closed}/state`, closing)).status, 200);
  const kept = opened.move();
  return { service, operator, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

async function rowsOf(operator: TestOperator, path: string, body: object) {
  const answer = await operator.post(`/admin/accounts/${path}`, { accounts, ...body });
  assert.equal(answer.status, 200, answer.text);
  return { rows: listOf(answer.body.data), next: answer.body.next, total: answer.body.total };
}

async function additionalOf(operator: TestOperator): Promise<unknown[]> {
  const balances = accounts.map(async (id) => {
    const { body } = await operator.get(`/admin/accounts/${id}/balance`);
    return fieldsOf(fieldsOf(body.balances).additional).credits;
  });
  return await Promise.all(balances);
}

const each = (credits: number) => accounts.map((id) => (id === closed ? 0 : credits));

test("a preview of a top-up says what each account would have, who is left out and why", async () => {
  await using place = await startClass();
  const { operator } = place;
  const named = { accounts: [...accounts, "nobody"], credits: 500, payment_id: "inv-7", dry_run: true };
  const { rows, next, total } = await rowsOf(operator, "topups", named);
  assert.deepEqual([rows.length, next, total], [13, null, 13]);
  assert.partialDeepStrictEqual(rows[0], {
    account: "s00",
    result: "updated",
    text: "additional credits 0 → 500",
    credits: 500,
  });
  assert.partialDeepStrictEqual(rows[3], { account: closed, result: "refused", credits: null });
  assert.match(String(rows[3]?.text), /closed/);
  assert.match(String(rows[12]?.text), /There is no account nobody/);
  assert.equal(
    rows.reduce((sum, row) => sum + Number(row.credits ?? 0), 0),
    11 * 500,
  );
  assert.deepEqual(await additionalOf(operator), each(0));
});

test("a top-up that is stopped, lost and repeated adds to each account once", async (t) => {
  await using place = await startClass();
  const { operator, service } = place;
  const topUp = { credits: 500, payment_id: "inv-7" };
  const first = await rowsOf(operator, "topups", { ...topUp, limit: 5 });
  assert.deepEqual([first.rows.length, first.next], [5, "s04"]);
  // The next five: after some of them, the database is away.
  const apply = service.ledger.apply.bind(service.ledger);
  let applied = 0;
  const failing = t.mock.method(service.ledger, "apply", <O extends Operation>(operation: O) => {
    applied += 1;
    if (applied <= 2) return apply(operation);
    return Promise.reject(new StoreUnavailableError("the database is away"));
  });
  const lost = await operator.post("/admin/accounts/topups", { accounts, ...topUp, after: "s04", limit: 5 });
  refused(lost, 503, "store_unavailable");
  failing.mock.restore();
  const rest = await rowsOf(operator, "topups", { ...topUp, after: "s04" });
  assert.deepEqual(
    rest.rows.map(({ result, credits }) => [result, credits]),
    [...Array(2).fill(["unchanged", null]), ...Array(5).fill(["updated", 500])],
  );
  assert.equal(rest.next, null);
  const again = await rowsOf(operator, "topups", topUp);
  assert.deepEqual(
    again.rows.map(({ result }) => result),
    accounts.map((id) => (id === closed ? "refused" : "unchanged")),
  );
  assert.match(String(again.rows[0]?.text), /Payment inv-7-s00 was counted before/);
  const other = await rowsOf(operator, "topups", { ...topUp, credits: 600 });
  assert.ok(other.rows.every(({ result }) => result === "refused"));
  assert.deepEqual(await additionalOf(operator), each(500));
  const { data } = (await operator.get("/admin/accounts/s11/payments")).body;
  assert.deepEqual(
    listOf(data).map(({ payment_id }) => payment_id),
    ["inv-7-s11"],
  );
});

test("plans change for those whose windows fit, and a repetition does not undo a later change", async () => {
  await using place = await startClass();
  const { operator } = place;
  const change = { operation_id: "to-big", plan: "big", at: "now" };
  const preview = await rowsOf(operator, "plans", { ...change, dry_run: true });
  assert.match(String(preview.rows[0]?.text), /^plan test → big, \d{4}-\d\d-\d\d \d\d:\d\dZ$/);
  assert.equal(preview.rows[3]?.result, "refused");
  const unfit = await rowsOf(operator, "plans", { ...change, plan: "hourly", dry_run: true });
  assert.ok(unfit.rows.every(({ result }) => result === "refused"));
  assert.match(String(unfit.rows[0]?.text), /window/);
  await rowsOf(operator, "plans", change);
  const back = { operation_id: "back", plan: "test", at: "now" };
  await operator.patch("/admin/accounts/s00", back);
  const { rows } = await rowsOf(operator, "plans", change);
  assert.deepEqual([rows[0]?.result, rows[1]?.result], ["unchanged", "updated"]);
  const { data } = (await operator.get("/admin/accounts?plan=big")).body;
  assert.deepEqual(
    listOf(data).map(({ id }) => id),
    accounts.filter((id) => ![closed, "s00"].includes(id)),
  );
});

test("accounts are suspended and resumed; closed ones and those in the state already say so", async () => {
  await using place = await startClass();
  const { operator } = place;
  await operator.post("/admin/accounts/s01/state", { operation_id: "one", state: "suspended" });
  const suspend = { operation_id: "all", state: "suspended" };
  const preview = await rowsOf(operator, "states", { ...suspend, dry_run: true });
  assert.deepEqual(
    preview.rows.slice(0, 4).map(({ result, text }) => [result, String(text).slice(0, 18)]),
    [
      ["updated", "active → suspended"],
      ["unchanged", "is suspended"],
      ["updated", "active → suspended"],
      ["refused", "Account s03 is clo"],
    ],
  );
  await rowsOf(operator, "states", suspend);
  const count = async (state: string) =>
    listOf((await operator.get(`/admin/accounts?search=s&state=${state}`)).body.data).length;
  assert.deepEqual([await count("suspended"), await count("active")], [11, 0]);
  await rowsOf(operator, "states", { operation_id: "back", state: "active" });
  assert.deepEqual([await count("suspended"), await count("active")], [0, 11]);
  const again = await rowsOf(operator, "states", suspend);
  assert.deepEqual(
    again.rows.map(({ result }) => result).filter((result) => result === "updated"),
    [],
  );
  const final = await operator.post("/admin/accounts/states", { accounts, ...suspend, state: "closed" });
  refused(final, 400, "invalid_value");
});
