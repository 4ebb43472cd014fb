/** `inkwell account import`: what it changes, prints and refuses, and what a stop leaves. */
import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { beforeEach, test } from "node:test";
import { Invitations } from "../../src/accounts/invitations.ts";
import { findUsableKey, hashKey } from "../../src/accounts/keys.ts";
import { importAccounts } from "../../src/actions/account-import.ts";
import { ApiError } from "../../src/actions/api-error.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { noContact } from "../../src/store/contacts.ts";
import { cliLedger, refused, twoPlans } from "../fixtures/cli-ledger.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";

const portalUrl = "https://ai.example/portal";
const operatorToken = "an-operator-token-0123456789";
const ledger = cliLedger(
  `${twoPlans}operator: { token: ${operatorToken} }\nportal: { url: "${portalUrl}/" }\n`,
);
const file = path.join(ledger.cwd, "accounts.csv");
const keysFile = path.join(ledger.cwd, "keys.csv");
const linksFile = path.join(ledger.cwd, "links.csv");
const three = `account,plan,owner,email,note,external_id
ada,starter,Ada Lovelace,ada@example.com,,crm-1
bob,big,,,"pays by invoice, late",
carl,starter,"Carl ""C"" Linné",,,crm-3
`;

beforeEach(() => {
  for (const each of [keysFile, linksFile]) rmSync(each, { recursive: true, force: true });
});

async function load(text: string | Buffer, ...options: string[]) {
  writeFileSync(file, text);
  return await ledger.inkwell("account", "import", "accounts.csv", ...options);
}

async function ids(): Promise<string[]> {
  return (await ledger.store.accounts({ limit: 99 })).map(({ id }) => id);
}

function linesOf(of: string): string[][] {
  const [, ...lines] = readFileSync(of, "utf8").trimEnd().split("\r\n");
  return lines.map((line) => line.split(","));
}

/** Accounts, keys and secrets of the keys file. Each secret must work. */
async function workingKeys(): Promise<string[]> {
  const lines = linesOf(keysFile);
  for (const [account, id, key = ""] of lines) {
    const found = await ledger.store.findKey(hashKey(key));
    assert.deepEqual([found?.key.account, found?.key.id, found?.key.name], [account, id, "first"]);
  }
  return lines.map(([account = ""]) => account);
}

/** Exchanges a link as the portal does. */
async function exchange(link = ""): Promise<string | null> {
  const { store } = ledger;
  const settings = () => ({ portalUrl, send: null });
  const invitations = new Invitations({ store, token: async () => operatorToken, settings });
  return (await invitations.exchange(link.split("#invite=")[1] ?? "")).account;
}

/** Spends a credit with the key of a line. */
async function use(key: string | undefined): Promise<void> {
  const found = await ledger.store.findKey(hashKey(key ?? ""));
  assert.ok(found !== null);
  const { account, id } = found.key;
  const requests = [hold(`r-${id}`, 1), settle(`r-${id}`, 1)];
  await ledger.store.commit(requests.map((each) => ({ ...each, account, key: id })));
}

test("opens accounts with their contacts, once", async () => {
  const first = await load(three);
  const stderr = "Accounts: 3 opened.\n";
  assert.deepEqual(first, { code: 0, stdout: "", stderr });
  assert.deepEqual(await ids(), ["ada", "bob", "carl"]);
  assert.equal(ledger.store.account("bob").plan, "big");
  assert.deepEqual(await ledger.store.contact("carl"), {
    ...noContact,
    owner: 'Carl "C" Linné',
    externalId: "crm-3",
  });
  assert.equal((await load(three)).stderr, "Accounts: 3 unchanged.\n");
  const journal = await ledger.store.journal("ada", { limit: 9 });
  assert.deepEqual(
    journal.map(({ kind }) => kind),
    ["open", "window", "window"],
  );
  assert.deepEqual(await ledger.store.keysAfter(null, 500), []);
});

