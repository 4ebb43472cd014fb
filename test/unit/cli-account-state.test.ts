/** `inkwell account suspend`, `resume` and `close`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import { openTerminal } from "../fixtures/cli-host.ts";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();
const stateOf = () => ledger.store.account("alice").state;

test("suspend and resume change the state, and list shows it", async () => {
  await ledger.openAccount();
  const suspended = await ledger.inkwell("account", "suspend", "alice");
  assert.equal(suspended.stderr, "Account alice is suspended. To end that: ./inkwell account resume alice\n");
  assert.match((await ledger.inkwell("account", "list")).stdout, / STATE\nalice .* suspended$/m);
  assert.match((await ledger.inkwell("account", "show", "alice")).stdout, /, suspended\n/);
  assert.equal((await ledger.inkwell("account", "resume", "alice")).stderr, "Account alice is active.\n");
  assert.equal(stateOf(), "active");
});

test("close needs --yes without a terminal, and says what lapses", async () => {
  await ledger.openAccount();
  refused(
    await ledger.inkwell("account", "close", "alice"),
    /Closing alice is final\. 1,200 base and overage credits lapse\. Confirm it with --yes\./,
  );
  assert.equal(stateOf(), "active");
  const document = await ledger.documentOf("account", "close", "alice", "--yes");
  assert.partialDeepStrictEqual(document, { id: "alice", state: "closed" });
});

for (const [answer, state] of [
  ["y", "closed"],
  ["yes", "closed"],
  ["", "active"],
  ["n", "active"],
] as const) {
  test(`close asks at a terminal; "${answer}" leaves the account ${state}`, async () => {
    await ledger.openAccount();
    const terminal = openTerminal(["account", "close", "alice"], {
      cwd: ledger.cwd,
      services: { openStore: async () => ({ store: ledger.store, ledger: new Ledger(ledger.store) }) },
    });
    await terminal.shows("Close it? [y/N]");
    terminal.type(`${answer}\r`);
    assert.equal(await terminal.ended, state === "closed" ? 0 : 1);
    assert.equal(stateOf(), state);
  });
}

test("close at a terminal changes nothing if the input ends", async () => {
  await ledger.openAccount();
  const terminal = openTerminal(["account", "close", "alice"], {
    cwd: ledger.cwd,
    services: { openStore: async () => ({ store: ledger.store, ledger: new Ledger(ledger.store) }) },
  });
  await terminal.shows("Close it? [y/N]");
  terminal.type("\u0004");
  assert.equal(await terminal.ended, 1);
  assert.equal(stateOf(), "active");
});
