/**
 * The audit: a sound ledger passes, and each broken invariant is reported with the rows at fault.
 */
import assert from "node:assert/strict";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import pg from "pg";
import { audit } from "../../src/app/database.ts";
import { loadConfig } from "../../src/config/load.ts";
import { OperatorError } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { type Broken, invariants } from "../../src/store/audit.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { day, minute } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));
const folder = mkdtempSync(join(tmpdir(), "inkwell-audit-"));
after(() => rmSync(folder, { recursive: true }));
const sound = join(folder, "sound.db");

async function fill(store: Store): Promise<void> {
  await store.commit([{ kind: "open", account: "ada", plan: "starter" }]);
  await store.addKey(keyOf("key", "ada", { hash: "0".repeat(64) }));
  await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amount: credits(5) },
    hold("running", credits(1), { ttlMs: minute }),
    extend("running", 1, credits(2)),
    hold("done", credits(109)),
    settle("done", 100),
    hold("bought", credits(110)),
    extend("bought", 1, credits(1)),
    settle("bought", credits(111)),
  ]);
  assert.deepEqual((await store.audit()).broken, []);
  await store.close();
}

before(async () => fill(await openSqliteStore({ path: sound, plans })));

/** Writes to the database without its checks, triggers and unique indexes. */
function corrupt(...statements: string[]): string {
  const path = join(folder, `${Math.random()}.db`);
  copyFileSync(sound, path);
  const db = new DatabaseSync(path);
  try {
    db.exec("pragma foreign_keys = off; pragma ignore_check_constraints = on");
    for (const name of [
      "journal_is_never_changed",
      "journal_is_never_deleted",
      "usage_is_final",
      "usage_is_never_deleted",
    ]) {
      db.exec(`drop trigger ${name}`);
    }
    for (const statement of statements) db.exec(statement);
  } finally {
    db.close();
  }
  return path;
}

async function brokenIn(path: string): Promise<Broken[]> {
  const store = await openSqliteStore({ path, plans });
  try {
    return (await store.audit()).broken;
  } finally {
    await store.close();
  }
}

/** Works on a copy of the sound database, without its foreign keys, checks and triggers. */
const withoutRules = `do $$ declare rule record; begin
  for rule in select conrelid::regclass as of, conname from pg_constraint
    where connamespace = 'inkwell'::regnamespace and contype in ('f', 'c')
  loop execute format('alter table %s drop constraint %I', rule.of, rule.conname); end loop;
  for rule in select tgrelid::regclass as of, tgname from pg_trigger where not tgisinternal
  loop execute format('drop trigger %I on %s', rule.tgname, rule.of); end loop;
end $$`;

let soundDatabase: Promise<string> | null = null;

async function brokenOnPostgres(...statements: string[]): Promise<Broken[]> {
  const server = await postgres();
  soundDatabase ??= (async () => {
    const name = await server.create();
    await fill(await openPostgresStore({ url: server.url(name), plans }));
    return name;
  })();
  const name = `${await soundDatabase}_broken`;
  await server.sql(`create database ${name} template ${await soundDatabase} strategy file_copy`);
  try {
    for (const statement of [withoutRules, ...statements]) await server.sql(statement, name);
    return (await auditDatabase(server.url(name), null, new AbortController().signal)).broken;
  } finally {
    await server.drop(name);
  }
}

const onStores: readonly {
  name: string;
  skip?: string;
  broken(...statements: string[]): Promise<Broken[]>;
}[] = [
  { name: "SQLite", broken: (...statements) => brokenIn(corrupt(...statements)) },
  {
    name: "PostgreSQL",
    broken: brokenOnPostgres,
    ...(noPostgres === null ? {} : { skip: noPostgres }),
  },
];

/** A journal without its unique indexes, as after a disk failure. */
const withoutIndexes =
  "create table copy as select * from journal; drop table journal; alter table copy rename to journal";

