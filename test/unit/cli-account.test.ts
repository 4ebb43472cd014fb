/** `inkwell account`: its effects on the ledger, its output, and its refusals. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import { cliLedger, refused, twoPlans, wrongUsage } from "../fixtures/cli-ledger.ts";
import { load } from "../fixtures/configuration.ts";

const ledger = cliLedger();

test("create opens an account and shows the next command", async () => {
  const ran = await ledger.inkwell("account", "create", "alice", "--plan", "starter");
  assert.deepEqual(ran, {
    code: 0,
    stdout: "",
    stderr: "Account alice is open, on plan starter. To issue a key: ./inkwell key create alice\n",
  });
  assert.equal(ledger.store.account("alice").plan, "starter");
  assert.equal(ledger.closed, 1);
});

test("create refuses an existing account and names its plan", async () => {
  await ledger.openAccount();
  refused(
    await ledger.inkwell("account", "create", "alice", "--plan", "big"),
    /Account alice already exists, opened on plan starter/,
  );
});

test("list shows all accounts over several pages of the store", async () => {
  for (let i = 0; i < 101; i++) {
    await new Ledger(ledger.store).apply({ kind: "open", account: `a${i}`, plan: "big", by: "test" });
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
  assert.match(
    (await ledger.inkwell("account", "list")).stderr,
    /\.\/inkwell account create NAME --plan PLAN/,
  );
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
  const problem = 'the database has no version of its plan "gone"';

  const list = await ledger.inkwell("account", "list");
  assert.equal(list.code, 0);
  assert.deepEqual(list.stdout.trimEnd().split("\n"), [
    "ACCOUNT  PLAN      BASE  OVERAGE  ADDITIONAL  CREATED            PROBLEM",
    `alice    gone         -        -           -  2027-01-15 12:00Z  ${problem}`,
    "bob      starter  1,000      200           0  2027-01-15 12:00Z",
  ]);
  assert.match(list.stderr, /^1 account must be repaired\. .*"\.\/inkwell account set NAME --plan PLAN"/);
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
  assert.match(shown.stdout, new RegExp(`^The balance of this account cannot be read\\. .*${problem}`, "m"));
  assert.match(shown.stdout, /^key_\w+ +alice +ink_/m);
  assert.match(shown.stderr, /\.\/inkwell account set NAME --plan PLAN/);
  const document = await ledger.documentOf("account", "show", "alice");
  assert.ok(typeof document === "object" && document !== null && "balance" in document);
  assert.deepEqual(
    [document.balance, "problem" in document && String(document.problem).includes(problem)],
    [null, true],
  );
});

test("set cancels a scheduled change if the present plan is chosen", async () => {
  await ledger.openAccount();
  const set = (...options: string[]) => ledger.inkwell("account", "set", "alice", "--plan", ...options);
  await set("big", "--at", "refresh");
  assert.equal(ledger.store.account("alice").nextPlan, "big");
  assert.equal((await set("starter")).stderr, "Account alice is on plan starter.\n");
  assert.equal(ledger.store.account("alice").nextPlan, null);
});

test("set schedules a plan for the refresh, which show and list name until it takes effect", async () => {
  await ledger.openAccount();
  const ran = await ledger.inkwell("account", "set", "alice", "--plan", "big");
  assert.equal(
    ran.stderr,
    "Account alice stays on plan starter until the next refresh, and is on plan big from then on.\n",
  );
  assert.match(
    (await ledger.inkwell("account", "show", "alice")).stdout,
    /^Account alice, plan starter, opened 2027-01-15 12:00Z, plan big from 2027-01-16 12:00Z\n/,
  );
  assert.match((await ledger.inkwell("account", "list")).stdout, / NEXT PLAN\nalice .* big$/m);
  // Nothing is written when the window ends, and the account is on its new plan all the same.
  ledger.nowMs += 24 * 60 * 60 * 1000;
  const document = await ledger.documentOf("account", "show", "alice");
  assert.partialDeepStrictEqual(document, { plan: "big", next_plan: null });
  assert.partialDeepStrictEqual(await ledger.documentOf("account", "list"), [
    { plan: "big", next_plan: null },
  ]);
});

test("set --dry-run shows both balances and changes nothing", async () => {
  await ledger.openAccount();
  const before = ledger.store.account("alice");
  const set = ["account", "set", "alice", "--plan", "big", "--dry-run"];
  const now = await ledger.inkwell(...set, "--at", "now");
  const [head, first, then, second] = now.stdout.trimEnd().split("\n\n");
  assert.deepEqual([head, then], ["Account alice, plan starter until 2027-01-15 12:00Z", "Then plan big"]);
  assert.match(first ?? "", /^base +1,000 +1,000 .*\noverage +200 +200 /m);
  assert.match(second ?? "", /^base +5,000 +5,000 .*\noverage +0 +0 /m);
  assert.match(now.stderr, /^Nothing has changed\./);
  const document = await ledger.documentOf(...set);
  assert.partialDeepStrictEqual(document, {
    account: "alice",
    effective_at: "2027-01-16T12:00:00.000Z",
    before: { plan: "starter", balance: { baseWindow: { refreshesAt: "2027-01-16T12:00:00.000Z" } } },
    after: { plan: "big", balance: { baseWindow: { refreshesAt: "2027-01-17T12:00:00.000Z" } } },
  });
  assert.equal(ledger.store.account("alice"), before);
  refused(
    await ledger.inkwell("account", "set", "alice", "--plan", "huge", "--dry-run"),
    /no plan "huge"\. Defined: starter, big\./,
  );
});

test("set names the options that allow a plan with other windows", async () => {
  await ledger.openAccount();
  const { plans } = load(twoPlans.replace("credits: 5000, every: P1D", "credits: 5000, every: P1W"));
  await ledger.store.applyPlans(plans, { force: true, by: "test" });
  refused(
    await ledger.inkwell("account", "set", "alice", "--plan", "big", "--at", "now"),
    /another window for base, .* The options are --at refresh and --new-window\.\n$/,
  );
});

test("set refuses options that do not belong together", async () => {
  const set = (...options: string[]) => ledger.inkwell("account", "set", "alice", ...options);
  wrongUsage(await set(), /give --plan, --ends or the contact/);
  wrongUsage(await set("--plan", "big", "--ends", "never"), /one of them at a time/);
  wrongUsage(await set("--ends", "never", "--dry-run"), /belong to --plan/);
  wrongUsage(await set("--ends", "never", "--at", "now"), /belong to --plan/);
  wrongUsage(await set("--plan", "big", "--at", "noon"), /Allowed choices are refresh, now/);
});

test("set --ends closes the account at that time, and never removes the time", async () => {
  await ledger.openAccount();
  const set = (ends: string) => ledger.inkwell("account", "set", "alice", "--ends", ends);
  assert.equal((await set("2027-01-20")).stderr, "Account alice closes at 2027-01-21 00:00Z.\n");
  assert.match((await ledger.inkwell("account", "list")).stdout, /active, ends 2027-01-21 00:00Z$/m);
  assert.equal((await set("never")).stderr, "Account alice has no end.\n");
  refused(
    await set("2020-01-20"),
    /^The end 2020-01-21 00:00Z has passed\. Nothing has changed\. .*: \.\/inkwell account close alice\n$/,
  );
  assert.equal(ledger.store.account("alice").state, "active");
  await set("2027-01-20");
  ledger.nowMs = Date.UTC(2027, 0, 21);
  assert.partialDeepStrictEqual(await ledger.documentOf("account", "show", "alice"), {
    state: "closed",
    balance: { available: false },
  });
  refused(await set("never"), /Account alice is closed/);
});

test("create and set keep the contact, show and list print it, and list finds it", async () => {
  const create = ["account", "create", "alice", "--plan", "starter", "--owner", "Alice Ltd"];
  assert.equal((await ledger.inkwell(...create, "--external-id", "crm-1")).code, 0);
  await ledger.openAccount("bob");
  const changed = await ledger.inkwell(
    "account",
    "set",
    "bob",
    "--email",
    "bob@example.com",
    "--note",
    "new",
  );
  assert.equal(changed.stderr, "The contact of account bob is changed.\n");
  assert.match(
    (await ledger.inkwell("account", "show", "bob")).stdout,
    /\ne-mail: bob@example\.com\nnote: new\n/,
  );
  assert.match((await ledger.inkwell("account", "list")).stdout, / OWNER\nalice .* Alice Ltd\nbob /);
  const found = async (...filter: string[]) => {
    const { stdout } = await ledger.inkwell("account", "list", ...filter);
    return stdout
      .split("\n")
      .slice(1, -1)
      .map((line) => line.split(" ")[0]);
  };
  assert.deepEqual(await found("--search", "alice"), ["alice"]);
  assert.deepEqual(await found("--search", "BOB@example"), ["bob"]);
  assert.deepEqual(await found("--external-id", "crm-1"), ["alice"]);
  assert.match((await ledger.inkwell("account", "list", "--search", "zoe")).stderr, /No account matches/);
  await ledger.inkwell("account", "set", "bob", "--email", "");
  assert.equal((await ledger.store.contact("bob"))?.email, null);
  assert.equal((await ledger.store.contact("bob"))?.note, "new");
});

test("list filters, orders and cuts off accounts", async () => {
  for (const name of ["alice", "bob", "cy"]) await ledger.openAccount(name);
  await ledger.inkwell("account", "set", "bob", "--plan", "big", "--at", "now");
  await ledger.inkwell("account", "suspend", "cy");
  await ledger.inkwell("credits", "add", "alice", "10", "--payment", "p");
  const found = async (...options: string[]) => {
    const document = await ledger.documentOf("account", "list", ...options);
    assert.ok(Array.isArray(document));
    return document.map(({ id }) => id);
  };
  assert.deepEqual(await found("--descending"), ["cy", "bob", "alice"]);
  assert.deepEqual(await found("--order", "remaining"), ["cy", "alice", "bob"]);
  assert.deepEqual(await found("--order", "remaining", "--descending", "--limit", "2"), ["bob", "alice"]);
  assert.deepEqual(await found("--plan", "starter", "--state", "active"), ["alice"]);
  assert.deepEqual(await found("--low-balance"), []);
  assert.match((await ledger.inkwell("account", "list", "--low-balance")).stderr, /No account matches/);
  wrongUsage(await ledger.inkwell("account", "list", "--order", "name"), /Allowed choices are id, created/);
  wrongUsage(await ledger.inkwell("account", "list", "--limit", "0"), /whole number/);
});
