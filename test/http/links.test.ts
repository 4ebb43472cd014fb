/** Links by which a class joins, over HTTP: what they give, and attacks on them. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { limits } from "../../src/limits/limits.ts";
import { type InvitationPlace, startInvitations } from "../fixtures/invitations.ts";
import { linkIn } from "../fixtures/mail-server.ts";
import { fieldsOf, listOf, type OperatorAnswer, refused } from "../fixtures/operator.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { day, hour } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const cookieOf = (answer: OperatorAnswer) => {
  assert.equal(answer.status, 200, answer.text);
  return (answer.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
};
const accountOf = async ({ portal }: InvitationPlace, cookie: string) =>
  String((await portal.as(cookie, "GET", "/api/account")).body.account);
const pageOf = async ({ operator }: InvitationPlace, id: string) =>
  (await operator.get(`/admin/links/${id}`)).body;
/** Moves the time by which a repetition is compared. Commits have a clock of their own. */
function later({ service: { store } }: InvitationPlace, ms: number): void {
  const { times } = store;
  store.times = () => ({ ...times(), nowMs: times().nowMs + ms });
}

test("somebody who joins is in the portal at once, makes a key, and chats with it", async () => {
  await using place = await startInvitations({ acceptsKeys: false });
  const { id, code } = await place.link();
  const cookie = cookieOf(await place.join(code, { name: "  Ada\u0000\nLovelace " }));
  const as = (method: string, path: string, body?: object) => place.portal.as(cookie, method, path, body);
  const account = await accountOf(place, cookie);
  assert.match(account, /^informatics-1-[0-9a-f]{12}$/);
  const { person } = (await as("GET", "/api/session")).body;
  assert.partialDeepStrictEqual(fieldsOf(person), { name: "Ada Lovelace", email: null });
  const made = await as("POST", "/api/keys", { operation_id: "one", name: "laptop" });
  assert.equal(made.status, 201, made.text);
  const headers = { authorization: `Bearer ${made.body.key}` };
  assert.equal((await place.service.chat({}, { headers })).status, 200);
  const page = await pageOf(place, id);
  assert.partialDeepStrictEqual(fieldsOf(page.link), { id, state: "open", taken: 1, seats: 2 });
  assert.deepEqual(page.seats, { waiting: 0, joined: 1, used: 1 });
  const [row] = listOf(page.data);
  assert.partialDeepStrictEqual(row, { account, name: "Ada Lovelace", name_confirmed: false, used: true });
  const [listed] = listOf((await place.operator.get(`/admin/people?account=${account}`)).body.data);
  assert.partialDeepStrictEqual(listed, {
    issuer: "invitation",
    account_by: `link:${id}`,
    name_confirmed: false,
  });
  const [opening] = listOf((await place.operator.get(`/admin/accounts/${account}/journal`)).body.data);
  assert.partialDeepStrictEqual(opening, { kind: "open", by: `link:${id}` });
});

test("a repetition with the same join id has the same account, for an hour, even on the last seat", async () => {
  await using place = await startInvitations();
  const { id, code } = await place.link({ seats: 1 });
  const join_id = "a".repeat(22);
  const both = await Promise.all([place.join(code, { join_id }), place.join(code, { join_id })]);
  const accounts = await Promise.all(both.map(async (each) => await accountOf(place, cookieOf(each))));
  assert.equal(new Set(accounts).size, 1);
  assert.match(refused(await place.join(code), 403, "link_full"), /All seats/);
  later(place, hour - 60_000);
  const again = cookieOf(await place.join(code, { join_id, name: "Somebody else" }));
  assert.equal(await accountOf(place, again), accounts[0]);
  const [person] = listOf((await place.operator.get(`/admin/people?account=${accounts[0]}`)).body.data);
  later(place, 60_000);
  // On a shared computer, the next person may have the id.
  const message = refused(await place.join(code, { join_id }), 403, "already_joined");
  assert.match(message, /key of yours.*link to your account.*another browser/);
  assert.partialDeepStrictEqual(fieldsOf((await pageOf(place, id)).link), { taken: 1, state: "full" });
  assert.notEqual(person?.name, "Somebody else");
});

test("a suspended person does not come back by a repetition", async () => {
  await using place = await startInvitations();
  const { code } = await place.link();
  const join_id = "b".repeat(22);
  const account = await accountOf(place, cookieOf(await place.join(code, { join_id })));
  const [person] = listOf((await place.operator.get(`/admin/people?account=${account}`)).body.data);
  await place.operator.post(`/admin/people/${person?.id}/state`, { state: "suspended" });
  refused(await place.join(code, { join_id }), 403, "already_joined");
});

