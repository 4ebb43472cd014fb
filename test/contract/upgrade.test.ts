/**
 * Only `inkwell serve` changes the schema of a ledger. On SQLite it copies the ledger before.
 * Other commands refuse a ledger of an older version and change nothing.
 */
import assert from "node:assert/strict";
import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, test } from "node:test";
import { openUpgradedStore } from "../../src/app/database.ts";
import { services } from "../../src/cli/services.ts";
import { loadConfig } from "../../src/config/load.ts";
import { readMigrations } from "../../src/store/migrations.ts";
import { type Backend, backends, type Database } from "../fixtures/backends.ts";
import { runCli } from "../fixtures/cli-host.ts";
import { plansOf } from "../fixtures/ledger-rows.ts";
import { makeOldLedger, type OldLedger, oldLedgers } from "../fixtures/old-ledger.ts";

/** One command for each way in which a command reads or writes the ledger. */
const commands = [
  ["account", "list"],
  ["account", "create", "ada", "--plan", "starter"],
  ["key", "list"],
  ["credits", "add", "ada", "5", "--payment", "p1"],
  ["balance", "ada"],
  ["usage"],
  ["plans", "list"],
  ["plans", "apply"],
  ["clock", "show"],
];

for (const backend of backends) upgradedOn(backend, oldLedgers[backend.name]);

function upgradedOn(backend: Backend, old: OldLedger | undefined): void {
  describe(`a ledger of an older version on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    assert.ok(old !== undefined);
    let database: Database;
    let locator: string;
    let cwd: string;
    let env: Record<string, string>;

    beforeEach(async () => {
      database = backend.create(plansOf());
      await makeOldLedger(database, old);
      locator = await database.locator();
      cwd = mkdtempSync(path.join(tmpdir(), "inkwell-upgrade-"));
      env = { INKWELL_DATABASE: locator.startsWith("postgres") ? locator : `sqlite:${locator}` };
    });
    afterEach(async () => {
      rmSync(cwd, { recursive: true });
      await database.remove();
    });

    const versions = async () =>
      (await database.sql("select version from migration order by version")).length;
    const copies = () => globSync(`${locator}.before-upgrade-*`);
    const upgrade = async () => {
      const copied: string[] = [];
      const options = { onCopy: (file: string) => void copied.push(file) };
      const { store } = await openUpgradedStore(loadConfig({ cwd, env }), options);
      await store.close();
      return copied;
    };

    test("is refused by every command, and is unchanged", async () => {
      const before = await versions();
      for (const command of commands) {
        const { code, stderr } = await runCli(command, { cwd, env, services });
        assert.equal(code, 1, command.join(" "));
        assert.match(
          stderr,
          /made by an older version of Inkwell\. Nothing was changed\./,
          command.join(" "),
        );
      }
      assert.equal(await versions(), before);
      assert.deepEqual(copies(), []);
    });

    test("is upgraded by the service, and then serves commands", async () => {
      const before = await versions();
      const copied = await upgrade();
      assert.equal(await versions(), before + 1);
      assert.deepEqual(copied, copies());
      assert.deepEqual(await upgrade(), [], "the second start has nothing to copy");
      const { code, stderr } = await runCli(["account", "list"], { cwd, env, services });
      assert.equal(code, 0, stderr);
      if (backend.name !== "SQLite") return;
      const [copy = ""] = copied;
      const db = new DatabaseSync(copy, { readOnly: true });
      assert.equal(db.prepare("select count(*) as rows from migration").get()?.rows, before);
      db.close();
    });

    test("stays as it was if it cannot be upgraded, and no copy is left", async () => {
      const before = await versions();
      const migrations = readMigrations(
        new URL(`../../src/store/migrations/${old.folder}/`, import.meta.url),
      );
      // Its column is there already, so the migration fails.
      await old.run(database, migrations.at(-1)?.sql ?? "");
      await assert.rejects(upgrade(), /already exists|duplicate column/);
      assert.equal(await versions(), before);
      assert.deepEqual(copies(), []);
    });
  });
}
