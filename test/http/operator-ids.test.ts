/** Ids in the operator API: those that look like others are refused, and each counts once. */
import assert from "node:assert/strict";
import { planOf, revokeKey } from "../fixtures/ledger-rows.ts";
import {
  type Fields,
  fieldsOf,
  type OperatorAnswer,
  operatorTests,
  refused,
  type TestOperator,
} from "../fixtures/operator.ts";
import { clearIds, unclearIds } from "../fixtures/unclear-ids.ts";

const operatorTest = operatorTests({ otherPlans: [planOf("big", 5000, 200)] });
const account = "/admin/accounts/test";

/** Sends a request with this id in its field. */
type Send = (operator: TestOperator, id: string) => Promise<OperatorAnswer>;

const post =
  (path: string, field: string, others: Fields): Send =>
  (operator, id) =>
    operator.post(path, { ...others, [field]: id });
const patch =
  (path: string, field: string, others: Fields): Send =>
  (operator, id) =>
    operator.patch(path, { ...others, [field]: id });

const adjusting = { credits: 1, reason: "a test" };
const faces: readonly (readonly [param: string, send: Send])[] = [
  ["payment_id", post(`${account}/topups`, "payment_id", { credits: 1 })],
  ["payment_id", post(`${account}/refunds`, "payment_id", { refund_id: "r", credits: 1 })],
  ["refund_id", post(`${account}/refunds`, "refund_id", { payment_id: "paid", credits: 1 })],
  ["operation_id", post(`${account}/adjustments`, "operation_id", adjusting)],
  ["operation_id", post(`${account}/adjustments`, "operation_id", { ...adjusting, credits: -1 })],
  ["request_id", post(`${account}/adjustments`, "request_id", { ...adjusting, operation_id: "memo" })],
  ["operation_id", patch(account, "operation_id", { plan: "big" })],
  ["operation_id", post(`${account}/state`, "operation_id", { state: "suspended" })],
  ["operation_id", post(`${account}/end`, "operation_id", { ends_at: "2100-01-01" })],
  ["operation_id", post(`${account}/keys`, "operation_id", {})],
  ["operation_id", patch("/admin/keys/key1", "operation_id", { name: "new" })],
  ["operation_id", post("/admin/keys/key1/rotate", "operation_id", {})],
  ["external_id", post("/admin/accounts", "external_id", { id: "new", plan: "big" })],
  ["external_id", patch(`${account}/contact`, "external_id", {})],
  [
    "accounts[0].external_id",
    (operator, id) =>
      operator.post("/admin/accounts/import", { accounts: [{ id: "new", plan: "big", external_id: id }] }),
  ],
];

for (const [n, [param, send]] of faces.entries()) {
  operatorTest(`refuses ids that look like others, in ${param} (${n + 1})`, async (operator) => {
    await operator.post(`${account}/topups`, { payment_id: "paid", credits: 5 });
    const facts = () => operator.all(`${account}/journal`, 500);
    const before = await facts();
    for (const [what, id, character] of unclearIds) {
      const answer = await send(operator, id);
      const message = refused(answer, 400, "invalid_value");
      assert.ok(message.includes(character), `${what}: ${message}`);
      assert.equal(fieldsOf(answer.body.error).param, param, what);
    }
    assert.deepEqual(await facts(), before);
    assert.deepEqual((await operator.get("/admin/accounts/new")).status, 404);
    for (const id of ["", "x".repeat(201)]) refused(await send(operator, id), 400, "invalid_value");
  });
}

operatorTest("counts each id of another script, and one for its forms", async (operator) => {
  for (const payment_id of clearIds) {
    const { body } = await operator.post(`${account}/topups`, { payment_id, credits: 100 });
    assert.equal(body.again, false, payment_id);
  }
});

operatorTest("names the account of an operation id that was used before", async (operator, service) => {
  await operator.post("/admin/accounts", { id: "bob", plan: "big" });
  await service.addKey({ id: "key-of-bob", account: "bob" });
  const used = [
    await operator.post(`${account}/adjustments`, { ...adjusting, operation_id: "adjusted" }),
    await operator.patch(account, { operation_id: "planned", plan: "big" }),
    await operator.post(`${account}/end`, { operation_id: "ended", ends_at: "2100-01-01" }),
    await operator.post(`${account}/keys`, { operation_id: "issued" }),
    await operator.patch("/admin/keys/key1", { operation_id: "changed", name: "new" }),
    await operator.post("/admin/keys/key1/rotate", { operation_id: "rotated" }),
  ];
  for (const { status, text } of used) assert.ok(status === 200 || status === 201, text);
  const before = await operator.all("/admin/accounts/bob/journal", 500);
  const bob = "/admin/accounts/bob";
  const again = [
    await operator.post(`${bob}/adjustments`, { ...adjusting, operation_id: "adjusted" }),
    await operator.post(`${bob}/adjustments`, { ...adjusting, credits: -1, operation_id: "adjusted" }),
    await operator.patch(bob, { operation_id: "planned", plan: "big" }),
    await operator.post(`${bob}/end`, { operation_id: "ended", ends_at: "2100-01-01" }),
    await operator.post(`${bob}/state`, { operation_id: "ended", state: "suspended" }),
    await operator.post(`${bob}/keys`, { operation_id: "issued" }),
    await operator.post(`${bob}/keys`, { operation_id: "changed" }),
    await operator.patch("/admin/keys/key-of-bob", { operation_id: "issued", name: "new" }),
    await operator.patch("/admin/keys/key-of-bob", { operation_id: "changed", name: "new" }),
    await operator.post("/admin/keys/key-of-bob/rotate", { operation_id: "rotated" }),
  ];
  for (const answer of again) {
    assert.match(
      refused(answer, 409, "operation_differs"),
      /changed account test before\. Nothing has changed/,
    );
  }
  assert.deepEqual(await operator.all("/admin/accounts/bob/journal", 500), before);
});

operatorTest("issues one key for an operation id, also after a revocation", async (operator, service) => {
  const first = await operator.post(`${account}/keys`, { operation_id: "k" });
  assert.equal(first.status, 201, first.text);
  await revokeKey(service.store, String(first.body.id));
  const again = await operator.post(`${account}/keys`, { operation_id: "k" });
  assert.deepEqual([again.status, again.body.key, again.body.id], [200, null, first.body.id]);
  const entries = await operator.all(`${account}/journal`, 500);
  assert.equal(entries.filter(({ operation }) => operation === "key:k").length, 1);
});

operatorTest("refuses an operation id of a change for a new key", async (operator) => {
  await operator.patch("/admin/keys/key1", { operation_id: "op", name: "new" });
  const answer = await operator.post(`${account}/keys`, { operation_id: "op" });
  assert.match(refused(answer, 409, "operation_differs"), /made another change before/);
});
