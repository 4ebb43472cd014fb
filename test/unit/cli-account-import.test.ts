/** `inkwell account import`: what it changes, what it prints, and what it refuses. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { beforeEach, test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { noContact } from "../../src/store/contacts.ts";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();
const file = path.join(ledger.cwd, "accounts.csv");
const keysFile = path.join(ledger.cwd, "keys.csv");
const three = `account,plan,owner,email,note,external_id
ada,starter,Ada Lovelace,ada@example.com,,crm-1
bob,big,,,"pays by invoice, late",
carl,starter,"Carl ""C"" Linné",,,crm-3
`;

beforeEach(() => rmSync(keysFile, { force: true }));

async function load(text: string | Buffer, ...options: string[]) {
  writeFileSync(file, text);
  return await ledger.inkwell("account", "import", "accounts.csv", ...options);
}

/** Calls `act` before each step of an import is written. */
function beforeSteps(act: (step: number) => unknown): { end(): void } {
  const { putAccounts } = ledger.store;
  let steps = 0;
  ledger.store.putAccounts = async (drafts, options) => {
    if (!options.dryRun) {
      steps += 1;
      await act(steps);
    }
    return await putAccounts.call(ledger.store, drafts, options);
  };
  return {
    end: () => {
      ledger.store.putAccounts = putAccounts;
    },
  };
}

async function ids(): Promise<string[]> {
  return (await ledger.store.accounts({ limit: 99 })).map(({ id }) => id);
}

test("opens accounts with their contacts, once", async () => {
  const first = await load(three);
  assert.deepEqual(first, { code: 0, stdout: "", stderr: "3 accounts opened, 0 updated, 0 unchanged.\n" });
  assert.deepEqual(await ids(), ["ada", "bob", "carl"]);
  assert.equal(ledger.store.account("bob").plan, "big");
  assert.deepEqual(await ledger.store.contact("carl"), {
    ...noContact,
    owner: 'Carl "C" Linné',
    externalId: "crm-3",
  });
  assert.equal((await load(three)).stderr, "0 accounts opened, 0 updated, 3 unchanged.\n");
  const journal = await ledger.store.journal("ada", { limit: 9 });
  assert.deepEqual(
    journal.map(({ kind }) => kind),
    ["open", "window", "window"],
  );
  assert.deepEqual(await ledger.store.keys(), []);
});

test("an existing account gets contact fields alone; another plan is reported, and an empty cell changes nothing", async () => {
  await load(three);
  const ran = await load("account,plan,note,owner\nada,big,new,\n");
  assert.equal(
    ran.stderr,
    "Account ada stays on plan starter. The file has another plan.\n0 accounts opened, 1 updated, 0 unchanged.\n",
  );
  assert.equal(ledger.store.account("ada").plan, "starter");
  assert.partialDeepStrictEqual(await ledger.store.contact("ada"), { owner: "Ada Lovelace", note: "new" });
});

test("--dry-run writes nothing and prints the result", async () => {
  const ran = await load(three, "--dry-run", "--keys", "keys.csv");
  assert.equal(
    ran.stderr,
    "Nothing has changed. An import would do this: 3 accounts opened, 0 updated, 0 unchanged.\n",
  );
  assert.deepEqual(await ids(), []);
  assert.ok(!existsSync(keysFile));
  const document = JSON.parse((await load(three, "--dry-run", "--json")).stdout);
  assert.equal(document.dry_run, true);
  assert.deepEqual(document.accounts[1], {
    ...{ id: "bob", result: "opened", plan: "big", plan_differs: false, balances_ignored: false },
  });
});

