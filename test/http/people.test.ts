/** What people and operators do after a sign-in: keys, stops, roles, and people themselves. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { Sessions } from "../../src/accounts/sessions.ts";
import { holdRequest } from "../fixtures/held-request.ts";
import { startHostileIssuer } from "../fixtures/hostile-issuer.ts";
import { fieldsOf, listOf, operatorToken, refused } from "../fixtures/operator.ts";
import { pageSecret } from "../fixtures/page-header.ts";
import { babble } from "../fixtures/service.ts";
import { type Side, type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";
import { until } from "../fixtures/until.ts";

const accounts = [{ kind: "group", value: "all", plan: "test" }] as const;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Sends requests of a page with a session. */
function sender(place: SignInPlaces, side: "operator" | "portal", cookie: string) {
  return (method: string, path: string, body?: object) => place.ask(side, method, path, body, { cookie });
}

let operations = 0;
const operation = () => {
  operations += 1;
  return `op-${operations}`;
};

test("a person makes, rotates and ends keys within those of the plan", async () => {
  await using place = await startSignIn({ accounts }, { personKeys: { most: 2, life: "P180D" } });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const ask = sender(place, "portal", await place.signIn("portal"));
  const rights = fieldsOf((await ask("GET", "/api/account")).body.rights);
  assert.partialDeepStrictEqual(rights, { most_keys: 2, key_life: "P180D", can_create_keys: true });
  const soon = new Date(Date.now() + 30 * dayMs).toISOString();
  const late = new Date(Date.now() + 200 * dayMs).toISOString();
  const make = (change: object = {}, operation_id = operation()) =>
    ask("POST", "/api/keys", { operation_id, name: "laptop", expires_at: soon, ...change });
  assert.match(
    refused(await make({ expires_at: undefined }), 400, "invalid_value"),
    /is missing.*keys of your plan end by then/,
  );
  assert.match(
    refused(await make({ expires_at: late }), 400, "invalid_value"),
    /keys of your plan end by then/,
  );
  const first = await make({}, "first");
  assert.equal(first.status, 201, first.text);
  assert.equal((await make({}, "first")).status, 200, "a repetition");
  const second = await make();
  refused(await make(), 409, "too_many_keys");
  assert.equal((await make({}, "first")).status, 200, "a repetition beyond the most");
  const id = String(first.body.id);
  const change = (json: object) => ask("PATCH", `/api/keys/${id}`, { operation_id: operation(), ...json });
  refused(await change({ expires_at: null }), 400, "invalid_value");
  refused(await change({ expires_at: late }), 400, "invalid_value");
  const caps = (credits: number) => ({ spending_caps: [{ credits, every: "P1D" }] });
  assert.equal((await change({ name: "desk", ...caps(5) })).status, 200);
  assert.equal((await change(caps(50))).status, 200, "it is the person's own");
  assert.equal((await change({ spending_caps: [] })).status, 200, "and so is its removal");
  const rotated = await ask("POST", `/api/keys/${id}/rotate`, { operation_id: operation() });
  assert.match(String(rotated.body.key), /^ink_/);
  assert.equal((await ask("DELETE", `/api/keys/${second.body.id}`)).status, 200);
  assert.equal((await make()).status, 201);
  const { store } = place.service;
  const [person] = await store.listPeople({ limit: 1 });
  const entries = await store.journal(person?.account ?? "", { kinds: ["key"], limit: 20 });
  assert.deepEqual(new Set(entries.map(({ by }) => by)), new Set([`person:${person?.id}`]));
  refused(await ask("POST", "/api/keys/key1/rotate", { operation_id: operation() }), 404, "key_not_found");
});

test("of several keys that a person makes at the same time, those beyond the most do not stay", async () => {
  await using place = await startSignIn({ accounts }, { personKeys: { most: 2, life: null } });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const ask = sender(place, "portal", await place.signIn("portal"));
  const made = await Promise.all(
    Array.from({ length: 6 }, () => ask("POST", "/api/keys", { operation_id: operation(), name: "x" })),
  );
  const working = listOf((await ask("GET", "/api/keys")).body.data).filter((key) => key.revoked_at === null);
  assert.equal(working.length, 2);
  assert.deepEqual(new Set(made.map(({ status }) => status)), new Set([201, 409]));
});

