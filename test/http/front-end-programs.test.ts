/** Open WebUI, LibreChat and Nextcloud: who pays, and how operators see people. */
import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { type TestContext, test } from "node:test";
import type { ActsFor } from "../../src/ledger/rows.ts";
import { pageRowsMax } from "../../src/store/store.ts";
import { runCli } from "../fixtures/cli-host.ts";
import {
  libreChat,
  nextcloud,
  openWebUi,
  type ProgramRequest,
  type ProgramUser,
} from "../fixtures/front-end-programs.ts";
import { frontEndOf, planOf } from "../fixtures/ledger-rows.ts";
import { type Fields, listOf, startOperator } from "../fixtures/operator.ts";
import { errorOf, startService, type TestService } from "../fixtures/service.ts";
import { minute } from "../fixtures/times.ts";

const opens = { plan: "student", newAccountsPerDay: 99 };
const webui = frontEndOf("webui", "x-openwebui-user-id", {
  ...opens,
  nameHeader: "x-openwebui-user-name",
  emailHeader: "x-openwebui-user-email",
});
const librechat = frontEndOf("librechat", "x-librechat-user-id", {
  ...opens,
  nameHeader: "x-librechat-user-name",
  emailHeader: "x-librechat-user-email",
});

const ada = { id: "7f4f0f0e-3c53-4c6e-8f44-0f9f3a8f2f10", name: "Ada", email: "ada@uni.example" };
const bob = { id: "b8b6c7de-95a1-4f43-a7c0-4c1a6f3b7a11", name: "Bob", email: "bob@uni.example" };

function start(actsFor: ActsFor | null) {
  return startService({ otherPlans: [planOf("student", 100, 0)], key: { actsFor } });
}

async function send(service: TestService, { headers, body }: ProgramRequest): Promise<string> {
  const answer = await service.chat(body, { headers });
  if (!answer.ok) return (await errorOf(answer)).code;
  await answer.text();
  return "ok";
}

/** The people of a front end, by what it calls them. */
async function shown(service: TestService): Promise<Record<string, (string | null)[]>> {
  const people = await service.store.listPeople({ limit: pageRowsMax });
  return Object.fromEntries(people.map(({ sub, name, email }) => [sub, [name, email]]));
}

/** Makes the front ends of a service believe that more time has passed. */
function laterBy(t: TestContext, { store }: TestService, ms: number): void {
  const times = store.times.bind(store);
  t.mock.method(store, "times", () => ({ ...times(), nowMs: times().nowMs + ms }));
}

test("Open WebUI: each person pays, and is shown with name and address", async () => {
  await using service = await start(webui);
  const people: ProgramUser[] = [ada, bob, { ...bob, id: "c", name: " Zoë Łuk, 100% (dr) " }];
  for (const user of people) assert.equal(await send(service, openWebUi(service.key, user)), "ok");
  assert.deepEqual(await shown(service), {
    [ada.id]: ["Ada", "ada@uni.example"],
    [bob.id]: ["Bob", "bob@uni.example"],
    c: ["Zoë Łuk, 100% (dr)", "bob@uni.example"],
  });
  const receipts = await service.store.usage({ key: "key1", limit: pageRowsMax });
  assert.equal(new Set(receipts.map(({ account }) => account)).size, 3, "one address, but another id");
  const { headers } = openWebUi(service.key, ada);
  assert.equal((await service.request("GET", "/v1/models", { headers })).status, 200);
});