test("--keys writes one key for each new account, readable by its owner alone", async () => {
  await ledger.inkwell("account", "create", "ada", "--plan", "starter");
  const ran = await load(three, "--keys", "keys.csv");
  assert.match(ran.stderr, /2 accounts opened, 1 updated, 0 unchanged\.\nThe keys .* are in keys\.csv/);
  const [head, ...lines] = readFileSync(keysFile, "utf8").trimEnd().split("\r\n");
  assert.equal(head, "account,key_id,key");
  assert.equal(statSync(keysFile).mode & 0o777, 0o600);
  assert.deepEqual(
    lines.map((line) => line.split(",")[0]),
    ["bob", "carl"],
  );
  for (const line of lines) {
    const [account, id, key = ""] = line.split(",");
    const row = await ledger.store.keyById(id ?? "");
    assert.deepEqual([row?.account, row?.createdMs], [account, ledger.nowMs]);
    assert.equal((await ledger.store.findKey(hashKey(key)))?.key.id, id);
  }
  assert.deepEqual(await ledger.store.keys("ada"), []);
  // A repetition has no new account, and so no keys.
  rmSync(keysFile);
  assert.equal((await load(three, "--keys", "keys.csv")).code, 0);
  assert.ok(!existsSync(keysFile));
});

test("--keys never overwrites a file", async () => {
  writeFileSync(keysFile, "precious");
  refused(await load(three, "--keys", "keys.csv"), /keys\.csv already exists, .* Nothing was imported/);
  assert.equal(readFileSync(keysFile, "utf8"), "precious");
  refused(await load(three, "--keys", "."), /cannot be read: .* Nothing was imported/);
  // The keys of an import into another ledger.
  rmSync(keysFile);
  await load(three, "--keys", "keys.csv");
  const before = readFileSync(keysFile, "utf8");
  ledger.begin();
  refused(await load(three, "--keys", "keys.csv"), /keys\.csv already exists, .* Nothing was imported/);
  assert.equal(readFileSync(keysFile, "utf8"), before);
  assert.deepEqual(await ids(), []);
});

test("--keys removes the keys if the first step is refused, and keeps them if it fails", async () => {
  const steps = beforeSteps(() => {
    throw new StoreUnavailableError("lost");
  });
  assert.equal((await load(three, "--keys", "keys.csv")).code, 1);
  assert.ok(existsSync(keysFile));
  steps.end();
  rmSync(keysFile);
  beforeSteps(() =>
    ledger.store.applyPlans(new Map([...ledger.plans].slice(0, 1)), { force: false, by: "test" }),
  );
  refused(
    await load(three, "--keys", "keys.csv"),
    /Nothing was imported .*\n.* column plan: The plan "big" is retired/,
  );
  assert.ok(!existsSync(keysFile));
});

test("--keys names accounts that somebody else has opened meanwhile", async () => {
  const { putAccounts } = ledger.store;
  ledger.store.putAccounts = async (drafts, options) => {
    if (!options.dryRun)
      await ledger.store.commit([{ kind: "open", account: "bob", plan: "big", by: "test" }]);
    return await putAccounts.call(ledger.store, drafts, options);
  };
  const { stderr } = await load(three, "--keys", "keys.csv");
  assert.match(
    stderr,
    /^Account bob was opened by somebody else meanwhile\. Its key in keys\.csv is not valid\.$/m,
  );
  assert.deepEqual(await ledger.store.keys("bob"), []);
});

const balances = "account,plan,base_left,base_start,overage_left,overage_start,additional,payment\n";

