/**
 * Cost of one disturbance for other accounts: the time of a hold and a settlement, or of a key
 * lookup, undisturbed and disturbed in the same run.
 *
 *   npm run bench -- isolation [--part locked,frozen,lists,overdue] [--seconds 4] \
 *     [--receipts 1000000] [--holds 50000]
 *
 * - `locked`: another session of PostgreSQL locks the row of one account.
 * - `frozen`: a second node is stopped (SIGSTOP) inside a transaction.
 * - `lists`: eight filtered lists over all receipts on PostgreSQL, repeated, beside key lookups.
 * - `overdue`: holds of a dead node, all of one account or 50 of each, ended by the sweeper, on
 *   SQLite.
 *
 * The bench starts PostgreSQL on this machine, with fsync.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { Ledger } from "../src/ledger/ledger.ts";
import { commitGiveUpMs, commitRetriesMs, openPostgresStore } from "../src/store/postgres/store.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { ListTooSlowError, type Store } from "../src/store/store.ts";
import { endExpiredHolds } from "../src/store/sweeper.ts";
import { chargeTable } from "../src/store/tables.ts";
import { type Postgres, start } from "../test/fixtures/postgres.ts";
import { accountId, keyId, plans, price, usage } from "./ledger-file.ts";
import type { NodeTask } from "./node-process.ts";
import { optionsOf } from "./options.ts";
import { holdAndSettle, openAccount } from "./pair.ts";

const accounts = 64;
const listsAtOnce = 8;

interface Measured {
  name: string;
  latenciesMs: number[];
  seconds: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    part: "locked,frozen,lists,overdue",
    seconds: "4",
    receipts: "1000000",
    holds: "50000",
  });
  const seconds = Number(values.seconds);
  const wanted = new Set(values.part.split(","));
  if (wanted.has("locked"))
    await printed("One row locked on PostgreSQL: pairs on the other accounts", locked(seconds));
  if (wanted.has("frozen"))
    await printed(
      "A node frozen in a transaction: pairs on accounts that it has not locked",
      frozen(seconds),
    );
  if (wanted.has("lists")) {
    const title = `${listsAtOnce} filtered lists over ${values.receipts} receipts on PostgreSQL: key look-ups`;
    await printed(title, lists(seconds, Number(values.receipts)));
  }
  if (wanted.has("overdue")) {
    for (const perAccount of [Number(values.holds), 50]) {
      const title = `${values.holds} overdue holds on SQLite, ${perAccount} of each account: pairs on other accounts`;
      await printed(title, overdue(Number(values.holds), perAccount));
    }
  }
}

async function printed(title: string, measuring: Promise<Measured[]>): Promise<void> {
  const [floor, ...others] = (await measuring).map(({ name, latenciesMs, seconds }) => {
    const sorted = latenciesMs.sort((a, b) => a - b);
    const at = (share: number) =>
      sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
    return { name, rate: sorted.length / seconds, p50: at(0.5), p99: at(0.99), longest: at(1) };
  });
  if (floor === undefined) return;
  console.log(title);
  console.table(
    [floor, ...others].map(({ name, rate, p50, p99, longest }) => ({
      "": name,
      "a second": rate.toFixed(0),
      "p50 ms": p50.toFixed(1),
      "p99 ms": p99.toFixed(1),
      "longest ms": longest.toFixed(0),
      "p50 ratio": (p50 / floor.p50).toFixed(1),
    })),
  );
}

/**
 * Each client sends one pair after another on its own accounts. A pair without an answer counts
 * with the time waited.
 */
