/** `inkwell audit` and `inkwell backup`: output and exit codes. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { beforeEach, describe, test } from "node:test";
import { backup } from "../../src/app/database.ts";
import { services } from "../../src/cli/services.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import { cliLedger, refused, twoPlans } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();
const { cwd, plans } = ledger;
const databaseFile = path.join(cwd, "data", "inkwell.db");
const inkwell = (...argv: string[]) => ledger.run(argv, { services: { backup } });

beforeEach(() => ledger.openAccount("ada"));

test("exits 0 with one line for a sound ledger", async () => {
  assert.deepEqual(await inkwell("audit"), {
    code: 0,
    stdout: "",
    stderr: "The ledger is sound: 3 journal entries checked.\n",
  });
  const { code, stdout } = await inkwell("audit", "--json");
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), {
    checked_at: "2027-01-15T12:00:00.000Z",
    journal_entries: 3,
    sound: true,
    broken: [],
    recorded: false,
  });
});

test("does not call an empty ledger sound: it may be the wrong one", async () => {
  ledger.begin();
  const { code, stderr } = await inkwell("audit");
  assert.deepEqual([code, stderr], [0, "The ledger has no entries: there was nothing to check.\n"]);
});

test("exits 1 with the rule and the faulty rows for a damaged ledger", async () => {
  const account = {
    invariant: "the row of an account follows from its facts",
    rows: [{ account: "ada", base: 7 }],
  };
  const charge = {
    invariant: "charges are tokens x prices",
    rows: [
      { account: "ada", seq: 3, cost: null },
      { account: "ada", seq: 4, cost: 2, field: "held" },
    ],
  };
  const found = { ...ledger.store.audit(), broken: [account, charge] };
  ledger.store.audit = () => found;
  const { code, stdout, stderr } = await inkwell("audit");
  assert.equal(code, 1);
  assert.match(stdout, /^Broken: the row of an account follows from its facts\naccount +base\nada +7\n/);
  assert.match(
    stdout,
    /Broken: charges are tokens x prices\naccount +seq +cost +field\nada +3 +- +-\nada +4 +2 +held\n/,
  );
  assert.match(stderr, /^The ledger is not sound: 2 rules are broken, 3 journal entries checked\./);

  const json = await inkwell("audit", "--json");
  assert.equal(json.code, 1);
  assert.partialDeepStrictEqual(JSON.parse(json.stdout), { sound: false, broken: [account, charge] });
});

test("backs up to a new file and never overwrites one", async () => {
  refused(await inkwell("backup", "copy.db"), /There is no database/);
  assert.ok(!existsSync(databaseFile), "and none is made");

  await (await openSqliteStore({ path: databaseFile, plans })).close();
  const made = await inkwell("backup", "copy.db", "--json");
  assert.equal(made.code, 0, made.stderr);
  const { file, bytes }: { file: string; bytes: number } = JSON.parse(made.stdout);
  assert.equal(file, path.join(cwd, "copy.db"));
  assert.ok(bytes > 0);

  refused(await inkwell("backup", "copy.db"), /copy\.db already exists/);
  assert.equal((await inkwell("backup")).code, 2);
});

describe("the audit of a file", () => {
  const sound = /^The ledger is sound: 3 journal entries checked\.\n$/;
  const file = path.join(cwd, "kept", "inkwell.db");
  const audit = (...argv: string[]) =>
    ledger.run(["audit", ...argv], {
      env: { INKWELL_DATABASE: `sqlite:${file}` },
      services: { audit: services.audit, openStore: services.openStore },
    });
  const left = () => ({ names: readdirSync(path.dirname(file)), bytes: readFileSync(file) });

  beforeEach(async () => {
    rmSync(path.dirname(file), { recursive: true, force: true });
    rmSync(path.dirname(databaseFile), { recursive: true, force: true });
    mkdirSync(path.dirname(file));
    const store = await openSqliteStore({ path: databaseFile, plans });
    await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
    await store.close();
    assert.equal((await inkwell("backup", file)).code, 0);
  });

  /** By hand, as no version of Inkwell does. */
  function write(...statements: string[]): void {
    const db = new DatabaseSync(file);
    for (const statement of statements) db.exec(statement);
    db.close();
  }

  test("seals a sound ledger only, and goes on from an older seal after a restore", async () => {
    const seals = path.join(cwd, "seals");
    rmSync(seals, { recursive: true, force: true });
    mkdirSync(seals);
    const [older, newer, third] = ["1", "2", "3"].map((name) => path.join(seals, name));
    assert.ok(older !== undefined && newer !== undefined && third !== undefined);
    assert.equal((await audit("--seal", older)).code, 0);
    const backup = readFileSync(file);
    const store = await openSqliteStore({ path: file, plans });
    await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
    await store.close();
    assert.equal((await audit("--seal", newer, "--against", older)).code, 0);
    writeFileSync(file, backup);

    const { code, stdout, stderr } = await audit("--seal", third, "--against", newer);
    assert.equal(code, 1);
    assert.match(
      stdout,
      /^Broken: everything that was sealed is still there, unchanged\n.*\naccount bob +was sealed/,
    );
    assert.match(
      stderr,
      /is not sound: 1 rule is broken.*\nNothing is sealed: .*older than the backup.*audit\.md/,
    );
    assert.deepEqual(readdirSync(seals), ["1", "2"]);
    assert.equal((await audit("--seal", third, "--against", older)).code, 0);
    assert.deepEqual(readdirSync(seals), ["1", "2", "3"]);
  });

  test("leaves the file unchanged, with no other file beside it", async () => {
    const before = left();
    const { code, stderr } = await audit();
    assert.match(stderr, sound);
    assert.equal(code, 0);
    assert.deepEqual(left(), before);
  });

  test("refuses a file with another schema in one sentence, and leaves it", async () => {
    write("drop table usage_sum");
    const before = left();
    refused(
      await audit(),
      /inkwell\.db cannot be checked, .* \(no such table: usage_sum\)\. Nothing was changed\. Check it with the/,
    );
    assert.deepEqual(left(), before);
  });

  test("refuses a file of a newer version or without a schema", async () => {
    write("insert into migration values (9999, '9999-later.sql', 'x', 0)");
    const before = left();
    refused(await audit(), /inkwell\.db was made by a newer version of Inkwell: .* Run the newer version/);
    assert.deepEqual(left(), before);
    write("drop table migration");
    refused(await audit(), /inkwell\.db cannot be checked, .* \(it has no tables\)\. Nothing was changed/);
  });

  test("reports a file that is not a database, and leaves it", async () => {
    writeFileSync(file, "");
    refused(await audit(), /^There is no database \S+inkwell\.db to check\. Set the right path/);
    assert.deepEqual(left(), { names: ["inkwell.db"], bytes: Buffer.alloc(0) });
    writeFileSync(file, "This is not a database. ".repeat(100));
    refused(await audit(), /inkwell\.db is not an SQLite database\. Nothing was changed/);
    rmSync(path.dirname(file), { recursive: true });
    refused(await audit(), /^There is no ledger at \S+inkwell\.db\./);
    assert.ok(!existsSync(path.dirname(file)));
  });

  test("checks a file that a service uses, up to the last commit", async () => {
    rmSync(file);
    const store = await openSqliteStore({ path: file, plans });
    await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
    assert.match((await audit()).stderr, sound);
    await store.commit([{ kind: "topup", account: "ada", payment: "p1", amountMicro: 1, by: "test" }]);
    assert.match((await audit()).stderr, /^The ledger is sound: 4 journal entries checked/);
    await store.close();
    assert.deepEqual(left().names, ["inkwell.db"]);
    assert.match((await audit()).stderr, /^The ledger is sound: 4 journal entries checked/);
  });

  test("records a result beside a service, which shows the last one", async () => {
    const store = await openSqliteStore({ path: file, plans });
    try {
      assert.deepEqual(await audit("--record"), {
        code: 0,
        stdout: "",
        stderr: "The ledger is sound: 3 journal entries checked.\nThe result is recorded in the database.\n",
      });
      assert.partialDeepStrictEqual(await store.lastAudit(), { journalRows: 3, problems: 0 });
      write("update account set seq = seq + 1");
      const { code, stdout } = await audit("--record", "--json");
      assert.equal(code, 1);
      assert.partialDeepStrictEqual(JSON.parse(stdout), { sound: false, recorded: true });
      const last = await store.lastAudit();
      assert.equal(last?.problems, JSON.parse(stdout).broken.length);
      assert.equal(last?.firstProblem, JSON.parse(stdout).broken[0].invariant);
      assert.equal(last?.checkedMs, Date.parse(JSON.parse(stdout).checked_at));
    } finally {
      await store.close();
    }
  });

  test("an unsound ledger is one event, if the configuration has events", async () => {
    write("update account set seq = seq + 1");
    const types = () => {
      using db = new DatabaseSync(file, { readOnly: true });
      return db
        .prepare("select type from event")
        .all()
        .map(({ type }) => type);
    };
    const recorded = /\nThe result is recorded in the database\.\n/;
    assert.match((await audit("--record")).stderr, recorded);
    assert.deepEqual(types(), []);
    const configuration = path.join(cwd, "with-events.yaml");
    const mail = "{ host: mail.example, from: a@b.example, operators: [ops@b.example] }";
    writeFileSync(configuration, `${twoPlans}events: { mail: ${mail} }\n`);
    assert.match((await audit("--record", "--config", configuration)).stderr, recorded);
    assert.deepEqual(types(), ["audit.failed"]);
    assert.match((await audit("--config", configuration)).stderr, /^The ledger is not sound/);
    assert.deepEqual(types(), ["audit.failed"], "of an audit that is recorded only");
  });

  test("shows a result that it cannot record, and fails", async () => {
    const db = new DatabaseSync(file);
    db.exec("begin immediate");
    try {
      const { code, stdout, stderr } = await audit("--record", "--json");
      assert.equal(code, 1);
      assert.partialDeepStrictEqual(JSON.parse(stdout), { sound: true, recorded: false });
      assert.match(stderr, /^The ledger is sound.*\nThe result could not be recorded: .*locked by another/);
    } finally {
      db.close();
    }
    rmSync(file);
    refused(await audit("--record"), /^There is no ledger at/);
    assert.ok(!existsSync(file), "and none is made");
  });

  test("checks a file on a read-only mount", async (t) => {
    const folder = path.dirname(file);
    const mount = (...args: string[]) => spawnSync("mount", [...args, folder]).status === 0;
    if (process.platform !== "linux" || !mount("--bind", folder)) {
      t.skip("a folder can be mounted by root on Linux only");
      return;
    }
    try {
      assert.ok(mount("-o", "remount,ro,bind"));
      assert.throws(() => writeFileSync(path.join(folder, "x"), ""), /EROFS/);
      assert.match((await audit()).stderr, sound);
    } finally {
      spawnSync("umount", [folder]);
    }
  });
});
