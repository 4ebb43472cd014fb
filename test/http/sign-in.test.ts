/** Signing in with OpenID Connect, at a real issuer. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { People } from "../../src/sign-in/people.ts";
import { noContact } from "../../src/store/contacts.ts";
import { newPerson } from "../../src/store/people.ts";
import { suspensionChange } from "../../src/store/person-changes.ts";
import { startHostileIssuer } from "../fixtures/hostile-issuer.ts";
import type { TestClaims } from "../fixtures/issuer.ts";
import { planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, refused } from "../fixtures/operator.ts";
import { type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";

const rules = {
  operators: [
    { kind: "group", value: "it-staff", role: "support" },
    { kind: "email", value: "ada@example.edu", role: "owner" },
  ],
  accounts: [
    { kind: "group", value: "students", plan: "test" },
    { kind: "domain", value: "example.edu", plan: "guest" },
  ],
} as const;

const ada = { sub: "ada", name: "Ada Lovelace", email: "Ada@example.edu", email_verified: true };

test("an operator signs in, and has the highest role that matches", async () => {
  await using place = await startSignIn(rules);
  place.issuer.signsIn({ ...ada, groups: ["it-staff"] });
  const signedIn = await place.attempt("operator");
  const cookie = (signedIn.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  const { body } = await place.ask("operator", "GET", "/admin/session", undefined, { cookie });
  assert.equal(body.role, "owner");
  assert.deepEqual(signedIn.body, body, "the answer of the sign-in shows the same session");
  assert.partialDeepStrictEqual(body.person, { name: "Ada Lovelace", email: "Ada@example.edu" });
  const { id } = fieldsOf(body.person);
  const line = place.service.log.find(({ msg }) => msg === "a person has signed in");
  assert.partialDeepStrictEqual(line, { by: "issuer", person: id, role: "owner", client: "127.0.0.1" });
});

test("a time of the sign-in that cannot be is not believed", async () => {
  await using hostile = await startHostileIssuer();
  const operators = [{ kind: "group", value: "all", role: "viewer" }] as const;
  await using place = await startSignIn({ operators, issuer: hostile.url });
  const soon = Math.floor(Date.now() / 1000) + 60;
  for (const time of [soon, soon + 3600, 1e300]) {
    hostile.forge = (token) => ({ ...token, payload: { ...token.payload, auth_time: time } });
    const answer = await place.finish("operator", hostile.answer(await place.begin("operator")));
    assert.equal(answer.status, 200, answer.text);
  }
  const { store } = place.service;
  const [person] = await store.listPeople({ limit: 1 });
  const times = (await store.sessionsOf(person?.id ?? "")).map(({ authenticatedMs }) => authenticatedMs);
  assert.deepEqual(times.toSorted(), [soon * 1000, null, null].toSorted());
});

test("the portal shows and logs people as people", async () => {
  await using place = await startSignIn(rules, { service: { otherPlans: [planOf("guest", 5, 0)] } });
  place.issuer.signsIn({ ...ada, groups: ["students"] });
  const { body, headers } = await place.attempt("portal");
  assert.partialDeepStrictEqual(body, { person: { name: "Ada Lovelace" }, role: null });
  const [cookie = ""] = (headers.get("set-cookie") ?? "").split(";");
  assert.equal((await place.ask("portal", "DELETE", "/api/session", undefined, { cookie })).status, 204);
  const said = place.service.log.filter(({ msg }) => String(msg).endsWith("has signed out"));
  assert.deepEqual(
    said.map(({ msg }) => msg),
    ["a person has signed out"],
  );
});

test("the first rule that matches gives a person an account, once, with a generated name", async () => {
  await using place = await startSignIn(rules, { service: { otherPlans: [planOf("guest", 5, 0)] } });
  place.issuer.signsIn({ ...ada, groups: ["students"] });
  const cookie = await place.signIn("portal");
  const { body } = await place.ask("portal", "GET", "/api/account", undefined, { cookie });
  assert.match(String(body.account), /^p-[0-9a-f]{16}$/);
  assert.partialDeepStrictEqual(body, { plan: { id: "test" }, key: null, rights: { keys: "account" } });
  const again = await place.signIn("portal");
  const second = await place.ask("portal", "GET", "/api/account", undefined, { cookie: again });
  assert.equal(second.body.account, body.account);
  const account = String(body.account);
  const { store } = place.service;
  assert.deepEqual(await store.contact(account), {
    ...noContact,
    owner: "Ada Lovelace",
    email: "Ada@example.edu",
  });
  const [opening] = await store.journal(account, { limit: 1 });
  assert.equal(opening?.by, "service:sign_in");
});

test("a sign-in that broke off after the account was opened is completed by the next one", async () => {
  await using place = await startSignIn(rules, { service: { otherPlans: [planOf("guest", 5, 0)] } });
  const { store } = place.service;
  const { linkPerson } = store;
  store.linkPerson = async () => {
    store.linkPerson = linkPerson;
    throw new Error("the service dies here");
  };
  place.issuer.signsIn({ ...ada, groups: [] });
  assert.equal((await place.attempt("portal")).status, 500);
  const cookie = await place.signIn("portal");
  const { body } = await place.ask("portal", "GET", "/api/account", undefined, { cookie });
  const all = await store.accounts({ limit: 10 });
  assert.deepEqual(
    all.map(({ id }) => id),
    [body.account, "test"],
  );
  const [person] = await store.listPeople({ limit: 2 });
  assert.partialDeepStrictEqual(person, { account: body.account, accountBy: "rule" });
});

test("nobody whom no rule matches gets in, and no row is kept of them", async () => {
  await using place = await startSignIn({ ...rules, contact: "the help desk, help@example.edu" });
  place.issuer.signsIn({ sub: "eve", email: "eve@elsewhere.example", email_verified: true, groups: [] });
  for (const side of ["portal", "operator"] as const) {
    const message = refused(await place.attempt(side), 403, "not_admitted");
    assert.match(message, /Ask the help desk, help@example\.edu\.$/);
  }
  assert.deepEqual(place.reasons(), ["no rule matches", "no rule matches"]);
  assert.deepEqual(await place.service.store.listPeople({ limit: 1 }), []);
});

test("groups that the issuer leaves out are no empty groups", async () => {
  await using place = await startSignIn(rules, { service: { otherPlans: [planOf("guest", 5, 0)] } });
  const bo = { sub: "bo", email: "bo@example.edu", email_verified: true };
  place.issuer.signsIn({ ...bo, groups: ["it-staff", "students"] });
  await place.signIn("operator");
  await place.signIn("portal");
  place.issuer.signsIn(bo);
  const cookie = await place.signIn("operator");
  const { body } = await place.ask("operator", "GET", "/admin/session", undefined, { cookie });
  assert.equal(body.role, "support", "the role stays");
  const portal = await place.signIn("portal");
  const shown = await place.ask("portal", "GET", "/api/account", undefined, { cookie: portal });
  assert.partialDeepStrictEqual(shown.body, { plan: { id: "test" }, state: "active" });
  assert.ok(place.service.log.some(({ msg }) => String(msg).includes("rules about groups are skipped")));
  // With the groups, the person has lost both.
  place.issuer.signsIn({ ...bo, groups: [] });
  refused(await place.attempt("operator"), 403, "not_admitted");
  refused(
    await place.ask("operator", "GET", "/admin/sessions", undefined, { cookie }),
    401,
    "invalid_session",
  );
  assert.equal(
    (await place.ask("portal", "GET", "/api/account", undefined, { cookie: portal })).body.state,
    "active",
  );
});

test("groups are read from the userinfo endpoint if the token has none", async () => {
  await using place = await startSignIn(rules, {
    issuer: { configuration: { conformIdTokenClaims: true } },
  });
  place.issuer.signsIn({ ...ada, groups: ["students"] });
  await place.signIn("portal");
  assert.ok(place.issuer.requests.includes("GET /me"));
  const [person] = await place.service.store.listPeople({ limit: 1 });
  assert.partialDeepStrictEqual(person, { email: "Ada@example.edu", emailVerified: true });
});

test("a person who no longer matches is suspended, and resumed when they match again", async () => {
  await using place = await startSignIn({ accounts: [{ kind: "group", value: "all", plan: "test" }] });
  const { store } = place.service;
  const enter = async (groups: string[]) => {
    place.issuer.signsIn({ sub: "ada", groups });
    const cookie = await place.signIn("portal");
    return (await place.ask("portal", "GET", "/api/account", undefined, { cookie })).body;
  };
  const { account } = await enter(["all"]);
  assert.equal((await enter([])).state, "suspended");
  assert.equal((await enter([])).state, "suspended");
  assert.equal((await enter(["all"])).state, "active");
  assert.equal((await enter([])).state, "suspended");
  // An operator suspends the account as well.
  const suspension = { kind: "state", account: String(account), op: "x", to: { kind: "suspend" } } as const;
  await place.service.ledger.apply({ ...suspension, by: "operator" });
  assert.equal((await enter(["all"])).state, "suspended", "only an operator ends it");
  // A rule had read the account before that.
  await place.service.ledger.apply({ ...suspension, op: "y", by: "service:sign_in" });
  assert.equal((await enter(["all"])).state, "suspended", "the operator's suspension is still there");
  const entries = await store.journal(String(account), { kinds: ["suspend", "resume"], limit: 10 });
  assert.deepEqual(
    entries.map(({ kind, by }) => `${kind} ${by}`),
    [
      "suspend service:sign_in",
      "resume service:sign_in",
      "suspend service:sign_in",
      "suspend operator",
      "suspend service:sign_in",
    ],
  );
});

test("a rule changes only plans that a rule has set", async () => {
  const options = { service: { otherPlans: [planOf("big", 5000, 200), planOf("daily", 7, 0)] } };
  await using place = await startSignIn(
    {
      accounts: [
        { kind: "group", value: "big", plan: "big" },
        { kind: "group", value: "all", plan: "test" },
      ],
    },
    options,
  );
  const enter = async (groups: string[]) => {
    place.issuer.signsIn({ sub: "ada", groups });
    const cookie = await place.signIn("portal");
    return (await place.ask("portal", "GET", "/api/account", undefined, { cookie })).body;
  };
  const { account } = await enter(["all"]);
  assert.partialDeepStrictEqual(await enter(["big"]), { plan: { id: "big" } });
  assert.partialDeepStrictEqual(await enter(["all"]), { plan: { id: "test" } });
  const change = {
    kind: "plan",
    account: String(account),
    op: "p",
    plan: "daily",
    at: "new_window",
  } as const;
  assert.equal((await place.service.ledger.apply({ ...change, by: "operator" })).kind, "changed");
  assert.partialDeepStrictEqual(await enter(["big"]), { plan: { id: "daily" } });
});

test("an account is linked by a confirmed address, if nobody else has either", async () => {
  await using place = await startSignIn({ accounts: [{ kind: "group", value: "all", plan: "test" }] });
  const { store } = place.service;
  const open = async (id: string, email: string) => {
    const draft = { id, plan: "test", contact: { email } };
    await store.putAccount(draft, { by: "operator", dryRun: false });
  };
  await open("carl", "carl@x.example");
  await open("twin-1", "twin@x.example");
  await open("twin-2", "twin@x.example");
  const accountOf = async (claims: TestClaims) => {
    place.issuer.signsIn(claims);
    const cookie = await place.signIn("portal");
    return (await place.ask("portal", "GET", "/api/account", undefined, { cookie })).body.account;
  };
  const generated = /^p-/;
  const carl = { email: "carl@x.example", groups: ["all"] };
  for (const [n, verified] of [undefined, false, "true", 1].entries()) {
    const account = await accountOf({ sub: `unsure-${n}`, ...carl, email_verified: verified });
    assert.match(String(account), generated, String(verified));
  }
  assert.equal(await accountOf({ sub: "carl", ...carl, email_verified: true }), "carl");
  // The address is given to somebody else later.
  assert.match(String(await accountOf({ sub: "successor", ...carl, email_verified: true })), generated);
  const twin = { email: "twin@x.example", email_verified: true, groups: ["all"] };
  assert.match(String(await accountOf({ sub: "twin", ...twin })), generated);
  // The contact alone lets nobody in, unless the configuration says so.
  await open("dora", "dora@x.example");
  const dora = { sub: "dora", email: "dora@x.example", email_verified: true, groups: [] };
  place.issuer.signsIn(dora);
  refused(await place.attempt("portal"), 403, "not_admitted");
  place.people.configure({ ...place.settings, linksContacts: true });
  assert.equal(await accountOf(dora), "dora");
  place.people.configure(place.settings);
  assert.equal(await accountOf(dora), "dora", "who has an account needs no rule");
});

test("accounts and roles lapse after their time, and a matching sign-in restores them", async () => {
  await using place = await startSignIn({
    operators: [{ kind: "group", value: "all", role: "viewer" }],
    lapse: "P90D",
    accounts: [{ kind: "group", value: "all", plan: "test" }],
  });
  const { store } = place.service;
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookie = await place.signIn("operator");
  const portal = await place.signIn("portal");
  const state = async () =>
    (await place.ask("portal", "GET", "/api/account", undefined, { cookie: portal })).body.state;
  const isIn = async () =>
    (await place.ask("operator", "GET", "/admin/sessions", undefined, { cookie })).status;
  await place.people.lapse(() => false);
  assert.deepEqual([await state(), await isIn()], ["active", 200]);
  const [person] = await store.listPeople({ limit: 1 });
  assert.ok(person !== undefined);
  const longAgo = store.times().nowMs - 91 * 86_400_000;
  await store.setPersonFacts(person, { ...person, roleMatchedMs: longAgo, accountMatchedMs: longAgo }, null);
  assert.equal(await isIn(), 401);
  await place.people.lapse(() => false);
  assert.equal(await state(), "suspended");
  await place.signIn("portal");
  assert.deepEqual([await state(), await isIn()], ["active", 200]);
});

test("a role that has lapsed is neither given nor told by a sign-in without groups", async () => {
  await using place = await startSignIn({
    operators: [{ kind: "group", value: "all", role: "viewer" }],
    lapse: "P90D",
    accounts: [],
  });
  const { store } = place.service;
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  await place.signIn("operator");
  const [person] = await store.listPeople({ limit: 1 });
  assert.ok(person !== undefined);
  const roleMatchedMs = store.times().nowMs - 91 * 86_400_000;
  await store.setPersonFacts(person, { ...person, roleMatchedMs }, null);
  place.issuer.signsIn({ sub: "ada" });
  const changes = async () =>
    (await store.changes({ limit: 9 })).map(({ kind, after }) => `${kind} ${after}`);
  const before = await changes();
  refused(await place.attempt("operator"), 403, "not_admitted");
  assert.deepEqual(await changes(), before);
});

const lapsing = {
  operators: [],
  lapse: "P90D",
  accounts: [{ kind: "group", value: "all", plan: "test" }],
} as const;

/** Signs somebody in whom no rule has matched for 91 days. */
async function longAgo(place: SignInPlaces): Promise<{ state(): Promise<unknown> }> {
  const { store } = place.service;
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookie = await place.signIn("portal");
  const [person] = await store.listPeople({ limit: 1 });
  assert.ok(person !== undefined);
  const accountMatchedMs = store.times().nowMs - 91 * 86_400_000;
  await store.setPersonFacts(person, { ...person, accountMatchedMs }, null);
  const state = async () =>
    (await place.ask("portal", "GET", "/api/account", undefined, { cookie })).body.state;
  return { state };
}

