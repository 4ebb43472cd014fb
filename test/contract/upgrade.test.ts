/**
 * Only `inkwell serve` changes the schema of a ledger. On SQLite it copies the ledger before.
 * Other commands refuse a ledger of an older version and change nothing. The next version is this
 * one with a migration of the test.
 */
import assert from "node:assert/strict";
import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, afterEach, beforeEach, describe, test } from "node:test";
import { loadConfig } from "../../src/config/load.ts";
import { upgradeBegins } from "../../src/store/migrations.ts";
import { migrationLock } from "../../src/store/postgres/schema.ts";
import { type Backend, backends, type Database } from "../fixtures/backends.ts";
import { runCli } from "../fixtures/cli-host.ts";
import { plansOf } from "../fixtures/ledger-rows.ts";
import { migrationsNow, nextVersion } from "../fixtures/next-version.ts";
import { openTransaction } from "../fixtures/postgres-session.ts";
import { until } from "../fixtures/until.ts";

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
  ["audit"],
];

const next = await nextVersion(`
{postgres}select pg_sleep(current_setting('test.works_s', true)::float);{end}
alter table account_contact add column later {text};
drop index event_by_cause;
{postgres}
create table later as select current_setting('lock_timeout') as lock_timeout;
{end}`);
after(() => next[Symbol.dispose]());
const limitsNow = { ...next.limits };

for (const backend of backends) upgradedOn(backend);

