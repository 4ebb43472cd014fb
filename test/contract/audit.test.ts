/**
 * The audit beside a running service, on databases that it cannot read, and on damaged files.
 * test/contract/tampering.test.ts changes every cell.
 */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { once } from "node:events";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { audit } from "../../src/app/database.ts";
import { services } from "../../src/cli/services.ts";
import { loadConfig } from "../../src/config/load.ts";
import { OperatorError } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { type AuditAnswer, type AuditStep, auditSteps } from "../../src/store/audit.ts";
import type { AuditReport } from "../../src/store/audit-report.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { readSeal, sealText } from "../../src/store/seal.ts";
import type { SqlStatement } from "../../src/store/sql.ts";
import { auditFile, auditOf } from "../../src/store/sqlite/audit.ts";
import { readCatalog } from "../../src/store/sqlite/plans.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { chargeTable, grantTable, journalTable } from "../../src/store/tables.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { patientSettings } from "../fixtures/patience.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { openTransaction } from "../fixtures/postgres-session.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const plans = plansOf(planOf("starter", 100, 10), planOf("pro", 300, 20));
const folder = mkdtempSync(join(tmpdir(), "inkwell-audit-"));
after(() => rmSync(folder, { recursive: true }));
const sound = join(folder, "sound.db");

async function fill(store: Store): Promise<void> {
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
    hold("running", credits(1), { ttlMs: minute }),
    extend("running", 1, credits(2)),
    hold("done", credits(109)),
    settle("done", 100),
    hold("bought", credits(110)),
    extend("bought", 1, credits(1)),
    settle("bought", credits(111)),
  ]);
  await fillBob(store);
  while (await store.sumUsage("UTC"));
  await store.close();
}

/** Bob changes the plan twice, has a key with a cap, and settles a hold after its expiry. */
async function fillBob(store: Store): Promise<void> {
  const ofBob = { account: "bob", key: "team" } as const;
  await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("team", "bob", { hash: "1".repeat(64) }));
  const caps = [{ amountMicro: credits(500), every: "P1M", byOperator: true }];
  await store.commit([
    { kind: "key", op: "caps", ...ofBob, set: { caps }, by: "test" },
    { kind: "topup", account: "bob", payment: "p2", amountMicro: credits(5), by: "test" },
    { kind: "refund", account: "bob", refund: "r1", payment: "p2", amountMicro: credits(2), by: "test" },
    hold("late", credits(2), { ...ofBob, ttlMs: 0 }),
    { kind: "expire", account: "bob", requestId: "late" },
    settle("late", 30, ofBob),
    hold("over", credits(10), ofBob),
    { kind: "plan", account: "bob", op: "up", plan: "pro", at: "now", by: "test" },
    extend("over", 1, credits(5), ofBob),
    settle("over", credits(12), ofBob),
    { kind: "plan", account: "bob", op: "down", plan: "starter", at: "now", by: "test" },
    hold("open", credits(4), ofBob),
    { kind: "plan", account: "bob", op: "later", plan: "pro", at: "refresh", by: "test" },
  ]);
}

before(async () => {
  await fill(await openSqliteStore({ path: sound, plans }));
  assert.deepEqual(auditFile({ file: { path: sound, busyMs: 5000 }, nowMs: Date.now() }).broken, []);
});

test("the audit finds a file whose indexes and tables differ", () => {
  const path = join(folder, "damaged.db");
  copyFileSync(sound, path);
  const db = new DatabaseSync(path, { readOnly: true });
  const page = db.prepare("select rootpage from sqlite_schema where name = 'hold_by_expiry'").get()?.rootpage;
  const size = db.prepare("pragma page_size").get()?.page_size;
  db.close();
  // The last byte of the only index entry, which is in the id of the hold.
  const file = openSync(path, "r+");
  writeSync(file, "?", Number(page) * Number(size) - 1);
  closeSync(file);
  const named = auditFile({ file: { path, busyMs: 5000 }, nowMs: Date.now() }).broken.map(
    ({ invariant, rows }) => `${invariant}: ${JSON.stringify(rows)}`,
  );
  assert.match(named.join(), /the file is whole.*missing from index hold_by_expiry/);
});

interface Busy {
  store: Store;
  /** Audits while commits are made, and returns how many were made meanwhile. */
  audit(commits: Int32Array): Promise<{ report: AuditReport; during: number }>;
}

async function busyFile(): Promise<Busy> {
  const path = join(folder, "busy.db");
  return {
    store: await openSqliteStore({ path, plans }),
    async audit(commits) {
      const worker = new Worker(new URL("../fixtures/audit-thread.ts", import.meta.url), {
        workerData: { path, commits },
      });
      const [answer] = await once(worker, "message");
      return answer;
    },
  };
}

