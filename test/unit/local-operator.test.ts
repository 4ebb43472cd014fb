/** The operator API in the process of a command, and a command whose database cannot be closed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openLocalOperator } from "../../src/app/local-operator.ts";
import { inProcess } from "../../src/cli/transport.ts";
import { loadConfig } from "../../src/config/load.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

test("the error behind a response is told once", async () => {
  const { store } = ledger;
  const config = loadConfig({ cwd: ledger.cwd, env: {} });
  const options = { operatorToken: () => "" };
  await using operator = await openLocalOperator(config, { store, ledger: new Ledger(store) }, options);
  const broken = new Error("this account list is broken");
  store.accounts = () => Promise.reject(broken);
  const headers = { authorization: `Bearer ${operator.token}` };
  const sent = { method: "GET", path: "/admin/accounts", body: null, silenceMs: null } as const;
  assert.equal((await inProcess(operator, headers).ask(sent)).status, 500);
  assert.equal(operator.failure(), broken);
  assert.equal(operator.failure(), null);
});

test("a database that cannot be closed is a failure of the command, after its own", async () => {
  const { store } = ledger;
  store.close = () => Promise.reject(new Error("the database stays open"));
  const listed = await ledger.inkwell("account", "list");
  assert.equal(listed.code, 1);
  assert.match(listed.stderr, /This is a defect of Inkwell.*the database stays open/s);
  const both = await ledger.inkwell("account", "show", "nobody");
  refused(both, /^There is no account nobody.*the database stays open/s);
});
