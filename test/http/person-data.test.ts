/** Exporting and erasing the data of a person over HTTP, and signing in after that. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { frontEndOf } from "../fixtures/ledger-rows.ts";
import { listOf, refused } from "../fixtures/operator.ts";
import { type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";

const rules = { accounts: [{ kind: "group", value: "all", plan: "test" }] } as const;
const claims = { groups: ["all"], name: "Ada <b>L</b>", email: "ada@x.example", email_verified: true };

/** Signs somebody in to the portal. Returns the cookie and the person. */
async function signIn(place: SignInPlaces, sub: string, parts: object = {}) {
  place.issuer.signsIn({ ...claims, ...parts, sub });
  const cookie = await place.signIn("portal");
  const { data } = (await place.operator.get("/admin/people")).body;
  const person = listOf(data).find((each) => each.sub === sub);
  return { cookie, person, id: String(person?.id), account: String(person?.account) };
}

/** The rows of a list in the document. */
const namesOf = (rows: unknown, name: string) => listOf(rows).map((row) => row[name]);

test("an export has everything about a person, and no secret", async () => {
  await using place = await startSignIn({
    ...rules,
    operators: [{ kind: "group", value: "it", role: "owner" }],
  });
  const { operator, service } = place;
  const ada = await signIn(place, "ada", { groups: ["all", "it"] });
  const ask = (method: string, path: string, body?: object) =>
    place.ask("portal", method, path, body, { cookie: ada.cookie });
  const made = await ask("POST", "/api/keys", { operation_id: "k1", name: "laptop" });
  const headers = { authorization: `Bearer ${made.body.key}` };
  assert.equal((await service.chat({}, { headers })).status, 200);
  const console = await place.signIn("operator");
  const asOperator = (method: string, path: string, body: object) =>
    place.ask("operator", method, path, body, { cookie: console });
  const other = { id: "other", plan: "test", owner: "Somebody else" };
  assert.equal((await asOperator("POST", "/admin/accounts", other)).status, 201);
  const bot = { operation_id: "o1", name: "bot", role: "viewer" };
  assert.equal((await asOperator("POST", "/admin/operator-keys", bot)).status, 201);

  const answer = await operator.get(`/admin/people/${ada.id}/data`);
  assert.equal(answer.headers.get("content-type"), "application/json; charset=utf-8");
  const { body, text } = answer;
  assert.partialDeepStrictEqual(body, {
    person: { id: ada.id, sub: "ada", name: "Ada <b>L</b>", email: "ada@x.example", role: "owner" },
    account: { id: ada.account, owner: "Ada <b>L</b>", email: "ada@x.example" },
    account_shared: false,
  });
  assert.deepEqual(namesOf(body.sessions, "kind").toSorted(), ["operator", "portal"]);
  assert.deepEqual(namesOf(body.operator_keys, "name"), ["bot"]);
  assert.deepEqual(namesOf(body.keys, "name"), ["laptop"]);
  assert.deepEqual(namesOf(body.receipts, "account"), [ada.account]);
  const journal = await operator.all(`/admin/accounts/${ada.account}/journal`, 500);
  // Names and sentences can be about others.
  assert.deepEqual(
    body.journal,
    journal.map(({ account, by_name, subject_name, sentence, ...entry }) => entry),
  );
  assert.deepEqual(namesOf(body.changes_about, "kind").toSorted(), ["contact", "person", "person"]);
  assert.deepEqual(namesOf(body.changes_by, "kind").toSorted(), [
    "contact",
    "key",
    "open",
    "operator_key",
    "sign_in",
    "sign_in",
  ]);
  assert.ok(!text.includes("Somebody else"), "nothing about others");
  const { key } = made.body;
  assert.ok(!text.includes(String(key)) && !/[0-9a-f]{64}/.test(text), "no secret and no hash");
});

test("an export leaves out what other people of the account may own", async () => {
  await using place = await startSignIn(rules);
  const { operator } = place;
  const ada = await signIn(place, "ada");
  place.people.configure({
    ...place.settings,
    accounts: [],
    operators: [{ kind: "group", value: "all", role: "viewer" }],
  });
  place.issuer.signsIn({ ...claims, sub: "bob", email: "bob@x.example" });
  await place.signIn("operator");
  const bob = listOf((await operator.get("/admin/people")).body.data).find(({ sub }) => sub === "bob");
  assert.equal(
    (await operator.post(`/admin/people/${bob?.id}/account`, { account: ada.account })).status,
    200,
  );
  const { body } = await operator.get(`/admin/people/${bob?.id}/data`);
  assert.partialDeepStrictEqual(body, { account_shared: true, account: { owner: null, email: null } });
  assert.deepEqual([body.journal, body.receipts], [[], []]);
  assert.deepEqual(namesOf(body.changes_about, "kind"), ["person", "person"]);
});