test("accounts keep what is left in their windows, and their additional credits", async () => {
  const text = `${balances}ada,starter,300,2027-01-15,150,2027-01-01T06:00:00Z,40,pi_1
bob,starter,,,0,2027-01-10,25,
carl,big,5000,2027-01-15T12:00:00Z,,,,
`;
  assert.equal((await load(text)).stderr, "3 accounts opened, 0 updated, 0 unchanged.\n");
  const shown = async (id: string) => {
    const { base, overage, additional } = ledger.store.account(id);
    return [base, overage]
      .flatMap((grant) => [
        grant === null ? null : (grant.amountMicro - grant.spentMicro) / 1e6,
        new Date(grant?.fromMs ?? 0).toISOString().slice(5, 16),
      ])
      .concat(
        additional.map(({ amountMicro, isPayment }) => `${amountMicro / 1e6}${isPayment ? " paid" : ""}`),
      );
  };
  assert.deepEqual(await shown("ada"), [300, "01-15T00:00", 150, "01-01T06:00", "40 paid"]);
  assert.deepEqual(await shown("bob"), [1000, "01-15T12:00", 0, "01-10T00:00", "25"]);
  assert.deepEqual(await shown("carl"), [5000, "01-15T12:00", 0, "01-15T12:00"]);
  ledger.nowMs += 86_400_000;
  const again = await load(`${text}dan,starter,7,2027-01-16,,,,\n`);
  assert.equal(
    again.stderr,
    "3 accounts existed before. The balances of the file change nothing there.\n1 account opened, 0 updated, 3 unchanged.\n",
  );
  assert.deepEqual(await shown("ada"), [300, "01-15T00:00", 150, "01-01T06:00", "40 paid"]);
  const [payment] = await ledger.store.payments("ada", { limit: 9 });
  assert.deepEqual([payment?.id, payment?.amountMicro], ["pi_1", 40_000_000]);
  assert.deepEqual((await ledger.store.audit()).broken, []);
});

for (const [what, cells, message] of [
  [
    "base_left is too much",
    "1001,2027-01-15,,,,",
    /line 2, column base_left: The plan starter has only 1,000 base credits/,
  ],
  [
    "base_left is not whole",
    "0.5,2027-01-15,,,,",
    /column base_left: "0.5" must be whole credits from 0 to 9000000/,
  ],
  ["base_left is negative", "-1,2027-01-15,,,,", /column base_left: "-1" must be whole credits/],
  [
    "base_start is no day",
    "5,2027-02-31,,,,",
    /column base_start: "2027-02-31" must be a day, which begins in the time zone of the configuration, or a time/,
  ],
  [
    "base_start is missing",
    "5,,,,,",
    /column base_start: base_left needs base_start: the time at which the present window began/,
  ],
  [
    "overage_left is missing",
    ",,,2027-01-15,,",
    /column overage_left: overage_start needs overage_left: the credits that are left in that window/,
  ],
  [
    "the base window has ended",
    "5,2027-01-14,,,,",
    /column base_start: The window that begins then ended at 2027-01-15T00:00:00\.000Z\. The present one began at 2027-01-15T00:00:00\.000Z/,
  ],
  [
    "the overage window has not begun",
    ",,5,2027-01-16,,",
    /column overage_start: The window has not begun: it is 2027-01-15T12:00:00\.000Z/,
  ],
  ["additional is nothing", ",,,,0,", /column additional: "0" must be whole credits from 1 to 9000000/],
  [
    "additional is missing",
    ",,,,,pi_1",
    /column additional: payment needs additional: the credits that are left of the payment/,
  ],
  ["the payment has white space", ",,,,5,pi\u00a01", /column payment: "pi\u00a01" has U\+00A0/],
  [
    "the payment was counted before",
    ",,,,5,pi_0",
    /column payment: Payment "pi_0" was credited to account zoe before/,
  ],
] as const) {
  test(`refuses a file if ${what}, and imports nothing`, async () => {
    await ledger.inkwell("account", "create", "zoe", "--plan", "starter");
    await ledger.inkwell("credits", "add", "zoe", "5", "--payment", "pi_0");
    refused(await load(`${balances}ada,starter,${cells}\nbob,starter,,,,,,\n`), message);
    assert.deepEqual(await ids(), ["zoe"]);
  });
}

test("reports all faults of balances at once, and a payment that occurs twice", async () => {
  const { stderr } = await load(`${balances}ada,starter,1001,2027-01-14,x,2027-01-17,5,pi_1
bob,big,,,1,2027-01-17,5,pi_1
`);
  assert.deepEqual(
    stderr.match(/line \d, column \w+/g),
    [
      "2, column overage_left",
      "2, column base_start",
      "2, column base_left",
      "3, column payment",
      "3, column overage_start",
      "3, column overage_left",
    ].map((place) => `line ${place}`),
    stderr,
  );
});