test("additional credits come with the opening, once: of a payment, or promotional", async () => {
  const text = "account,plan,additional,payment\nada,starter,40,pi_1\nbob,big,25,\n";
  assert.equal((await load(text)).code, 0);
  const shown = (id: string) =>
    ledger.store
      .account(id)
      .additional.map(({ amountMicro, isPayment }) => `${amountMicro / 1e6}${isPayment ? " paid" : ""}`);
  assert.deepEqual([shown("ada"), shown("bob")], [["40 paid"], ["25"]]);
  const again = await load(`${text}carl,big,,\n`);
  assert.equal(again.stderr, "Accounts: 2 unchanged, 1 opened.\n");
  const other = await load("account,plan,additional,payment\nada,starter,40,pi_2\nbob,big,26,\ncarl,,5,\n");
  const stays = (line: number, id: string, credits: number) =>
    `line ${line}: ${id}: its credits stay, and the row has ${credits} additional credits\n`;
  const remarks = stays(2, "ada", 40) + stays(3, "bob", 26) + stays(4, "carl", 5);
  assert.equal(other.stderr, `${remarks}Accounts: 3 unchanged.\n`);
  const same = await load("account,additional,payment\nada,40,pi_1\nbob,25,\n");
  assert.equal(same.stderr, "Accounts: 2 unchanged.\n");
  assert.deepEqual([shown("ada"), shown("bob"), shown("carl")], [["40 paid"], ["25"], []]);
  assert.deepEqual(ledger.store.audit().broken, []);
});

test("a number with a dot is no number of credits", async () => {
  const text = "account;plan;additional;payment\nada;starter;1.000;pi_1\n";
  for (const options of [["--dry-run"], []]) {
    const ran = await load(text, ...options);
    assert.match(ran.stderr, /line 2, column additional: credits must be whole credits.*"1\.000"/);
    assert.notEqual(ran.code, 0);
  }
  assert.deepEqual(await ids(), []);
});

test("an existing account stays as it is; --update sets its contact, and never its plan", async () => {
  await load(three);
  const text = "account,plan,note,owner\nada,big,new,\n";
  const ran = await load(text);
  assert.equal(
    ran.stderr,
    "line 2: ada: plan stays starter, and the row has big\nline 2: ada: note stays empty, and the row has new\nAccounts: 1 unchanged.\n",
  );
  assert.equal((await ledger.store.contact("ada"))?.note, null);
  const updated = await load(text, "--update");
  assert.equal(
    updated.stderr,
    "line 2: ada: note new in place of none\nline 2: ada: plan stays starter, and the row has big\nAccounts: 1 updated.\n",
  );
  assert.equal(ledger.store.account("ada").plan, "starter");
  assert.partialDeepStrictEqual(await ledger.store.contact("ada"), { owner: "Ada Lovelace", note: "new" });
  assert.match((await load("account,note\nada,new\n", "--update")).stderr, /1 unchanged/);
});

test("--dry-run lists each change by row, and changes nothing", async () => {
  await load("account,plan,owner\nada,starter,Ada\n");
  const text = `account,plan,owner,additional,payment
ada,starter,Ada Ltd,,
bob,big,Bob,40,pi_1
carl,startr,,,
`;
  const ran = await load(text, "--dry-run", "--update", "--keys", "keys.csv", "--invite", "links.csv");
  assert.equal(ran.code, 1, "a row would be refused");
  assert.equal(
    ran.stdout,
    "line 2: ada: owner Ada Ltd in place of Ada\nline 3: bob: opened on plan big, with 40 additional credits of payment pi_1, owner Bob\n",
  );
  assert.match(
    ran.stderr,
    /^line 4, column plan: There is no plan "startr"\. Did you mean starter\?\nNothing has changed\. An import would do this:\nAccounts: 1 updated, 1 opened, 1 refused\.$/m,
  );
  assert.deepEqual(await ids(), ["ada"]);
  assert.equal((await ledger.store.contact("ada"))?.owner, "Ada");
  assert.deepEqual([existsSync(keysFile), existsSync(linksFile)], [false, false]);
  const document = JSON.parse((await load(text, "--dry-run", "--json", "--keys", "keys.csv")).stdout);
  assert.equal(document.dry_run, true);
  assert.deepEqual(document.accounts[1], {
    line: 3,
    account: "bob",
    result: "opened",
    changes: ["opened on plan big, with 40 additional credits of payment pi_1", "owner Bob"],
    differences: [],
    key: "due",
    link: null,
    fault: null,
  });
  assert.partialDeepStrictEqual(document.accounts[0], {
    result: "unchanged",
    changes: [],
    differences: ["owner stays Ada, and the row has Ada Ltd"],
  });
  assert.partialDeepStrictEqual(document.accounts[2], { result: "refused", fault: { column: "plan" } });
});

