/** What PostgreSQL reads for a question: what is asked for, however much else there is. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { hold, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";

const receipts = 50_000;
/** The account has some 200. */
const indexPagesMax = 10;

test("an account's receipts are read on from the last one that is known, not from the account's first", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const open = () => openPostgresStore({ url: server.url(name), plans: plansOf(planOf("starter", 100, 10)) });
  const filled = await open();
  await filled.commit([{ kind: "open", account: "ada", plan: "starter" }]);
  await filled.close();
  await server.sql(
    `insert into usage select 'ada', 'request-' || n, n, n, 'key', 'model', 'stop', false,
       0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0 from generate_series(1, ${receipts}) n`,
    name,
  );
  await server.sql("vacuum analyze usage", name);
  const pagesRead = async () => {
    const [row] = await server.sql(
      `select idx_blks_read + idx_blks_hit as pages from pg_statio_user_indexes where indexrelname = 'usage_pkey'`,
      name,
    );
    return Number(row?.pages);
  };
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
  // A connection tells what it has read when it ends.
  await store.close();
  let read = 0;
  while (read === 0) read = (await pagesRead()) - before;
  assert.ok(read <= indexPagesMax, `${read} pages of the index were read`);
});

test("a commit finds the overdue holds of its accounts without reading those of others", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const open = () => openPostgresStore({ url: server.url(name), plans: plansOf(planOf("starter", 100, 10)) });
  const filled = await open();
  for (const [account, hash] of [
    ["ada", "1"],
    ["bob", "2"],
  ] as const) {
    await filled.commit([{ kind: "open", account, plan: "starter" }]);
    await filled.addKey(keyOf(`key-of-${account}`, account, { hash: hash.repeat(64) }));
  }
  await filled.commit([hold("overdue", 1, { key: "key-of-ada", ttlMs: 0 })]);
  await filled.close();
  const others = 20_000;
  await server.sql(
    `insert into hold select 'bob', 'left-' || n, 'key-of-bob', 'model', 0, n, 0, 0, 0, 0, 0, 0, 0, 0,
       0, 0, 0, 0, 1, 1, 1 from generate_series(1, ${others}) n`,
    name,
  );
  await server.sql("vacuum analyze hold", name);
  const entriesRead = async () => {
    const [row] = await server.sql(
      `select sum(idx_tup_read) as entries, sum(idx_scan) as scans from pg_stat_user_indexes where relname = 'hold'`,
      name,
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