test("a person narrows limits and models of a key, and widens none", async () => {
  await using place = await startSignIn({ accounts }, { service: { otherModels: ["other"] } });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const ask = sender(place, "portal", await place.signIn("portal"));
  const made = await ask("POST", "/api/keys", { operation_id: operation(), name: "x" });
  const path = `/api/keys/${made.body.id}`;
  const limited = { requests_per_minute: 5, models: ["small"] };
  const set = await place.operator.patch(`/admin/keys/${made.body.id}`, {
    operation_id: operation(),
    ...limited,
  });
  assert.equal(set.status, 200, set.text);
  const change = (json: object) => ask("PATCH", path, { operation_id: operation(), ...json });
  for (const wider of [
    { requests_per_minute: 6 },
    { requests_per_minute: null },
    { models: ["*"] },
    { models: ["small", "other"] },
  ]) {
    assert.match(refused(await change(wider), 403, "not_permitted"), /can only be narrowed here/);
  }
  const expires_at = new Date(Date.now() + dayMs).toISOString();
  const narrower = { requests_per_minute: 4, concurrent: 2, models: ["small"], expires_at, name: "y" };
  assert.equal((await change(narrower)).status, 200);
  assert.equal((await change({ expires_at: null })).status, 200, "the end is the person's own");
});

test("of keys that have expired, a person revives at the same time as many as may work", async () => {
  await using place = await startSignIn({ accounts }, { personKeys: { most: 1, life: null } });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const ask = sender(place, "portal", await place.signIn("portal"));
  const [person] = await place.service.store.listPeople({ limit: 1 });
  const ids = ["one", "two", "three"];
  for (const id of ids)
    await place.service.addKey({ id, account: person?.account ?? "", expiresMs: Date.now() - 1 });
  const expires_at = new Date(Date.now() + dayMs).toISOString();
  const revived = await Promise.all(
    ids.map((id) => ask("PATCH", `/api/keys/${id}`, { operation_id: operation(), expires_at })),
  );
  assert.deepEqual(revived.map(({ status }) => status).toSorted(), [200, 409, 409]);
  assert.match(
    refused(revived.find(({ status }) => status === 409) ?? assert.fail(), 409, "too_many_keys"),
    /one key/,
  );
});

test("a person without keys cannot chat, and chats with the newest key that works", async () => {
  await using place = await startSignIn({ accounts });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookie = await place.signIn("portal");
  const ask = sender(place, "portal", cookie);
  const body = { model: "small", stream: true, messages: [{ role: "user", content: "Hi" }] };
  assert.match(refused(await ask("POST", "/api/chat", body), 403, "not_permitted"), /page Keys/);
  const ids: unknown[] = [];
  for (const name of ["one", "two"]) {
    ids.push((await ask("POST", "/api/keys", { operation_id: operation(), name })).body.id);
  }
  const answer = await ask("POST", "/api/chat", body);
  assert.equal(answer.status, 200, answer.text);
  await until(
    "the request is charged",
    async () => listOf((await ask("GET", "/api/requests")).body.data).length === 1,
  );
  const [receipt] = listOf((await ask("GET", "/api/requests")).body.data);
  assert.ok(ids.includes(receipt?.key));
  const headers = { cookie, "x-inkwell-request": pageSecret };
  const request = { url: place.portal.url, method: "POST", path: "/api/chat", headers, body };
  const held = await holdRequest(request, place.service.store, "keys");
  for (const id of ids) assert.equal((await ask("DELETE", `/api/keys/${id}`)).status, 200);
  const { status, received } = await held.send();
  assert.equal(status, 403, received);
  assert.match(received, /not_permitted/, "without a key when the body has come");
});

test("a person sees and stops the requests of the account, and no others", async () => {
  await using place = await startSignIn({ accounts }, { service: { script: babble("word ") } });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookie = await place.signIn("portal");
  const ask = sender(place, "portal", cookie);
  const { body } = await ask("POST", "/api/keys", { operation_id: operation(), name: "x" });
  const foreign = await place.service.chat({ stream: true });
  const foreignId = foreign.headers.get("x-request-id") ?? "";
  const headers = { authorization: `Bearer ${body.key}` };
  const own = await place.service.chat({ stream: true }, { headers });
  const live = await ask("GET", "/api/live");
  const running = listOf(fieldsOf(live.body.requests).data);
  assert.deepEqual(
    running.map(({ id }) => id),
    [own.headers.get("x-request-id")],
  );
  const stop = (id: string) => ask("POST", `/api/requests/${id}/stop`);
  refused(await stop(foreignId), 404, "request_not_found");
  refused(await stop("no-such-request"), 404, "request_not_found");
  const stopped = await stop(own.headers.get("x-request-id") ?? "");
  assert.deepEqual(stopped.body, { id: own.headers.get("x-request-id"), outcome: "stopped" });
  assert.match(await own.text(), /A person stopped this request.*request_stopped/);
  await foreign.body?.cancel();
});

