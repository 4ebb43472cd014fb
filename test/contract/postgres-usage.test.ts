/** PostgreSQL reads only the rows that a query needs, whatever the size of the ledger. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { KeptPlans } from "../../src/store/kept-plans.ts";
import { readPool } from "../../src/store/postgres/connection-pool.ts";
import { connectionsOn, postgresDialect } from "../../src/store/postgres/reads.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { queriesOn } from "../../src/store/queries.ts";
import { ListTooSlowError, type Store } from "../../src/store/store.ts";
import { chargeTable, holdTable } from "../../src/store/tables.ts";
import type { SqlRow } from "../fixtures/backends.ts";
import { hold } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { patientSettings } from "../fixtures/patience.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { type OpenTransaction, openTransaction } from "../fixtures/postgres-session.ts";

const receipts = 50_000;
/** The receipts of the account fill some 200 pages of the index. */
const indexPagesMax = 10;

const plans = plansOf(planOf("starter", 100, 10));

/** Creates a database with these accounts and a key for each: "key-of-ada" for "ada". */
async function databaseWith(...accounts: readonly string[]) {
  const server = await postgres();
  const name = await server.create();
  const open = () => openPostgresStore({ url: server.url(name), plans, settings: patientSettings });
  const store = await open();
  for (const [n, account] of accounts.entries()) {
    await store.commit([{ kind: "open", account, plan: "starter", by: "test" }]);
    await addKey(store, keyOf(`key-of-${account}`, account, { hash: `${n}`.repeat(64) }));
  }
  await store.close();
  return { sql: (text: string) => server.sql(text, name), open };
}

/** Counts in the statistics what this session did, which it would report up to 10 s later. */
const report = "select pg_stat_force_next_flush()";

const indexPages = `select idx_blks_read + idx_blks_hit as pages from pg_statio_user_indexes where indexrelname = 'charge_pkey'`;

const tablePages = `select heap_blks_read + heap_blks_hit as pages from pg_statio_user_tables where relname = 'charge'`;

/** Pages that were read so far, by a statistic of the server. */
async function pagesOf(sql: (text: string) => Promise<SqlRow[]>, statistic: string): Promise<number> {
  const [row] = await sql(statistic);
  return Number(row?.pages);
}

test("reads receipts from `after` on, not from the first receipt of the account", {
  skip: noPostgres ?? false,
}, async () => {
  const { sql, open } = await databaseWith("ada");
  await sql(`insert into charge (${chargeTable.list()}) select 'ada', 'request-' || n, n, n, 'key', 1, 'model', 'stop', null,
       false, null, false, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, '[]', 0 from generate_series(1, ${receipts}) n`);
  await sql("vacuum analyze charge");
  await sql(report);
  const pagesRead = () => pagesOf(sql, indexPages);
  const before = await pagesRead();
  const store = await open();
  const rows = await store.usage({
    account: "ada",
    after: { account: "ada", seq: receipts - 20 },
    limit: 10,
  });
  assert.deepEqual(
    rows.map(({ seq }) => seq),
    Array.from({ length: 10 }, (_, n) => receipts - 19 + n),
  );
  // The statistics of a connection are complete when it ends.
  await store.close();
  let read = 0;
  while (read === 0) read = (await pagesRead()) - before;
  assert.ok(read <= indexPagesMax, `${read} pages of the index were read`);
});

test("a commit finds the overdue holds of its accounts without reading those of others", {
  skip: noPostgres ?? false,
}, async () => {
  const { sql, open } = await databaseWith("ada", "bob");
  const filled = await open();
  await filled.commit([hold("overdue", 1, { key: "key-of-ada", ttlMs: 0 })]);
  await filled.close();
  const others = 20_000;
  await sql(`insert into hold (${holdTable.list()}) select 'bob', 'left-' || n, 'key-of-bob', 'model', 0, n, '[]', 0, 0, 1,
       0, 0, 0, 0, 1, 1, 1 from generate_series(1, ${others}) n`);
  await sql("vacuum analyze hold");
  await sql(report);
  const entriesRead = async () => {
    const [row] = await sql(
      `select sum(idx_tup_read) as entries, sum(idx_scan) as scans from pg_stat_user_indexes where relname = 'hold'`,
    );
    return { entries: Number(row?.entries), scans: Number(row?.scans) };
  };
  const before = await entriesRead();
  const store = await open();
  const [outcome] = await store.commit([hold("h1", 1, { key: "key-of-ada" })]);
  assert.equal(outcome?.kind, "held");
  assert.deepEqual(
    outcome.expired?.map(({ id }) => id),
    ["overdue"],
  );
  await store.close();
  let after = before;
  while (after.scans === before.scans) after = await entriesRead();
  assert.ok(after.entries - before.entries < 100, `${after.entries - before.entries} entries were read`);
});

