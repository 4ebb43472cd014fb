/**
 * A CSV file imported over HTTP, as the console does: previewed by row, applied some rows at a
 * time, repeated, and the invitations that come of it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startInvitations } from "../fixtures/invitations.ts";
import { fieldsOf, listOf, refused, type TestOperator } from "../fixtures/operator.ts";

const three = `account,plan,owner,email,additional
ada,test,Ada Lovelace,ada@x.example,40
bob,test,"Books, Bob",bob@x.example,
carl,test,,,
`;

function importer(operator: TestOperator) {
  return async (csv: string, more: object = {}) => {
    const answer = await operator.post("/admin/accounts/import", { csv, ...more });
    assert.equal(answer.status, 200, answer.text);
    return { rows: listOf(answer.body.data), next: answer.body.next, total: answer.body.total };
  };
}

/** The fixture has one account of its own. */
async function accountsOf(operator: TestOperator, query = "") {
  const { data } = (await operator.get(`/admin/accounts${query}`)).body;
  return listOf(data).filter(({ id }) => id !== "test");
}

async function idsOf(operator: TestOperator, query = ""): Promise<unknown[]> {
  return (await accountsOf(operator, query)).map(({ id }) => id);
}

test("a preview says what each row would do, and changes nothing", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  await place.open("bob", "old@x.example");
  const before = await operator.get("/admin/accounts/bob");
  const ask = importer(operator);
  const csv = `${three}Dora,test,,,\n`;
  const kept = await ask(csv, { dry_run: true, invite: "link" });
  assert.equal(kept.total, 4);
  assert.deepEqual(
    kept.rows.map(({ line, result, credits, link }) => [line, result, credits, link]),
    [
      [2, "opened", 40, null],
      [3, "unchanged", 0, null],
      [4, "opened", 0, null],
      [5, "refused", 0, null],
    ],
  );
  const texts = kept.rows.map(({ text }) => String(text));
  assert.deepEqual(texts.slice(0, 3), [
    "opened on plan test, with 40 additional credits; owner Ada Lovelace; email ada@x.example; a link",
    "owner stays Owner of bob, and the row has Books, Bob; email stays old@x.example, and the row has bob@x.example; a link",
    "opened on plan test; no link: there is no e-mail address",
  ]);
  assert.match(texts[3] ?? "", /^account must be .*lower-case/);
  const replaced = await ask(csv, { dry_run: true, contacts: "replace" });
  assert.equal(
    replaced.rows[1]?.text,
    "owner Books, Bob in place of Owner of bob; email bob@x.example in place of old@x.example",
  );
  assert.deepEqual(await idsOf(operator), ["bob"]);
  assert.deepEqual((await operator.get("/admin/accounts/bob")).body, before.body);
});

test("rows are applied some at a time, and a repetition opens and gives nothing twice", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const ask = importer(operator);
  const first = await ask(three, { invite: "link", limit: 1 });
  assert.deepEqual([first.rows.map(({ account }) => account), first.next], [["ada"], "2"]);
  assert.deepEqual(await idsOf(operator), ["ada"]);
  const rest = await ask(three, { invite: "link", after: first.next });
  assert.deepEqual([rest.rows.map(({ account }) => account), rest.next], [["bob", "carl"], null]);
  const links = [...first.rows, ...rest.rows].map(({ email, link }) => [email, String(link).split("#")[0]]);
  const portal = `${place.portal.url}/`;
  assert.deepEqual(links, [
    ["ada@x.example", portal],
    ["bob@x.example", portal],
    [null, "null"],
  ]);
  await place.enter(String(first.rows[0]?.link).split("#invite=")[1] ?? "");
  const again = await ask(three, { invite: "link" });
  assert.deepEqual(
    again.rows.map(({ result, text, link }) => [result, text, link === null]),
    [
      ["unchanged", "no link: the person has come", true],
      ["unchanged", "a new link", false],
      ["unchanged", "no link: there is no e-mail address", true],
    ],
  );
  const { balances } = fieldsOf((await operator.get("/admin/accounts/ada/balance")).body);
  assert.deepEqual(fieldsOf(fieldsOf(balances).additional), { credits: 40 });
  const lost = await operator.post("/admin/accounts/import", { csv: three, after: "9" });
  assert.match(refused(lost, 400, "invalid_value"), /^after must be/);
});

