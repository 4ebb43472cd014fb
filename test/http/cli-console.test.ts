/** `inkwell console` against a running operator listener. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { databaseText } from "../../src/config/database.ts";
import { loadConfig } from "../../src/config/load.ts";
import { writeOperatorAddress } from "../../src/operator-address.ts";
import { openTerminal, runCli } from "../fixtures/cli-host.ts";
import { operatorToken, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
let operator: TestOperator;
let ownUrl: string | null = null;
const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-console-"));
const env = { INKWELL_OPERATOR_TOKEN: operatorToken };

before(async () => {
  service = await startService();
  operator = await startOperator(service, [], { ownUrl: () => ownUrl });
  await withUrl(null);
});
after(async () => {
  await operator[Symbol.asyncDispose]();
  await service[Symbol.asyncDispose]();
  rmSync(cwd, { recursive: true });
});

/** Writes the configuration, and the address as the service of this folder does. */
async function withUrl(url: string | null): Promise<void> {
  ownUrl = url;
  writeFileSync(
    path.join(cwd, "inkwell.yaml"),
    url === null ? "data: .\n" : `data: .\noperator: { url: "${url}" }\n`,
  );
  const { database } = loadConfig({ cwd, env: {} });
  writeOperatorAddress(cwd, {
    url: operator.url,
    api: service.url,
    pid: process.pid,
    database: databaseText(database),
  });
}

async function atTerminal(argv: readonly string[], variables: Record<string, string> = env) {
  const { ended, screen } = openTerminal(argv, { cwd, env: variables });
  return { code: await ended, shown: screen() };
}

async function signIn(code: string): Promise<number> {
  const headers = { authorization: undefined, ...pageHeader };
  return (await operator.ask("POST", "/admin/session", { headers, body: JSON.stringify({ code }) })).status;
}

test("prints a link that signs in once", async () => {
  const { code, shown } = await atTerminal(["console"]);
  assert.equal(code, 0, shown);
  const [, secret = ""] =
    new RegExp(`^${operator.url}/console#code=([\\w-]{22})$`, "m").exec(shown.replaceAll("\r", "")) ?? [];
  assert.equal(await signIn(secret), 200, shown);
  assert.equal(await signIn(secret), 401);
});

test("prints a link below operator.url of the service", async () => {
  await withUrl("https://ops.example/inkwell/");
  const { shown } = await atTerminal(["console"]);
  assert.match(shown, /^https:\/\/ops\.example\/inkwell\/console#code=[\w-]{22}\r?$/m);
  await withUrl(null);
});

for (const argv of [["console"], ["console", "--json"]]) {
  test(`prints no link into a pipe: ${argv.join(" ")}`, async () => {
    const ran = await runCli(argv, { cwd, env });
    assert.equal(ran.code, 0);
    assert.doesNotMatch(ran.stdout + ran.stderr, /code=/);
    assert.ok(ran.stdout.includes(`${operator.url}/console`));
    assert.match(ran.stderr, /to terminals only/);
  });
}

test("prints no link at a terminal with --json", async () => {
  const { shown } = await atTerminal(["console", "--json"]);
  assert.doesNotMatch(shown, /code=/);
});

test("explains a wrong token, and a service that does not respond", async () => {
  const wrong = await atTerminal(["console"], { INKWELL_OPERATOR_TOKEN: "another-operator-token" });
  assert.deepEqual([wrong.code, /not the operator token/.test(wrong.shown)], [1, true]);
  rmSync(path.join(cwd, "operator-address"));
  const nobody = await atTerminal(["console"]);
  assert.deepEqual([nobody.code, /No service runs here/.test(nobody.shown)], [1, true]);
});
