/** One search of operators over accounts, people, keys, payments and requests. */
import assert from "node:assert/strict";
import { issuerOfFrontEnd, operatorRoles } from "../../src/actors.ts";
import { newPerson } from "../../src/store/people.ts";
import { type Fields, listOf, operatorTests, refused, type TestOperator } from "../fixtures/operator.ts";
import { start } from "../fixtures/times.ts";

const operatorTest = operatorTests();

async function find(operator: TestOperator, text: string, more = ""): Promise<Fields[]> {
  const { status, body } = await operator.get(`/admin/search?text=${encodeURIComponent(text)}${more}`);
  assert.equal(status, 200, JSON.stringify(body));
  assert.equal(body.next, null);
  return listOf(body.data);
}

operatorTest("finds a complaint's request, whatever was copied of it", async (operator, service) => {
  await operator.patch("/admin/accounts/test/contact", { owner: "Hans Müller", email: "hm@uni.example" });
  const answer = await service.chat();
  const { id } = Object(await answer.json());
  const requestId = answer.headers.get("x-request-id") ?? "";
  assert.equal(id, `chatcmpl-${requestId}`);
  for (const text of [id, requestId, ` ${id} `, requestId.toUpperCase(), requestId.slice(0, 20)]) {
    const [found, ...others] = await find(operator, text);
    assert.deepEqual(others, [], text);
    assert.partialDeepStrictEqual(found, {
      kind: "request",
      id: requestId,
      account: "test",
      name: "Hans Müller",
      detail: "small",
    });
    assert.ok(Number(found?.amount_micro) > 0);
  }
});

operatorTest("finds an account, its key and its payment", async (operator) => {
  await operator.post("/admin/accounts", { id: "zz-9", plan: "test", owner: "Zoë Öz", external_id: "CRM-5" });
  const made = await operator.post("/admin/accounts/zz-9/keys", { operation_id: "k", name: "Büro" });
  const { id, key, last_four } = made.body;
  await operator.post("/admin/accounts/zz-9/topups", { payment_id: "INV-2041", credits: 7 });
  const [account] = await find(operator, "zoe");
  assert.partialDeepStrictEqual(account, { kind: "account", id: "zz-9", account: "zz-9", name: "Zoë Öz" });
  for (const text of ["oz", "ZZ-", "crm-5"]) assert.equal((await find(operator, text))[0]?.id, "zz-9", text);
  for (const text of ["buro", String(id), String(id).slice(4, 12), String(last_four)]) {
    const keys = (await find(operator, text)).filter(({ kind }) => kind === "key");
    assert.partialDeepStrictEqual(keys, [{ id, account: "zz-9", name: "Büro", detail: last_four }]);
  }
  const [payment] = await find(operator, "inv-20");
  const paid = { kind: "payment", id: "INV-2041", account: "zz-9", name: "Zoë Öz", amount_micro: 7_000_000 };
  assert.partialDeepStrictEqual(payment, paid);
  const answer = await operator.get(`/admin/search?text=${key}`);
  assert.match(refused(answer, 400, "invalid_value"), /key lookup/);
  assert.ok(!answer.text.includes(String(key)), "it is not repeated");
});

operatorTest(
  "marks names that people have typed, and finds nothing of an erased person",
  async (operator, { store }) => {
    const issuer = issuerOfFrontEnd("webui");
    const { id } = await store.addPerson(newPerson({ issuer, sub: "u-17", name: "Ägir" }, start));
    for (const text of ["agir", "u-17", id]) {
      const [found] = await find(operator, text);
      assert.partialDeepStrictEqual(found, { kind: "person", id, account: null, name: "u-17 (Ägir)" });
    }
    assert.deepEqual(
      (await operator.all("/admin/people?search=AGI", 10)).map((person) => person.id),
      [id],
    );
    assert.equal((await operator.delete(`/admin/people/${id}/data`)).status, 200);
    for (const text of ["agir", "u-17"]) assert.deepEqual(await find(operator, text), [], text);
  },
);

operatorTest("has so many rows of each kind, and every role may search", async (operator) => {
  for (const n of [1, 2, 3, 4, 5, 6, 7])
    await operator.post("/admin/accounts", { id: `many-${n}`, plan: "test" });
  assert.equal((await find(operator, "many")).length, 5);
  assert.deepEqual(
    (await find(operator, "many", "&limit=2")).map(({ id }) => id),
    ["many-1", "many-2"],
  );
  for (const role of operatorRoles) {
    const { body } = await operator.post("/admin/operator-keys", { operation_id: role, name: role, role });
    const headers = { authorization: `Bearer ${body.key}` };
    assert.equal((await operator.ask("GET", "/admin/search?text=many", { headers })).status, 200, role);
  }
  refused(await operator.get("/admin/search"), 400, "missing_required_parameter");
  for (const wrong of ["text=", "text=%20", `text=${"x".repeat(201)}`, "text=a&limit=21"])
    refused(await operator.get(`/admin/search?${wrong}`), 400, "invalid_value");
});
