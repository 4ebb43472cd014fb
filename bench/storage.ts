/**
 * Bytes that a finished request stores and writes: one hold and one settlement through the ledger,
 * on both stores, with every commit synced. A long answer has extensions in between.
 *
 *   npm run bench -- storage [--requests 20000] [--accounts 1000] [--callers 64] [--extensions 0]
 *
 * `written` is the number of bytes that reach the disk, including logs. On SQLite the operating
 * system counts them. On PostgreSQL it is the log; pages are written in addition at a checkpoint.
 */

import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Ledger } from "../src/ledger/ledger.ts";
import { openPostgresStore } from "../src/store/postgres/store.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import type { Store } from "../src/store/store.ts";
import { start } from "../test/fixtures/postgres.ts";
import { nextAccount, plans } from "./ledger-file.ts";
import { optionsOf } from "./options.ts";
import { holdAndSettle, openAccount } from "./pair.ts";

interface Wanted {
  requests: number;
  accounts: number;
  callers: number;
  /** Per request. */
  extensions: number;
}

/** Bytes of each table with its indexes. */
type Sizes = Record<string, number>;

interface Stored {
  sizes: Sizes;
  writtenBytes: number;
  commits: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    requests: "20000",
    accounts: "1000",
    callers: "64",
    extensions: "0",
  });
  const wanted = {
    requests: Number(values.requests),
    accounts: Number(values.accounts),
    callers: Number(values.callers),
    extensions: Number(values.extensions),
  };
  const stored = { SQLite: await onSqlite(wanted), PostgreSQL: await onPostgres(wanted) };
  console.log(
    `Bytes for each of ${wanted.requests} requests of ${wanted.accounts} accounts, ${wanted.callers} at once, extensions of each: ${wanted.extensions}; tables with their indexes`,
  );
  const each = (total: number) => (total / wanted.requests).toFixed(0);
  console.table(
    Object.fromEntries(
      Object.entries(stored).map(([name, { sizes, writtenBytes, commits }]) => [
        name,
        {
          charge: each(sizes.charge ?? 0),
          "all else": each(totalOf(sizes) - (sizes.charge ?? 0)),
          written: each(writtenBytes),
          "operations/commit": (((2 + wanted.extensions) * wanted.requests) / commits).toFixed(0),
        },
      ]),
    ),
  );
}

function totalOf(sizes: Sizes): number {
  return Object.values(sizes).reduce((sum, bytes) => sum + bytes, 0);
}

async function makeRequests(
  store: Store,
  { requests, callers, accounts, extensions }: Wanted,
): Promise<number> {
  let commits = 0;
  const ledger = new Ledger(store, { onCommit: () => (commits += 1) });
  let turn = 0;
  const caller = async () => {
    while (turn < requests) await holdAndSettle(ledger, nextAccount(turn++, accounts), { extensions });
  };
  await Promise.all(Array.from({ length: callers }, caller));
  await ledger.idle();
  return commits;
}

async function openAccounts(store: Store, count: number): Promise<void> {
  const ledger = new Ledger(store);
  await Promise.all(Array.from({ length: count }, (_, n) => openAccount(store, ledger, n)));
}

async function onSqlite(wanted: Wanted): Promise<Stored> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const path = join(folder, "inkwell.db");
  try {
    const store = await openSqliteStore({ path, plans });
    await openAccounts(store, wanted.accounts);
    const before = await writtenBytes();
    const commits = await makeRequests(store, wanted);
    const written = (await writtenBytes()) - before;
    await store.close();
    const db = new DatabaseSync(path, { readOnly: true });
    const pages = db
      .prepare(
        "select tbl_name as name, sum(pgsize) as bytes from dbstat join sqlite_schema using (name) group by 1",
      )
      .all();
    db.close();
    const sizes = Object.fromEntries(pages.map(({ name, bytes }) => [String(name), Number(bytes)]));
    const { size } = await stat(path);
    if (totalOf(sizes) > size) throw new Error("the tables are larger than their file");
    return { sizes, writtenBytes: written, commits };
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Bytes that this process has written to the disk. */
async function writtenBytes(): Promise<number> {
  const io = await readFile("/proc/self/io", "utf8");
  return Number(/^write_bytes: (\d+)/m.exec(io)?.[1]);
}

async function onPostgres(wanted: Wanted): Promise<Stored> {
  const server = await start({ durable: true });
  const database = await server.create();
  const store = await openPostgresStore({ url: server.url(database), plans });
  await openAccounts(store, wanted.accounts);
  const logged = async () => {
    const [row] = await server.sql("select pg_current_wal_lsn() - '0/0' as bytes", database);
    return Number(row?.bytes);
  };
  const before = await logged();
  const commits = await makeRequests(store, wanted);
  const written = (await logged()) - before;
  await store.close();
  await server.sql("vacuum", database);
  const rows = await server.sql(
    "select relname as name, pg_total_relation_size(oid) as bytes from pg_class where relkind = 'r' and relnamespace = 'inkwell'::regnamespace",
    database,
  );
  const sizes = Object.fromEntries(rows.map(({ name, bytes }) => [String(name), Number(bytes)]));
  return { sizes, writtenBytes: written, commits };
}
