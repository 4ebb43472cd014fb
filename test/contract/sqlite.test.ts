/** Behaviour of SQLite alone: unsuitable files, threads, and rows that the database rejects. */
import assert from "node:assert/strict";
import fs, {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, beforeEach, describe, test } from "node:test";
import type { Worker } from "node:worker_threads";
import { OperatorError, StoreUnavailableError } from "../../src/errors.ts";
import { balanceOf } from "../../src/ledger/balance.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { KeptPlans } from "../../src/store/kept-plans.ts";
import { queriesOn } from "../../src/store/queries.ts";
import type { SqlStatement } from "../../src/store/sql.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { indexedColumns } from "../../src/store/sqlite/commits.ts";
import { sqliteDialect } from "../../src/store/sqlite/dialect.ts";
import { openToRead, sqliteError } from "../../src/store/sqlite/file.ts";
import { openToWrite } from "../../src/store/sqlite/open-to-write.ts";
import { SqliteSnapshots } from "../../src/store/sqlite/snapshots.ts";
import { rowsWithin } from "../../src/store/sqlite/statements.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import { ListTooSlowError, type Store } from "../../src/store/store.ts";
import type { Table } from "../../src/store/table.ts";
import { accountTable, chargeTable } from "../../src/store/tables.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { patience } from "../fixtures/patience.ts";
import { type RejectedWrite, writesRejectedBy } from "../fixtures/rejected-writes.ts";
import { some } from "../fixtures/thorough.ts";
import { minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";
import { fillUsed } from "../fixtures/used-account.ts";

const plans = plansOf(planOf("starter", 100, 10));
const folder = mkdtempSync(join(tmpdir(), "inkwell-sqlite-"));
after(() => rmSync(folder, { recursive: true }));

/** Longer than the short locks, and short for a lock that stays. */
const busyMs = 500;

let count = 0;
let path = "";
beforeEach(() => {
  count += 1;
  path = join(folder, `${count}.db`);
});

async function refused(at: string, message: RegExp): Promise<void> {
  await assert.rejects(openSqliteStore({ path: at, plans, busyMs }), (error) => {
    assert.ok(error instanceof OperatorError, String(error));
    assert.match(error.message, message);
    assert.ok(error.message.includes(at), "the message names the file");
    return true;
  });
}

async function make(at: string): Promise<void> {
  const store = await openSqliteStore({ path: at, plans });
  await fillUsed(store);
  await store.close();
}

function write(at: string, ...statements: string[]): void {
  const db = new DatabaseSync(at);
  try {
    for (const statement of statements) db.exec(statement);
  } finally {
    db.close();
  }
}

describe("opening an SQLite file", () => {
  test("creates a new file and its folder, for the owner only", async () => {
    const deep = join(folder, "a", "b", "inkwell.db");
    await make(deep);
    assert.equal(statSync(deep).mode & 0o777, 0o600);
  });

  test("leaves one file without a log when it closes", async () => {
    await make(path);
    assert.equal(statSync(`${path}-wal`, { throwIfNoEntry: false }), undefined);
  });

  test("rejects a file that is not an SQLite database and leaves it unchanged", async () => {
    writeFileSync(path, "this is a diary, not a database\n".repeat(100));
    const before = readFileSync(path);
    await refused(path, /not an SQLite database/);
    assert.deepEqual(readFileSync(path), before);
  });

  test("rejects another program's SQLite database and leaves it unchanged", async () => {
    write(path, "create table recipe (name text)");
    const before = readFileSync(path);
    await refused(path, /not one of Inkwell's/);
    assert.deepEqual(readFileSync(path), before);
  });

  test("rejects a damaged database", async () => {
    await make(path);
    // The header is intact, and the schema behind it is overwritten.
    const bytes = readFileSync(path);
    bytes.fill(0xff, 100, 4096);
    writeFileSync(path, bytes);
    await refused(path, /damaged/);
  });

  test("rejects a truncated database", async () => {
    await make(path);
    truncateSync(path, 6000);
    await refused(path, /damaged/);
  });

  test("rejects a folder in place of the file, and a file in place of the folder", async () => {
    await refused(folder, /is a folder/);
    writeFileSync(path, "");
    await refused(join(path, "inkwell.db"), /cannot be written/);
  });

  test("rejects a folder that is not writable", { skip: process.getuid?.() === 0 }, async () => {
    const closed = join(folder, "closed");
    mkdirSync(closed, { mode: 0o500 });
    await refused(join(closed, "inkwell.db"), /cannot be written/);
  });

  test("distinguishes a full disk from files beside the database that cannot be created", async (t) => {
    await make(path);
    mkdirSync(`${path}-wal`);
    await refused(path, /cannot be opened .* that end in -wal and -shm; network file systems do not/);
    const disk = t.mock.method(fs, "statfsSync", () => ({ bavail: 7, bsize: 4096, blocks: 100 }));
    syncBuiltinESMExports();
    try {
      const open = () => openToWrite({ path, busyMs }, { nowMs: minute, plans });
      assert.throws(
        open,
        /^OperatorError: There is no space left for the database .* Free space on that disk/,
      );
      // A file system that does not report its size.
      disk.mock.mockImplementation(() => ({ bavail: 0, bsize: 4096, blocks: 0 }));
      assert.throws(open, /cannot be opened/);
    } finally {
      disk.mock.restore();
      syncBuiltinESMExports();
    }
  });

  test("rejects a database of a newer version", async () => {
    await make(path);
    write(path, "insert into migration values (9999, '9999-later.sql', 'x', 0)");
    await refused(path, /newer version of Inkwell/);
  });

  test("rejects a database with different migrations", async () => {
    await make(path);
    write(path, "update migration set checksum = 'other'");
    await refused(path, /another build of Inkwell/);
  });

  test("rejects a database that another process keeps locked", async () => {
    await make(path);
    const other = new DatabaseSync(path);
    other.exec("pragma locking_mode = exclusive; begin exclusive");
    try {
      await refused(path, /locked by another process/);
    } finally {
      other.close();
    }
  });

  test("many stores that open a new file at once all succeed", async () => {
    const openings = Array.from({ length: 5 }, () => openSqliteStore({ path, plans }));
    const failures: unknown[] = [];
    for (const opening of await Promise.allSettled(openings)) {
      if (opening.status === "fulfilled") await opening.value.close();
      else failures.push(opening.reason);
    }
    assert.deepEqual(failures, []);
    await make(path);
  });

  test("waits if SQLite does not wait for the lock that write-ahead logging needs", (t) => {
    const { exec } = DatabaseSync.prototype;
    let refusals = 0;
    t.mock.method(DatabaseSync.prototype, "exec", function (this: DatabaseSync, sql: string) {
      if (sql.includes("journal_mode") && refusals < 3) {
        refusals += 1;
        throw Object.assign(new Error("database is locked"), { code: "ERR_SQLITE_ERROR", errcode: 5 });
      }
      exec.call(this, sql);
    });
    openToWrite({ path, busyMs: 60_000 }, { nowMs: minute, plans }).close();
    assert.equal(refusals, 3);
  });

  test("recognises a database that another process creates meanwhile", (t) => {
    const prepared: string[] = [];
    const { prepare } = DatabaseSync.prototype;
    t.mock.method(DatabaseSync.prototype, "prepare", function (this: DatabaseSync, sql: string) {
      prepared.push(sql);
      const statement = prepare.call(this, sql);
      if (prepared.length > 1) return statement;
      const get = statement.get.bind(statement);
      return Object.assign(statement, {
        get() {
          const row = get();
          openToWrite({ path, busyMs }, { nowMs: minute, plans }).close();
          return row;
        },
      });
    });
    openToWrite({ path, busyMs }, { nowMs: minute, plans }).close();
    assert.ok(prepared.length > 1);
  });

  test("a commit waits for another writer, and its timeout is a transient error", async () => {
    await make(path);
    const store = await openSqliteStore({ path, plans, busyMs });
    const other = new DatabaseSync(path);
    other.exec("begin immediate");
    const waiting = store.commit([
      { kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" },
    ]);
    await assert.rejects(waiting, { name: "StoreUnavailableError", message: /locked/ });
    other.exec("commit");
    const [outcome] = await store.commit([
      { kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" },
    ]);
    assert.deepEqual(outcome, { kind: "added", additionalMicro: credits(5) + 1, replayed: false });
    other.close();
    await store.close();
  });

  /** A store and another connection. Time stands: the record of the clock does not become old. */
  async function besideOther() {
    await make(path);
    const clock = new BigInt64Array(new SharedArrayBuffer(8)).fill(BigInt(Date.now()));
    const store = await openSqliteStore({ path, plans, busyMs, clock });
    const other = new DatabaseSync(path);
    return {
      clock,
      store,
      other,
      async [Symbol.asyncDispose]() {
        other.close();
        await store.close();
      },
    };
  }

  test("an operation before which the clock could not be recorded is reported as not done", async () => {
    await using opened = await besideOther();
    const { clock, store, other } = opened;
    Atomics.add(clock, 0, 60_000n);
    other.exec("begin immediate");
    const topup = { kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" } as const;
    for (let n = 0; n < 2; n += 1)
      await assert.rejects(store.commit([topup]), { name: "StoreUnavailableError", mayBeDone: false });
  });

  describe("a refused write makes the next look at the clock fail", () => {
    const writes: Record<string, (store: Store) => Promise<unknown>> = {
      commit: (store) =>
        store.commit([{ kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" }]),
      putAccount: (store) =>
        store.putAccount({ id: "bob", plan: "starter", contact: {} }, { by: "test", dryRun: false }),
      applyPlans: (store) => store.applyPlans(plansOf(planOf("other", 1, 1)), { by: "test", force: true }),
      write: (store) => store.stopRequests.add({ id: "r1", by: "ann" }, 1),
    };
    for (const [name, write] of Object.entries(writes)) {
      test(`by ${name}`, async () => {
        await using opened = await besideOther();
        const { store, other } = opened;
        await store.clock();
        const refuse = async () => {
          other.exec("begin immediate");
          await assert.rejects(write(store), StoreUnavailableError);
        };
        await refuse();
        await assert.rejects(store.clock(), StoreUnavailableError);
        await assert.rejects(store.clock(), StoreUnavailableError, "the record is refused too");
        other.exec("rollback");
        await store.clock();

        await refuse();
        other.exec("rollback");
        await assert.rejects(store.clock(), StoreUnavailableError, "a record would succeed");
        await store.clock();

        await refuse();
        other.exec("rollback");
        await write(store);
        await store.clock();
      });
    }
  });

  test("ignores bytes after the end of the file", async () => {
    await make(path);
    appendFileSync(path, "x");
    await (await openSqliteStore({ path, plans })).close();
  });
});

const rejectedWrites: readonly RejectedWrite[] = [
  ...writesRejectedBy("sqlite"),
  ["a fraction of a micro-credit", "update account set base_spent = 0.5", /REAL value in INTEGER/],
  ["text for an amount", "update account set base_spent = 'many'", /TEXT value in INTEGER/],
  ["an overwritten journal entry", "insert or replace into journal select * from journal", /never deleted/],
];

describe("the database rejects", () => {
  let sound = "";
  for (const [name, sql, message] of rejectedWrites) {
    test(name, async () => {
      if (sound === "") {
        await make(path);
        sound = path;
      }
      const db = new DatabaseSync(sound);
      try {
        // The store sets this too.
        db.exec("pragma recursive_triggers = on");
        assert.throws(() => db.exec(sql), message);
      } finally {
        db.close();
      }
    });
  }
});

describe("threads", () => {
  const lists = [
    ["accounts", (store: Store) => store.accounts({ state: "suspended", limit: 10 })],
    ["receipts", (store: Store) => store.usage({ model: "none", limit: 10 })],
  ] as const;
  for (const [what, list] of some(lists, 2)) {
    test(`commits, the sweeper, live pages, readiness and metrics do not wait for lists of ${what}`, async () => {
      await make(path);
      addRows(path, 20_000);
      await using store = await opened(path);
      await store.holdTotals();
      let lists = 0;
      const asked = Array.from({ length: 200 }, async () => {
        assert.deepEqual(await list(store), []);
        lists += 1;
      });
      const [outcome] = await store.commit([hold("meanwhile", credits(1))]);
      assert.equal(outcome?.kind, "held");
      assert.deepEqual(await store.overdueHolds(0, { limit: 10 }), []);
      assert.notEqual(await store.accountMark("ada", 0), null);
      assert.equal((await store.accounts({ limit: 1 })).length, 1);
      assert.equal((await store.holdTotals()).holds, 2);
      assert.ok(lists < asked.length, "the lists were still being read");
      await Promise.all(asked);
    });
  }

  test("a list ends at its time limit with advice, and its thread answers the next list", async () => {
    await make(path);
    await using store = await opened(path, { listMs: 0 });
    await assert.rejects(store.usage({ limit: 1 }), ListTooSlowError);
    assert.deepEqual(await store.journal("nobody", { limit: 1 }), []);
  });

  test("a reader that is not used ends, and the next list has another", async () => {
    await make(path);
    using started = startedThreads();
    await using store = await opened(path, { restMs: 1 });
    await until("lists with pauses have had three readers", async () => {
      assert.deepEqual(await store.journal("nobody", { limit: 1 }), []);
      return started.threads.length === 4;
    });
    const [outcome] = await store.commit([hold("later", credits(1))]);
    assert.equal(outcome?.kind, "held");
    assert.equal(started.threads.length, 4, "the writer keeps its thread");
  });

  test("a list contains every write that was answered before", async () => {
    await make(path);
    await using store = await opened(path);
    const [newest] = await store.journal("ada", { newestFirst: true, limit: 1 });
    assert.ok(newest !== undefined);
    for (let n = 0; n < 50; n += 1) {
      const request = `h${n}`;
      await store.commit([hold(request, credits(0.1)), settle(request, 1)]);
      const [row] = await store.journal("ada", { afterSeq: newest.seq + n, limit: 10 });
      assert.equal(row?.subject, request);
    }
  });

  test("a thread that dies is started again, and the ledger loses and repeats no operation", async () => {
    await make(path);
    using started = startedThreads();
    const { threads } = started;
    await using store = await opened(path);
    const ledger = new Ledger(store, patience);
    for (let round = 0; round < 5; round += 1) {
      const answers = Array.from({ length: 40 }, (_, n) =>
        ledger.apply({
          kind: "topup",
          account: "ada",
          payment: `r${round}-${n}`,
          amountMicro: 10,
          by: "test",
        }),
      );
      // Before, during and after the commit.
      for (let turn = 0; turn < round * 2; turn += 1) await new Promise(setImmediate);
      await threads.at(-1)?.terminate();
      for (const answer of await Promise.all(answers)) assert.equal(answer.kind, "added");
    }
    assert.equal(threads.length, 6, "one at the start and one after each death");
    const { additionalMicro } = balanceOf(await store.accountSnapshot("ada"));
    assert.equal(additionalMicro, credits(5) + 5 * 40 * 10);
    assert.deepEqual(auditFile({ file: { path, busyMs: 5000 }, nowMs: Date.now() }).broken, []);
  });

  test("unanswered calls of a thread that dies are rejected with a transient error", async () => {
    await make(path);
    using started = startedThreads();
    const { threads } = started;
    await using store = await opened(path);
    await store.usage({ limit: 10 });
    // More calls than the thread answers before it dies.
    const asked = Array.from({ length: 2_000 }, () => store.usage({ limit: 10 }));
    const [answers] = await Promise.all([Promise.allSettled(asked), threads.at(-1)?.terminate()]);
    const failures = answers.flatMap((answer) => (answer.status === "rejected" ? [answer.reason] : []));
    assert.ok(failures.length > 0);
    for (const failure of failures) assert.ok(failure instanceof StoreUnavailableError, String(failure));
    assert.equal((await store.usage({ limit: 10 })).length, 1);
  });
});

describe("at its time limit, the store stops a list of", () => {
  const lists: [string, (queries: Pick<Store, "accounts" | "usage" | "usageSums">) => Promise<unknown>][] = [
    ["receipts of an unknown model", ({ usage }) => usage({ model: "none", limit: 10 })],
    [
      "suspended accounts, of which there are none",
      ({ accounts }) => accounts({ state: "suspended", limit: 10 }),
    ],
    ["accounts in the order of their credits", ({ accounts }) => accounts({ order: "remaining", limit: 10 })],
    ["sums by day", ({ usageSums }) => usageSums({ by: "day", order: "name" })],
    ["sums in the order of the cost", ({ usageSums }) => usageSums({ by: "account", order: "cost" })],
  ];
  let long = "";
  for (const [name, list] of lists) {
    test(name, async (t) => {
      if (long === "") {
        await make(path);
        addRows(path, 2000);
        long = path;
      }
      using db = openToRead({ path: long, busyMs });
      const rows = rowsWithin(db, 1000);
      const find = async (_purpose: string, statement: SqlStatement) => rows(statement);
      const write = async () => assert.fail("this connection only reads");
      const queries = queriesOn(
        { find, findPage: find, write },
        sqliteDialect(() => 0),
        new KeptPlans(async () => []),
      );
      // Each look at the clock takes 1 ms.
      let nowMs = 0;
      t.mock.method(performance, "now", () => {
        nowMs += 1;
        return nowMs;
      });
      await assert.rejects(list(queries), ListTooSlowError);
      assert.ok(nowMs < 1100, `it was stopped after ${nowMs} ms`);
      const stoppedMs = nowMs;
      assert.equal((await queries.journal("ada", { newestFirst: true, limit: 1 })).length, 1);
      assert.ok(nowMs - stoppedMs < 10, `an index was used: ${nowMs - stoppedMs} rows were read`);
    });
  }
});

describe("beside many other accounts, the store reads few rows for", () => {
  const to = 30_000;
  const reads: [string, (queries: Pick<Store, "usage" | "usageSums" | "usageHours">) => Promise<unknown>][] =
    [
      ["sums of an account", ({ usageSums }) => usageSums({ by: "day", account: "ada", order: "name" })],
      ["sums of a key", ({ usageSums }) => usageSums({ by: "model", key: "key", order: "name" })],
      ["hours of an account", ({ usageHours }) => usageHours({ account: "ada", from: 0, to, byModel: true })],
      ["receipts of a key", ({ usage }) => usage({ account: "ada", key: "key", limit: 10 })],
      ["receipts of a model", ({ usage }) => usage({ account: "ada", model: "none", limit: 10 })],
      ["receipts of a time", ({ usage }) => usage({ account: "ada", fromMs: 0, toMs: 1, limit: 10 })],
    ];
  let summed = "";
  async function makeSummed(path: string): Promise<void> {
    await make(path);
    addRows(path, 2000);
    const spread = "account = 'ada-' || (seq - 1000), at_ms = at_ms + (seq - 1000) * 60000";
    write(path, "drop trigger charge_is_never_changed", `update charge set ${spread} where id like 'past-%'`);
    const store = await openSqliteStore({ path, plans });
    while (await store.sumUsage("UTC"));
    await store.close();
  }
  for (const [name, read] of reads) {
    test(name, async (t) => {
      if (summed === "") {
        await makeSummed(path);
        summed = path;
      }
      using db = openToRead({ path: summed, busyMs });
      const rows = rowsWithin(db, 1_000_000);
      const find = async (_purpose: string, statement: SqlStatement) => rows(statement);
      const refuse = async () => assert.fail("this connection only reads");
      const queries = queriesOn(
        { find, findPage: find, write: refuse },
        sqliteDialect(() => 0),
        new KeptPlans(async () => []),
      );
      const looks = t.mock.method(performance, "now", () => 0);
      await read(queries);
      assert.ok(looks.mock.callCount() < 100, `${looks.mock.callCount()} rows were read`);
    });
  }
});

test("close succeeds if the thread dies while it closes the file", async () => {
  await make(path);
  using started = startedThreads();
  const other = new DatabaseSync(path);
  try {
    const store = await openSqliteStore({ path, plans, busyMs });
    // The thread waits for this transaction before it closes the file.
    other.exec("begin immediate");
    const waiting = assert.rejects(store.commit([hold("late", credits(1))]), StoreUnavailableError);
    const closing = store.close();
    for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
    await started.threads.at(-1)?.terminate();
    await Promise.all([waiting, closing]);
    await store.close();
  } finally {
    other.close();
  }
});

test("a read reports the error of a failing disk", async () => {
  await make(path);
  const db = new DatabaseSync(path);
  try {
    const failed = Object.assign(new Error("disk I/O error"), { errcode: 10 });
    const snapshots = new SqliteSnapshots(db, () => {
      db.exec("rollback");
      throw failed;
    });
    assert.throws(() => snapshots.of("ada"), failed);
    assert.ok(sqliteError(failed) instanceof StoreUnavailableError);
    assert.ok(
      sqliteError(Object.assign(new Error("out of memory"), { errcode: 7 })) instanceof StoreUnavailableError,
    );
  } finally {
    db.close();
  }
});

/** Collects the threads that start from now on, oldest first. */
function startedThreads(): Disposable & { threads: Worker[] } {
  const threads: Worker[] = [];
  const note = (thread: Worker) => threads.push(thread);
  process.on("worker", note);
  return { threads, [Symbol.dispose]: () => process.off("worker", note) };
}

/** Adds accounts like `ada`, and as many receipts of `ada`. */
function addRows(at: string, rows: number): void {
  const numbers = `(with recursive c(n) as (select 1 union all select n + 1 from c where n < ${rows}) select n from c)`;
  const copied = <R>({ name, columns, list }: Table<R>, changed: Record<string, string>, like: string) =>
    `insert into ${name} (${list()}) select ${columns.map((column) => changed[column.name] ?? column.name).join(", ")}
     from ${name}, ${numbers} where id = '${like}'`;
  write(
    at,
    copied(accountTable, { id: "id || '-' || n" }, "ada"),
    copied(chargeTable, { id: "'past-' || n", seq: "1000 + n" }, "done"),
  );
}

async function opened(
  at: string,
  options: { listMs?: number; restMs?: number } = {},
): Promise<Store & AsyncDisposable> {
  const store = await openSqliteStore({ path: at, plans, ...options });
  return Object.assign(store, { [Symbol.asyncDispose]: () => store.close() });
}

test("knows each column of an index of accounts, and of its condition", async () => {
  await (await openSqliteStore({ path, plans })).close();
  const db = new DatabaseSync(path);
  const indexes = db
    .prepare(
      "select sql from sqlite_schema where tbl_name = 'account' and type = 'index' and sql is not null",
    )
    .all()
    .map(({ sql }) => String(sql).slice(String(sql).indexOf("(")));
  db.close();
  assert.ok(indexes.length > 0);
  const columns = accountTable.columns.map(({ name }) => name).filter((name) => name !== "id");
  const used = columns.filter((name) => indexes.some((index) => new RegExp(`\\b${name}\\b`).test(index)));
  assert.deepEqual([...indexedColumns].sort(), used.sort());
});