test("the portal can be closed to keys", async () => {
  await using place = await startSignIn({ accounts }, { acceptsKeys: false });
  const answer = await place.ask("portal", "POST", "/api/session", { key: place.service.key });
  assert.match(refused(answer, 403, "not_permitted"), /Sign in with your organisation/);
  const { body } = await place.ask("portal", "GET", "/api/sign-in");
  const issuer = { name: "Example University", available: true };
  assert.deepEqual(body, { issuer, accepts_secret: false, sends_links: false });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  await place.signIn("portal");
});

test("a role is checked for each request, and read again with each", async () => {
  const operators = [
    { kind: "group", value: "readers", role: "viewer" },
    { kind: "group", value: "owners", role: "owner" },
  ] as const;
  await using place = await startSignIn({ operators });
  place.issuer.signsIn({ sub: "ada", groups: ["readers"] });
  const cookie = await place.signIn("operator");
  const ask = sender(place, "operator", cookie);
  const open = (id: string) => ask("POST", "/admin/accounts", { id, plan: "test" });
  assert.equal((await ask("GET", "/admin/accounts")).status, 200);
  assert.match(
    refused(await open("one"), 403, "not_permitted"),
    /needs the role operator, and yours is viewer/,
  );
  place.issuer.signsIn({ sub: "ada", groups: ["owners"] });
  await place.signIn("operator");
  assert.equal((await open("one")).status, 201, "in the session from before, too");
  const [person] = await place.service.store.listPeople({ limit: 1 });
  const [opening] = await place.service.store.journal("one", { limit: 1 });
  assert.equal(opening?.by, `person:${person?.id}`);
  const { data } = (await ask("GET", "/admin/log?kind=person")).body;
  assert.deepEqual(
    listOf(data).map(({ by, subject, before, after }) => ({ by, subject, before, after })),
    [
      { before: { role: "viewer" }, after: { role: "owner" } },
      { before: { role: null }, after: { role: "viewer" } },
    ].map((change) => ({ by: "service:sign_in", subject: person?.id, ...change })),
  );
  const request = { url: place.operator.url, method: "POST", path: "/admin/accounts" };
  const headers = { cookie, "x-inkwell-request": pageSecret };
  const body = { id: "two", plan: "test" };
  const held = await holdRequest({ ...request, headers, body }, place.service.store, "person");
  place.issuer.signsIn({ sub: "ada", groups: ["readers"] });
  await place.signIn("operator");
  assert.match((await held.send()).received, /needs the role operator/, "the body comes later");
});

test("a role counts while its rule is in the configuration, for sessions, operator keys and lists", async () => {
  const rule = { kind: "email", value: "eve@example.edu", role: "owner" } as const;
  const other = { kind: "group", value: "it", role: "viewer" } as const;
  await using place = await startSignIn({ operators: [rule, other] });
  place.issuer.signsIn({ sub: "eve", email: "Eve@example.edu", email_verified: true, groups: ["it"] });
  const ask = sender(place, "operator", await place.signIn("operator"));
  const key = { operation_id: operation(), name: "left behind", role: "owner" };
  const { body } = await ask("POST", "/admin/operator-keys", key);
  const headers = { authorization: `Bearer ${body.key}` };
  const statuses = async () => [
    (await ask("GET", "/admin/accounts")).status,
    (await place.operator.ask("GET", "/admin/accounts", { headers })).status,
    (await place.operator.ask("POST", "/admin/reload", { headers })).status,
    listOf((await place.operator.get("/admin/people")).body.data)[0]?.role,
  ];
  const { settings } = place;
  const first = await statuses();
  assert.deepEqual([first[0], first[1], first[3]], [200, 200, "owner"]);
  place.people.configure({ ...settings, operators: [other] });
  assert.deepEqual(await statuses(), [401, 401, 401, null]);
  place.people.configure({ ...settings, operators: [{ ...rule, role: "support" }, other] });
  assert.deepEqual(await statuses(), [200, 200, 403, "support"]);
  place.people.configure({ ...settings, operators: [other] });
  await place.signIn("operator");
  assert.deepEqual(await statuses(), [200, 200, 403, "viewer"]);
});