test("an erased person is out at once, and a stranger at the next sign-in", async () => {
  await using place = await startSignIn(rules);
  const { operator, service } = place;
  const ada = await signIn(place, "ada");
  const erase = () => operator.delete(`/admin/people/${ada.id}/data`);
  const first = await erase();
  assert.partialDeepStrictEqual(first.body, {
    sub: `erased:${ada.id}`,
    name: null,
    email: null,
    role: null,
  });
  assert.notEqual(first.body.erased_at, null);
  const session = await place.ask("portal", "GET", "/api/account", undefined, { cookie: ada.cookie });
  refused(session, 401, "invalid_session");
  assert.deepEqual((await erase()).body, first.body, "a repetition");
  const path = `/admin/people/${ada.id}`;
  assert.match(
    refused(await operator.post(`${path}/state`, { state: "active" }), 409, "person_erased"),
    /is final/,
  );
  refused(await operator.post(`${path}/account`, { account: ada.account }), 409, "person_erased");
  const exported = await operator.get(`${path}/data`);
  assert.ok(!/Ada|ada@x/.test(exported.text), exported.text);
  assert.partialDeepStrictEqual(exported.body, { account: { id: ada.account, owner: null } });

  place.issuer.signsIn({ ...claims, sub: "ada" });
  await place.signIn("portal");
  const people = listOf((await operator.get("/admin/people")).body.data);
  const again = people.find(({ sub }) => sub === "ada");
  assert.ok(again !== undefined && again.id !== ada.id && again.account !== ada.account);
  const file = { path: service.databaseFile, busyMs: 5000 };
  assert.deepEqual(auditFile({ file, nowMs: Date.now() }).broken, []);
  for (const method of ["get", "delete"] as const)
    refused(await operator[method]("/admin/people/nobody/data"), 404, "person_not_found");
});

test("an erase during a sign-in leaves no name, whenever it comes", async () => {
  await using place = await startSignIn({
    ...rules,
    operators: [{ kind: "group", value: "all", role: "owner" }],
  });
  const { store } = place.service;
  const eraseAll = async () => {
    for (const { id } of await store.listPeople({ isPresent: true, limit: 100 }))
      assert.equal((await place.operator.delete(`/admin/people/${id}/data`)).status, 200);
  };
  for (const [side, method] of [
    ["operator", "setPersonFacts"],
    ["portal", "setPersonFacts"],
    ["portal", "putAccount"],
    ["portal", "linkPerson"],
  ] as const) {
    const { [method]: before } = store;
    const erasesFirst = async (...given: unknown[]) => {
      await eraseAll();
      return await Reflect.apply(before, store, given);
    };
    Object.assign(store, { [method]: erasesFirst });
    place.issuer.signsIn({ ...claims, sub: "ada" });
    refused(await place.attempt(side), 403, "not_admitted");
    Object.assign(store, { [method]: before });
  }
  assert.deepEqual(place.reasons(), Array(4).fill("the data of the person was erased meanwhile"));
  const people = await store.listPeople({ limit: 100 });
  assert.equal(people.length, 4, "a stranger each time");
  assert.ok(
    people.every(({ name, email, sub, id }) => name === null && email === null && sub === `erased:${id}`),
  );
  const accounts = listOf((await place.operator.get("/admin/accounts")).body.data);
  assert.equal(accounts.filter(({ id, owner }) => String(id).startsWith("p-") && owner === null).length, 2);
  assert.ok(!/Ada|ada@x/.test((await place.operator.get("/admin/log")).text));
});

test("a front end meets an erased person as a stranger, and its sums keep the old account", async () => {
  const header = "x-openwebui-user-id";
  const frontEnd = frontEndOf("webui", header, { plan: "test", newAccountsPerDay: 9 });
  await using place = await startSignIn(rules, { service: { key: { actsFor: frontEnd } } });
  const { service, operator } = place;
  const chatAs = async (person: string) => {
    const answer = await service.chat({}, { headers: { [header]: person } });
    await answer.text();
    return answer.status;
  };
  assert.equal(await chatAs("ada@x.example"), 200);
  const [ada] = listOf((await operator.get("/admin/people")).body.data);
  const used = async () => listOf((await operator.get("/admin/usage?key=key1")).body.data);
  const before = await used();
  const { body, text } = await operator.delete(`/admin/people/${ada?.id}/data`);
  assert.equal(body.issuer, "front_end:webui");
  assert.ok(!text.includes("ada@x.example"));
  assert.deepEqual(await used(), before);
  assert.equal(await chatAs(String(body.sub)), 400, "nobody reaches the account by its pseudonym");
  assert.equal(await chatAs("ada@x.example"), 200);
  assert.deepEqual(new Set((await used()).map(({ account }) => account)).size, 2);
});
