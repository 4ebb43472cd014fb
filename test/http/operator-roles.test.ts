/** What each role may do in the operator API, operator keys, and the log of changes. */
import assert from "node:assert/strict";
import { operatorRoles } from "../../src/actors.ts";
import { limits } from "../../src/limits/limits.ts";
import { holdRequest } from "../fixtures/held-request.ts";
import {
  type Fields,
  listOf,
  type OperatorAnswer,
  operatorTests,
  refused,
  type TestOperator,
} from "../fixtures/operator.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { day } from "../fixtures/times.ts";

const operatorTest = operatorTests();

/** Operations that change something, by the least role that may do them. All others only read. */
const changes: Readonly<Record<string, readonly string[]>> = {
  support:
    "makeKey changeKey rotateKey revokeKey stopRequest changeState adjustCredits inviteAccount importAccountList changeStates endLink makeOperatorKey".split(
      " ",
    ),
  operator: [
    "tryKey",
    ..."openAccount changePlan changePlans topUpAccounts setContact setEnd addCredits refundCredits applyPlans".split(
      " ",
    ),
    ..."createLink setLink rotateLink closeLinkAccounts".split(" "),
    ..."previewReload reloadConfiguration sendEvents addPerson linkPerson exportPerson".split(" "),
  ],
  owner: ["makeSignInCode", "changePersonState", "erasePerson"],
};

interface Operation {
  id: string;
  method: string;
  path: string;
}

function operationsOf(document: Fields): Operation[] {
  return Object.entries(document.paths ?? {}).flatMap(([path, methods]) =>
    Object.entries<Fields>(methods).map(([method, { operationId }]) => ({
      id: String(operationId),
      method: method.toUpperCase(),
      path: path
        .replace("{operator_key}", "opkey_0000000000000000")
        .replace("{link}", "link_0000000000000000")
        .replace(/\{\w+\}/g, "nobody"),
    })),
  );
}

async function keyFor(operator: TestOperator, role: string, name = role): Promise<Record<string, string>> {
  const { status, body } = await operator.post("/admin/operator-keys", { operation_id: name, name, role });
  assert.equal(status, 201, JSON.stringify(body));
  return { authorization: `Bearer ${body.key}` };
}

/** Sends requests with a new key of this role. */
async function senderFor(operator: TestOperator, role: string, name = role) {
  const headers = await keyFor(operator, role, name);
  return (method: string, path: string, body?: object) =>
    operator.ask(method, path, { headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
}

operatorTest("each operation answers those with its role, and nobody below", async (operator) => {
  const operations = operationsOf(operator.document).filter(({ id }) => id !== "signIn");
  assert.ok(operations.length > 40);
  for (const id of Object.values(changes).flat())
    assert.ok(
      operations.some((operation) => operation.id === id),
      id,
    );
  for (const role of operatorRoles) {
    const headers = await keyFor(operator, role);
    for (const { id, method, path } of operations) {
      // A stream that is permitted would stay open.
      if (id.startsWith("stream")) continue;
      const needed = operatorRoles.find((each) => changes[each]?.includes(id)) ?? "viewer";
      const isPermitted = operatorRoles.indexOf(role) >= operatorRoles.indexOf(needed);
      const { status, text } = await operator.ask(method, path, {
        headers: { ...headers, ...(method === "GET" ? {} : { "content-type": "application/json" }) },
        ...(method === "GET" || method === "DELETE" ? {} : { body: '{"unknown": 1}' }),
      });
      const isRefused = status === 403 && text.includes("not_permitted");
      assert.equal(isRefused, !isPermitted, `${role} ${id}: ${status} ${text}`);
    }
  }
});

operatorTest("support takes nothing away and closes nothing", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  const send = await senderFor(operator, "support");
  const adjust = { operation_id: "a1", credits: -1, reason: "test" };
  const taken = await send("POST", "/admin/accounts/ada/adjustments", adjust);
  const message = refused(taken, 403, "not_permitted");
  assert.match(message, /needs the role operator, and yours is support\. Nothing has changed/);
  const change = (operation_id: string, state: string) =>
    send("POST", "/admin/accounts/ada/state", { operation_id, state });
  refused(await change("s1", "closed"), 403, "not_permitted");
  assert.equal((await change("s2", "suspended")).status, 200);
});

operatorTest("support ends the key of a front end, and never gets its secret", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  const actsFor = { name: "webui", header: "x-person", plan: "test", new_accounts_per_day: 5 };
  const made = await operator.post("/admin/accounts/ada/keys", { operation_id: "k1", acts_for: actsFor });
  assert.equal(made.status, 201);
  const send = await senderFor(operator, "support");
  const path = `/admin/keys/${String(made.body.id)}`;
  refused(await send("POST", `${path}/rotate`, { operation_id: "r1" }), 403, "not_permitted");
  refused(await send("PATCH", path, { operation_id: "c1", requests_per_minute: 9 }), 403, "not_permitted");
  assert.equal((await send("DELETE", path)).status, 200);
});