test("changes of a role within a millisecond are in the log, each of them", async () => {
  const operators = [
    { kind: "group", value: "readers", role: "viewer" },
    { kind: "group", value: "owners", role: "owner" },
  ] as const;
  await using place = await startSignIn({ operators });
  const { store } = place.service;
  const now = store.times();
  store.times = () => now;
  for (const group of ["readers", "owners", "readers"]) {
    place.issuer.signsIn({ sub: "ada", groups: [group] });
    await place.signIn("operator");
  }
  const { data } = (await place.operator.get("/admin/log?kind=person")).body;
  const roles = listOf(data).map(({ before, after }) => `${fieldsOf(before).role} ${fieldsOf(after).role}`);
  assert.deepEqual(roles.sort(), ["null viewer", "owner viewer", "viewer owner"]);
});

test("sign-ins are in the log: who, at which listener, and with what", async () => {
  await using place = await startSignIn({ accounts });
  const { operator, service, issuer } = place;
  issuer.signsIn({ sub: "ada", groups: ["all"] });
  await place.signIn("portal");
  refused(await place.attempt("operator"), 403, "not_admitted");
  await place.ask("portal", "POST", "/api/session", { key: service.key });
  await place.ask("operator", "POST", "/admin/session", { token: operatorToken });
  const { code } = (await operator.ask("POST", "/admin/session/codes")).body;
  await place.ask("operator", "POST", "/admin/session", { code });
  const [person] = await service.store.listPeople({ limit: 1 });
  const { link } = (await operator.post("/admin/accounts/test/invitation", { email: "bo@x.example" })).body;
  const invitation = String(link).split("#invite=")[1];
  await place.ask("portal", "POST", "/api/session", { invitation });
  const [invited] = await service.store.listPeople({ account: "test", limit: 1 });
  const { data } = (await operator.get("/admin/log?kind=sign_in")).body;
  const shown = listOf(data).map(({ by, account, after }) => ({ by, account, ...fieldsOf(after) }));
  const byName = (rows: object[]) => rows.map((row) => JSON.stringify(row)).sort();
  assert.deepEqual(
    byName(shown),
    byName([
      { by: `person:${person?.id}`, account: person?.account, listener: "portal", credentials: "issuer" },
      { by: "owner", account: null, listener: "operator", credentials: "token" },
      { by: "owner", account: null, listener: "operator", credentials: "code" },
      { by: `person:${invited?.id}`, account: "test", listener: "portal", credentials: "invitation" },
    ]),
  );
});

test("owner keys, erases and refunds need a sign-in at the issuer within 15 minutes", async () => {
  await using place = await startSignIn({ operators: [{ kind: "group", value: "all", role: "owner" }] });
  await using issuer = await startHostileIssuer();
  place.people.configure({ ...place.settings, issuer: issuer.url });
  const signIn = async (ageMinutes: number | null, before: Record<string, string> = {}) => {
    issuer.forge = (token) => {
      // Seconds of a token may have a fraction (RFC 7519, 2).
      const auth_time =
        ageMinutes === null ? undefined : Math.floor(Date.now() / 1000) - ageMinutes * 60 + 0.0005;
      return { ...token, payload: { ...token.payload, auth_time } };
    };
    const page = await place.begin("operator", before);
    const answer = await place.finish("operator", issuer.answer(page), before);
    const [cookie = ""] = (answer.headers.get("set-cookie") ?? "").split(";");
    return { cookie, maxAge: Number(page.searchParams.get("max_age")) };
  };
  const attempts = async (ask: ReturnType<typeof sender>) => {
    const refund = { refund_id: operation(), payment_id: "none", credits: 1 };
    const key = (role: string) =>
      ask("POST", "/admin/operator-keys", { operation_id: operation(), name: "x", role });
    const answers = [
      await key("owner"),
      // It could refund.
      await key("operator"),
      await ask("DELETE", "/admin/people/person_0000000000000000/data"),
      await ask("POST", "/admin/accounts/test/refunds", refund),
    ];
    assert.equal((await key("support")).status, 201);
    return answers.map(({ status, body }) => (status === 201 ? 201 : fieldsOf(body.error).code));
  };
  const stale = ["sign_in_again", "sign_in_again", "sign_in_again", "sign_in_again"];
  const fresh = [201, 201, "person_not_found", "payment_not_found"];
  const first = await signIn(16);
  assert.ok(first.maxAge > 86_400, "the issuer need not ask who is signed in there");
  assert.deepEqual(await attempts(sender(place, "operator", first.cookie)), stale);
  const second = await signIn(14, { cookie: first.cookie });
  assert.equal(second.maxAge, 0, "the person has to show again who they are");
  assert.deepEqual(await attempts(sender(place, "operator", second.cookie)), fresh);
  // An issuer that does not say when: the session counts.
  const third = sender(place, "operator", (await signIn(null)).cookie);
  assert.deepEqual(await attempts(third), fresh);
  const { store } = place.service;
  const { times } = store;
  store.times = () => ({ ...times(), nowMs: times().nowMs + 16 * 60_000 });
  assert.deepEqual(await attempts(third), stale);
  const { body } = await place.operator.post("/admin/operator-keys", {
    operation_id: operation(),
    name: "x",
    role: "owner",
  });
  assert.equal(typeof body.key, "string", "the operator token is not concerned");
});