test("the last seat goes to one of many at the same time", async () => {
  await using place = await startInvitations();
  const { id, code } = await place.link({ seats: 3 });
  const all = await Promise.all(Array.from({ length: 12 }, () => place.join(code)));
  const statuses = all.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [200, 200, 200, ...Array.from({ length: 9 }, () => 403)]);
  for (const answer of all.filter(({ status }) => status === 403)) refused(answer, 403, "link_full");
  assert.partialDeepStrictEqual((await pageOf(place, id)).seats, { joined: 3 });
});

test("codes are replaced and ended, and seats are added, each with one clear answer", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const { id, code } = await place.link({ seats: 1 });
  assert.match(refused(await place.join("x".repeat(43)), 401, "invalid_link"), /not valid/);
  assert.equal((await place.join(code)).status, 200);
  refused(await place.join(code), 403, "link_full");
  refused(await operator.patch(`/admin/links/${id}`, { seats: 0 }), 400, "invalid_value");
  const more = await operator.patch(`/admin/links/${id}`, { seats: 3, name: "Informatics 2" });
  assert.partialDeepStrictEqual(more.body, { seats: 3, taken: 1, name: "Informatics 2", state: "open" });
  assert.equal((await place.join(code)).status, 200);
  const few = await operator.patch(`/admin/links/${id}`, { seats: 1 });
  assert.match(refused(few, 400, "invalid_value"), /seats must be at least 2/);
  const rotated = await operator.post(`/admin/links/${id}/rotate`, {});
  assert.equal(rotated.status, 201);
  const newer = String(rotated.body.link).split("#join=")[1] ?? "";
  refused(await place.join(code), 401, "invalid_link");
  assert.equal((await place.join(newer)).status, 200);
  const ended = await operator.post(`/admin/links/${id}/end`, {});
  assert.partialDeepStrictEqual(ended.body, { state: "ended" });
  assert.deepEqual((await operator.post(`/admin/links/${id}/end`, {})).body, ended.body, "a repetition");
  assert.match(refused(await place.join(newer), 403, "link_ended"), /has ended/);
  for (const answer of [
    await operator.patch(`/admin/links/${id}`, { seats: 9 }),
    await operator.post(`/admin/links/${id}/rotate`, {}),
  ])
    refused(answer, 403, "link_ended");
  const unknown = "/admin/links/link_0000000000000000";
  for (const answer of [
    await operator.get(unknown),
    await operator.patch(unknown, { seats: 9 }),
    await operator.post(`${unknown}/rotate`, {}),
    await operator.post(`${unknown}/end`, {}),
    await operator.post(`${unknown}/close-accounts`, {}),
  ])
    refused(answer, 404, "link_not_found");
});

test("a link gets a later end, and its accounts close at theirs", async () => {
  await using place = await startInvitations();
  const inDays = (days: number) => new Date(Date.now() + days * day).toISOString();
  const { id, code } = await place.link({ seats: 5, ends_at: inDays(1), accounts_end_at: inDays(3) });
  const account = await accountOf(place, cookieOf(await place.join(code)));
  const { body } = await place.operator.get(`/admin/accounts/${account}`);
  assert.equal(body.ends_at, fieldsOf((await pageOf(place, id)).link).accounts_end_at);
  const late = await place.operator.patch(`/admin/links/${id}`, { ends_at: inDays(4) });
  assert.match(refused(late, 400, "invalid_value"), /accounts_end_at must not be before/);
  const past = await place.operator.patch(`/admin/links/${id}`, { ends_at: inDays(0) });
  assert.match(refused(past, 400, "invalid_value"), /ends_at must be after now/);
  const longer = await place.operator.patch(`/admin/links/${id}`, { ends_at: inDays(2) });
  assert.equal(longer.status, 200);
  assert.equal((await place.join(code)).status, 200);
});