test("--keys gives each account a first key, readable by its owner alone, and once", async () => {
  await ledger.inkwell("account", "create", "ada", "--plan", "starter");
  const ran = await load(three, "--keys", "keys.csv");
  assert.match(
    ran.stderr,
    /Accounts: 1 unchanged, 2 opened\.\nKeys in keys\.csv: 3 made\. They are shown nowhere else/,
  );
  assert.match(readFileSync(keysFile, "utf8"), /^account,key_id,key\r\n/);
  assert.equal(statSync(keysFile).mode & 0o777, 0o600);
  assert.deepEqual(await workingKeys(), ["ada", "bob", "carl"]);
  const before = readFileSync(keysFile, "utf8");
  const again = await load(`${three}dora,big,,,,\n`, "--keys", "keys.csv");
  assert.match(again.stderr, /Keys in keys\.csv: 3 listed, 1 made\./);
  assert.ok(readFileSync(keysFile, "utf8").startsWith(before), "listed keys stay");
  assert.deepEqual(await workingKeys(), ["ada", "bob", "carl", "dora"]);
  assert.equal((await ledger.store.keysAfter(null, 500)).length, 4);
});

test("a first key that the file lacks gets a new secret, unless it was used, changed or revoked", async () => {
  await load(`${three}dora,big,,,,\n`, "--keys", "keys.csv");
  const [ada, bob, carl, dora] = linesOf(keysFile);
  await use(ada?.[2]);
  await ledger.inkwell("key", "set", bob?.[1] ?? "", "--rpm", "5");
  await ledger.inkwell("key", "revoke", carl?.[1] ?? "");
  rmSync(keysFile);
  const ran = await load(`${three}dora,big,,,,\n`, "--keys", "keys.csv");
  assert.equal(ran.code, 0, ran.stderr);
  assert.deepEqual(
    ran.stderr.match(/^line \d: \w+: its first key/gm),
    ["line 2: ada", "line 3: bob", "line 4: carl"].map((place) => `${place}: its first key`),
  );
  assert.deepEqual(await workingKeys(), ["dora"]);
  assert.equal(linesOf(keysFile)[0]?.[1], dora?.[1], "it is the same key");
  assert.equal((await ledger.store.keysAfter(null, 500)).length, 4);
  await assert.rejects(findUsableKey(ledger.store, dora?.[2] ?? "", ledger.nowMs), /replaced|unknown/);
  assert.equal((await ledger.store.findKey(hashKey(ada?.[2] ?? "")))?.key.account, "ada");
});