test("operators see the id first, and that name and address are not confirmed", async () => {
  await using service = await start(webui);
  await using operator = await startOperator(service);
  const mallory = { ...ada, name: "Bob (b8b6c7de)" };
  assert.equal(await send(service, openWebUi(service.key, mallory)), "ok");
  const [person = {}]: Fields[] = listOf((await operator.get("/admin/people")).body.data);
  assert.partialDeepStrictEqual(person, {
    issuer: "front_end:webui",
    sub: ada.id,
    name: "Bob (b8b6c7de)",
    email: "ada@uni.example",
    email_verified: false,
  });
  const reader = { operation_id: "reader", name: "reader", role: "viewer" };
  const made = await operator.post("/admin/operator-keys", reader);
  const env = { INKWELL_SERVER: operator.url, INKWELL_OPERATOR_KEY: String(made.body.key) };
  const { stdout, stderr } = await runCli(["person", "list"], { cwd: tmpdir(), env });
  assert.ok(stdout.includes(` ${ada.id} (Bob (b8b6c7de))  ada@uni.example (unconfirmed)  `), stdout + stderr);
});

test("a name or an address leads to nobody's account", async () => {
  await using service = await start(webui);
  await using operator = await startOperator(service);
  const account = { id: "ada", plan: "student", email: ada.email, owner: ada.name };
  assert.equal((await operator.post("/admin/accounts", account)).status, 201);
  assert.equal(await send(service, openWebUi(service.key, ada)), "ok");
  const holder = await service.store.findHolder("front_end:webui", ada.id);
  assert.match(String(holder?.account.id), /^p-/);
  assert.deepEqual(await service.store.peopleWithEmail("front_end:webui", ada.email), []);
});

test("a request whose name is known writes no person, and a new name is written", async (t) => {
  await using service = await start(webui);
  const written = t.mock.method(service.store, "setPersonFacts");
  const request = (change: Partial<ProgramUser>) => openWebUi(service.key, { ...ada, ...change });
  for (let n = 0; n < 3; n += 1) await send(service, request({}));
  assert.equal(written.mock.callCount(), 0, "the person is added with the name");
  await send(service, request({ name: "Ada King" }));
  assert.equal(written.mock.callCount(), 0, "within a minute of the name before");
  laterBy(t, service, 2 * minute);
  const { headers, body } = request({ name: "Ada King" });
  for (const without of ["X-OpenWebUI-User-Name", "X-OpenWebUI-User-Email"]) {
    const { [without]: _, ...others } = headers;
    assert.equal(await send(service, { headers: { ...others, "X-OpenWebUI-User-Id": ada.id }, body }), "ok");
  }
  await send(service, request({ name: "Ada King" }));
  assert.equal(written.mock.callCount(), 1, "what a request does not say stays");
  assert.deepEqual(await shown(service), { [ada.id]: ["Ada King", ada.email] });
  assert.equal((await service.store.listPeople({ limit: 1 }))[0]?.emailVerified, false);
});

test("two requests with a new name at once write it once, and both are answered", async (t) => {
  await using service = await start(webui);
  await send(service, openWebUi(service.key, ada));
  laterBy(t, service, 2 * minute);
  const request = openWebUi(service.key, { ...ada, name: "Ada King" });
  const codes = await Promise.all([1, 2, 3].map(() => send(service, request)));
  assert.deepEqual(codes, ["ok", "ok", "ok"]);
  assert.deepEqual(await shown(service), { [ada.id]: ["Ada King", ada.email] });
});

test("a name that could command a terminal, mislead or fill the database counts as absent", async () => {
  await using service = await start(webui);
  const names = ["\u001b[2Jx", "a\nb", "\u202eadA", "x".repeat(201), "\u200b", " ", "a\u0000b"];
  for (const [n, name] of names.entries()) {
    const user = { id: `u${n}`, name, email: n % 2 === 0 ? "no address" : `${"x".repeat(250)}@uni.example` };
    assert.equal(await send(service, openWebUi(service.key, user)), "ok", name);
  }
  const none = names.map((_, n) => [`u${n}`, [null, null]]);
  assert.deepEqual(await shown(service), Object.fromEntries(none));
});

