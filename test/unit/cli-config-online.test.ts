/** `inkwell config check --online`: what a real issuer says about the section `sign_in`. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { cliLedger } from "../fixtures/cli-ledger.ts";
import { startIssuer, type TestIssuer } from "../fixtures/issuer.ts";

const ledger = cliLedger();

describe("config check --online", () => {
  let issuer: TestIssuer;
  before(async () => {
    issuer = await startIssuer({ redirectUris: ["https://ops.example/console/signed-in"] });
  });
  after(() => issuer[Symbol.asyncDispose]());

  async function check(change: { issuer?: string; secret?: string; url?: string } = {}) {
    const { issuer: url = issuer.url, secret = issuer.client.secret } = change;
    writeFileSync(
      path.join(ledger.cwd, "online.yaml"),
      `operator: { url: ${change.url ?? "https://ops.example"} }
sign_in:
  issuer: ${url}
  client_id: inkwell
  client_secret: ${secret}
  operators: [{ group: it, role: owner }]
`,
    );
    return await ledger.inkwell("config", "check", "--online", "--config", "online.yaml");
  }

  test("says that people can sign in", async () => {
    const { code, stderr } = await check();
    assert.equal(code, 0, stderr);
    assert.ok(stderr.endsWith(`People can sign in at ${issuer.url}.\n`), stderr);
  });

  test("names a wrong secret with its line, and does not show it", async () => {
    const { code, stderr } = await check({ secret: "not-the-secret" });
    assert.equal(code, 1);
    assert.match(stderr, /online\.yaml:5: sign_in\.client_secret: the issuer refuses the client inkwell/);
    assert.ok(!stderr.includes("not-the-secret"));
  });

  test("names a wrong issuer with its line", async () => {
    const { code, stderr } = await check({ issuer: "http://127.0.0.1:9" });
    assert.equal(code, 1);
    assert.match(stderr, /online\.yaml:3: sign_in\.issuer: http:\/\/127\.0\.0\.1:9 cannot be used: /);
  });

  test("names an address that is not registered", async () => {
    const { code, stderr } = await check({ url: "https://other.example" });
    assert.equal(code, 1);
    assert.match(
      stderr,
      /operator\.url: the issuer does not accept https:\/\/other\.example\/console\/signed-in/,
    );
  });
});