test("an import does not touch a file that is not one of an import into this ledger", async () => {
  const untouched = async (text: string, message: RegExp, options = ["--keys", "keys.csv"]) => {
    writeFileSync(keysFile, text, { mode: 0o600 });
    refused(await load(three, ...options), message);
    assert.equal(readFileSync(keysFile, "utf8"), text);
    assert.deepEqual(await ids(), []);
    rmSync(keysFile);
  };
  const other =
    /keys\.csv already exists, and has other columns or lines than account,\w+,\w+\. Nothing was imported/;
  await untouched("precious", other);
  await untouched("account,key_id,key\r\nada,key_1,no-key\r\n", other);
  await untouched("account,key_id,key\r\n", other, ["--invite", "keys.csv"]);
  await load(three, "--keys", "keys.csv");
  const written = readFileSync(keysFile, "utf8");
  ledger.begin();
  await untouched(written, /The first key of keys\.csv is not in this ledger\. Nothing was imported/);
  await untouched(written.replaceAll("\r\n", "\n"), other);
  await untouched(written.replace(/ada/, '"ada"'), other);

  mkdirSync(keysFile);
  refused(await load(three, "--keys", "keys.csv"), /keys\.csv cannot be opened: .* Nothing was imported/);
  rmSync(keysFile, { recursive: true });
  writeFileSync(path.join(ledger.cwd, "target"), "");
  symlinkSync("target", keysFile);
  refused(await load(three, "--keys", "keys.csv"), /keys\.csv cannot be opened: .* Nothing was imported/);
  rmSync(keysFile);
  writeFileSync(keysFile, "", { mode: 0o600 });
  chmodSync(keysFile, 0o640);
  refused(await load(three, "--keys", "keys.csv"), /Other users can read .*keys\.csv\. Nothing was imported/);
  refused(await load(three, "--keys", "keys.csv", "--dry-run"), /Other users can read .*keys\.csv/);
  if (process.getuid?.() === 0) {
    chmodSync(keysFile, 0o600);
    chownSync(keysFile, 12345, 0);
    refused(await load(three, "--keys", "keys.csv"), /Other users can read .*keys\.csv/);
  }
  assert.deepEqual(await ids(), []);
});

test("a file that a stop has cut anywhere is continued: whole lines stay, and half a line goes", async () => {
  const cuts = [0, 1, 18, 19, 20, 21, 22, 60, 86, 87, 88, 89, 90, 91, 150, -2, -1];
  for (const cut of cuts) {
    ledger.begin();
    rmSync(keysFile, { force: true });
    await load(three, "--keys", "keys.csv");
    const written = readFileSync(keysFile, "utf8");
    const left = written.slice(0, cut);
    writeFileSync(keysFile, left);
    const ran = await load(three, "--keys", "keys.csv");
    assert.equal(ran.code, 0, `cut at ${cut}: ${ran.stderr}`);
    assert.deepEqual(await workingKeys(), ["ada", "bob", "carl"], `cut at ${cut}`);
    const now = readFileSync(keysFile, "utf8").split("\r\n");
    // A whole line without its line end stays, too.
    const whole = written.split("\r\n").filter((line, n) => {
      const before = written.split("\r\n").slice(0, n).join("\r\n").length + (n === 0 ? 0 : 2);
      return line !== "" && before + line.length <= left.length;
    });
    assert.deepEqual(now.slice(0, whole.length), whole, `cut at ${cut}`);
    assert.equal((await ledger.store.keysAfter(null, 500)).length, 3);
  }
});

test("a stop before or after any write loses no secret that works, and repeats nothing", async () => {
  const text = `account,plan,email,additional,payment
ada,starter,ada@x.example,5,pi_1
bob,big,bob@x.example,6,pi_2
carl,starter,carl@x.example,7,pi_3
`;
  const options = ["--keys", "keys.csv", "--invite", "links.csv"];
  // Of each account: its opening, its key and its link.
  for (let gap = 0; gap <= 18; gap += 1) {
    const store = ledger.begin();
    for (const each of [keysFile, linksFile]) rmSync(each, { force: true });
    let left = gap;
    const stopping = <Given extends unknown[], Value>(write: (...given: Given) => Promise<Value>) => {
      return async (...given: Given) => {
        if (left-- === 0) throw new Error("stopped before a write");
        const written = await write(...given);
        if (left-- === 0) throw new Error("stopped after a write");
        return written;
      };
    };
    const { commit, putAccount } = store;
    const { add } = store.invitations;
    store.commit = stopping(commit.bind(store));
    store.putAccount = stopping(putAccount.bind(store));
    store.invitations.add = stopping(add.bind(store.invitations));
    await load(text, ...options);
    assert.equal(left < 0, gap < 18, `gap ${gap} was reached, and it is the last one`);
    Object.assign(store, { commit, putAccount });
    store.invitations.add = add;

    const again = await load(text, ...options);
    assert.equal(again.code, 0, `gap ${gap}: ${again.stderr}`);
    assert.deepEqual(await workingKeys(), ["ada", "bob", "carl"], `gap ${gap}`);
    assert.equal((await store.keysAfter(null, 500)).length, 3, `gap ${gap}`);
    const links = linesOf(linksFile);
    assert.deepEqual(
      links.map(([account]) => account),
      ["ada", "bob", "carl"],
      `gap ${gap}`,
    );
    const files = () => [keysFile, linksFile].map((each) => readFileSync(each, "utf8"));
    const before = files();
    assert.equal((await load(text, ...options)).code, 0);
    assert.deepEqual(files(), before, `gap ${gap}: a third time changes nothing`);
    for (const [account = "", , link] of links) {
      assert.equal(await exchange(link), account, `gap ${gap}`);
      assert.equal((await store.payments(account, { limit: 9 })).length, 1, `gap ${gap}`);
    }
    assert.deepEqual(store.audit().broken, []);
  }
});