test("a value in an unknown form is shown as it came, unless it has control characters", async () => {
  await using service = await start(webui);
  const cases = { "%FF%FE": "%FF%FE", "100%": "100%", "b64:/w==": "b64:/w==", "b64:AAEC": null, "%0A": null };
  const { headers, body } = openWebUi(service.key, ada);
  for (const [n, name] of Object.keys(cases).entries()) {
    const sent = { ...headers, "X-OpenWebUI-User-Id": `u${n}`, "X-OpenWebUI-User-Name": name };
    assert.equal(await send(service, { headers: sent, body }), "ok");
  }
  const wanted = Object.values(cases).map((name, n) => [`u${n}`, [name, ada.email]]);
  assert.deepEqual(await shown(service), Object.fromEntries(wanted));
});

test("without headers of their own, names and addresses are kept nowhere", async () => {
  await using service = await start({ ...webui, nameHeader: null, emailHeader: null });
  await send(service, openWebUi(service.key, ada));
  assert.deepEqual(await shown(service), { [ada.id]: [null, null] });
});

test("an erase removes name and address, which are in no fact, change or log line", async () => {
  await using service = await start(webui);
  await using operator = await startOperator(service);
  const user = { ...ada, name: "Augusta", email: "augusta@uni.example" };
  await send(service, openWebUi(service.key, user));
  const [person] = await service.store.listPeople({ limit: 1 });
  const facts = await service.store.journal(String(person?.account), { limit: pageRowsMax });
  const changes = await service.store.changes({ limit: pageRowsMax });
  const receipts = await service.store.usage({ limit: pageRowsMax });
  assert.ok(facts.length > 0 && changes.length > 0 && receipts.length > 0);
  assert.doesNotMatch(JSON.stringify([facts, changes, receipts, service.log]), /augusta/i);
  const exported = await operator.get(`/admin/people/${person?.id}/data`);
  assert.match(exported.text, /"name":"Augusta",.*"email":"augusta@uni.example"/);
  assert.equal((await operator.delete(`/admin/people/${person?.id}/data`)).status, 200);
  assert.deepEqual(await shown(service), { [`erased:${person?.id}`]: [null, null] });
});

test("LibreChat: each person pays, and all letters of a name arrive", async () => {
  await using service = await start(librechat);
  const id = (n: number) => `66b2a1f0c9e77c001f3d9a0${n}`;
  const people = ["José", "Đorđe Marić", "Ada", "b64:lack"].map((name, n) => ({ ...ada, id: id(n), name }));
  for (const user of people) assert.equal(await send(service, libreChat(service.key, user)), "ok");
  const wanted = people.map((user) => [user.id, [user.name, user.email]]);
  assert.deepEqual(await shown(service), Object.fromEntries(wanted));
  const receipts = await service.store.usage({ key: "key1", limit: pageRowsMax });
  assert.equal(new Set(receipts.map(({ account }) => account)).size, people.length);
});

test("LibreChat without a user is refused, and old versions are one person of their own", async () => {
  await using service = await start(librechat);
  assert.equal(await send(service, libreChat(service.key, "current")), "missing_person");
  assert.equal(await send(service, libreChat(service.key, "old")), "ok");
  assert.deepEqual(Object.keys(await shown(service)), ["{{librechat_user_id}}"]);
});

test("Nextcloud names nobody: a front end refuses it, and keys of one or of all people work", async () => {
  await using service = await start(webui);
  assert.equal(await send(service, nextcloud(service.key)), "missing_person");
  await using operator = await startOperator(service);
  for (const id of ["nextcloud", "ada"]) {
    assert.equal((await operator.post("/admin/accounts", { id, plan: "student" })).status, 201);
    const { body } = await operator.post(`/admin/accounts/${id}/keys`, { operation_id: id });
    assert.equal(await send(service, nextcloud(String(body.key))), "ok");
    const receipts = await service.store.usage({ account: id, limit: pageRowsMax });
    assert.equal(receipts.length, 1);
  }
  assert.deepEqual(await shown(service), {});
});