async function pairs(
  ledger: Ledger,
  of: readonly number[],
  seconds: number,
  clients = 32,
): Promise<number[]> {
  const latenciesMs: number[] = [];
  const untilMs = performance.now() + seconds * 1000;
  const client = async (index: number) => {
    for (let turn = index; performance.now() < untilMs; turn += clients) {
      const beganMs = performance.now();
      await holdAndSettle(ledger, of[turn % of.length] ?? 0).catch(() => {});
      latenciesMs.push(performance.now() - beganMs);
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  return latenciesMs;
}

interface Database {
  server: Postgres;
  name: string;
  url: string;
  store: Store;
  ledger: Ledger;
}

async function filled(count = accounts): Promise<Database> {
  const server = await start({ durable: true });
  const name = await server.create();
  const url = server.url(name);
  const store = await openPostgresStore({ url, plans });
  const ledger = new Ledger(store, {
    retriesMs: commitRetriesMs,
    giveUpMs: commitGiveUpMs,
  });
  await Promise.all(Array.from({ length: count }, (_, n) => openAccount(store, ledger, n)));
  return { server, name, url, store, ledger };
}

async function locked(seconds: number): Promise<Measured[]> {
  const { url, store, ledger } = await filled();
  const others = Array.from({ length: accounts - 1 }, (_, n) => n + 1);
  await pairs(ledger, others, 0.5);
  const floor = await pairs(ledger, others, seconds);
  const session = new pg.Client({ connectionString: url });
  await session.connect();
  await session.query("begin");
  await session.query("select from inkwell.account where id = $1 for update", [accountId(0)]);
  const stuck = holdAndSettle(ledger, 0).catch(() => {});
  const beside = await pairs(ledger, others, seconds);
  await session.end();
  await stuck;
  await store.close();
  return [
    { name: "undisturbed", latenciesMs: floor, seconds },
    { name: "beside a locked row", latenciesMs: beside, seconds },
  ];
}

async function frozen(seconds: number): Promise<Measured[]> {
  const { server, name, url, store, ledger } = await filled();
  const all = Array.from({ length: accounts }, (_, n) => n);
  const task: NodeTask = { url, by: "ledger", clients: 16, keys: accounts };
  const file = join(import.meta.dirname, "node-process.ts");
  const other = spawn(process.execPath, [file, JSON.stringify(task)], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  await once(other, "message");
  await pairs(ledger, all, 0.5);
  const floor = await pairs(ledger, all, seconds);
  other.send(60);
  await freeze(other, server, name);
  const free = await server.sql("select id from account order by id for update skip locked", name);
  const isFree = new Set(free.map(({ id }) => id));
  const held = all.filter((n) => !isFree.has(accountId(n)));
  const stuck = Promise.all(held.map((n) => holdAndSettle(ledger, n).catch(() => {})));
  const others = all.filter((n) => isFree.has(accountId(n)));
  const beside = await pairs(ledger, others, seconds);
  other.kill("SIGKILL");
  await stuck;
  await store.close();
  return [
    { name: "both nodes run", latenciesMs: floor, seconds },
    { name: `frozen, with ${held.length} of ${accounts} accounts locked`, latenciesMs: beside, seconds },
  ];
}

/** Stops the node until it is inside a transaction. */
async function freeze(node: ChildProcess, server: Postgres, database: string): Promise<void> {
  const inside = `select 1 from pg_stat_activity where datname = '${database}' and state = 'idle in transaction'`;
  for (;;) {
    await sleep(20);
    node.kill("SIGSTOP");
    await sleep(30);
    if ((await server.sql(inside)).length > 0) return;
    node.kill("SIGCONT");
  }
}

async function lists(seconds: number, receipts: number): Promise<Measured[]> {
  const { server, name, store } = await filled();
  await server.sql(
    `insert into charge (${chargeTable.list()}) select 'account-' || lpad((n % ${accounts})::text, 5, '0'),
       'request-' || n, 1000 + n, n, 'key_' || lpad((n % ${accounts})::text, 16, '0'), 1, 'bench', 'stop', null, false,
       null, false, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, '[]', 0 from generate_series(1, ${receipts}) n`,
    name,
  );
  await server.sql("vacuum analyze charge", name);
  const lookups = async () => {
    const latenciesMs: number[] = [];
    const untilMs = performance.now() + seconds * 1000;
    for (let n = 0; performance.now() < untilMs; n += 1) {
      const beganMs = performance.now();
      await store.findKey(String(n % accounts).padStart(64, "0"));
      latenciesMs.push(performance.now() - beganMs);
    }
    return latenciesMs;
  };
  const floor = await lookups();
  let isOver = false;
  let pages = 0;
  const filters = [
    { model: "no such model" },
    { key: keyId(1), fromMs: receipts - 10 },
    { fromMs: receipts - 10, toMs: receipts },
    { account: accountId(2), model: "no such model" },
  ];
  const listing = Array.from({ length: listsAtOnce }, async (_, n) => {
    while (!isOver) {
      await store.usage({ ...filters[n % filters.length], limit: 100 }).catch((error: unknown) => {
        if (!(error instanceof ListTooSlowError)) throw error;
      });
      pages += 1;
    }
  });
  const beside = await lookups();
  isOver = true;
  await Promise.all(listing);
  await store.close();
  return [
    { name: "undisturbed", latenciesMs: floor, seconds },
    { name: `beside lists (${(pages / seconds).toFixed(1)} pages a second)`, latenciesMs: beside, seconds },
  ];
}

async function overdue(holds: number, perAccount: number): Promise<Measured[]> {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-isolation-"));
  const clock = new BigInt64Array(new SharedArrayBuffer(8));
  clock[0] = BigInt(Date.now());
  const store = await openSqliteStore({ path: join(folder, "inkwell.db"), plans, clock });
  const ledger = new Ledger(store);
  try {
    const owners = Math.ceil(holds / perAccount);
    // Requests of the first accounts are measured.
    const measured = Array.from({ length: 8 }, (_, n) => n);
    await Promise.all(
      Array.from({ length: measured.length + owners }, (_, n) => openAccount(store, ledger, n)),
    );
    await pairs(ledger, measured, 0.5, 8);
    const floor = await pairs(ledger, measured, 2, 8);
    const ofOwner = (n: number) => measured.length + (n % owners);
    const taken = Array.from({ length: holds }, (_, n) =>
      ledger.apply({
        kind: "hold",
        account: accountId(ofOwner(n)),
        requestId: `left-${n}`,
        key: keyId(ofOwner(n)),
        model: "bench",
        price,
        promptTokens: usage.promptTokens,
        minMicro: 1,
        wantMicro: 100,
        ttlMs: 30_000,
      }),
    );
    await Promise.all(taken);
    clock[0] += 60_000n;
    const beganMs = performance.now();
    const swept = endExpiredHolds(store, ledger, () => false);
    // A request of an account with overdue holds.
    const own = holdAndSettle(ledger, ofOwner(0)).then(() => performance.now() - beganMs);
    const latenciesMs: number[] = [];
    while ((await store.overdueHolds(store.times().nowMs, { limit: 1 })).length > 0) {
      latenciesMs.push(...(await pairs(ledger, measured, 0.2, 8)));
    }
    const seconds = (performance.now() - beganMs) / 1000;
    await swept;
    console.log(
      `All were ended after ${seconds.toFixed(1)} s; a request of an account with such holds took ${(await own).toFixed(0)} ms.`,
    );
    return [
      { name: "undisturbed", latenciesMs: floor, seconds: 2 },
      { name: "while they are ended", latenciesMs, seconds },
    ];
  } finally {
    await ledger.idle();
    await store.close();
    rmSync(folder, { recursive: true });
  }
}