operatorTest("support gives at most so many credits a day, with all its keys together", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  const keys = [
    await senderFor(operator, "support", "one"),
    await senderFor(operator, "support", "two"),
  ] as const;
  let ids = 0;
  const give = (credits: number, { who = 0 as 0 | 1, id = `gift-${++ids}` } = {}) =>
    keys[who]("POST", "/admin/accounts/ada/adjustments", { operation_id: id, credits, reason: "sorry" });
  assert.equal((await give(30, { id: "first" })).status, 200);
  assert.equal((await give(30, { id: "first" })).body.again, true);
  const message = refused(await give(21, { who: 1 }), 403, "allowance_exceeded");
  assert.match(message, /Support may give 50 credits a day .* Nothing has changed/);
  refused(await give(5, { id: "first" }), 409, "operation_differs");
  assert.equal((await give(20, { who: 1 })).status, 200, "neither a repetition nor a refusal counts");
  refused(await give(1), 403, "allowance_exceeded");
  const own = { operation_id: "more", credits: 500, reason: "by the owner" };
  assert.equal((await operator.post("/admin/accounts/ada/adjustments", own)).status, 200);
});

operatorTest("many gifts of support at once never exceed its allowance", async (operator) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  const send = await senderFor(operator, "support");
  const gifts = Array.from({ length: 20 }, async (_, n) => {
    const body = { operation_id: `g${n}`, credits: 7, reason: "sorry" };
    return (await send("POST", "/admin/accounts/ada/adjustments", body)).status;
  });
  const statuses = await Promise.all(gifts);
  assert.equal(statuses.filter((status) => status === 200).length, 7);
});

operatorTest("an operator key has no session", async (operator) => {
  const headers = await keyFor(operator, "viewer");
  const answer = await operator.ask("GET", "/admin/sessions", { headers });
  assert.equal(refused(answer, 401, "invalid_session"), "This request has no session.");
});

operatorTest("a key is made once, names its maker, and ends at once", async (operator, { store }) => {
  const asked = { operation_id: "k1", name: "billing", role: "operator" };
  const made = await operator.post("/admin/operator-keys", asked);
  assert.equal(made.status, 201);
  assert.match(String(made.body.key), /^iko_\w{40}$/);
  const again = await operator.post("/admin/operator-keys", asked);
  assert.deepEqual([again.status, again.body.key, again.body.id], [200, null, made.body.id]);
  refused(await operator.post("/admin/operator-keys", { ...asked, role: "owner" }), 409, "operation_differs");
  const headers = { authorization: `Bearer ${made.body.key}` };
  assert.equal((await operator.ask("GET", "/admin/accounts", { headers })).status, 200);
  const request = { url: operator.url, method: "POST", path: "/admin/accounts", headers };
  const held = await holdRequest(
    { ...request, body: { id: "late", plan: "test" } },
    store.operatorKeys,
    "find",
  );
  assert.equal((await operator.delete(`/admin/operator-keys/${made.body.id}`)).status, 200);
  assert.equal((await held.send()).status, 401, "its body came later");
  const ended = await operator.ask("GET", "/admin/accounts", { headers });
  refused(ended, 401, "invalid_operator_token");
  assert.equal((await operator.delete(`/admin/operator-keys/${made.body.id}`)).status, 200, "again");
  refused(await operator.delete("/admin/operator-keys/opkey_0000000000000000"), 404, "key_not_found");
});