/** For each invariant: cells of the row at fault, and the statements that break the invariant. */
const corruptions: Record<string, [row: object, ...statements: string[]]> = {
  "the journal is the balance": [
    { account: "ada", additional: 999_901, journal_additional: 999_900 },
    "update account set additional = additional + 1",
  ],
  "the journal is numbered without gaps": [
    { account: "ada", last: 10, entries: 9 },
    "update journal set seq = 10 where seq = 9",
  ],
  "each journal entry follows from the one before": [
    { account: "ada", op: "payment:p1", additional_after: 7 },
    "update journal set additional_after = 7 where kind = 'topup'",
  ],
  "each kind of journal entry moves only what it may": [
    { kind: "topup", base_delta: 1 },
    "update journal set base_delta = 1 where kind = 'topup'",
  ],
  "every operation stands once": [
    { account: "ada", op: "open", times: 2 },
    withoutIndexes,
    "update journal set op = 'open' where kind = 'topup'",
  ],
  "every hold is open or has ended, and not both": [
    { hold: "running", open: null, ended: null },
    "delete from hold",
  ],
  "every open hold and every receipt was taken as a hold": [
    { account: "ada", hold: "running" },
    "update journal set kind = 'extend' where op = 'running'",
  ],
  "every receipt has the journal entry that ended it": [
    { hold: "done", op: "x" },
    "update journal set op = 'x' where op = 'done/end'",
  ],
  "every receipt is what its journal entries took": [
    { hold: "done", base: 99, base_taken: 100, overage: 1, overage_taken: 0 },
    "update usage set base = base - 1, overage = overage + 1 where id = 'done'",
  ],
  "every open hold holds what its journal entries took": [
    { hold: "running", base: credits(3) + 1, base_taken: credits(3) },
    "update hold set base = base + 1",
    "update account set held_base = held_base + 1",
  ],
  "what accounts hold is what their open holds hold": [
    { account: "ada", held_base: credits(3), base: credits(3) + 1 },
    "update hold set base = base + 1",
  ],
  "what keys count as running are their open holds": [
    { key: "key", holds: 0, open: 1 },
    "update api_key set holds = 0",
  ],
  "what was bought is left, spent or held": [
    { account: "ada", bought: credits(6), remaining: 999_900, spent: 4_000_100 },
    "update journal set additional_delta = 6000000 where kind = 'topup'",
  ],
  "every cost is tokens times prices, and is paid or recorded as shortfall": [
    { hold: "done", shortfall: 1 },
    "update usage set shortfall = 1 where id = 'done'",
  ],
  "no bucket is below zero or above its cap": [
    { account: "ada", overage: credits(10) + 1 },
    "update account set overage = overage_cap + 1",
  ],
  "every window has a length": [{ account: "ada" }, "update account set base_ends_ms = base_starts_ms"],
  "everything belongs to an account that there is": [
    { what: "hold", account: "nobody", id: "running" },
    "update hold set account = 'nobody'",
  ],
};

for (const { name, skip = false, broken: brokenAfter } of onStores) {
  describe(`the audit on ${name} finds violations:`, { skip }, () => {
    for (const invariant of Object.keys(invariants)) {
      test(invariant, async () => {
        const [row = {}, ...statements] = corruptions[invariant] ?? [];
        const broken = (await brokenAfter(...statements)).find((each) => each.invariant === invariant);
        assert.ok(broken !== undefined, "the invariant is found broken");
        const isShown = broken.rows.some((each) => isDeepStrictEqual({ ...each, ...row }, { ...each }));
        assert.ok(isShown, `the row at fault is shown: ${JSON.stringify(broken.rows)}`);
      });
    }

    test("sums beyond 63 bits and amounts beyond 2^53", async () => {
      const broken = await brokenAfter(
        "update journal set base_delta = 9223372036854775807 where kind in ('open', 'topup')",
      );
      const named = broken.map((each) => each.invariant);
      assert.ok(named.includes("the journal is the balance"));
      const moved = broken.find(
        (each) => each.invariant === "each kind of journal entry moves only what it may",
      );
      assert.equal(moved?.rows[0]?.base_delta, "9223372036854775807");
    });
  });
}

describe("the audit finds", () => {
  test("a file whose indexes and tables differ", async () => {
    const path = corrupt();
    const db = new DatabaseSync(path, { readOnly: true });
    const page = db
      .prepare("select rootpage from sqlite_schema where name = 'hold_by_expiry'")
      .get()?.rootpage;
    const size = db.prepare("pragma page_size").get()?.page_size;
    db.close();
    // The last byte of the only index entry, which is in the id of the hold.
    const file = openSync(path, "r+");
    writeSync(file, "?", Number(page) * Number(size) - 1);
    closeSync(file);
    const named = (await brokenIn(path)).map(
      ({ invariant, rows }) => `${invariant}: ${JSON.stringify(rows)}`,
    );
    assert.match(named.join(), /the file is whole.*missing from index hold_by_expiry/);
  });
});

