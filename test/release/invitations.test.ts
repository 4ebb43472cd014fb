/** Invitations in the whole program: links by mail, and a mail server that a reload brings. */
import assert from "node:assert/strict";
import { appendFileSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { startInside } from "../fixtures/inner-program.ts";
import { linkIn, startMailServer } from "../fixtures/mail-server.ts";
import { fieldsOf } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

test("a reload brings the mail server, and people ask for new links without an issuer", async () => {
  await using upstream = await startUpstream();
  await using mail = await startMailServer();
  await using folder = await newFolder();
  const portal = `http://127.0.0.1:${await freePort()}`;
  const operator = `http://127.0.0.1:${await freePort()}`;
  configureUpstream(folder.path, upstream, `portal: { url: "${portal}" }\n`);
  const env = {
    INKWELL_PORTAL_PORT: new URL(portal).port,
    INKWELL_OPERATOR_PORT: new URL(operator).port,
  };
  await using program = startInside(folder.path, { env });
  await program.up();
  const token = readFileSync(path.join(folder.path, "data", "operator-token"), "utf8").trim();
  const post = async (url: string, body: object, headers: Record<string, string>) => {
    const sent = { method: "POST", headers: { "content-type": "application/json", ...headers } };
    const answer = await fetch(url, { ...sent, body: JSON.stringify(body) });
    return { status: answer.status, text: await answer.text() };
  };
  const invite = (body: object) =>
    post(`${operator}/admin/accounts/default/invitation`, body, { authorization: `Bearer ${token}` });
  const ask = () => post(`${portal}/api/sign-in/links`, { email: "ada@x.example" }, pageHeader);
  const sendsLinks = async () =>
    fieldsOf(await (await fetch(`${portal}/api/sign-in`)).json()).sends_links === true;
  assert.equal((await invite({ email: "ada@x.example" })).status, 201);
  assert.match((await invite({ send: "mail" })).text, /no_mail_server/);
  assert.equal(await sendsLinks(), false);
  const section = `events: { mail: { host: 127.0.0.1, port: ${mail.port}, tls: none, from: ink@x.example } }\n`;
  appendFileSync(path.join(folder.path, "inkwell.yaml"), section);
  program.signal("SIGHUP");
  await until("the reload is applied", sendsLinks);
  assert.equal((await ask()).status, 202);
  await until("it is sent", () => mail.mails.length === 1);
  const invitation = linkIn(mail.mails[0]).split("#invite=")[1] ?? "";
  assert.equal((await post(`${portal}/api/session`, { invitation }, pageHeader)).status, 200);
  assert.match((await post(`${portal}/api/session`, { invitation }, pageHeader)).text, /invalid_invitation/);
  assert.ok(!program.stderr.includes(invitation));
});