operatorTest("a maker has at most so many keys that work, also of those made at once", async (operator) => {
  const { most } = limits.operatorKeys;
  const make = (n: number) =>
    operator.post("/admin/operator-keys", { operation_id: `k${n}`, name: "x", role: "viewer" });
  const all = async () => listOf((await operator.get("/admin/operator-keys?limit=500")).body.data);
  for (let n = 0; n < most - 2; n += 1) assert.equal((await make(n)).status, 201);
  await Promise.all(Array.from({ length: 20 }, (_, n) => make(100 + n)));
  const working = async () => (await all()).filter((key) => key.ended_at === null).length;
  assert.ok((await working()) <= most, `${await working()} keys work`);
  for (let n = 200; (await working()) < most; n += 1) assert.equal((await make(n)).status, 201);
  const rows = (await all()).length;
  assert.match(refused(await make(300), 409, "too_many_keys"), /50 operator keys .* End one of them first/);
  assert.equal((await all()).length, rows, "it was not made and ended");
  const again = await make(0);
  assert.equal(again.status, 200, "a repetition");
  await operator.delete(`/admin/operator-keys/${again.body.id}`);
  assert.equal((await make(301)).status, 201);
});

operatorTest("a key reads so many times a second, and the token has no such limit", async (operator) => {
  const headers = await keyFor(operator, "operator");
  const { most } = limits.keyReads;
  const answers: OperatorAnswer[] = [];
  using _ = stopTime();
  // Some at a time: an address has fewer connections.
  while (answers.length <= most) {
    const read = () => operator.ask("GET", "/admin/plans", { headers });
    answers.push(...(await Promise.all(Array.from({ length: 20 }, read))));
  }
  const [late] = answers.filter(({ status }) => status !== 200);
  assert.match(
    refused(late ?? assert.fail("all are answered"), 429, "rate_limit_exceeded"),
    /200 reads within 2 s/,
  );
  assert.equal(late?.headers.get("retry-after"), "1");
  assert.ok(answers.filter(({ status }) => status === 200).length >= most);
  assert.equal((await operator.get("/admin/plans")).status, 200);
  const opened = await operator.ask("POST", "/admin/accounts", {
    headers,
    body: JSON.stringify({ id: "ada", plan: "test" }),
  });
  assert.equal(opened.status, 201, "changes have no such limit");
});

operatorTest("no key outlives its expiry, makes keys, or makes sign-in links", async (operator, service) => {
  const headers = await keyFor(operator, "owner");
  const body = JSON.stringify({ operation_id: "k2", name: "other", role: "viewer" });
  const made = await operator.ask("POST", "/admin/operator-keys", { headers, body });
  assert.match(refused(made, 403, "not_permitted"), /makes no operator keys/);
  refused(await operator.ask("POST", "/admin/session/codes", { headers }), 403, "token_required");
  const times = service.store.times();
  service.store.times = () => ({ ...times, atMs: times.atMs + 91 * day });
  refused(await operator.ask("GET", "/admin/accounts", { headers }), 401, "invalid_operator_token");
  const wrong = { ...headers, authorization: `${headers.authorization}x` };
  refused(await operator.ask("GET", "/admin/accounts", { headers: wrong }), 401, "invalid_operator_token");
});

operatorTest("a key may do no more than its maker, and others' keys are not shown", async (operator) => {
  const headers = await keyFor(operator, "support");
  const { body } = await operator.ask("GET", "/admin/operator-keys", { headers });
  assert.deepEqual(body, { data: [], next: null });
  const late = new Date(Date.now() + 5000 * day).toISOString();
  const asked = { operation_id: "k3", name: "long", role: "viewer", expires_at: late };
  refused(await operator.post("/admin/operator-keys", asked), 400, "invalid_value");
});

operatorTest("the journal names the key that did it", async (operator) => {
  const send = await senderFor(operator, "operator", "billing");
  assert.equal((await send("POST", "/admin/accounts", { id: "bob", plan: "test" })).status, 201);
  const [key] = await operator.all("/admin/operator-keys", 10);
  const [entry] = await operator.all("/admin/accounts/bob/journal", 10);
  assert.equal(entry?.by, `operator_key:${key?.id}`);
});