test("finds overspent accounts among sound ones and shows at most twenty rows", async () => {
  const store = new MemoryStore(plans, () => 0);
  for (let n = 0; n < 30; n += 1) {
    await store.commit([{ kind: "open", account: `account-${n}`, plan: "starter" }]);
  }
  assert.deepEqual((await store.audit()).broken, []);
  for (let n = 0; n < 25; n += 1) store.damage(`account-${n}`, { base: 0 - n - 1 });
  const { broken } = await store.audit();
  assert.deepEqual(
    broken.map(({ invariant, rows }) => [invariant, rows.length]),
    [
      ["the journal is the balance", 20],
      ["no bucket is below zero or above its cap", 20],
    ],
  );
});

test("accepts credits that ended with their window, and late settlements", async () => {
  let nowMs = Date.UTC(2026, 0, 15);
  const store = new MemoryStore(plans, () => nowMs);
  await store.commit([{ kind: "open", account: "ada", plan: "starter" }]);
  await store.addKey(keyOf("key", "ada"));
  await store.commit([hold("over", credits(105), { ttlMs: 3 * day }), hold("late", credits(2))]);
  nowMs += 2 * day;
  await store.commit([
    extend("over", 1, credits(1)),
    { kind: "expire", account: "ada", hold: "late" },
    settle("late", 10),
    settle("over", 100),
  ]);
  const rows = await store.usage({ limit: 10 });
  assert.deepEqual(rows.map(({ id, cost }) => [id, cost]).sort(), [
    ["late", 10],
    ["over", 100],
  ]);
  assert.deepEqual((await store.audit()).broken, []);
});

for (const [name, openBusy, skip] of [
  ["SQLite", () => openSqliteStore({ path: join(folder, "busy.db"), plans }), false],
  [
    "PostgreSQL",
    async () => {
      const server = await postgres();
      return await openPostgresStore({ url: server.url(await server.create()), plans });
    },
    noPostgres ?? false,
  ],
] as const) {
  test(`commits continue while the audit runs on ${name}, and the audit finds no fault in them`, {
    skip,
  }, async () => {
    const store = await openBusy();
    const ledger = new Ledger(store);
    await ledger.apply({ kind: "open", account: "ada", plan: "starter" });
    await store.addKey(keyOf("key", "ada", { hash: "0".repeat(64) }));
    let auditing = true;
    let during = 0;
    const busy = (async () => {
      for (let n = 0; auditing; n += 1) {
        await ledger.apply({ kind: "topup", account: "ada", payment: `p${n}`, amount: 1 });
        during += 1;
      }
    })();
    for (let n = 0; n < 3; n += 1) assert.deepEqual((await store.audit()).broken, []);
    auditing = false;
    await busy;
    assert.ok(during > 10, `${during} commits went through`);
    assert.equal((await store.audit()).journalRows, during + 1);
    const cut = store.audit();
    await Promise.all([assert.rejects(cut, /ended before it was through/), store.close()]);
  });
}

// While a snapshot exists, PostgreSQL keeps all old versions of every row that is written.
test("each invariant is checked in its own snapshot on PostgreSQL, with all rows committed before", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const url = server.url(name);
  await fill(await openPostgresStore({ url, plans }));
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  await other.query("begin; lock table inkwell.hold in access exclusive mode");
  const audit = auditDatabase(url, null, new AbortController().signal);
  const waiting = `select from pg_stat_activity where datname = '${name}' and wait_event_type = 'Lock'`;
  while ((await server.sql(waiting, name)).length === 0);
  // No invariant of the keys has been checked yet.
  await server.sql("update api_key set holds = 7", name);
  await other.query("rollback");
  await other.end();
  const { broken } = await audit;
  assert.deepEqual(
    broken.map(({ invariant }) => invariant),
    ["what keys count as running are their open holds"],
  );
});

test("the check of a PostgreSQL database without a ledger, or of another version, changes nothing", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const config = loadConfig({ cwd: folder, env: { INKWELL_DATABASE: server.url(name) } });
  await assert.rejects(audit(config), (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, /^There is no ledger of Inkwell in the database .* Nothing was changed/);
    return true;
  });
  const schemas = "select 1 from pg_namespace where nspname = 'inkwell'";
  assert.deepEqual(await server.sql(schemas, name), []);
  await fill(await openPostgresStore({ url: server.url(name), plans }));
  assert.deepEqual((await audit(config)).broken, []);
  await server.sql("drop table node; delete from migration where version >= 2", name);
  await assert.rejects(audit(config), /was made by an older version of Inkwell. Nothing was changed/);
  assert.equal((await server.sql("select 1 from migration", name)).length, 1);
});

test("closing a store ends its audits", async () => {
  const store = await openSqliteStore({ path: sound, plans });
  const audit = store.audit();
  await Promise.all([assert.rejects(audit, /ended before it was through/), store.close()]);
  await assert.rejects(store.audit(), /closed/);
});