test("all accounts of a link are closed, and a repetition closes those that came since", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const { id, code } = await place.link({ seats: 120 });
  const cookies: string[] = [];
  for (let n = 0; n < 55; n += 1) cookies.push(cookieOf(await place.join(code)));
  const first = await operator.post(`/admin/links/${id}/close-accounts`, {});
  assert.deepEqual(first.body, { id, closed: 55, state: "open" });
  assert.equal((await place.join(code)).status, 200);
  await operator.post(`/admin/links/${id}/end`, {});
  const second = await operator.post(`/admin/links/${id}/close-accounts`, {});
  assert.deepEqual(second.body, { id, closed: 56, state: "ended" });
  assert.deepEqual((await operator.post(`/admin/links/${id}/close-accounts`, {})).body, second.body);
  using db = new DatabaseSync(place.service.databaseFile, { readOnly: true });
  const closes = db.prepare("select count(*) as n from journal where kind = 'close'").get();
  assert.equal(closes?.n, 56);
  refused(await place.portal.as(cookies[0] ?? "", "GET", "/api/account"), 401, "invalid_session");
});

test("what a link cannot be is refused with what would be right, and nothing is made", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const ends_at = new Date(Date.now() + day).toISOString();
  const right = { operation_id: "one", name: "Class", plan: "test", seats: 5, ends_at };
  const make = (parts: object) => operator.post("/admin/links", { ...right, ...parts });
  for (const [parts, says] of [
    [{ plan: "gone" }, /"gone"/],
    [{ seats: 0 }, /from 1 to 10000/],
    [{ seats: 10_001 }, /from 1 to 10000/],
    [{ ends_at: "2020-01-01" }, /ends_at must be after now/],
    [{ accounts_end_at: "2020-01-01" }, /accounts_end_at must not be before the end of the link/],
    [{ name: "" }, /name must be/],
    [{ domain: "a@b" }, /domain must be/],
  ] as const)
    assert.match(refused(await make(parts), 400, "invalid_value"), says);
  assert.match(refused(await make({ domain: "x.example" }), 409, "no_mail_server"), /events\.mail/);
  const { ends_at: _, ...endless } = right;
  refused(await operator.post("/admin/links", endless), 400, "missing_required_parameter");
  assert.deepEqual(listOf((await operator.get("/admin/links")).body.data), []);
  assert.equal((await make({})).status, 201);
  const again = await make({});
  assert.equal(again.status, 200);
  assert.equal(again.body.link, null, "a link is shown once");
  refused(await make({ accounts_end_at: "2099-01-01" }), 409, "operation_differs");
  await using without = await startInvitations({ hasUrl: false });
  refused(await without.operator.post("/admin/links", right), 409, "no_portal_url");
});

test("names are bounded, cleaned, and text wherever they are shown", async () => {
  await using place = await startInvitations();
  const { id, code } = await place.link({ seats: 9 });
  for (const name of ["x".repeat(10_000), "x".repeat(101), "", " \u0007 ", "\u202e"])
    assert.match(refused(await place.join(code, { name }), 400, "invalid_value"), /join\.name must be/);
  const name = "<script>alert(1)</script>\u202E{link} ünï";
  assert.equal((await place.join(code, { name })).status, 200);
  const page = await place.operator.get(`/admin/links/${id}`);
  assert.equal(listOf(page.body.data)[0]?.name, "<script>alert(1)</script> {link} ünï");
  assert.equal(fieldsOf(page.body.link).taken, 1);
  for (const join_id of ["", "short", "x".repeat(65), "with space and more text"])
    refused(await place.join(code, { join_id }), 400, "invalid_value");
});

test("a repeated join signs the same person in 60 times within a minute", async () => {
  await using place = await startInvitations();
  const { code } = await place.link();
  const join_id = "c".repeat(22);
  const statuses: number[] = [];
  while (!statuses.includes(429) && statuses.length < 200)
    statuses.push((await place.join(code, { join_id })).status);
  // Some come back on a slow machine.
  assert.ok(statuses.length > 60 && statuses.length < 200, `${statuses.length}`);
});

test("joins have a rate of their own, and take nothing of that of sign-ins", async () => {
  using _ = stopTime();
  await using place = await startInvitations();
  const { code } = await place.link();
  const wrong = "y".repeat(43);
  for (let n = 0; n < limits.joins.most; n += 1) refused(await place.join(wrong), 401, "invalid_link");
  assert.match(refused(await place.join(code), 429, "too_many_sign_ins"), /600 attempts to join/);
  refused(await place.press("z".repeat(43)), 401, "invalid_invitation");
});

