/** Signing in with OpenID Connect in the whole program: start, reload, and a wrong section. */
import assert from "node:assert/strict";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { startInside } from "../fixtures/inner-program.ts";
import { startIssuer } from "../fixtures/issuer.ts";
import { fieldsOf } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

async function choicesAt(url: string): Promise<unknown> {
  const answer = await fetch(`${url}/api/sign-in`, { headers: pageHeader });
  return fieldsOf(await answer.json()).issuer;
}

test("starts without sign-in if the section is wrong, says so, and a reload brings it", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const portal = `http://127.0.0.1:${await freePort()}`;
  const operator = `http://127.0.0.1:${await freePort()}`;
  await using issuer = await startIssuer({ redirectUris: [`${portal}/signed-in`] });
  configureUpstream(folder.path, upstream);
  const env = {
    INKWELL_PORTAL_PORT: new URL(portal).port,
    INKWELL_OPERATOR_PORT: new URL(operator).port,
  };
  const file = path.join(folder.path, "inkwell.yaml");
  const before = readFileSync(file, "utf8");
  const section = (rule: string) => `sign_in:
  issuer: ${issuer.url}
  client_id: inkwell
  client_secret: ${issuer.client.secret}
  name: Example University
  operators: [{ ${rule}, role: owner }]
`;
  appendFileSync(file, section("grop: it"));
  await using program = startInside(folder.path, { env });
  await program.up();
  assert.equal(await choicesAt(portal), null);
  const token = readFileSync(path.join(folder.path, "data", "operator-token"), "utf8").trim();
  const hasJob = async () => {
    const answer = await fetch(`${operator}/admin/jobs`, { headers: { authorization: `Bearer ${token}` } });
    return (await answer.text()).includes("suspend_lapsed_accounts");
  };
  assert.equal(await hasJob(), false);
  const ready = await (await fetch(`${operator}/readyz`)).text();
  assert.match(ready, /People cannot sign in: the section sign_in of the configuration is wrong/);
  assert.match(program.stderr, /sign_in\.operators\[0\]\.grop is not known; did you mean group\?/);
  const begun = await fetch(`${portal}/api/sign-in`, { method: "POST", headers: pageHeader });
  assert.equal(begun.status, 404);
  writeFileSync(file, before + section("group: it"));
  program.signal("SIGHUP");
  await until("the reload is applied", async () => (await choicesAt(portal)) !== null);
  assert.deepEqual(await choicesAt(portal), { name: "Example University", available: true });
  assert.equal(await hasJob(), true);
  assert.ok(!(await (await fetch(`${operator}/readyz`)).text()).includes("sign_in"));
  // A service that runs keeps its sign-in.
  writeFileSync(file, before + section("grop: it"));
  program.signal("SIGHUP");
  await until("the reload is refused", () => program.stderr.includes("the configuration was not reloaded"));
  assert.notEqual(await choicesAt(portal), null);
  const page = await fetch(`${portal}/api/sign-in`, { method: "POST", headers: pageHeader });
  assert.ok(String(fieldsOf(await page.json()).url).startsWith(`${issuer.url}/auth?`));
});