async function busyDatabase(): Promise<Busy> {
  const server = await postgres();
  const url = server.url(await server.create());
  return {
    store: await openPostgresStore({ url, plans, settings: patientSettings }),
    async audit(commits) {
      const before = Atomics.load(commits, 0);
      const report = await auditDatabase(url, null);
      return { report, during: Atomics.load(commits, 0) - before };
    },
  };
}

for (const [name, openBusy, skip] of [
  ["SQLite", busyFile, false],
  ["PostgreSQL", busyDatabase, noPostgres ?? false],
] as const) {
  test(`commits continue while the audit runs on ${name}, and the audit finds no fault in them`, {
    skip,
  }, async () => {
    const { store, audit } = await openBusy();
    const ledger = new Ledger(store);
    await ledger.apply({ kind: "open", account: "ada", plan: "starter", by: "test" });
    await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
    const commits = new Int32Array(new SharedArrayBuffer(4));
    let auditing = true;
    const busy = (async () => {
      for (let n = 0; auditing; n += 1) {
        await ledger.apply({ kind: "topup", account: "ada", payment: `p${n}`, amountMicro: 1, by: "test" });
        Atomics.add(commits, 0, 1);
      }
    })();
    // An audit may be short. Commits that waited for it would all end before or after it.
    let most = 0;
    for (let audits = 0; audits < 3 || (most < 5 && audits < 200); audits += 1) {
      const { report, during } = await audit(commits);
      assert.deepEqual(report.broken, []);
      most = Math.max(most, during);
    }
    auditing = false;
    await busy;
    assert.ok(most >= 5, `${most} commits went through during an audit`);
    // The account, its two windows and its key are facts too.
    const { report } = await audit(commits);
    assert.equal(report.journalRows, Atomics.load(commits, 0) + 4);
    await store.close();
  });
}

type Pass = (ms: number) => void;

/** On PostgreSQL, does `change` while the audit waits to read the table. */
async function auditWhile(
  table: string,
  { prepare, change }: Record<"prepare" | "change", (store: Store, pass: Pass) => Promise<void>>,
): Promise<AuditReport> {
  const server = await postgres();
  const name = await server.create();
  const url = server.url(name);
  let passedMs = 0;
  const clock = { clockMs: () => start + passedMs, uptimeMs: () => minute + passedMs };
  const pass = (ms: number) => {
    passedMs += ms;
  };
  const store = await openPostgresStore({ url, plans, settings: patientSettings, clock });
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  await prepare(store, pass);
  await using other = await openTransaction(url, `lock table ${table} in access exclusive mode`);
  const auditing = auditDatabase(url, clock.clockMs());
  const waiting = `select from pg_locks where relation = 'inkwell.${table}'::regclass and not granted`;
  await until("the audit waits", async () => (await server.sql(waiting, name)).length > 0);
  await change(store, pass);
  await other.rollback();
  const report = await auditing;
  await store.close();
  return report;
}

test("the audit finds no fault in a promotion that ends while it runs", {
  skip: noPostgres ?? false,
}, async () => {
  const promotion = { op: "g1", amountMicro: credits(5), untilMs: start + minute, reason: "sorry" };
  const report = await auditWhile("usage_close", {
    async prepare(store) {
      const common = { account: "ada", requestId: null, by: "test" } as const;
      await store.commit([{ ...common, kind: "promote", ...promotion }]);
    },
    async change(store, pass) {
      pass(minute + 1);
      const [outcome] = await store.commit([hold("too much", credits(1000))]);
      assert.equal(outcome?.kind, "insufficient_credits");
    },
  });
  assert.deepEqual(report.broken, []);
});

test("the audit finds no fault in usage that is summed for the first time while it runs", {
  skip: noPostgres ?? false,
}, async () => {
  const report = await auditWhile("later_grant", {
    async prepare(store) {
      await store.commit([hold("a", 5), settle("a", 3)]);
    },
    async change(store) {
      while (await store.sumUsage("UTC"));
    },
  });
  assert.deepEqual(report.broken, []);
});

