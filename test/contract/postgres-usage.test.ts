/** What reading receipts on from a place costs on PostgreSQL, in pages of the index: those that are asked for, however many came before. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
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
