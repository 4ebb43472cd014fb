/** Invitations over HTTP: what a link gives, and the attacks on links and on requests for them. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import { limits } from "../../src/limits/limits.ts";
import { TokenBucket } from "../../src/limits/token-bucket.ts";
import { startInvitations } from "../fixtures/invitations.ts";
import { linkIn, noMailbox } from "../fixtures/mail-server.ts";
import { fieldsOf, listOf, type OperatorAnswer, refused } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { startPortal } from "../fixtures/portal.ts";
import { exchange, parseAnswer } from "../fixtures/raw-http.ts";
import { day } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const invalid = (answer: OperatorAnswer) => refused(answer, 401, "invalid_invitation");

test("an invited person sees the account, makes keys within the plan, and chats with one", async () => {
  await using place = await startInvitations({ acceptsKeys: false });
  await place.open("ada");
  const cookie = await place.enter(await place.invite("ada"));
  const as = (method: string, path: string, body?: object) => place.portal.as(cookie, method, path, body);
  const account = await as("GET", "/api/account");
  assert.partialDeepStrictEqual(account.body, { account: "ada", key: null });
  assert.partialDeepStrictEqual(fieldsOf(account.body.rights), { most_keys: 10, can_create_keys: true });
  const session = await as("GET", "/api/session");
  assert.partialDeepStrictEqual(session.body, { role: null });
  assert.partialDeepStrictEqual(fieldsOf(session.body.person), {
    name: "Owner of ada",
    email: "ada@x.example",
  });
  const lifeMs = Date.parse(String(session.body.expires_at)) - Date.now();
  const idleMs = Date.parse(String(session.body.idle_expires_at)) - Date.now();
  assert.ok(lifeMs > 11.9 * 3_600_000 && lifeMs <= 12 * 3_600_000, String(lifeMs));
  assert.ok(idleMs > 1.9 * 3_600_000 && idleMs <= 2 * 3_600_000, String(idleMs));
  const made = await as("POST", "/api/keys", { operation_id: "one", name: "laptop" });
  assert.equal(made.status, 201, made.text);
  const headers = { authorization: `Bearer ${made.body.key}` };
  assert.equal((await place.service.chat({}, { headers })).status, 200);
  const [person] = await place.service.store.listPeople({ account: "ada", limit: 9 });
  const entries = await place.service.store.journal("ada", { kinds: ["key"], limit: 9 });
  assert.deepEqual(
    entries.map(({ by }) => by),
    [`person:${person?.id}`],
  );
  // An invited person is nobody in the console.
  const console = await place.operator.ask("GET", "/admin/accounts", {
    headers: { authorization: undefined, ...pageHeader, cookie: cookie.replace("portal", "console") },
  });
  refused(console, 401, "invalid_session");
});

test("a person chooses the mail about the account, and a key that manages only itself does not", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  const cookie = await place.enter(await place.invite("ada"));
  const as = (method: string, path: string, body?: object) => place.portal.as(cookie, method, path, body);
  const all = {
    ...{ balance_low_mail: "on", balance_cap_mail: "on" },
    ...{ balance_exhausted_mail: "on", key_expiring_mail: "on" },
  };
  assert.deepEqual((await as("GET", "/api/account")).body.mail, all);
  const chosen = { ...all, balance_low_mail: "off" };
  assert.deepEqual((await as("PATCH", "/api/account/mail", { balance_low_mail: "off" })).body, chosen);
  const also = { ...chosen, key_expiring_mail: "off" };
  assert.deepEqual((await as("PATCH", "/api/account/mail", { key_expiring_mail: "off" })).body, also);
  assert.deepEqual((await as("GET", "/api/account")).body.mail, also);
  refused(await as("PATCH", "/api/account/mail", { balance_low_mail: "no" }), 400, "invalid_value");
  const { body: account } = await place.operator.get("/admin/accounts/ada");
  assert.partialDeepStrictEqual(account, { ...also, email: "ada@x.example" });
  // The log has the person and the value.
  const { body: log } = await place.operator.get("/admin/log?account=ada");
  const [person] = await place.service.store.listPeople({ account: "ada", limit: 9 });
  assert.partialDeepStrictEqual(listOf(log.data)[0], {
    by: `person:${person?.id}`,
    after: { key_expiring_mail: "off" },
  });
  // A key that manages only itself sees nothing of it.
  const made = await as("POST", "/api/keys", { operation_id: "one", name: "laptop" });
  const own = await place.portal.signIn(String(made.body.key));
  assert.equal((await place.portal.as(own, "GET", "/api/account")).body.mail, null);
  const refusal = await place.portal.as(own, "PATCH", "/api/account/mail", { balance_low_mail: "on" });
  refused(refusal, 403, "not_permitted");
  // Without an address nothing is sent.
  await place.operator.patch("/admin/accounts/ada/contact", { email: null, balance_low_mail: "on" });
  assert.equal((await as("GET", "/api/account")).body.mail, null);
  const listed = await place.operator.get("/admin/accounts/ada");
  assert.partialDeepStrictEqual(listed.body, { balance_low_mail: "on", key_expiring_mail: "off" });
});

test("a link gives a session although the list of changes takes no entry", async (t) => {
  await using place = await startInvitations();
  await place.open("ada");
  const code = await place.invite("ada");
  const away = () => Promise.reject(new StoreUnavailableError("the database is away"));
  const logged = t.mock.method(place.service.store, "logChange", away);
  const cookie = await place.enter(code);
  assert.equal(logged.mock.callCount(), 1);
  assert.equal((await place.portal.as(cookie, "GET", "/api/account")).body.account, "ada");
});

test("a link works once, an older one ends with a newer one, and the person stays the same", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  const first = await place.invite("ada");
  const second = await place.invite("ada", { email: "ADA@x.example" });
  invalid(await place.press(first));
  await place.enter(second);
  invalid(await place.press(second));
  const third = await place.invite("ada");
  const both = await Promise.all([place.press(third), place.press(third)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401]);
  const people = await place.operator.get("/admin/people?account=ada");
  assert.equal(listOf(people.body.data).length, 1);
  assert.partialDeepStrictEqual(listOf(people.body.data)[0], {
    issuer: "invitation",
    account_by: "invitation",
  });
});

test("a link ends after seven days, with its address, its account and its person", async () => {
  await using place = await startInvitations();
  for (const id of ["late", "moved", "closed", "suspended"]) await place.open(id);
  const codes = {
    late: await place.invite("late"),
    moved: await place.invite("moved"),
    closed: await place.invite("closed"),
    suspended: await place.invite("suspended"),
  };
  assert.equal(
    (await place.operator.patch("/admin/accounts/moved/contact", { email: "eve@x.example" })).status,
    200,
  );
  invalid(await place.press(codes.moved));
  const close = { operation_id: "c", state: "closed" };
  assert.equal((await place.operator.post("/admin/accounts/closed/state", close)).status, 200);
  invalid(await place.press(codes.closed));

  const cookie = await place.enter(codes.suspended);
  const newer = await place.invite("suspended");
  const [person] = listOf((await place.operator.get("/admin/people?account=suspended")).body.data);
  const suspend = await place.operator.post(`/admin/people/${person?.id}/state`, { state: "suspended" });
  assert.equal(suspend.status, 200);
  refused(await place.portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
  invalid(await place.press(newer));
  const invited = await place.operator.post("/admin/accounts/suspended/invitation", {});
  refused(invited, 409, "person_suspended");
  const { store } = place.service;
  const { email = null } = (await store.contact("suspended")) ?? {};
  const draft = { id: "suspended", plan: null, contact: { email: null } };
  await store.putAccount(draft, { by: "test", dryRun: false });
  const named = await place.operator.post("/admin/accounts/suspended/invitation", { email });
  refused(named, 409, "person_suspended");
  assert.equal((await store.contact("suspended"))?.email, null, "nothing has changed");

  const { times } = place.service.store;
  place.service.store.times = () => ({ ...times(), nowMs: times().nowMs + 7 * day });
  invalid(await place.press(codes.late));
});

test("only the address of the contact of an open account is invited", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  await place.open("none", null);
  await place.open("gone");
  const invite = (account: string, body: object = {}) =>
    place.operator.post(`/admin/accounts/${account}/invitation`, body);
  refused(await invite("ada", { email: "eve@x.example" }), 409, "contact_differs");
  refused(await invite("none"), 400, "invalid_value");
  refused(await invite("nobody"), 404, "account_not_found");
  refused(await invite("ada", { send: "mail" }), 409, "no_mail_server");
  await place.operator.post("/admin/accounts/gone/state", { operation_id: "c", state: "closed" });
  refused(await invite("gone"), 409, "account_closed");
  // Support issues keys and so links, and changes no contacts.
  const made = await place.operator.post("/admin/operator-keys", {
    operation_id: "k",
    name: "desk",
    role: "support",
  });
  const headers = { authorization: `Bearer ${made.body.key}` };
  const asSupport = (account: string, body: object) =>
    place.operator.ask("POST", `/admin/accounts/${account}/invitation`, {
      headers,
      body: JSON.stringify(body),
    });
  assert.equal((await asSupport("ada", {})).status, 201);
  refused(await asSupport("none", { email: "n@x.example" }), 403, "not_permitted");
  assert.equal((await invite("none", { email: "n@x.example" })).status, 201);
  assert.equal((await place.service.store.contact("none"))?.email, "n@x.example");
});

test("without a URL of the portal, links are refused and none are sent", async () => {
  await using place = await startInvitations({ hasUrl: false, hasMail: true });
  await place.open("ada");
  const answer = await place.operator.post("/admin/accounts/ada/invitation", {});
  assert.match(refused(answer, 409, "no_portal_url"), /Set portal\.url/);
  assert.equal((await place.portal.ask("GET", "/api/sign-in")).body.sends_links, false);
  refused(await place.ask("ada@x.example"), 409, "no_mail_server");
});

test("opening a link uses nothing up, with GET, HEAD or a body that names no button", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  const code = await place.invite("ada");
  for (const method of ["GET", "HEAD"])
    for (const path of [`/?invite=${code}`, "/", `/api/session?invitation=${code}`])
      await fetch(place.portal.url + path, { method, headers: pageHeader });
  refused(
    await place.portal.ask("POST", `/api/session?invitation=${code}`, { body: "{}" }),
    400,
    "unknown_parameter",
  );
  refused(await place.portal.ask("POST", "/api/session", { body: "{}" }), 400, "invalid_value");
  const two = { invitation: code, key: place.service.key };
  const both = await place.portal.ask("POST", "/api/session", { body: JSON.stringify(two) });
  refused(both, 400, "invalid_value");
  await place.enter(code);
});

test("a page of another origin, or without the secret of a page, exchanges nothing", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  const code = await place.invite("ada");
  refused(await place.press(code, { origin: "https://evil.example" }), 403, "origin_not_allowed");
  refused(await place.press(code, { "x-inkwell-request": undefined }), 403, "missing_request_header");
  refused(await place.ask("ada@x.example", { origin: "https://evil.example" }), 403, "origin_not_allowed");
  refused(
    await place.ask("ada@x.example", { "x-inkwell-request": undefined }),
    403,
    "missing_request_header",
  );
  const form = await fetch(`${place.portal.url}/api/session`, {
    method: "POST",
    headers: { "content-type": "text/plain" },
    body: JSON.stringify({ invitation: code }),
  });
  assert.ok(form.status >= 400);
  const preflight = await fetch(`${place.portal.url}/api/session`, {
    method: "OPTIONS",
    headers: { origin: "https://evil.example", "access-control-request-headers": "x-inkwell-request" },
  });
  assert.equal(preflight.headers.get("access-control-allow-origin"), null);
  await place.enter(code);
});

test("guessing is limited as all sign-ins, and a code that was not looked at is not used up", async () => {
  let nowMs = 0;
  await using place = await startInvitations({
    attempts: new TokenBucket(limits.signIns, { nowMs: () => nowMs }),
  });
  await place.open("ada");
  const code = await place.invite("ada");
  const guesses = [code.slice(1), `${code}x`, code.toLowerCase(), "", "x".repeat(10_000), " "];
  for (const guess of guesses) invalid(await place.press(guess));
  const { most } = limits.signIns;
  for (let n = guesses.length; n < most; n += 1) invalid(await place.press(`guess-${n}`));
  assert.match(refused(await place.press(code), 429, "too_many_sign_ins"), /120 attempts .* within a minute/);
  nowMs += 1_000;
  await place.enter(code);
  const metrics = await place.service.metrics.text();
  assert.match(metrics, /inkwell_sign_ins_total\{listener="portal",result="wrong_code"\} 120/);
});

test("no code is in the log, the list of changes, the database or an answer but the first", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  const codes = [await place.invite("ada")];
  await place.press(codes[0] ?? "", { origin: "https://evil.example" });
  await place.portal.ask("GET", `/api/${codes[0]}`);
  await place.enter(codes[0] ?? "");
  await place.press(codes[0] ?? "");
  const mailed = await place.operator.post("/admin/accounts/ada/invitation", { send: "mail" });
  assert.partialDeepStrictEqual(mailed.body, { link: null, email: "ada@x.example" });
  codes.push(linkIn(place.mail.mails[0]).split("#invite=")[1] ?? "");
  await place.enter(codes[1] ?? "");
  const { body } = await place.operator.get("/admin/log?account=ada");
  const kinds = listOf(body.data).map(({ kind }) => kind);
  assert.equal(kinds.filter((kind) => kind === "invitation").length, 2);
  const database = new DatabaseSync(place.service.databaseFile, { readOnly: true });
  const rows = ["invitation", "person", "change_log", "session", "event", "journal"].map((table) =>
    database.prepare(`select * from ${table}`).all(),
  );
  database.close();
  const texts = JSON.stringify([place.service.log, body, rows]);
  for (const code of codes) assert.ok(code.length === 43 && !texts.includes(code));
});

test("a new link comes by mail to an invited address, and works for the same person", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada", "Ada@x.example");
  const first = await place.invite("ada");
  const before = await place.enter(first);
  assert.equal((await place.portal.ask("GET", "/api/sign-in")).body.sends_links, true);
  assert.equal((await place.ask("ada@X.example")).status, 202);
  await until("it is sent", () => place.mail.mails.length === 1);
  assert.deepEqual(place.mail.mails[0]?.to, ["Ada@x.example"]);
  const after = await place.enter(linkIn(place.mail.mails[0]).split("#invite=")[1] ?? "");
  const personOf = async (cookie: string) =>
    fieldsOf((await place.portal.as(cookie, "GET", "/api/session")).body.person).id;
  assert.match(String(await personOf(after)), /^person_/);
  assert.equal(await personOf(before), await personOf(after));
  const log = await place.operator.get("/admin/log?kind=invitation");
  assert.deepEqual(
    listOf(log.body.data).map(({ by }) => by),
    ["service:new_link", "owner"],
  );
});

test("nobody else gets a mail: unknown, never invited, shared, moved, closed, suspended", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("never");
  for (const id of ["one", "closed", "moved", "suspended", "last"]) await place.open(id);
  await place.open("two", "one@x.example");
  for (const id of ["one", "closed", "moved"]) await place.invite(id);
  await place.enter(await place.invite("suspended"));
  await place.invite("last");
  await place.operator.post("/admin/accounts/closed/state", { operation_id: "c", state: "closed" });
  await place.operator.patch("/admin/accounts/moved/contact", { email: "new@x.example" });
  const [person] = listOf((await place.operator.get("/admin/people?account=suspended")).body.data);
  await place.operator.post(`/admin/people/${person?.id}/state`, { state: "suspended" });
  for (const name of ["nobody", "never", "one", "closed", "moved", "new", "suspended", "last"])
    assert.equal((await place.ask(`${name}@x.example`)).status, 202);
  await until("the last one is sent", () => place.mail.mails.length > 0);
  assert.deepEqual(
    place.mail.mails.map(({ to }) => to.join()),
    ["last@x.example"],
  );
});

test("a known and an unknown address have the same answer, before any work begins", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  await place.invite("ada");
  const asked: string[] = [];
  const gate = Promise.withResolvers<void>();
  const { openAccountsWithEmail } = place.service.store;
  place.service.store.openAccountsWithEmail = async (email) => {
    asked.push(email);
    await gate.promise;
    return await openAccountsWithEmail(email);
  };
  const { port } = new URL(place.portal.url);
  const raw = async (email: string) => {
    const body = JSON.stringify({ email });
    const head = `POST /api/sign-in/links HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nconnection: close\r\n`;
    const fields = `x-inkwell-request: ${pageHeader["x-inkwell-request"]}\r\ncontent-type: application/json\r\n`;
    const length = `content-length: ${body.length}\r\n\r\n`;
    const {
      status,
      headers,
      body: text,
    } = parseAnswer(await exchange(Number(port), head + fields + length + body));
    for (const name of ["date", "x-request-id"]) headers.delete(name);
    return { status, headers, text };
  };
  const answers = [await raw("ada@x.example"), await raw("bob@x.example"), await raw("ADA@x.example")];
  assert.equal(answers[0]?.status, 202);
  assert.deepEqual(answers[1], answers[0]);
  assert.deepEqual(answers[2], answers[0]);
  // The look-up of the first one has not ended, and the answers did not wait for it.
  assert.deepEqual(asked, ["ada@x.example"]);
  gate.resolve();
  await until("they are sent", () => place.mail.mails.length === 2);
  refused(await place.ask("no address"), 400, "invalid_value");
});

test("a mailbox gets three mails an hour, and a client is refused after 60 requests a minute", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  await place.open("bob");
  await place.invite("ada");
  await place.invite("bob");
  const statuses: number[] = [];
  for (let n = 0; n < 58; n += 1)
    statuses.push((await place.ask(n % 2 ? "ada@x.example" : "Ada@X.example")).status);
  statuses.push((await place.ask("bob@x.example")).status);
  assert.deepEqual(new Set(statuses), new Set([202]));
  await until("bob has a mail", () => place.mail.mails.some(({ to }) => to[0] === "bob@x.example"));
  assert.equal(place.mail.mails.filter(({ to }) => to[0] === "ada@x.example").length, 3);
  // One more is allowed each second, so a slow machine needs more of them.
  let answer = await place.ask("carl@x.example");
  for (let n = 0; n < 200 && answer.status === 202; n += 1) answer = await place.ask("bob@x.example");
  assert.match(refused(answer, 429, "too_many_sign_ins"), /Try again in \d+ s/);
  assert.ok(Number(answer.headers.get("retry-after")) > 0);
});

test("a mail server that refuses costs one line in the log, and an earlier link ends", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  await place.open("bob");
  const code = await place.invite("ada");
  await place.invite("bob");
  const repeated = { ...noMailbox, message: "<ada@x.example>: no such mailbox" };
  place.mail.refuses = (to) => (to.startsWith("ada") ? repeated : null);
  await place.ask("ada@x.example");
  await place.ask("bob@x.example");
  await until("the next one is sent", () => place.mail.mails.length === 1);
  const lines = place.service.log.filter(({ msg }) => msg === "a new link could not be sent");
  assert.equal(lines.length, 1);
  const failed = await place.operator.post("/admin/accounts/ada/invitation", { send: "mail" });
  assert.match(refused(failed, 503, "mail_failed"), /to ada@x\.example: .*<\(address\)>: no such mailbox/);
  assert.ok(place.service.log.some(({ code }) => code === "mail_failed"));
  assert.doesNotMatch(JSON.stringify(place.service.log), /ada@x\.example/);
  invalid(await place.press(code));
});

test("sessions of invited people end with another operator token, and go on without an issuer", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  await place.open("bob");
  const code = await place.invite("bob");
  const cookie = await place.enter(await place.invite("ada"));
  place.people.configure(null);
  assert.equal((await place.portal.as(cookie, "GET", "/api/account")).status, 200);
  const other = { people: place.people, token: "another-operator-token-0123456789" };
  await using portal = await startPortal(place.service, other);
  refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
  const press = await portal.ask("POST", "/api/session", { body: JSON.stringify({ invitation: code }) });
  refused(press, 401, "invalid_invitation");
});

test("a crash after the exchange costs the link, and a new one leads to the same person", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  const code = await place.invite("ada");
  const { store } = place.service;
  const { addSession } = store;
  store.addSession = () => Promise.reject(new Error("the process is gone"));
  assert.equal((await place.press(code)).status, 500);
  store.addSession = addSession;
  invalid(await place.press(code));
  await place.enter(await place.invite("ada"));
  assert.equal((await store.listPeople({ account: "ada", limit: 9 })).length, 1);
});

test("a crash before the exchange leaves the link as it was", async () => {
  await using place = await startInvitations();
  await place.open("ada");
  const code = await place.invite("ada");
  const { invitations } = place.service.store;
  const { exchange: before } = invitations;
  invitations.exchange = () => Promise.reject(new Error("the process is gone"));
  assert.equal((await place.press(code)).status, 500);
  invitations.exchange = before;
  await place.enter(code);
});