test("the audit finds no fault in hours of usage that go while it runs", {
  skip: noPostgres ?? false,
}, async () => {
  const report = await auditWhile("later_grant", {
    async prepare(store, pass) {
      await store.commit([hold("a", 5), settle("a", 3)]);
      while (await store.sumUsage("UTC"));
      pass(8 * day - minute);
    },
    async change(store, pass) {
      pass(3 * hour);
      await store.commit([hold("b", 5), settle("b", 3)]);
      while (await store.sumUsage("UTC"));
    },
  });
  assert.deepEqual(report.broken, []);
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
  await assert.rejects(services.openStore(config, { create: false }), /There is no ledger of Inkwell/);
  const create = () => assert.fail("no such plan");
  await assert.rejects(services.openStore(config, { create }), /no such plan/);
  const schemas = "select 1 from pg_namespace where nspname = 'inkwell'";
  assert.deepEqual(await server.sql(schemas, name), []);
  await fill(await openPostgresStore({ url: server.url(name), plans, settings: patientSettings }));
  assert.deepEqual((await audit(config)).broken, []);
  await server.sql("alter table usage_sum rename column requests to answers", name);
  await assert.rejects(audit(config), (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, /cannot be checked, .*requests" does not exist\)\. Nothing was changed\./);
    return true;
  });
  await server.sql("delete from migration", name);
  await assert.rejects(audit(config), /whose restore broke off\. Nothing was changed/);
  assert.deepEqual(await server.sql("select 1 from migration", name), []);
});

test("a seal hashes the cells of each row as the table has them, whatever their fields are called", () => {
  const db = new DatabaseSync(sound, { readOnly: true });
  const cellsOf = (table: { name: string; list(): string }) => {
    const rows = db.prepare(
      `select seq, ${table.list()} from ${table.name} where account = 'ada' order by seq`,
    );
    rows.setReturnArrays(true);
    return new Map(
      rows
        .all()
        .map((row) => Object.values(row))
        .map(([seq, ...cells]) => [Number(seq), cells]),
    );
  };
  const [entries, grants, charges] = [journalTable, grantTable, chargeTable].map(cellsOf);
  const facts = [...(entries ?? []), ...(charges ?? [])].sort(([one], [other]) => one - other);
  const lines = facts.map(([seq, cells]) =>
    JSON.stringify(charges?.has(seq) ? cells : [cells, grants?.get(seq) ?? null]),
  );
  const { lists } = sealedIn(db, () => {});
  const expected = {
    name: "account ada",
    last: facts.length,
    sha256: hash("sha256", `${lines.join("\n")}\n`, "hex"),
  };
  assert.deepEqual(
    lists.find(({ name }) => name === "account ada"),
    expected,
  );
  db.close();
});

/** Answers as PostgreSQL does: a snapshot lasts until the next one, after `between`. */
function sealedIn(db: DatabaseSync, between: () => void) {
  const steps = auditSteps((n) => `?${n}`, { checkedMs: Date.now(), against: null });
  const rowsOf = ({ text, values }: SqlStatement) => {
    const statement = db.prepare(text);
    statement.setReturnArrays(true);
    return statement.all(...values) as unknown as unknown[][];
  };
  const answerOf = (step: AuditStep): AuditAnswer => {
    if (step.kind === "rule") return { kind: "rule", rows: [] };
    if (step.kind === "rows") return { kind: "rows", rows: rowsOf(step.statement) };
    if (db.isTransaction) db.exec("commit");
    between();
    db.exec("begin");
    return { kind: "snapshot", plans: readCatalog(db) };
  };
  let step = steps.next();
  while (step.done !== true) step = steps.next(answerOf(step.value));
  db.exec("commit");
  return step.value;
}

for (const facts of [19_900, 19_960]) {
  test(`a seal is of one state of an account that grows from ${facts} facts while it is made`, () => {
    const path = join(folder, `growing-${facts}.db`);
    copyFileSync(sound, path);
    const [writer, reader] = [new DatabaseSync(path), new DatabaseSync(path, { readOnly: true })];
    /** Ada comes before bob, and grows beyond what the audit reads at a time. */
    const grow = (to: number) =>
      writer.exec(`with recursive n(account, seq, at_ms) as (
          select id, seq + 1, at_ms from account where id = 'ada'
          union all select account, seq + 1, at_ms from n where seq < ${to}
        ) insert into journal (account, seq, at_ms, kind, by, before, after)
          select account, seq, at_ms, 'resume', 'test', '{"state":"active"}', '{"state":"active"}' from n;
        update account set seq = ${to} where id = 'ada'`);
    let seq = facts;
    grow(seq);
    const { lists, broken } = sealedIn(reader, () => {
      seq += 60;
      grow(seq);
    });
    assert.deepEqual(broken, []);
    const seal = readSeal(sealText(Date.now(), lists), "seal");
    assert.deepEqual(auditOf(reader, Date.now(), seal).broken, []);
    for (const db of [writer, reader]) db.close();
  });
}
