/** `inkwell account`: its effects on the ledger, its output, and its refusals. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/ledger/batcher.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

test("create opens an account and shows the next command", async () => {
  const ran = await ledger.inkwell("account", "create", "alice", "--plan", "starter");
  assert.deepEqual(ran, {
    code: 0,
    stdout: "",
    stderr: "Account alice is open, on plan starter. To issue a key: inkwell key create alice\n",
  });
  assert.equal(ledger.store.account("alice").plan, "starter");
  assert.equal(ledger.closed, 1);
});

test("create prints the account with --json, wherever the option stands", async () => {
  const expected = { id: "alice", plan: "starter", created_at: "2027-01-15T12:00:00.000Z" };
  const ran = await ledger.inkwell("--json", "account", "create", "alice", "--plan", "starter");
  assert.deepEqual(JSON.parse(ran.stdout), expected);
});

test("create refuses an existing account and names its plan", async () => {
  await ledger.openAccount();
  refused(
    await ledger.inkwell("account", "create", "alice", "--plan", "big"),
    /Account alice already exists, opened on plan starter/,
  );
});

test("create refuses an unknown plan and suggests a similar one", async () => {
  refused(
    await ledger.inkwell("account", "create", "alice", "--plan", "startr"),
    /no plan "startr"\. Did you mean starter\?/,
  );
});

for (const name of ["Alice", "a b", "-a", ".a", "a/b", "a".repeat(65), "ä"]) {
  test(`create refuses the name ${name.slice(0, 10)}`, async () => {
    wrongUsage(
      await ledger.inkwell("account", "create", "--plan", "starter", "--", name),
      /1 to 64 characters: lower-case/,
    );
  });
}

test("list shows all accounts over several pages of the store", async () => {
  for (let i = 0; i < 101; i++) {
    await new Ledger(ledger.store).apply({ kind: "open", account: `a${i}`, plan: "big" });
  }
  const ran = await ledger.inkwell("account", "list");
  const lines = ran.stdout.trimEnd().split("\n");
  assert.equal(lines.length, 102);
  assert.equal(lines[0], "ACCOUNT  PLAN   BASE  OVERAGE  ADDITIONAL  CREATED");
  assert.equal(lines[1], "a0       big   5,000        0           0  2027-01-15 12:00Z");
  const list = await ledger.documentOf("account", "list");
  assert.ok(Array.isArray(list) && list.length === 101);
});

test("list shows how to begin if there are none", async () => {
  assert.match((await ledger.inkwell("account", "list")).stderr, /inkwell account create NAME --plan PLAN/);
});

test("show prints plan, balance and keys", async () => {
  await ledger.openAccount();
  const { id, key } = await ledger.makeKey("--name", "laptop");
  const ran = await ledger.inkwell("account", "show", "alice");
  assert.match(ran.stdout, /^Account alice, plan starter, opened 2027-01-15 12:00Z\n/);
  assert.match(ran.stdout, /^base +1,000 +1,000 +100\.00 % +2027-01-16T12:00:00\.000Z$/m);
  assert.match(ran.stdout, new RegExp(`^${id} +alice +ink_\\.\\.\\.${key.slice(-4)} +laptop +active`, "m"));
  assert.ok(!ran.stdout.includes(key), "the key itself is never shown again");
});

test("list and show report the problem of an account without a plan", async () => {
  await ledger.openAccount();
  await ledger.openAccount("bob");
  await ledger.makeKey();
  ledger.store.damage("alice", { plan: "gone" });
  const problem = 'its plan "gone" is not in the configuration';

  const list = await ledger.inkwell("account", "list");
  assert.equal(list.code, 0);
  assert.deepEqual(list.stdout.trimEnd().split("\n"), [
    "ACCOUNT  PLAN      BASE  OVERAGE  ADDITIONAL  CREATED            PROBLEM",
    `alice    gone         -        -           -  2027-01-15 12:00Z  ${problem}`,
    "bob      starter  1,000      200           0  2027-01-15 12:00Z",
  ]);
  assert.match(list.stderr, /^1 account must be repaired\. .*"inkwell account set NAME --plan PLAN"/);
  const documents = await ledger.documentOf("account", "list");
  assert.ok(Array.isArray(documents));
  assert.deepEqual(
    documents.map((each) => [each.id, each.balance?.balances.base.credits, each.problem]),
    [
      ["alice", undefined, problem],
      ["bob", 1000, null],
    ],
  );

  const shown = await ledger.inkwell("account", "show", "alice");
  assert.equal(shown.code, 0);
  assert.match(shown.stdout, new RegExp(`^The balance cannot be read: ${problem}\\.$`, "m"));
  assert.match(shown.stdout, /^key_\w+ +alice +ink_/m);
  assert.match(shown.stderr, /inkwell account set NAME --plan PLAN/);
  const document = await ledger.documentOf("account", "show", "alice");
  assert.ok(typeof document === "object" && document !== null && "balance" in document);
  assert.deepEqual([document.balance, "problem" in document && document.problem], [null, problem]);
});

test("show refuses an unknown account", async () => {
  refused(await ledger.inkwell("account", "show", "bob"), /There is no account bob/);
});

test("set upgrades a plan at once", async () => {
  await ledger.openAccount();
  const ran = await ledger.inkwell("account", "set", "alice", "--plan", "big");
  assert.equal(
    ran.stderr,
    "Account alice is on plan big. A larger grant counts at once, a smaller one from the next refresh.\n",
  );
  assert.equal(ledger.store.account("alice").base, 5_000_000_000);
});

test("set refuses an unknown account or plan", async () => {
  refused(await ledger.inkwell("account", "set", "bob", "--plan", "big"), /There is no account bob/);
  await ledger.openAccount();
  refused(
    await ledger.inkwell("account", "set", "alice", "--plan", "huge"),
    /no plan "huge"\. Defined: starter, big\./,
  );
});

test("set to a smaller plan takes nothing before the next refresh", async () => {
  await ledger.inkwell("account", "create", "alice", "--plan", "big");
  assert.equal((await ledger.inkwell("account", "set", "alice", "--plan", "starter")).code, 0);
  assert.match((await ledger.inkwell("balance", "alice")).stdout, /^base +5,000 +/m);
  ledger.nowMs += 24 * 60 * 60 * 1000;
  assert.match((await ledger.inkwell("balance", "alice")).stdout, /^base +1,000 +1,000 /m);
});
