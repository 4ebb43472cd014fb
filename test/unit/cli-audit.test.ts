/** `inkwell audit` and `inkwell backup`: what they print, and the exit codes that scripts go by. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import path from "node:path";
import { beforeEach, test } from "node:test";
import { backup } from "../../src/main.ts";
import { openSqliteStore } from "../../src/store/sqlite.ts";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();
const { cwd, plans } = ledger;
const databaseFile = path.join(cwd, "data", "inkwell.db");
const inkwell = (...argv: string[]) => ledger.run(argv, { services: { backup } });

beforeEach(() => ledger.openAccount("ada"));

test("a sound ledger: exit 0, and one line to people", async () => {
  assert.deepEqual(await inkwell("audit"), {
    code: 0,
    stdout: "",
    stderr: "The ledger is sound: 1 journal entry checked.\n",
  });
  const { code, stdout } = await inkwell("audit", "--json");
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), {
    checked_at: "2027-01-15T12:00:00.000Z",
    journal_entries: 1,
    sound: true,
    broken: [],
  });
});

test("an empty ledger is not called sound: it may be another than was meant", async () => {
  ledger.begin();
  const { code, stderr } = await inkwell("audit");
  assert.deepEqual([code, stderr], [0, "The ledger has no entries: there was nothing to check.\n"]);
});

test("a ledger that is not sound: exit 1, the rule by name and the rows at fault", async () => {
  ledger.store.damage("ada", { additional: 7 });
  const { code, stdout, stderr } = await inkwell("audit");
  assert.equal(code, 1);
  assert.match(
    stdout,
    /^Broken: the journal is the balance\naccount +base +overage +additional .*\nada +\d+ +\d+ +7 /,
  );
  assert.match(stdout, /Broken: what was bought is left, spent or held\n/);
  assert.match(stderr, /^The ledger is not sound: 2 rules are broken, 1 journal entry checked\./);

  const json = await inkwell("audit", "--json");
  assert.equal(json.code, 1);
  const report: { sound: boolean; broken: { invariant: string; rows: object[] }[] } = JSON.parse(json.stdout);
  assert.equal(report.sound, false);
  assert.deepEqual(
    report.broken.map(({ invariant, rows }) => [invariant, rows.length]),
    [
      ["the journal is the balance", 1],
      ["what was bought is left, spent or held", 1],
    ],
  );
});

test("a backup is made beside the configuration's folder, and never over what is there", async () => {
  refused(await inkwell("backup", "copy.db"), /There is no database/);
  assert.ok(!existsSync(databaseFile), "and none is made");

  await (await openSqliteStore({ path: databaseFile, plans })).close();
  const made = await inkwell("backup", "copy.db", "--json");
  assert.equal(made.code, 0, made.stderr);
  const { file, bytes }: { file: string; bytes: number } = JSON.parse(made.stdout);
  assert.equal(file, path.join(cwd, "copy.db"));
  assert.ok(bytes > 0);

  refused(await inkwell("backup", "copy.db"), /copy\.db is there already/);
  assert.equal((await inkwell("backup")).code, 2);
});