test("a suspension whose record broke off ends at the next matching sign-in", async () => {
  await using place = await startSignIn(lapsing);
  const { store } = place.service;
  const { state } = await longAgo(place);
  const { setPersonLapsed } = store;
  store.setPersonLapsed = () => Promise.reject(new Error("the database is away"));
  await assert.rejects(
    place.people.lapse(() => false),
    /is away/,
  );
  store.setPersonLapsed = setPersonLapsed;
  assert.equal(await state(), "suspended");
  await place.signIn("portal");
  assert.equal(await state(), "active");
});

test("two nodes that look for lapsed accounts at the same time suspend one once", async () => {
  await using place = await startSignIn(lapsing);
  const { store } = place.service;
  await longAgo(place);
  const { accountSnapshot } = store;
  const both = Promise.withResolvers<void>();
  let reads = 0;
  store.accountSnapshot = async (account) => {
    const snapshot = await accountSnapshot(account);
    reads += 1;
    if (reads === 2) both.resolve();
    await both.promise;
    return snapshot;
  };
  await Promise.all([place.people.lapse(() => false), place.people.lapse(() => false)]);
  const [person] = await store.listPeople({ limit: 1 });
  const entries = await store.journal(person?.account ?? "", { kinds: ["suspend"], limit: 9 });
  assert.deepEqual(
    entries.map(({ by }) => by),
    ["service:sign_in"],
  );
});