describe("lists that take long on PostgreSQL", { skip: noPostgres ?? false }, () => {
  let url = "";
  let store: Store;
  /** Until it ends, no list does. */
  let busy: OpenTransaction;
  beforeEach(async () => {
    const server = await postgres();
    const name = await server.create();
    url = server.url(name);
    store = await openPostgresStore({ url, plans, settings: patientSettings });
    await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
    await addKey(store, keyOf("key", "ada", { hash: "1".repeat(64) }));
    await server.sql(
      `alter table charge rename to quick;
       create view charge as select * from quick where (select pg_advisory_xact_lock_shared(1)) is not null`,
      name,
    );
    busy = await openTransaction(url, "select pg_advisory_xact_lock(1)");
  });
  afterEach(async () => {
    await busy[Symbol.asyncDispose]();
    await store.close();
  });

  test("do not delay keys, balances, the sweeper, readiness or revocations", async () => {
    let isListed = false;
    const lists = Array.from({ length: 8 }, () =>
      store.usage({ limit: 1 }).then(() => {
        isListed = true;
      }),
    );
    for (let n = 0; n < 10; n += 1) assert.notEqual(await store.findKey("1".repeat(64)), null);
    assert.equal((await store.accountSnapshot("ada"))?.account.id, "ada");
    assert.deepEqual(await store.overdueHolds(store.times().nowMs, { limit: 1 }), []);
    assert.equal((await store.accounts({ limit: 1 })).length, 1);
    await revokeKey(store, "key");
    assert.notEqual((await store.keyById("key"))?.revokedMs, null);
    assert.equal(isListed, false);
    await busy.rollback();
    await Promise.all(lists);
  });

  test("are stopped at their time limit with advice", async () => {
    const pool = readPool(url, "lists", { statement_timeout: 50 });
    const pools = { lookups: pool, service: pool, lists: pool, history: pool, writes: pool };
    const lists = queriesOn(
      connectionsOn(pools, 50),
      postgresDialect(() => 0),
      new KeptPlans(async () => []),
    );
    await assert.rejects(lists.usage({ limit: 1 }), ListTooSlowError);
    await pool.end();
  });
});

test("finds the receipts of a short time, or of a key, without reading all receipts", {
  skip: noPostgres ?? false,
}, async () => {
  const { sql, open } = await databaseWith("ada", "bob");
  await sql(`insert into charge (${chargeTable.list()}) select case when n % 1000 = 0 then 'ada' else 'bob' end, 'request-' || n, n, n,
       case when n % 1000 = 0 then 'key-of-ada' else 'key-of-bob' end, 1, 'model', 'stop', null, false,
       null, false, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, '[]', 0 from generate_series(1, ${receipts}) n`);
  await sql(
    `insert into usage_sum select 'day', 0, account, key, model, ${Array(11).fill(0).join(", ")}, min(seq), max(seq)
      from charge group by account, key, model`,
  );
  await sql(`update usage_summed set through = ${receipts}`);
  await sql("vacuum analyze charge, usage_sum");
  await sql(report);
  const pagesRead = () => pagesOf(sql, tablePages);
  for (const [query, ids] of [
    [{ fromMs: receipts - 4, toMs: receipts - 1 }, [4, 3, 2].map((n) => receipts - n)],
    [{ key: "key-of-ada", fromMs: receipts - 1500 }, [receipts - 1000, receipts]],
  ] as const) {
    const before = await pagesRead();
    const store = await open();
    const rows = await store.usage({ ...query, limit: 10 });
    assert.deepEqual(
      rows.map(({ id }) => id).sort(),
      ids.map((n) => `request-${n}`),
    );
    await store.close();
    let read = 0;
    while (read === 0) read = (await pagesRead()) - before;
    assert.ok(read < 200, `${read} pages were read; all receipts have some 900`);
  }
});