test("the list says who was invited, who has not come, and who has made a request", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const { rows } = await importer(operator)(three, { invite: "link" });
  await place.open("dora");
  const states = async () =>
    Object.fromEntries((await accountsOf(operator)).map(({ id, invitation }) => [id, invitation]));
  assert.deepEqual(await states(), { ada: "invited", bob: "invited", carl: null, dora: null });
  const cookie = await place.enter(String(rows[0]?.link).split("#invite=")[1] ?? "");
  assert.deepEqual(await idsOf(operator, "?not_come=true"), ["bob"]);
  assert.deepEqual(await idsOf(operator, "?not_come=true&order=remaining&search=b"), ["bob"]);
  assert.deepEqual(await states(), { ada: "joined", bob: "invited", carl: null, dora: null });
  const made = await place.portal.as(cookie, "POST", "/api/keys", { operation_id: "one", name: "laptop" });
  const headers = { authorization: `Bearer ${made.body.key}` };
  assert.equal((await place.service.chat({}, { headers })).status, 200);
  assert.equal((await states()).ada, "used");
  // A new link for somebody who has come is no invitation that waits.
  await place.invite("ada");
  assert.equal((await states()).ada, "used");
  // Nobody can come to a closed account.
  await operator.post("/admin/accounts/bob/state", { operation_id: "end", state: "closed" });
  assert.deepEqual(await idsOf(operator, "?not_come=true"), []);
  assert.equal((await states()).bob, "lapsed");
});

test("links are mailed, and without a portal or a mail server nothing changes", async () => {
  await using place = await startInvitations({ hasMail: true });
  const { rows } = await importer(place.operator)(three, { invite: "mail" });
  assert.deepEqual(
    rows.map(({ text, link }) => [/a new link$/.test(String(text)), link]),
    [
      [true, null],
      [true, null],
      [false, null],
    ],
  );
  assert.equal(place.mail.mails.length, 2);
  await using other = await startInvitations({ hasUrl: false });
  const body = { csv: three, invite: "link", dry_run: true };
  refused(await other.operator.post("/admin/accounts/import", body), 409, "no_portal_url");
  await using mute = await startInvitations();
  refused(
    await mute.operator.post("/admin/accounts/import", { csv: three, invite: "mail" }),
    409,
    "no_mail_server",
  );
  assert.deepEqual(await idsOf(mute.operator), []);
});

test("support invites with a list, and opens and changes nothing with one", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  await place.open("ada");
  const key = await operator.post("/admin/operator-keys", { operation_id: "s", name: "s", role: "support" });
  const headers = { authorization: `Bearer ${key.body.key}` };
  const ask = (csv: string, more: object) =>
    operator.ask("POST", "/admin/accounts/import", { headers, body: JSON.stringify({ csv, ...more }) });
  const invited = await ask("account\nada\n", { invite: "link" });
  assert.equal(listOf(invited.body.data)[0]?.text, "a new link", invited.text);
  refused(await ask(three, {}), 403, "not_permitted");
  refused(await ask("account,note\nada,x\n", { contacts: "replace" }), 403, "not_permitted");
  assert.deepEqual(await idsOf(operator), ["ada"]);
});

test("cells copied from a spreadsheet are read, and faults of the form name their lines", async () => {
  await using place = await startInvitations();
  const { operator } = place;
  const ask = importer(operator);
  const tabs = await ask("account\tplan\towner\nada\ttest\tAda, Countess\nbob\ttest\t\n");
  assert.deepEqual(
    tabs.rows.map(({ result }) => result),
    ["opened", "opened"],
  );
  assert.equal((await operator.get("/admin/accounts/ada")).body.owner, "Ada, Countess");
  const faulty = await operator.post("/admin/accounts/import", {
    csv: "account,plans\neve,test\neve,test\n",
  });
  const message = refused(faulty, 400, "invalid_value");
  assert.match(message, /line 1: There is no column .*\n {2}line 3: The account "eve" occurs twice/);
  assert.deepEqual(await idsOf(operator), ["ada", "bob"]);
});