test("changes of links are in the log with who made them, and codes are nowhere", async () => {
  await using place = await startInvitations();
  const { id, code } = await place.link();
  await place.operator.patch(`/admin/links/${id}`, { seats: 5 });
  await place.operator.post(`/admin/links/${id}/rotate`, {});
  await place.join(code);
  await place.operator.post(`/admin/links/${id}/end`, {});
  const { body, text } = await place.operator.get("/admin/log?kind=link");
  const rows = listOf(body.data);
  assert.deepEqual(
    rows.map(({ kind, by, subject }) => [kind, by, subject]),
    Array.from({ length: 4 }, () => ["link", "owner", id]),
  );
  assert.partialDeepStrictEqual(rows[2], { before: { seats: 2 }, after: { seats: 5 } });
  assert.ok(!text.includes(code));
  assert.ok(!JSON.stringify(place.service.log).includes(code));
});

async function mailTo(place: InvitationPlace, email: string, count: number) {
  const found = () =>
    place.mail.mails.filter(({ to }) => to.some((each) => each.toLowerCase() === email.toLowerCase()));
  await until(`${count} mails to ${email}`, () => found().length >= count);
  return linkIn(found().at(-1)).split("#invite=")[1] ?? "";
}

test("with a mail server, an address gets a link that opens its account once", async () => {
  await using place = await startInvitations({ hasMail: true });
  const { id, code } = await place.link({ seats: 2, domain: "Uni.Example" });
  refused(await place.join(code), 400, "invalid_value");
  const other = await place.askToJoin(code, "ada@other.example");
  assert.match(refused(other, 403, "domain_differs"), /@uni\.example/);
  refused(await place.askToJoin(code, "ada@sub.uni.example"), 403, "domain_differs");
  refused(await place.askToJoin("x".repeat(43), "ada@uni.example"), 401, "invalid_link");
  refused(await place.askToJoin(code, "ada"), 400, "invalid_value");
  assert.deepEqual((await place.askToJoin(code, "Ada+class@UNI.example", "Ada")).body, {});
  const first = await mailTo(place, "Ada+class@UNI.example", 1);
  assert.partialDeepStrictEqual((await pageOf(place, id)).seats, { waiting: 1, joined: 0 });
  const cookie = cookieOf(await place.press(first));
  const account = await accountOf(place, cookie);
  assert.partialDeepStrictEqual((await place.operator.get(`/admin/accounts/${account}`)).body, {
    owner: "Ada",
    email: "Ada+class@UNI.example",
  });
  refused(await place.press(first), 401, "invalid_invitation");
  // The address is known now, however it is typed: it gets a link to its own account.
  assert.equal((await place.askToJoin(code, "ada@uni.example")).status, 202);
  const back = await mailTo(place, "Ada+class@UNI.example", 2);
  assert.equal(await accountOf(place, cookieOf(await place.press(back))), account);
  assert.partialDeepStrictEqual((await pageOf(place, id)).seats, { waiting: 0, joined: 1 });
  assert.equal((await place.ask("Ada+class@uni.example")).status, 202);
  const asked = await mailTo(place, "Ada+class@UNI.example", 3);
  assert.equal(await accountOf(place, cookieOf(await place.press(asked))), account);
});

test("a mailed link says that the last seat is gone, or that the link has ended", async () => {
  await using place = await startInvitations({ hasMail: true });
  const { id, code } = await place.link({ seats: 1 });
  await place.askToJoin(code, "bob@x.example");
  await place.askToJoin(code, "carl@x.example");
  const [bob, carl] = [await mailTo(place, "bob@x.example", 1), await mailTo(place, "carl@x.example", 1)];
  const both = await Promise.all([place.press(bob), place.press(carl)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 403]);
  const loser = both[0].status === 403 ? bob : carl;
  refused(await place.press(loser), 403, "link_full");
  refused(await place.askToJoin(code, "dora@x.example"), 403, "link_full");
  await place.operator.patch(`/admin/links/${id}`, { seats: 5 });
  assert.equal((await place.press(loser)).status, 200);
  await place.askToJoin(code, "eve@x.example");
  const eve = await mailTo(place, "eve@x.example", 1);
  await place.operator.post(`/admin/links/${id}/end`, {});
  refused(await place.press(eve), 403, "link_ended");
  refused(await place.askToJoin(code, "fritz@x.example"), 403, "link_ended");
});