test("a person who signs in while accounts lapse keeps the account", async () => {
  await using place = await startSignIn(lapsing);
  const { store } = place.service;
  const { state } = await longAgo(place);
  const { peopleToLapse } = store;
  store.peopleToLapse = async (...query) => {
    const found = await peopleToLapse(...query);
    assert.equal(found.length, 1);
    await place.signIn("portal");
    return found;
  };
  await place.people.lapse(() => false);
  assert.equal(await state(), "active");
});

test("a person who signs in just before the suspension of a lapsed account keeps it", async () => {
  await using place = await startSignIn(lapsing);
  const { store } = place.service;
  const { state } = await longAgo(place);
  const { accountSnapshot } = store;
  store.accountSnapshot = async (account) => {
    const snapshot = await accountSnapshot(account);
    store.accountSnapshot = accountSnapshot;
    await place.signIn("portal");
    return snapshot;
  };
  await place.people.lapse(() => false);
  assert.equal(await state(), "active");
  assert.equal((await store.listPeople({ limit: 1 }))[0]?.lapsedMs, null);
});

test("a person moves from the issuer before by their confirmed address, once", async () => {
  await using place = await startSignIn({
    accounts: [{ kind: "group", value: "all", plan: "test" }],
    formerly: "https://old.example",
  });
  const { store } = place.service;
  const row = {
    ...newPerson(
      { issuer: "https://old.example/", sub: "old", email: "ada@x.example", emailVerified: true },
      1,
    ),
    id: "person_00000000000000aa",
  };
  await store.addPerson(row);
  const claims = { email: "ada@x.example", groups: ["all"] };
  const people = async () =>
    (await store.listPeople({ limit: 9 })).map(({ issuer, sub }) => `${issuer} ${sub}`);
  place.issuer.signsIn({ sub: "unsure", ...claims });
  await place.signIn("portal");
  assert.ok((await people()).includes("https://old.example/ old"));
  place.issuer.signsIn({ sub: "ada", ...claims, email_verified: true });
  await place.signIn("portal");
  assert.equal((await store.personOf(place.issuer.url, "ada"))?.id, row.id);
  place.issuer.signsIn({ sub: "successor", ...claims, email_verified: true });
  await place.signIn("portal");
  assert.notEqual((await store.personOf(place.issuer.url, "successor"))?.id, row.id);
});