function upgradedOn(backend: Backend): void {
  describe(`a ledger of an older version on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let locator: string;
    let cwd: string;
    let env: Record<string, string>;

    beforeEach(async () => {
      database = backend.create(plansOf());
      await (await database.open()).close();
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
    const ran = (command: string[]) => runCli(command, { cwd, env, services: next.services, run: next.run });
    /** What the log says about the latest upgrade. */
    let steps: string[];
    const upgrade = async (changes: { signal?: AbortSignal } = {}) => {
      const copied: string[] = [];
      const own: string[] = [];
      steps = own;
      const options = {
        ...changes,
        onUpgrade: (step: string, about?: { file: string }) => {
          own.push(step);
          if (about !== undefined) copied.push(about.file);
        },
      };
      const { store } = await next.openUpgradedStore(loadConfig({ cwd, env }), options);
      await store.close();
      return copied;
    };

    test("is refused by every command, and is unchanged", async () => {
      for (const command of commands) {
        const { code, stderr } = await ran(command);
        assert.equal(code, 1, command.join(" "));
        assert.match(stderr, /older version of Inkwell.*\. Nothing was changed\./, command.join(" "));
      }
      assert.equal(await versions(), migrationsNow);
      assert.deepEqual(copies(), []);
    });

    test("is upgraded by the service, and then serves commands of that version only", async () => {
      const copied = await upgrade();
      assert.equal(await versions(), migrationsNow + 1);
      assert.deepEqual(copied, copies());
      const end = `the ledger was upgraded${copied.length > 0 ? "; this copy is from before" : ""}`;
      assert.deepEqual(steps, [upgradeBegins, end]);
      assert.deepEqual(await upgrade(), [], "the second start has nothing to copy");
      assert.deepEqual(steps, []);
      for (const command of [["account", "list"], ["audit"]]) {
        const { code, stderr } = await ran(command);
        assert.equal(code, 0, stderr);
      }
      await assert.rejects(database.open(), /made by a newer version of Inkwell/);
      if (backend.name !== "SQLite") return;
      const [copy = ""] = copied;
      const db = new DatabaseSync(copy, { readOnly: true });
      assert.equal(db.prepare("select count(*) as rows from migration").get()?.rows, migrationsNow);
      db.close();
    });

    test("stays as it was if it cannot be upgraded, and no copy is left", async () => {
      // The column is there already, so the migration fails.
      await database.sql("alter table account_contact add column later text");
      await assert.rejects(upgrade(), /already exists|duplicate column/);
      assert.equal(await versions(), migrationsNow);
      assert.deepEqual(copies(), []);
    });

    if (backend.name === "SQLite") return;

    const setting = async (name: string, value: string) =>
      await database.sql(
        `do $$ begin execute format('alter database %I set ${name} = %L', current_database(), '${value}'); end $$`,
      );
    const working =
      "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    const readAgain = /^another session reads tables .* it is tried again$/;

    test("is upgraded when a session that reads it has ended, and serves older nodes until then", async () => {
      Object.assign(next.limits, { ...limitsNow, tableLockMs: 500, tableLockPauseMs: 500 });
      const old = await database.open();
      await using reader = await openTransaction(locator, "select from account_contact");
      const upgrading = upgrade();
      const waiting =
        "select from pg_locks join pg_database d on d.oid = database where datname = current_database() and mode = 'AccessExclusiveLock'";
      await until("it waits", async () => (await database.sql(waiting)).length > 0);
      const contact = { email: "ada@example.com" };
      await old.putAccount({ id: "ada", plan: "starter", contact }, { by: "test", dryRun: false });
      await reader.rollback();
      await upgrading;
      assert.equal(await versions(), migrationsNow + 1);
      assert.match(steps.join(), /another session reads tables .*, ?the ledger was upgraded$/);
    });

    for (const [deadlock, waited] of [
      ["1s", "2s"],
      ["1min", "10s"],
    ] as const)
      test(`waits ${waited} for a table if the server ends an autovacuum for it after ${deadlock}`, async () => {
        Object.assign(next.limits, limitsNow);
        await setting("deadlock_timeout", deadlock);
        await upgrade();
        assert.deepEqual(await database.sql("select lock_timeout from later"), [{ lock_timeout: waited }]);
      });

    test("is upgraded after a deadlock with a session that reads it", async () => {
      Object.assign(next.limits, { ...limitsNow, tableLockPauseMs: 50 });
      await setting("deadlock_timeout", "600ms");
      const reading = openTransaction(
        locator,
        "set local deadlock_timeout = '1min'; select from event; select pg_sleep(0.5); select from account_contact",
      );
      await until("it reads", async () => {
        return (await database.sql(working)).length > 0;
      });
      const upgrading = upgrade();
      await using reader = await reading;
      await reader.rollback();
      await upgrading;
      assert.equal(await versions(), migrationsNow + 1);
      assert.match(steps[1] ?? "", readAgain);
    });

    test("is tried by one node at a time, and other nodes wait also in the pauses", async () => {
      Object.assign(next.limits, { ...limitsNow, tableLockMs: 20, tableLockPauseMs: 300 });
      await setting("deadlock_timeout", "20ms");
      await using reader = await openTransaction(locator, "select from account_contact");
      const first = upgrade();
      const stepsOfFirst = steps;
      await until("it is tried again", () => stepsOfFirst.length > 1);
      const second = upgrade();
      await until("the second one waits or tries", () => steps.length > 1);
      const { length } = stepsOfFirst;
      await until("it is tried again twice", () => stepsOfFirst.length > length + 1);
      assert.deepEqual(
        steps.map((step) => step.slice(0, 12)),
        [upgradeBegins.slice(0, 12), "another node"],
      );
      await reader.rollback();
      await Promise.all([first, second]);
      assert.equal(await versions(), migrationsNow + 1);
    });

    test("says why it cannot be upgraded if such a session does not end, and counts only waiting", async () => {
      Object.assign(next.limits, { tableLocksMs: 100, tableLockMs: 20, tableLockPauseMs: 20 });
      await setting("deadlock_timeout", "20ms");
      await setting("test.works_s", "0.15");
      await using reader = await openTransaction(locator, "select from account_contact");
      await assert.rejects(upgrade(), /keeps tables .* locked: a dump, .* Nothing was changed\./);
      await reader.rollback();
      assert.equal(await versions(), migrationsNow);
      assert.equal(steps.filter((step) => readAgain.test(step)).length, 1);
    });

    for (const [when, works, isThen] of [
      ["while it waits for a session", "0", () => steps.some((step) => readAgain.test(step))],
      ["while it works", "1", async () => (await database.sql(working)).length > 0],
    ] as const)
      test(`stays as it was if the start is stopped ${when}`, async () => {
        Object.assign(next.limits, { ...limitsNow, tableLockMs: 20, tableLockPauseMs: 200 });
        await setting("deadlock_timeout", "20ms");
        await setting("test.works_s", works);
        await using reader = await openTransaction(
          locator,
          works === "0" ? "select from account_contact" : "",
        );
        const stop = new AbortController();
        const { signal } = stop;
        const stopped = () => assert.rejects(upgrade({ signal }), (error) => error === signal.reason);
        const upgrading = stopped();
        await until(when, isThen);
        stop.abort(new Error("stopped by SIGTERM"));
        await reader.rollback();
        await upgrading;
        await stopped();
        assert.equal(await versions(), migrationsNow);
      });

    test("says so if another node migrates it for too long", async () => {
      Object.assign(next.limits, { ...limitsNow, migrationLockMs: 20 });
      await using other = await openTransaction(locator, `select pg_advisory_xact_lock(${migrationLock})`);
      await assert.rejects(upgrade(), /Another node has been migrating the database/);
      assert.match(steps.at(-1) ?? "", /^another node .*; this one waits for it$/);
      await other.rollback();
    });
  });
}