test("an address that has an account gets no second one, and nobody learns of it", async () => {
  await using place = await startInvitations({ hasMail: true });
  await place.open("ada");
  const { id, code } = await place.link({ seats: 5 });
  const [known, unknown] = [
    await place.askToJoin(code, "ADA+spam@x.example", "Mallory"),
    await place.askToJoin(code, "new@x.example"),
  ];
  assert.deepEqual([known.status, known.text], [unknown.status, unknown.text]);
  const own = await mailTo(place, "ada@x.example", 1);
  assert.equal(await accountOf(place, cookieOf(await place.press(own))), "ada");
  assert.partialDeepStrictEqual((await pageOf(place, id)).seats, { waiting: 1, joined: 0 });
  const waiting = await mailTo(place, "new@x.example", 1);
  assert.ok(!place.mail.mails.some(({ text }) => text.includes("Mallory")), "typed names are not mailed");
  // An account that the operator opens meanwhile.
  await place.open("new");
  refused(await place.press(waiting), 401, "invalid_invitation");
  assert.partialDeepStrictEqual(fieldsOf((await pageOf(place, id)).link), { taken: 0 });
});

test("a mailbox gets three mails an hour, whatever suffix is typed", async () => {
  using _ = stopTime();
  await using place = await startInvitations({ hasMail: true });
  const { code } = await place.link({ seats: 5 });
  for (let n = 0; n < 6; n += 1)
    assert.equal((await place.askToJoin(code, `flood+${n}@x.example`)).status, 202);
  assert.equal((await place.askToJoin(code, "last@x.example")).status, 202);
  await mailTo(place, "last@x.example", 1);
  assert.equal(place.mail.mails.filter(({ to }) => to.some((each) => each.startsWith("flood"))).length, 3);
});

test("somebody who has joined without an address gets a link to the same person", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const { code } = await place.link();
  const cookie = cookieOf(await place.join(code));
  const account = await accountOf(place, cookie);
  const { person } = (await place.portal.as(cookie, "GET", "/api/session")).body;
  const invite = (body: object = {}) => operator.post(`/admin/accounts/${account}/invitation`, body);
  const made = await invite();
  assert.equal(made.status, 201, made.text);
  assert.equal(made.body.email, null);
  const first = String(made.body.link).split("#invite=")[1] ?? "";
  const second = await place.invite(account);
  refused(await place.press(first), 401, "invalid_invitation");
  const back = await place.enter(second);
  assert.deepEqual((await place.portal.as(back, "GET", "/api/session")).body.person, person);
  refused(await place.press(second), 401, "invalid_invitation");
  refused(await invite({ send: "mail" }), 409, "no_mail_server");
  // Support may do it: it chooses no address.
  const key = { operation_id: "k", name: "desk", role: "support" };
  const { body } = await operator.post("/admin/operator-keys", key);
  const headers = { authorization: `Bearer ${body.key}` };
  const asked = await operator.ask("POST", `/admin/accounts/${account}/invitation`, { headers, body: "{}" });
  assert.equal(asked.status, 201, asked.text);
  // It ends with another address, and with the person.
  const third = await place.invite(account);
  assert.equal((await operator.patch(`/admin/accounts/${account}/contact`, { note: "kept" })).status, 200);
  await operator.patch(`/admin/accounts/${account}/contact`, { email: "ada@x.example" });
  refused(await place.press(third), 401, "invalid_invitation");
  await operator.patch(`/admin/accounts/${account}/contact`, { email: null });
  const fourth = await place.invite(account);
  await operator.post(`/admin/people/${fieldsOf(person).id}/state`, { state: "suspended" });
  refused(await place.press(fourth), 401, "invalid_invitation");
  refused(await invite(), 409, "person_suspended");
  // Nobody has joined this one.
  await place.open("none", null);
  refused(await operator.post("/admin/accounts/none/invitation", {}), 400, "invalid_value");
});

test("an erased person has no way back, and the seat stays taken", async () => {
  await using place = await startInvitations();
  const { id, code } = await place.link();
  const join_id = "e".repeat(22);
  const account = await accountOf(place, cookieOf(await place.join(code, { join_id, name: "Grace" })));
  const link = await place.invite(account);
  const [person] = listOf((await place.operator.get(`/admin/people?account=${account}`)).body.data);
  assert.equal((await place.operator.ask("DELETE", `/admin/people/${person?.id}/data`)).status, 200);
  refused(await place.press(link), 401, "invalid_invitation");
  refused(await place.operator.post(`/admin/accounts/${account}/invitation`, {}), 400, "invalid_value");
  const page = await place.operator.get(`/admin/links/${id}`);
  assert.ok(!page.text.includes("Grace"));
  assert.partialDeepStrictEqual(fieldsOf(page.body.link), { taken: 1 });
  const stranger = await accountOf(place, cookieOf(await place.join(code, { join_id })));
  assert.notEqual(stranger, account);
});
