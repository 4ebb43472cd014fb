/**
 * Behaviour of PostgreSQL alone: unsuitable servers, broken networks, and rows that the database
 * rejects.
 */
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { OperatorError, StoreUnavailableError } from "../../src/errors.ts";
import { balanceOf } from "../../src/ledger/balance.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { pgDumpInstead } from "../../src/store/postgres/connection-pool.ts";
import {
  createMigrationTable,
  namesOfGuards,
  requireSchema,
  requireVersion,
} from "../../src/store/postgres/schema.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import type { Store } from "../../src/store/store.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { patience, patientSettings } from "../fixtures/patience.ts";
import { noPostgres, type Postgres, postgres, start } from "../fixtures/postgres.ts";
import { cuts, type ProxiedServer, startProxy } from "../fixtures/postgres-proxy.ts";
import { openTransaction } from "../fixtures/postgres-session.ts";
import { type RejectedWrite, writesRejectedBy } from "../fixtures/rejected-writes.ts";
import { hour, minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";
import { fillUsed } from "../fixtures/used-account.ts";

const plans = plansOf(planOf("starter", 1000, 10));
const secret = "open sesame";
const bob = { id: "bob", plan: "starter", contact: {} };
const isNotDone = (error: unknown) => error instanceof StoreUnavailableError && !error.mayBeDone;
let server: Postgres;
let database = "";

/** Stores to close after each test, also if it fails. */
const opened: Store[] = [];

async function open(url: string): Promise<Store> {
  const store = await openPostgresStore({ url, plans, settings: patientSettings });
  opened.push(store);
  return store;
}

async function make(at: string): Promise<void> {
  const store = await openPostgresStore({ url: at, plans, settings: patientSettings });
  await fillUsed(store);
  await store.close();
}

async function assertSoundAt(url: string): Promise<void> {
  assert.deepEqual((await auditDatabase(url, null)).broken, []);
}

async function refused(url: string, message: RegExp): Promise<void> {
  await assert.rejects(openPostgresStore({ url, plans }), (error) => {
    assert.ok(error instanceof OperatorError, String(error));
    assert.match(error.message, message);
    assert.ok(!error.message.includes(secret) && !error.message.includes(encodeURIComponent(secret)));
    return true;
  });
}

const rejectedWrites: readonly RejectedWrite[] = [
  ...writesRejectedBy("postgres"),
  ["a truncated journal", "truncate journal", /never deleted/],
  ["a truncated table of charges", "truncate charge", /never deleted/],
  ["a truncated table of grants", "truncate credit_grant", /never deleted/],
  ["truncated plan versions", "truncate plan_version", /never deleted/],
  ["truncated plans sections", "truncate plan_file", /never deleted/],
];

describe("on PostgreSQL", { skip: noPostgres ?? false }, () => {
  before(async () => {
    server = await postgres();
  });
  beforeEach(async () => {
    database = await server.create();
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((store) => store.close()));
    await server.drop(database);
  });

  describe("opening a database", () => {
    const asLocked = (password: string) => server.url(database, `locked:${encodeURIComponent(password)}`);

    test("rejects a wrong password without printing it", async () => {
      await refused(asLocked(`not ${secret}`), /does not authenticate the user "locked" .*password/);
    });

    test("reports a password that is missing in the URL", async () => {
      await refused(server.url(database, "locked"), /requires a password for the user "locked"/);
    });

    test("names a missing right, and creates the schema with it", async () => {
      await refused(
        asLocked(secret),
        /user "locked" lacks a right .* grant create on database \w+ to locked/,
      );
      await server.sql(`grant create on database ${database} to locked`);
      await make(asLocked(secret));
      // An existing schema needs no right to create one.
      await server.sql(`revoke create on database ${database} from locked`);
      await (await openPostgresStore({ url: asLocked(secret), plans })).close();
    });

    test("names the owner as the remedy if a user may read or do nothing", async () => {
      await make(server.url(database));
      const remedy = /^(?!.*grant create).*permission denied for .* Set the user that owns the schema/;
      await refused(asLocked(secret), remedy);
      await server.sql("grant usage on schema inkwell to locked", database);
      await server.sql("grant select on all tables in schema inkwell to locked", database);
      await refused(asLocked(secret), remedy);
      // A migration would have been committed by then.
      await refused(asLocked(secret), /^(?!.*Nothing was changed).*permission denied for table clock/);
    });

    test("repeats what a server answered that was reached", async () => {
      await server.sql(
        "create function public.fail() returns event_trigger language plpgsql as $$ begin raise 'no space left' using errcode = 'disk_full'; end $$",
        database,
      );
      await server.sql(
        "create event trigger fail on ddl_command_start execute function public.fail()",
        database,
      );
      await refused(server.url(database), /refused \(no space left\)\. Nothing was changed\./);
    });

    test("names an unreachable server without the password", async () => {
      await refused(
        `postgres://ada:${encodeURIComponent(secret)}@127.0.0.1:1/ledger`,
        /PostgreSQL at 127\.0\.0\.1:1\/ledger cannot be reached \(.*ECONNREFUSED/,
      );
      await refused(
        server.url("ledger").replace(/host=.*/, "host=/nowhere"),
        /\/nowhere\/ledger cannot be reached/,
      );
    });

    test("rejects an invalid URL without repeating it", async () => {
      await refused(`postgres://ada:${secret}@:x/`, /URL of the database is invalid/);
    });

    test("names a missing database", async () => {
      await refused(
        server.url("elsewhere"),
        /has no database "elsewhere". Create it on that server: createdb --owner=/,
      );
    });

    test("names a server without TLS", async () => {
      await refused(
        `${server.url(database)}&sslmode=require`,
        /has no TLS\. Enable it there, or correct sslmode/,
      );
    });

    test("rejects a read-only server", async () => {
      await server.sql(`alter database ${database} set default_transaction_read_only = on`);
      await refused(server.url(database), /is read-only/);
    });

    test("rejects a database with an encoding other than UTF-8", async () => {
      const latin = `${database}_latin`;
      await server.sql(
        `create database ${latin} encoding latin1 locale_provider libc locale 'C' template template0`,
      );
      await refused(server.url(latin), /has the encoding LATIN1/);
      await server.drop(latin);
    });

    test("rejects a server that is too old", () => {
      assert.throws(
        () => requireVersion(140_011, "db:5432/ledger"),
        /db:5432\/ledger is version 14\. Inkwell needs version 15/,
      );
      requireVersion(150_000, "db:5432/ledger");
    });

    test("rejects a database of a newer version or with different migrations", async () => {
      const url = server.url(database);
      await make(url);
      await server.sql("insert into migration values (9999, '9999-later.sql', 'x')", database);
      await refused(url, /newer version of Inkwell/);
      await server.sql("delete from migration where version = 9999", database);
      await server.sql("update migration set checksum = 'other'", database);
      await refused(url, /another build of Inkwell/);
    });

    test("rejects another program's schema of that name and leaves it unchanged", async () => {
      await server.sql("create schema inkwell", database);
      await server.sql("create table inkwell.recipe (name text)", database);
      await refused(server.url(database), /not one of Inkwell's/);
      const tables = await server.sql("select 1 from pg_tables where schemaname = 'inkwell'", database);
      assert.equal(tables.length, 1);
    });

    for (const [what, sql] of [
      ["without its rows", "create table inkwell.account (id text)"],
      ["with an empty table of migrations", `set search_path = inkwell; ${createMigrationTable}`],
      ["with another table of that name", "create table inkwell.migration (id bigint)"],
    ] as const)
      test(`rejects a schema ${what}, which a restore or another program left`, async () => {
        await server.sql(`begin; create schema inkwell; ${sql}; commit`, database);
        const message = /not one of Inkwell's, or whose restore broke off\. Nothing was changed\./;
        await refused(server.url(database), message);
        await assert.rejects(requireSchema(server.url(database)), message);
      });

    async function rejectedAfter(sql: string, what: string): Promise<void> {
      await make(server.url(database));
      await requireSchema(server.url(database));
      await server.sql(sql, database);
      const message = new RegExp(
        `lacks keys, indexes or triggers, .* such as ${what.split(" ").at(-1)}: a restore broke off`,
      );
      await refused(server.url(database), message);
      await assert.rejects(requireSchema(server.url(database)), message);
    }

    for (const [what, sql] of [
      ["key api_key_pkey", "alter table api_key drop constraint api_key_pkey cascade"],
      ["key migration_pkey", "alter table migration drop constraint migration_pkey"],
      ["key journal_op_key", "alter table journal drop constraint journal_op_key"],
      ["key charge_id_account_late_key", "alter table charge drop constraint charge_id_account_late_key"],
      ["foreign key hold_account_fkey", "alter table hold drop constraint hold_account_fkey"],
      ["index event_by_cause", "drop index event_by_cause"],
      ["trigger journal_is_never_emptied", "drop trigger journal_is_never_emptied on journal"],
    ] as const)
      test(`rejects a ledger whose restore did not make the ${what}`, () => rejectedAfter(sql, what));

    for (const [what, sql] of [
      ["foreign key hold_account_fkey", "alter table hold disable trigger all"],
      ["trigger journal_is_never_changed", "alter table journal disable trigger user"],
      [
        "index event_by_cause",
        "update pg_index set indisvalid = false where indexrelid = 'event_by_cause'::regclass",
      ],
    ] as const)
      test(`rejects a ledger whose ${what} does not work`, () => rejectedAfter(sql, what));

    test("knows the name of each key, index and trigger of the schema", async () => {
      await make(server.url(database));
      const rows = await server.sql(
        `select relname as name from pg_class join pg_index on indexrelid = oid where relnamespace = 'inkwell'::regnamespace
         union select conname from pg_constraint where contype = 'f' and connamespace = 'inkwell'::regnamespace
         union select tgname from pg_trigger join pg_class c on c.oid = tgrelid
           where relnamespace = 'inkwell'::regnamespace and not tgisinternal`,
        database,
      );
      assert.deepEqual(namesOfGuards().sort(), rows.map(({ name }) => String(name)).sort());
    });

    test("accepts keys, indexes, triggers and constraints that an operator added", async () => {
      await make(server.url(database));
      await server.sql(
        `create index mine on journal (by);
         alter table journal add constraint mine_too unique (account, seq, by);
         create table inkwell.note (account text collate "C" references account (id), check (account <> ''));
         create trigger mine before insert on note execute function refuse('mine');
         alter table note disable trigger all`,
        database,
      );
      await requireSchema(server.url(database));
      await (await open(server.url(database))).close();
    });

    test("shares a database with tables of other programs", async () => {
      await server.sql("create table public.account (name text)", database);
      await make(server.url(database));
    });

    test("many stores that open a new database at once all succeed", async () => {
      const url = server.url(database);
      const stores = await Promise.all(Array.from({ length: 5 }, () => open(url)));
      for (const store of stores) await store.close();
      await make(url);
    });

    test("refers to pg_dump for backups, without the password", () => {
      const { message } = pgDumpInstead("postgres://ada:s3cret@db:5432/ledger", "/backups/a b.dump");
      assert.match(message, /pg_dump .*--file="\/backups\/a b\.dump" "postgres:\/\/ada@db:5432\/ledger"/);
    });
  });

  describe("a lost connection", () => {
    let proxy: ProxiedServer;
    let store: Store;
    before(async () => {
      proxy = await startProxy(await postgres());
    });
    after(() => proxy.close());

    for (const cut of cuts) {
      test(`${cut}: every operation counts once (aws-samples/sample-agentic-ai-acceleration-kr#79)`, async () => {
        await make(server.url(database));
        store = await open(proxy.url(database));
        const ledger = new Ledger(store);
        const cutBefore = proxy.cutCount;
        const operations = [
          { kind: "topup", account: "ada", payment: "p2", amountMicro: credits(7), by: "test" },
          hold("h1", credits(3)),
          { kind: "open", account: "bob", plan: "starter", by: "test" },
          settle("h1", 700),
        ] as const;
        for (const operation of operations) {
          proxy.cut = cut;
          const outcome = await ledger.apply(operation);
          assert.ok(["added", "held", "exists", "opened", "settled"].includes(outcome.kind), outcome.kind);
        }
        assert.equal(proxy.cutCount - cutBefore, operations.length);
        const journal = await store.journal("ada", { afterSeq: 6, limit: 10 });
        assert.deepEqual(
          journal.map(({ kind, subject }) => [kind, subject]),
          [
            ["payment", "p2"],
            ["charge", "h1"],
          ],
        );
        await store.close();
        await assertSoundAt(server.url(database));
      });
    }

    for (const cut of cuts) {
      test(`${cut}: a rejected hold is given back if it was taken`, async () => {
        await make(server.url(database));
        store = await open(proxy.url(database));
        const ledger = new Ledger(store, { retriesMs: [], latePauseMs: 1 });
        const before = (await store.accountSnapshot("ada"))?.account;
        proxy.cut = cut;
        await assert.rejects(ledger.apply(hold("h1", credits(3))), (error) => {
          assert.ok(error instanceof StoreUnavailableError);
          assert.ok(error.mayBeDone);
          return true;
        });
        await ledger.close(10_000);
        const after = (await store.accountSnapshot("ada"))?.account;
        assert.deepEqual([after?.base, after?.holds], [before?.base, before?.holds]);
        const receipts = await store.usage({ id: "h1", limit: 1 });
        // The server may have taken the hold. Then the receipt shows that it cost nothing.
        for (const { ending, costMicro } of receipts) assert.deepEqual([ending, costMicro], ["refused", 0]);
        if (cut.startsWith("after commit")) assert.equal(receipts.length, 1);
        if (cut === "before commit") assert.equal(receipts.length, 0);
        await store.close();
        await assertSoundAt(server.url(database));
      });
    }

    test("an operation that the server rejected or never received is reported as not done", async () => {
      await make(server.url(database));
      using own = await startProxy(server);
      store = await open(own.url(database));
      await server.sql(
        `create function full_disk() returns trigger language plpgsql as
           $$ begin raise exception using errcode = 'disk_full'; end $$;
         create trigger full_disk before insert on hold for each statement execute function full_disk()`,
        database,
      );
      await assert.rejects(store.commit([hold("h1", credits(3))]), isNotDone);
      own.close();
      await assert.rejects(store.commit([hold("h1", credits(3))]), isNotDone);
      await assert.rejects(store.putAccount(bob, { dryRun: false, by: "test" }), isNotDone);
      await store.close();
    });

    test("a clock that nobody can record for 15 s is a failure, and commits go on", async () => {
      const url = server.url(database);
      await make(url);
      let passedMs = hour;
      const startMs = Date.now();
      const clock = { clockMs: () => startMs + passedMs, uptimeMs: () => passedMs };
      const [one, two] = await Promise.all(
        [0, 1].map(() => openPostgresStore({ url, plans, settings: patientSettings, clock })),
      );
      assert.ok(one !== undefined && two !== undefined);
      opened.push(one, two);
      const lock = () => openTransaction(url, "select from clock for update");
      await using locker = await lock();
      passedMs += 14_000;
      await one.clock();
      passedMs += 15_000;
      await one.clock();
      passedMs += 15_000;
      await assert.rejects(one.clock(), /the row of the clock/);
      // The next commit looks too.
      passedMs += 15_000;
      assert.deepEqual(
        (await one.commit([hold("h1", 1)])).map(({ kind }) => kind),
        ["held"],
      );
      await assert.rejects(one.clock(), /the row of the clock/);
      await locker.rollback();
      await one.clock();
      // Another node is faster each time.
      passedMs += minute;
      await two.clock();
      await using other = await lock();
      await one.clock();
      await other.rollback();
    });

    test("an operation before which the clock could not be recorded is reported as not done", async () => {
      const url = server.url(database);
      await make(url);
      let uptimeMs = hour;
      const clock = { clockMs: () => Date.now(), uptimeMs: () => uptimeMs };
      store = await openPostgresStore({ url, plans, settings: patientSettings, clock });
      opened.push(store);
      await server.sql(
        `create function full_disk() returns trigger language plpgsql as
           $$ begin raise exception using errcode = 'disk_full'; end $$;
         create trigger full_disk before update on clock for each statement execute function full_disk()`,
        database,
      );
      // Nobody has looked at the clock for so long.
      uptimeMs += minute;
      await assert.rejects(store.commit([hold("h1", credits(3))]), isNotDone);
      await assert.rejects(store.putAccount(bob, { dryRun: false, by: "test" }), isNotDone);
    });

    test("a commit that is retried while the server still runs it counts once", async () => {
      await make(server.url(database));
      store = await open(proxy.url(database));
      const ledger = new Ledger(store);
      await server.sql(
        `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); return new; end $$;
         create trigger slow before insert or update on account for each statement execute function slow()`,
        database,
      );
      const answers = [];
      for (const operation of [
        { kind: "topup", account: "ada", payment: "p2", amountMicro: credits(7), by: "test" },
        { kind: "open", account: "bob", plan: "starter", by: "test" },
        hold("h1", credits(3)),
        settle("h1", 700),
      ] as const) {
        proxy.cut = "with commit, unseen by the server";
        const outcome = await ledger.apply(operation);
        answers.push("replayed" in outcome ? outcome.replayed : outcome.kind);
      }
      // The retry has waited and found it done, or has overtaken the first attempt.
      const [added, opened, ...others] = answers;
      assert.ok(added === true || added === false, String(added));
      assert.ok(opened === "exists" || opened === "opened", String(opened));
      assert.deepEqual(others, ["held", "settled"]);
      assert.equal((await store.journal("ada", { afterSeq: 6, limit: 10 })).length, 2);
      assert.equal(balanceOf(await store.accountSnapshot("ada")).additionalMicro, credits(12));
      await server.sql("drop trigger slow on account", database);
      await store.close();
      await assertSoundAt(server.url(database));
    });

    test("statements that the server no longer has as they were are prepared again, for one more attempt", async () => {
      await make(server.url(database));
      store = await open(server.url(database));
      const ledger = new Ledger(store, { retriesMs: [0] });
      await ledger.apply(hold("h1", credits(3)));
      const findKey = async () => (await store.findKey("0".repeat(64)))?.key.id;
      assert.equal(await findKey(), "key");
      await server.sql("alter table api_key alter column name type varchar(1000)", database);
      assert.equal((await ledger.apply(settle("h1", 700))).kind, "settled");
      assert.deepEqual(await Promise.all([findKey(), findKey()]), ["key", "key"]);
      await server.sql(
        `create sequence runs;
         create function forget() returns trigger language plpgsql as
           $$ begin if nextval('runs') = 1 then deallocate all; end if; return null; end $$;
         create trigger forget after insert on hold for each statement execute function forget()`,
        database,
      );
      assert.equal((await ledger.apply(hold("h2", credits(3)))).kind, "held");
      const [{ last_value: runs } = {}] = await server.sql("select last_value from runs", database);
      assert.equal(runs, 2);
      await store.close();
    });

    test("reads fail while the server is away and work again afterwards", async () => {
      await make(server.url(database));
      using own = await startProxy(server);
      const url = own.url(database);
      store = await open(url);
      assert.notEqual(await store.accountSnapshot("ada"), null);
      await server.sql(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database}' and pid <> pg_backend_pid()`,
      );
      // An idle connection that is broken may be handed out once, but not twice.
      for (let attempt = 0; attempt < 5; attempt += 1) {
        const found = await store.keys("ada").catch((error: unknown) => error);
        assert.ok(found instanceof StoreUnavailableError || Array.isArray(found));
      }
      assert.equal((await store.accountSnapshot("ada"))?.account.id, "ada");
      own.close();
      await assert.rejects(store.keys("ada"), StoreUnavailableError);
      await assert.rejects(store.commit([settle("running", 1)]), StoreUnavailableError);
      await store.close();
    });
  });

  test("a commit waits for an account that another node has locked, and its timeout is a transient error", async () => {
    const url = server.url(database);
    await make(url);
    const store = await open(url);
    const other = await open(url);
    await using locker = await openTransaction(url, "select from account for update");
    const topup = { kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" } as const;
    const stopped = assert.rejects(store.commit([topup]), StoreUnavailableError);
    await isWaiting();
    const [row] = await server.sql(
      `select pg_cancel_backend(pid) as done from pg_stat_activity where datname = '${database}' and wait_event_type = 'Lock'`,
    );
    assert.equal(row?.done, true);
    await stopped;
    const again = new Ledger(other).apply(topup);
    await isWaiting();
    await locker.rollback();
    assert.deepEqual(await again, { kind: "added", additionalMicro: credits(5) + 1, replayed: false });
    await store.close();
    await other.close();
  });

  /** Resolves when a session waits for a lock of another one. */
  async function isWaiting(): Promise<void> {
    const sql = `select 1 from pg_stat_activity where datname = '${database}' and wait_event_type = 'Lock'`;
    await until("a session waits for a lock", async () => (await server.sql(sql)).length > 0);
  }

  test("every commit that is decided after the answer to a revocation sees the key revoked", async () => {
    const url = server.url(database);
    await make(url);
    const store = await open(url);
    await using locker = await openTransaction(url, "select from account for update");
    const revoked = revokeKey(store, "key");
    await isWaiting();
    await locker.rollback();
    await revoked;
    assert.notEqual((await store.keyById("key"))?.revokedMs ?? null, null);
    const [outcome] = await store.commit([hold("late", 1)]);
    assert.deepEqual(outcome, { kind: "invalid_api_key", why: "was revoked" });
  });

  test("nodes that commit on one account at once wait for each other, and no commit fails", async () => {
    const url = server.url(database);
    await make(url);
    const stores = await Promise.all([0, 1, 2].map(() => open(url)));
    await Promise.all(
      stores.map(async (store, node) => {
        for (let n = 0; n < 40; n += 1) {
          const payment = `${node}-${n}`;
          await store.commit([{ kind: "topup", account: "ada", payment, amountMicro: 1, by: "test" }]);
        }
      }),
    );
    const [store] = stores;
    assert.ok(store !== undefined);
    assert.equal(balanceOf(await store.accountSnapshot("ada")).additionalMicro, credits(5) + 3 * 40);
    await assertSoundAt(url);
  });

  describe("nodes whose writes overlap", () => {
    let stores: Store[] = [];

    /** Two nodes on a database in which each row that is written to the table takes a moment. */
    async function overlapOn(table: string): Promise<void> {
      const url = server.url(database);
      await make(url);
      await server.sql(
        `create sequence writes;
         create function slow() returns trigger language plpgsql as
           $$ begin perform nextval('inkwell.writes'), pg_sleep(0.02); return new; end $$;
         create trigger slow before insert on ${table} for each row execute function slow()`,
        database,
      );
      stores = await Promise.all([open(url), open(url)]);
    }

    test("credit a payment to one account, and do not wait for each other in a circle", async () => {
      await overlapOn("credit_grant");
      const [one, two] = stores;
      assert.ok(one !== undefined && two !== undefined);
      await one.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      await server.sql("select setval('writes', 1, false)", database);
      const ids = ["x", "y", "z"];
      const topups = (account: string, payments: readonly string[]) =>
        payments.map((payment) => ({ kind: "topup", account, payment, amountMicro: 1, by: "test" }) as const);
      // Without retries by a ledger, so no commit may fail.
      const outcomes = await Promise.all([
        one.commit(topups("ada", ids)),
        two.commit(topups("bob", ids.toReversed())),
      ]);
      const kinds = outcomes.map((of) => [...new Set(of.map(({ kind }) => kind))]);
      assert.deepEqual(kinds.flat().sort(), ["added", "payment_used"]);
      // The other commit stopped at its first payment. In a circle, one would have to start again.
      const [row] = await server.sql("select last_value as rows from writes", database);
      assert.ok(Number(row?.rows) <= ids.length + 1, `${row?.rows} rows were tried`);
    });

    test("apply a plans section once", async () => {
      await overlapOn("plan_version");
      const larger = plansOf(planOf("starter", 2000, 10));
      const changes = await Promise.all(
        stores.map((store) => store.applyPlans(larger, { force: false, by: "test" })),
      );
      assert.deepEqual(changes.map(({ kind }) => kind).sort(), ["applied", "unchanged"]);
      assert.equal((await stores[0]?.plans())?.versions.get("starter")?.length, 2);
    });
  });

  test("a server killed and restarted twice under load loses and repeats no operation (berriai/litellm#6895)", async () => {
    const own = await start();
    const name = await own.create();
    const url = own.url(name);
    await make(url);
    const stores = await Promise.all([0, 1].map(() => open(url)));
    const ledgers = stores.map((store) => new Ledger(store, { ...patience, commitQueues: 2 }));
    let acknowledged = 0;
    let stopped = false;
    const callers = Array.from({ length: 16 }, async (_, caller) => {
      const ledger = ledgers[caller % 2];
      assert.ok(ledger !== undefined);
      const done: string[] = [];
      for (let round = 0; !stopped; round += 1) {
        const id = `${caller}-${round}`;
        await ledger.apply({ kind: "topup", account: "ada", payment: id, amountMicro: 1, by: "test" });
        await ledger.apply(hold(id, 2000));
        await ledger.apply(settle(id, 1000));
        done.push(id);
        acknowledged += 1;
      }
      return done;
    });
    for (let kill = 1; kill <= 2; kill += 1) {
      const target = acknowledged + 200;
      while (acknowledged < target) await new Promise(setImmediate);
      await own.kill();
      await own.restart();
    }
    const target = acknowledged + 200;
    while (acknowledged < target) await new Promise(setImmediate);
    stopped = true;
    const ids = (await Promise.all(callers)).flat();
    for (const store of stores) await store.close();
    await assertSoundAt(url);
    const paid = await own.sql("select subject from journal where kind = 'payment'", name);
    assert.deepEqual(paid.map(({ subject }) => String(subject)).sort(), [...ids, "p1"].sort());
    const receipts = await own.sql("select id, cost from charge where id <> 'done'", name);
    assert.deepEqual(receipts.map(({ id }) => String(id)).sort(), ids.toSorted());
    assert.ok(receipts.every(({ cost }) => cost === 1000));
    const [account] = await own.sql("select base_spent, base_held, holds from account", name);
    assert.deepEqual(account, { base_spent: 100 + ids.length * 1000, base_held: credits(1), holds: 1 });
  });
});

describe("the database rejects", { skip: noPostgres ?? false }, () => {
  before(async () => {
    server = await postgres();
    database = await server.create();
    await make(server.url(database));
  });
  after(() => server.drop(database));

  for (const [name, sql, message] of rejectedWrites) {
    test(name, async () => {
      await assert.rejects(server.sql(sql, database), message);
    });
  }
});