test("an import that was stopped between steps is completed by the same command, with the same keys", async () => {
  const lines = Array.from(
    { length: 700 },
    (_, n) => `a${n},starter,${n},2027-01-15,,,3,${n % 2 ? `pi_${n}` : ""}\n`,
  );
  const steps = beforeSteps((step) => {
    if (step === 3) throw new StoreUnavailableError("the disk is full");
  });
  const stopped = await load(balances + lines.join(""), "--keys", "keys.csv");
  assert.equal(stopped.code, 1);
  const [, done = ""] =
    /^(\d+) of 700 accounts are known to be imported\. The same command imports the others\.$/m.exec(
      stopped.stderr,
    ) ?? [];
  assert.equal((await ledger.store.accounts({ limit: 1000 })).length, Number(done));
  assert.ok(Number(done) > 0 && Number(done) < 700, done);
  steps.end();

  const completed = await load(`${balances + lines.join("")}new,starter,,,,,,\n`, "--keys", "keys.csv");
  assert.equal(completed.code, 0, completed.stderr);
  assert.ok(
    completed.stderr.includes(`${701 - Number(done)} accounts opened, 0 updated, ${done} unchanged.`),
  );
  const [, ...keys] = readFileSync(keysFile, "utf8").trimEnd().split("\r\n");
  assert.equal(keys.length, 701);
  for (const line of keys) {
    const [account = "", id, key = ""] = line.split(",");
    const found = await ledger.store.findKey(hashKey(key));
    assert.deepEqual([found?.key.account, found?.key.id], [account, id]);
    if (account === "new") continue;
    const { base, additional } = ledger.store.account(account);
    assert.equal((base?.amountMicro ?? 0) - (base?.spentMicro ?? 0), Number(account.slice(1)) * 1e6);
    assert.deepEqual(
      additional.map(({ amountMicro }) => amountMicro),
      [3_000_000],
    );
  }
  assert.equal((await ledger.store.keys()).length, 701);
  assert.deepEqual((await ledger.store.audit()).broken, []);
});

test("names what was imported if the ledger has changed since the check", async () => {
  const lines = Array.from({ length: 200 }, (_, n) => `a${n},starter,,,,,3,pi_${n}\n`);
  beforeSteps(async (step) => {
    if (step !== 2) return;
    await ledger.store.commit([
      { kind: "open", account: "zoe", plan: "starter", by: "test" },
      { kind: "topup", account: "zoe", payment: "pi_150", amountMicro: 5, by: "test" },
    ]);
  });
  const { stderr } = await load(balances + lines.join(""));
  assert.match(
    stderr,
    /^Only the first 100 accounts were imported from \S+:\n {2}line 152, column payment: .* account zoe before\.\n$/,
  );
});

test("refuses more than 100,000 accounts", async () => {
  refused(
    await load(`account\n${"a\n".repeat(100_001)}`),
    /has more than 100,000 accounts\. Import it in parts/,
  );
});

for (const [what, text, message] of [
  [
    "an unknown plan",
    "account,plan\nada,starter\nbob,startr\n",
    /line 3, column plan: .*Did you mean starter\?/,
  ],
  ["a new account without a plan", "account\nada\n", /line 2, column plan: There is no account ada yet/],
  ["an account twice", "account,plan\nada,big\nada,big\n", /line 3, column account: .*"ada" occurs twice/],
  [
    "an external id twice",
    "account,plan,external_id\nada,big,x\nbob,big,x\n",
    /line 3, column external_id: The external id "x" occurs twice/,
  ],
  [
    "a bad name and a bad address",
    "account,email\nAda,ada\n",
    /line 2, column account: "Ada" .*\n.*e-mail address/,
  ],
  [
    "a line with a missing cell",
    "account,plan\nada,big\nbob\n",
    /line 3: it has 1 columns, and the first line has 2/,
  ],
  ["an unknown column", "account,plans\nada,big\n", /There is no column "plans"\. Did you mean plan\?/],
  ["a column twice", "account,plan,plan\nada,big,big\n", /line 1: The column plan occurs twice/],
  ["no column account", "plan\nbig\n", /line 1: There is no column account/],
  ["no accounts", "account,plan\n", /line 1: There are no accounts/],
  ["nothing", "", /is empty/],
  ["semicolons", "account;plan\nada;big\n", /Separate columns with commas/],
  ["an open quote", 'account,plan\n"ada,big\n', /is not CSV: Quote Not Closed/],
  ["another encoding", Buffer.from("account,owner\nada,Linn\xe9\n", "latin1"), /is not UTF-8/],
] as const) {
  test(`refuses a file with ${what}, and imports nothing`, async () => {
    refused(await load(text), message);
    assert.deepEqual(await ids(), []);
  });
}