test("a person, a key and the operator token see their own sessions, and end all of them", async () => {
  await using place = await startSignIn({
    accounts,
    operators: [{ kind: "group", value: "all", role: "viewer" }],
  });
  const { issuer, service } = place;
  const cookieOf = async (side: Side, credentials: object) => {
    const answer = await place.ask(side, "POST", `${paths[side]}/session`, credentials);
    return (answer.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  };
  const paths = { operator: "/admin", portal: "/api" } as const;
  const person = async (sub: string) => {
    issuer.signsIn({ sub, groups: ["all"] });
    const places = [];
    for (const side of ["operator", "portal", "portal"] as const)
      places.push({ side, cookie: await place.signIn(side) });
    return places;
  };
  const owners = {
    ada: await person("ada"),
    bob: await person("bob"),
    key: [
      { side: "portal", cookie: await cookieOf("portal", { key: service.key }) },
      { side: "portal", cookie: await cookieOf("portal", { key: service.key }) },
    ],
    token: [
      { side: "operator", cookie: await cookieOf("operator", { token: operatorToken }) },
      { side: "operator", cookie: await cookieOf("operator", { token: operatorToken }) },
    ],
  } satisfies Record<string, { side: Side; cookie: string }[]>;
  const ask = ({ side, cookie }: { side: Side; cookie: string }, method: string, path: string) =>
    place.ask(side, method, paths[side] + path, undefined, { cookie });
  for (const [owner, own] of Object.entries(owners)) {
    const [first, ...others] = own;
    assert.ok(first !== undefined);
    const { data } = (await ask(first, "GET", "/sessions")).body;
    const present = listOf(data).map((session) => session.present);
    assert.deepEqual(present.toSorted(), [...others.map(() => false), true], owner);
    assert.ok(!/[0-9a-f]{64}/.test(JSON.stringify(data)), "no hash");
    const out = await ask(first, "DELETE", "/sessions");
    assert.equal(out.status, 204);
    assert.match(out.headers.get("set-cookie") ?? "", /Max-Age=0/i);
    for (const each of own) refused(await ask(each, "GET", "/sessions"), 401, "invalid_session");
    const later = Object.keys(owners).indexOf(owner) + 1;
    for (const each of Object.values(owners).slice(later).flat())
      assert.equal((await ask(each, "GET", "/session")).status, 200, "those of others go on");
  }
});

test("an operator of an issuer without refresh tokens is signed in for an hour", async () => {
  await using place = await startSignIn({ operators: [{ kind: "group", value: "all", role: "owner" }] });
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const ask = sender(place, "operator", await place.signIn("operator"));
  const { body } = await ask("GET", "/admin/session");
  const lifeMs = Date.parse(String(body.expires_at)) - Date.now();
  assert.ok(lifeMs > 0.9 * hourMs && lifeMs <= hourMs, String(lifeMs));
});

/** An operator at an issuer with refresh tokens, after more than an hour. */
async function afterAnHour(
  run: (place: SignInPlaces & { cookie: string }, ask: ReturnType<typeof sender>) => Promise<void>,
) {
  const operators = [{ kind: "group", value: "all", role: "owner" }] as const;
  await using place = await startSignIn(
    { operators },
    {
      issuer: {
        refreshes: true,
        configuration: { features: { devInteractions: { enabled: false }, revocation: { enabled: true } } },
      },
    },
  );
  place.issuer.signsIn({ sub: "ada", groups: ["all"] });
  const cookie = await place.signIn("operator");
  const ask = sender(place, "operator", cookie);
  const lifeMs = Date.parse(String((await ask("GET", "/admin/session")).body.expires_at)) - Date.now();
  assert.ok(lifeMs > 11 * hourMs, String(lifeMs));
  const { store } = place.service;
  const { times } = store;
  store.times = () => ({ ...times(), nowMs: times().nowMs + 1.1 * hourMs });
  const [row] = await store.sessions(sessionsOf(place));
  assert.ok(row?.sealed != null);
  await run(Object.assign(place, { cookie }), ask);
  assert.ok(!JSON.stringify(place.service.log).includes(row.sealed));
}

function sessionsOf({ service }: SignInPlaces): string[] {
  const database = new DatabaseSync(service.databaseFile, { readOnly: true });
  const rows = database.prepare("select hash from session where kind = 'operator'").all();
  database.close();
  return rows.map(({ hash }) => String(hash));
}

const tokenRequests = ({ issuer }: SignInPlaces) =>
  issuer.requests.filter((request) => request === "POST /token").length;

test("the groups of an operator are checked again each hour, by one request", () =>
  afterAnHour(async (place, ask) => {
    const before = tokenRequests(place);
    const answers = await Promise.all(Array.from({ length: 5 }, () => ask("GET", "/admin/session")));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(tokenRequests(place) - before, 1);
    await ask("GET", "/admin/session");
    assert.equal(tokenRequests(place) - before, 1);
  }));

test("an operator who has left the group is out at the next check", () =>
  afterAnHour(async (place, ask) => {
    place.issuer.signsIn({ sub: "ada", groups: [] });
    refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
    refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
  }));

// Doorkeeper, and so GitLab, has a challenge beside each error.
for (const [issuer, challenge] of [
  ["an issuer", {}],
  ["an issuer with challenges", { "www-authenticate": 'Bearer realm="Doorkeeper", error="invalid_grant"' }],
] as const)
  test(`an operator whose sign-in ${issuer} has ended is out at the next check`, () =>
    afterAnHour(async (place, ask) => {
      place.issuer.intercept = (request, response) => {
        if (request.url !== "/token") return false;
        const headers = { "content-type": "application/json", ...challenge };
        response.writeHead(400, headers).end('{"error":"invalid_grant"}');
        return true;
      };
      refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
      place.issuer.intercept = null;
      refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
      assert.ok(place.service.log.some(({ reason }) => /invalid_grant/.test(String(reason))));
    }));

test("signing out revokes the refresh token at the issuer, which the request may have replaced", async () => {
  const revocations: string[] = [];
  let status = 200;
  await afterAnHour(async (place, ask) => {
    place.issuer.intercept = async (request, response) => {
      if (request.url !== "/token/revocation") return false;
      let body = "";
      for await (const piece of request) body += piece;
      revocations.push(new URLSearchParams(body).get("token") ?? "");
      response.writeHead(status).end();
      return true;
    };
    const out = async (send: typeof ask, hash = "") => {
      const before = revocations.length;
      assert.equal((await send("DELETE", "/admin/session")).status, 204);
      await until("the issuer was asked", async () => revocations.length > before);
      const [row] = await place.service.store.sessions([hash]);
      assert.equal(row?.endedMs === null, false);
    };
    const [hash] = sessionsOf(place);
    const before = (await place.service.store.sessions([hash ?? ""]))[0]?.sealed;
    await out(ask, hash);
    const sessions = new Sessions(place.service.store, operatorToken, assert.ifError);
    const [row] = await place.service.store.sessions([hash ?? ""]);
    assert.ok(row !== undefined && row.sealed !== before, "this request has asked the issuer again");
    const secrets = { cookie: place.cookie.split("=")[1] ?? "", page: pageSecret };
    assert.deepEqual(revocations, [await sessions.refreshTokenOf(row, secrets)]);
    status = 503;
    const again = sender(place, "operator", await place.signIn("operator"));
    await out(
      again,
      sessionsOf(place).find((each) => each !== hash),
    );
    const { log } = place.service;
    const isLogged = async () => log.some(({ msg }) => String(msg).includes("not revoked at the issuer"));
    await until("the failure is logged", isLogged);
  });
});

test("if the issuer is away, sessions of operators go on, and the issuer is asked again later", () =>
  afterAnHour(async (place, ask) => {
    place.issuer.intercept = (_request, response) => {
      response.destroy();
      return true;
    };
    assert.equal((await ask("GET", "/admin/accounts")).status, 200);
    assert.ok(
      place.service.log.some(({ msg }) => String(msg).includes("could not be checked at the issuer")),
    );
    place.issuer.intercept = null;
    place.issuer.signsIn({ sub: "ada", groups: [] });
    assert.equal((await ask("GET", "/admin/accounts")).status, 200, "not at once");
    const { store } = place.service;
    const { times } = store;
    store.times = () => ({ ...times(), nowMs: times().nowMs + 6 * 60_000 });
    await until("the session has ended", async () => (await ask("GET", "/admin/accounts")).status === 401);
  }));

const json = "application/json";
for (const [sentence, url, status, type, body, headers = {}] of [
  ["limits the rate", "/token", 429, json, '{"error":"slow_down"}'],
  ["has a proxy that does not find it", "/token", 404, "text/plain", "404 page not found"],
  ["has a proxy that blocks requests", "/token", 403, "text/html", "<p>blocked"],
  ["shows a page", "/token", 200, "text/html", "<p>Maintenance"],
  ["shows an object", "/token", 200, json, '{"state":"maintenance"}'],
  ["redirects", "/token", 302, "text/html", "", { location: "/maintenance" }],
  ["is away for a time", "/token", 400, json, '{"error":"temporarily_unavailable"}'],
  ["has a failure", "/token", 400, json, '{"error":"server_error"}'],
  ["hides its keys", "/jwks", 404, "text/plain", "404 page not found"],
  ["does not answer for its keys", "/jwks", 503, "text/plain", "away"],
  ["has no keys", "/jwks", 200, json, "{}"],
] as const) {
  test(`if the issuer ${sentence}, sessions of operators go on, and so does its refresh token`, () =>
    afterAnHour(async (place, ask) => {
      place.people.configure(place.settings);
      place.issuer.intercept = (request, response) => {
        if (request.url !== url) return false;
        response.writeHead(status, { "content-type": type, ...headers }).end(body);
        return true;
      };
      assert.equal((await ask("GET", "/admin/accounts")).status, 200);
      const { log, store } = place.service;
      assert.ok(log.some(({ msg }) => String(msg).includes("could not be checked at the issuer")));
      place.issuer.intercept = null;
      const { times } = store;
      store.times = () => ({ ...times(), nowMs: times().nowMs + 6 * 60_000 });
      place.people.configure(place.settings);
      const before = tokenRequests(place);
      assert.equal((await ask("GET", "/admin/accounts")).status, 200);
      assert.equal(tokenRequests(place) - before, 1, "it is asked again");
    }));
}

for (const [sentence, change] of [
  ["invalid", (payload: Record<string, unknown>) => ({ ...payload, exp: 1 })],
  ["for another client", (payload: Record<string, unknown>) => ({ ...payload, aud: "other" })],
  ["somebody else's", (payload: Record<string, unknown>) => ({ ...payload, sub: "eve" })],
  ["signed by somebody else", null],
] as const) {
  test(`an operator whose next token is ${sentence} is out`, async () => {
    await using hostile = await startHostileIssuer();
    const operators = [{ kind: "group", value: "all", role: "owner" }] as const;
    await using place = await startSignIn({ operators, issuer: hostile.url });
    hostile.exchange = (response, idToken) =>
      response.setHeader("content-type", json).end(
        JSON.stringify({
          access_token: "at",
          token_type: "Bearer",
          id_token: idToken,
          refresh_token: "rt",
        }),
      );
    const signedIn = await place.finish("operator", hostile.answer(await place.begin("operator")));
    assert.equal(signedIn.status, 200, signedIn.text);
    const ask = sender(place, "operator", (signedIn.headers.get("set-cookie") ?? "").split(";")[0] ?? "");
    const { store } = place.service;
    const { times } = store;
    store.times = () => ({ ...times(), nowMs: times().nowMs + 1.1 * hourMs });
    hostile.forge = (token) =>
      change === null
        ? { ...token, signature: () => Buffer.alloc(256, 1).toString("base64url") }
        : { ...token, payload: change(token.payload) };
    refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
  });
}

test("if a check cannot be recorded, the session goes on, and the issuer is asked again later", () =>
  afterAnHour(async (place, ask) => {
    const { store } = place.service;
    const { setPersonFacts, times } = store;
    store.setPersonFacts = () => Promise.reject(new Error("the database is away"));
    assert.equal((await ask("GET", "/admin/accounts")).status, 500);
    store.setPersonFacts = setPersonFacts;
    assert.equal((await ask("GET", "/admin/accounts")).status, 200);
    place.issuer.signsIn({ sub: "ada", groups: [] });
    store.times = () => ({ ...times(), nowMs: times().nowMs + 6 * 60_000 });
    refused(await ask("GET", "/admin/accounts"), 401, "invalid_session");
  }));

test("operators list people, link accounts to them, and suspend them", async () => {
  await using place = await startSignIn({ operators: [{ kind: "group", value: "all", role: "viewer" }] });
  const { operator } = place;
  place.issuer.signsIn({ sub: "ada", groups: ["all"], email: "ada@x.example", email_verified: true });
  const cookie = await place.signIn("operator");
  refused(await place.attempt("portal"), 403, "not_admitted");
  const [person] = listOf((await operator.get("/admin/people")).body.data);
  assert.partialDeepStrictEqual(person, {
    sub: "ada",
    role: "viewer",
    account: null,
    email: "ada@x.example",
  });
  const path = `/admin/people/${person?.id}`;
  const link = (account: string) => operator.post(`${path}/account`, { account });
  refused(await link("nowhere"), 404, "account_not_found");
  refused(await operator.post("/admin/people/nobody/account", { account: "test" }), 404, "person_not_found");
  assert.partialDeepStrictEqual((await link("test")).body, { account: "test", account_by: "owner" });
  assert.equal((await link("test")).status, 200, "a repetition");
  await place.service.ledger.apply({ kind: "open", account: "two", plan: "test", by: "test" });
  refused(await link("two"), 409, "person_linked");
  const portal = await place.signIn("portal");
  const shown = await place.ask("portal", "GET", "/api/account", undefined, { cookie: portal });
  assert.equal(shown.body.account, "test");
  const found = listOf((await operator.get("/admin/people?account=test")).body.data);
  assert.equal(found.length, 1);
  const set = (state: string) => operator.post(`${path}/state`, { state });
  refused(
    await place.ask("operator", "POST", `${path}/state`, { state: "active" }, { cookie }),
    403,
    "not_permitted",
  );
  assert.notEqual((await set("suspended")).body.suspended_at, null);
  refused(
    await place.ask("operator", "GET", "/admin/sessions", undefined, { cookie }),
    401,
    "invalid_session",
  );
  refused(
    await place.ask("portal", "GET", "/api/account", undefined, { cookie: portal }),
    401,
    "invalid_session",
  );
  assert.equal((await set("active")).body.suspended_at, null);
  assert.equal((await place.ask("operator", "GET", "/admin/session", undefined, { cookie })).status, 200);
  refused(await operator.post("/admin/people/nobody/state", { state: "active" }), 404, "person_not_found");
});

test("a new role and a new operator key are told once", async () => {
  await using place = await startSignIn({ operators: [{ kind: "group", value: "it", role: "owner" }] });
  place.issuer.signsIn({ sub: "root", groups: ["it"] });
  const cookie = await place.signIn("operator");
  await place.signIn("operator");
  const [person] = await place.service.store.listPeople({ limit: 1 });
  const asked = { operation_id: "k", name: "ci", role: "owner" };
  const make = async () => await place.ask("operator", "POST", "/admin/operator-keys", asked, { cookie });
  const made = await make();
  assert.deepEqual([made.status, (await make()).status], [201, 200]);
  const by = `person:${person?.id}`;
  const lower = { kind: "group", value: "it", role: "support" } as const;
  place.people.configure({ ...place.settings, operators: [lower] });
  await place.signIn("operator");
  place.people.configure(place.settings);
  await place.signIn("operator");
  const { data } = (await place.operator.get("/admin/log?kind=person")).body;
  const roles = listOf(data).map(({ before, after }) => [fieldsOf(before).role, fieldsOf(after).role]);
  assert.deepEqual(roles.reverse(), [
    [null, "owner"],
    ["owner", "support"],
    ["support", "owner"],
  ]);
  const [last] = place.told.splice(2, 2).slice(-1);
  assert.deepEqual(last, { type: "operator.role_given", person: by, role: "owner" });
  assert.deepEqual(place.told, [
    { type: "operator.role_given", person: by, role: "owner" },
    { type: "operator.key_created", key: made.body.id, name: "ci", role: "owner", by },
  ]);
});