test("a refusal that concerns no row ends an import, and others concern theirs", async () => {
  const rows = ["ada", "bob"].map((account, n) => ({ line: n + 2, account }));
  const options = { dryRun: false, updates: false, keys: null, links: null };
  const imported = (refusal: ApiError) =>
    Array.fromAsync(importAccounts(rows, () => Promise.reject(refusal), options));
  for (const [status, code] of [
    [401, "invalid_operator_token"],
    [403, "not_permitted"],
    [429, "rate_limit_exceeded"],
    [500, "internal_error"],
    [503, "service_unavailable"],
    [409, "no_portal_url"],
    [409, "no_mail_server"],
  ] as const) {
    const refusal = new ApiError(status, code, "No.", null);
    await assert.rejects(imported(refusal), refusal);
  }
  for (const [status, code] of [
    [400, "invalid_value"],
    [409, "external_id_used"],
    [500, "balance_unavailable"],
    [503, "mail_failed"],
  ] as const) {
    const done = await imported(new ApiError(status, code, "No.", null));
    assert.deepEqual(
      done.map(({ fault }) => fault?.message),
      ["No.", "No."],
      code,
    );
  }
});

test("the message of a stop says how far it came", async () => {
  const { putAccount } = ledger.store;
  ledger.store.putAccount = async (draft, options) => {
    if (draft.id === "carl") throw new StoreUnavailableError("the disk is full");
    return await putAccount.call(ledger.store, draft, options);
  };
  const ran = await load(three.replace("bob,big,,", "bob,big,Bob,"));
  assert.equal(ran.code, 1);
  assert.match(ran.stderr, /^2 of 3 rows are done\. The same command goes on\.$/m);
  assert.match(ran.stderr, /the disk is full/);
});

test("a row that is refused is reported with its place, and the others are imported", async () => {
  await ledger.inkwell("account", "create", "zoe", "--plan", "starter", "--external-id", "crm-0");
  await ledger.inkwell("credits", "add", "zoe", "5", "--payment", "pi_0");
  const text = `account,plan,email,external_id,additional,payment
Ada,starter,,,,
,starter,,,,
bob,,,,,
carl,startr,,,,
dora,starter,nobody,,,
eve,starter,,crm-0,,
fay,starter,,,0.5,
gil,starter,,,many,
hal,starter,,,,pi_1
ida,starter,,,5,pi_0
jo,starter,,"crm\u00a01",,
kim,big,kim@x.example,,,
`;
  const ran = await load(text, "--keys", "keys.csv", "--invite", "links.csv");
  assert.equal(ran.code, 1);
  const faults = [
    /^line 2, column account: .*"Ada"/,
    /^line 3, column account: /,
    /^line 4, column plan: There is no account bob yet\. Name the plan to open it on\./,
    /^line 5, column plan: There is no plan "startr"\. Did you mean starter\?/,
    /^line 6, column email: .*e-mail address/,
    /^line 7, column external_id: The external id "crm-0" belongs to account zoe/,
    /^line 8, column additional: credits must be whole credits from 1 to 9000000/,
    /^line 9, column additional: /,
    /^line 10, column additional: payment_id needs credits/,
    /^line 11, column payment: Payment "pi_0" was credited to account zoe before/,
    /^line 12, column external_id: .*U\+00A0/,
    /^Accounts: 11 refused, 1 opened\.$/,
  ];
  const lines = ran.stderr.split("\n");
  for (const [n, fault] of faults.entries()) assert.match(lines[n] ?? "", fault);
  assert.deepEqual(await ids(), ["kim", "zoe"]);
  assert.deepEqual(await workingKeys(), ["kim"]);
  assert.equal(linesOf(linksFile).length, 1);
});