test("a person whom an operator has suspended is signed out, and stays out", async () => {
  await using place = await startSignIn({
    operators: [{ kind: "group", value: "all", role: "owner" }],
    accounts: [{ kind: "group", value: "all", plan: "test" }],
  });
  const { store } = place.service;
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookies = { operator: await place.signIn("operator"), portal: await place.signIn("portal") };
  const [person] = await store.listPeople({ limit: 1 });
  assert.ok(person !== undefined);
  await store.setPersonSuspended(person.id, 1, suspensionChange(person, 1, { by: "test", atMs: 1 }));
  for (const [side, path] of [
    ["operator", "/admin/sessions"],
    ["portal", "/api/account"],
  ] as const) {
    refused(await place.ask(side, "GET", path, undefined, { cookie: cookies[side] }), 401, "invalid_session");
    refused(await place.attempt(side), 403, "not_admitted");
  }
  assert.deepEqual(place.reasons(), Array(2).fill("an operator has suspended the person"));
});

test("two first sign-ins of one person at the same time make one account", async () => {
  await using place = await startSignIn({ accounts: [{ kind: "group", value: "all", plan: "test" }] });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const answers = await Promise.all(Array.from({ length: 4 }, () => place.attempt("portal")));
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  assert.equal((await place.service.store.accounts({ limit: 10 })).length, 2);
  assert.equal((await place.service.store.listPeople({ limit: 10 })).length, 1);
});

