/** Ids in the operator API: those that look like others are refused, and each counts once. */
import assert from "node:assert/strict";
import { planOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests, refused } from "../fixtures/operator.ts";
import { clearIds, unclearIds } from "../fixtures/unclear-ids.ts";

const operatorTest = operatorTests({ otherPlans: [planOf("big", 5000, 200), planOf("close", 5000, 200)] });
const account = "/admin/accounts/test";

const adjusting = { credits: 1, reason: "a test" };

operatorTest("an opening refuses ids that look like others", async (operator) => {
  for (const [what, id, character] of unclearIds) {
    for (const param of ["external_id", "payment_id"]) {
      const asked = { id: "new", plan: "big", credits: 5, [param]: id };
      const answer = await operator.post("/admin/accounts", asked);
      assert.ok(refused(answer, 400, "invalid_value").includes(character), what);
      assert.equal(fieldsOf(answer.body.error).param, param);
    }
  }
  assert.equal((await operator.get("/admin/accounts/new")).status, 404);
});

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
  assert.equal(entries.filter(({ operation }) => operation === "operation:k").length, 1);
});

operatorTest("one operation id makes one change, whatever the others are", async (operator) => {
  const operation_id = "close";
  const changes = [
    () => operator.patch(account, { operation_id, plan: "close", at: "now" }),
    () => operator.post(`${account}/state`, { operation_id, state: "closed" }),
    () => operator.post(`${account}/end`, { operation_id, ends_at: "2100-01-01" }),
    () => operator.post(`${account}/adjustments`, { ...adjusting, operation_id }),
    () => operator.post(`${account}/adjustments`, { ...adjusting, credits: -1, operation_id }),
    () => operator.post(`${account}/keys`, { operation_id }),
    () => operator.patch("/admin/keys/key1", { operation_id, name: "new" }),
    () => operator.post("/admin/keys/key1/rotate", { operation_id }),
  ];
  // Payments and refunds have ids of their own.
  const paid = { payment_id: operation_id, credits: 5 };
  assert.equal((await operator.post(`${account}/topups`, paid)).status, 200);
  const [first, ...others] = changes;
  assert.equal((await first?.())?.status, 200);
  const before = await operator.all(`${account}/journal`, 500);
  for (const change of others)
    assert.match(refused(await change(), 409, "operation_differs"), /"close" made another change before/);
  assert.equal((await first?.())?.status, 200, "a repetition");
  assert.deepEqual(await operator.all(`${account}/journal`, 500), before);
});

operatorTest("a key is not changed by the operation that made it", async (operator) => {
  const settings = { name: "n", models: ["*"], expires_at: null, portal: "own" };
  const limits = { requests_per_minute: null, tokens_per_minute: null, concurrent: null };
  const made = await operator.post(`${account}/keys`, { operation_id: "k", name: "n" });
  const key = `/admin/keys/${made.body.id}`;
  assert.equal((await operator.patch(key, { operation_id: "l", name: "other" })).status, 200);
  const again = await operator.patch(key, { operation_id: "k", ...settings, ...limits });
  assert.match(refused(again, 409, "operation_differs"), /made another change before/);
});