for (const [what, text, message] of [
  ["an account twice", "account,plan\nada,big\nada,big\n", /^ {2}line 3: The account "ada" occurs twice\.$/m],
  [
    "an external id twice",
    "account,plan,external_id\nada,big,x\nbob,big,x\n",
    /line 3: The external_id "x" occurs twice/,
  ],
  [
    "a payment twice",
    "account,plan,additional,payment\nada,big,5,p\nbob,big,5,p\n",
    /line 3: The payment "p" occurs twice/,
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
  ["an open quote", 'account,plan\n"ada,big\n', /is not CSV: Quote Not Closed/],
  ["another encoding", Buffer.from("account,owner\nada,Linn\xe9\n", "latin1"), /is not UTF-8/],
  ...["base_left", "base_start", "overage_left", "overage_start"].map(
    (column) =>
      [
        `the column ${column}`,
        `account,plan,${column}\nada,big,5\n`,
        new RegExp(`line 1: The column ${column} is gone: .* additional credits \\(additional\\)\\.$`, "m"),
      ] as const,
  ),
] as const) {
  test(`refuses a file with ${what}, and imports nothing`, async () => {
    refused(await load(text, "--keys", "keys.csv"), message);
    assert.deepEqual(await ids(), []);
    assert.ok(!existsSync(keysFile));
  });
}

test("reports all faults of the form at once, the first 20 of them", async () => {
  const text = `account,plan,owners
ada,starter,Eve
short,starter
ada,starter,
`;
  const { code, stderr } = await load(text);
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^Nothing was imported from \S+accounts\.csv:\n {2}line 1: There is no column "owners".*\n {2}line 3: it has .*\n {2}line 4: The account "ada" occurs twice\.\n$/,
  );
  const rows = Array.from({ length: 25 }, () => "ada").join("\n");
  const many = await load(`account\n${rows}\n`);
  assert.equal(many.stderr.match(/occurs twice/g)?.length, 20);
  assert.match(many.stderr, /and 4 more\n/);
});

test("takes semicolons or tabs between the cells, as the first line has them", async () => {
  assert.equal((await load('account;plan;owner\nada;big;"Ltd; Ada, Co"\n')).stderr, "Accounts: 1 opened.\n");
  assert.equal((await ledger.store.contact("ada"))?.owner, "Ltd; Ada, Co");
  assert.equal((await load("account\tplan\towner\nbob\tbig\t\n")).stderr, "Accounts: 1 opened.\n");
});

test("names the lines of a file with line breaks in cells and a byte order mark", async () => {
  const text = '\ufeffaccount,plan\r\n\r\n"ada",starter\r\nbob,none\r\n';
  const ran = await load(text);
  assert.match(ran.stderr, /^line 4, column plan: There is no plan "none"/);
  assert.deepEqual(await ids(), ["ada"]);
});

test("shortens long cells and column names in messages", async () => {
  const long = "x".repeat(100_000);
  for (const text of [
    `account,plan\n${long},big\n`,
    `account,plan\n${long},big\n${long},big\n`,
    `account,${long}\nada,big\n`,
  ]) {
    const { code, stderr } = await load(text);
    assert.equal(code, 1);
    assert.ok(stderr.length < 1000, String(stderr.length));
  }
});

test("refuses a missing file", async () => {
  refused(await ledger.inkwell("account", "import", "none.csv"), /none\.csv cannot be read/);
});