test("of two first sign-ins at the same time, one links an account by its address, and the other has it too", async () => {
  await using place = await startSignIn({
    accounts: [{ kind: "group", value: "all", plan: "test" }],
    linksContacts: true,
  });
  const { store } = place.service;
  const draft = { id: "carl", plan: "test", contact: { email: "carl@x.example" } };
  await store.putAccount(draft, { by: "operator", dryRun: false });
  const { linkPerson } = store;
  for (const [sub, groups] of [
    ["carl", ["all"]],
    ["dora", []],
  ] as const) {
    const email = `${sub}@x.example`;
    const contact = { id: sub, plan: "test", contact: { email } };
    await store.putAccount(contact, { by: "operator", dryRun: false });
    place.issuer.signsIn({ sub, email, email_verified: true, groups: [...groups] });
    store.linkPerson = async (...given) => {
      store.linkPerson = linkPerson;
      await place.signIn("portal");
      return await linkPerson(...given);
    };
    const cookie = await place.signIn("portal");
    const { body } = await place.ask("portal", "GET", "/api/account", undefined, { cookie });
    assert.equal(body.account, sub);
  }
  const accounts = await store.accounts({ limit: 10 });
  assert.deepEqual(
    accounts.filter(({ id }) => id.startsWith("p-")),
    [],
  );
});

test("a check at the issuer that began before a sign-in gives back nothing that it took away", async () => {
  const operators = [
    { kind: "group", value: "staff", role: "owner" },
    { kind: "group", value: "all", role: "viewer" },
  ] as const;
  await using place = await startSignIn({ operators: [...operators] });
  const { store, ledger, logger } = place.service;
  place.issuer.signsIn({ sub: "ada", groups: ["staff"] });
  await place.signIn("operator");
  const [before] = await store.listPeople({ limit: 1 });
  assert.equal(before?.roleRule, "owner group staff");
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  await place.signIn("operator");
  const { issuer, sub, name, email, emailVerified } = before;
  const identity = {
    issuer,
    sub,
    name,
    email,
    emailVerified,
    groups: null,
    hasTooManyGroups: false,
    authenticatedMs: null,
  };
  const now = await new People({ store, ledger, logger }).recordCheck(before, identity, place.settings);
  assert.equal(now.roleRule, "viewer group all");
  assert.equal((await store.person(before.id))?.roleRule, "viewer group all");
});