test("reports all faults of a file at once: of its form, of its values and of the database", async () => {
  await load(three);
  const text = `account,plan,email,external_id,owner,owners
new,startr,nobody,crm-9,Eve,
other,starter,,crm-1,,
new,starter,,,,
Bad,startr,,,,
short,starter
fifth,,,crm-9,,
sixth,starter,,,"",
`;
  const before = await ids();
  const { code, stderr } = await load(text, "--keys", "keys.csv");
  assert.equal(code, 1);
  assert.deepEqual(
    stderr
      .trimEnd()
      .split("\n")
      .slice(1)
      .map((line) => /^ {2}line (\d+)(?:, column (\w+))?: (.*)$/.exec(line)?.slice(1, 3)),
    [
      ["1", undefined],
      ["2", "email"],
      ["2", "plan"],
      ["3", "external_id"],
      ["4", "account"],
      ["5", "account"],
      ["6", undefined],
      ["7", "external_id"],
      ["7", "plan"],
      ["8", "owner"],
    ],
    stderr,
  );
  assert.match(
    stderr,
    /^Nothing was imported from \S+accounts\.csv:\n {2}line 1: There is no column "owners"/,
  );
  assert.match(stderr, /line 2, column plan: There is no plan "startr"\. Did you mean starter\?/);
  assert.deepEqual([await ids(), existsSync(keysFile)], [before, false]);
});

test("an unknown column that may be the plan does not make every plan missing", async () => {
  const { stderr } = await load("account,pln\nada,big\nBob,big\n");
  assert.deepEqual(
    stderr.split("\n").map((line) => line.replace(/:.*/, "")),
    ["Nothing was imported from", "  line 1", "  line 3, column account", ""].map((line, n) =>
      n === 0 ? `${line} ${file}` : line,
    ),
  );
});

test("names the lines of a file with line breaks in cells and a byte order mark", async () => {
  const text = '\ufeffaccount,plan\r\n\r\n"ada",starter\r\nbob,none\r\n';
  refused(await load(text), /line 4, column plan: There is no plan "none"/);
});

test("shows the first 20 faults", async () => {
  const rows = Array.from({ length: 25 }, (_, n) => `A${n},big`).join("\n");
  const { stderr } = await load(`account,plan\n${rows}\n`);
  assert.equal(stderr.match(/column account/g)?.length, 20);
  assert.match(stderr, /and 5 more\n/);
});

test("shortens long cells and column names in messages", async () => {
  const long = "x".repeat(100_000);
  for (const text of [`account,plan,owner\nada,big,${long}\n`, `account,${long}\nada,big\n`]) {
    const { stderr } = await load(text);
    assert.match(stderr, /"x{80}…"/);
    assert.ok(stderr.length < 1000, String(stderr.length));
  }
});

test("refuses a missing file and an external id of another account", async () => {
  refused(await ledger.inkwell("account", "import", "none.csv"), /none\.csv cannot be read/);
  await load(three);
  refused(
    await load("account,plan,external_id\ndan,big,crm-1\n"),
    /line 2, column external_id: The external id "crm-1" belongs to account ada/,
  );
  assert.deepEqual(await ids(), ["ada", "bob", "carl"]);
});
