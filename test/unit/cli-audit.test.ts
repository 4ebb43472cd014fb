/** `inkwell audit` and `inkwell backup`: what they print, and the exit codes that scripts go by. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, beforeEach, test } from "node:test";
import { loadConfig } from "../../src/config.ts";
import { Ledger } from "../../src/credits/ledger.ts";
import { backup } from "../../src/main.ts";
import { openSqliteStore } from "../../src/store/sqlite.ts";
import { runCli } from "../fixtures/cli-host.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";

const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-cli-audit-"));
after(() => rmSync(cwd, { recursive: true }));
const { plans } = loadConfig({ cwd, env: {} });
const databaseFile = path.join(cwd, "data", "inkwell.db");
const [plan = ""] = plans.keys();
const nowMs = Date.UTC(2027, 0, 15, 12);

let store: MemoryStore;
beforeEach(async () => {
  store = new MemoryStore(plans, () => nowMs);
  await store.commit([{ kind: "open", account: "ada", plan }]);
});

function inkwell(...argv: string[]) {
  const openStore = async () => ({ store, ledger: new Ledger(store) });
  return runCli(argv, { cwd, services: { openStore, backup } });
}

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

test("a ledger that is not sound: exit 1, the rule by name and the rows at fault", async () => {
  store.damage("ada", { additional: 7 });
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
  const missing = await inkwell("backup", "copy.db");
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /There is no database/);
  assert.ok(!existsSync(databaseFile), "and none is made");

  await (await openSqliteStore({ path: databaseFile, plans })).close();
  const made = await inkwell("backup", "copy.db", "--json");
  assert.equal(made.code, 0, made.stderr);
  const { file, bytes }: { file: string; bytes: number } = JSON.parse(made.stdout);
  assert.equal(file, path.join(cwd, "copy.db"));
  assert.ok(bytes > 0);

  const again = await inkwell("backup", "copy.db");
  assert.equal(again.code, 1);
  assert.match(again.stderr, /copy\.db is there already/);
  assert.equal((await inkwell("backup")).code, 2);
});
