/**
 * Connections to PostgreSQL: their first statement, and connections that break or cannot be used.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import path from "node:path";
import { afterEach, before, beforeEach, describe, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { OperatorError, StoreUnavailableError } from "../../src/errors.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { PostgresCommits } from "../../src/store/postgres/commits.ts";
import {
  type Connections,
  commitPool,
  forAudit,
  forMigration,
  placeOf,
  readPool,
} from "../../src/store/postgres/connection-pool.ts";
import { commitQueuesFor, openPostgresStore } from "../../src/store/postgres/store.ts";
import type { Store } from "../../src/store/store.ts";
import { serverClock } from "../fixtures/clocks.ts";
import { hold } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { patientSettings } from "../fixtures/patience.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import { startProxy } from "../fixtures/postgres-proxy.ts";
import { startStoreChild } from "../fixtures/store-child.ts";
import { minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const plans = plansOf(planOf("starter", 1000, 10));

/** Server messages in the wire format. */
function message(letter: string, body = ""): Buffer {
  const head = Buffer.from(`${letter}0000`);
  head.writeUInt32BE(4 + body.length, 1);
  return Buffer.concat([head, Buffer.from(body)]);
}
const authenticated = message("R", "\0\0\0\0");
const asksForPassword = [
  message("R", "\0\0\0\x0aSCRAM-SHA-256\0\0"),
  message("R", "\0\0\0\x0br=x,s=eA==,i=1"),
];
const readyForQuery = message("Z", "I");
const shuttingDown = message("E", "SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0");

/** A server that answers each client with these bytes and closes the connection. */
async function serverThatSays(...says: Buffer[]): Promise<{ server: Server; url: string; heard: Buffer[] }> {
  const heard: Buffer[] = [];
  const server = createServer((socket: Socket) => {
    socket.on("error", () => {});
    socket.once("data", (bytes) => {
      assert.ok(typeof bytes !== "string");
      heard.push(bytes);
      socket.end(Buffer.concat(says));
    });
  });
  return { server, url: await at(server, "ledger"), heard };
}

/** Listens, and returns the URL of a database behind this server. */
async function at(server: Server, database: string): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return `postgres://postgres@127.0.0.1:${port}/${database}`;
}

test("a connection that breaks while it is handed out does not end the process", async () => {
  const { server, url } = await serverThatSays(authenticated, readyForQuery, shuttingDown);
  const pool = readPool(url, "lookups");
  await assert.rejects(pool.query({ text: "select 1" }), StoreUnavailableError);
  // This connection breaks before any statement.
  await nextTurn();
  await pool.end();
  server.close();
});

test("sends no connection option that a pooling proxy would reject", async () => {
  const { server, url, heard } = await serverThatSays(authenticated, readyForQuery);
  const pool = commitPool(url, 1);
  await assert.rejects(pool.query({ text: "select 1" }), StoreUnavailableError);
  await pool.end();
  server.close();
  assert.match(String(heard[0]), /user\0postgres\0database\0ledger\0/);
  assert.doesNotMatch(String(heard[0]), /options|timeout/);
});

test("closes an unauthenticated connection with its pool", async () => {
  const { promise, resolve: hungUp } = Promise.withResolvers<void>();
  const server = createServer((socket: Socket) => {
    socket.on("error", () => {});
    const says = asksForPassword.values();
    socket.on("data", () => socket.write(says.next().value ?? ""));
    socket.once("close", hungUp);
  });
  const pool = readPool(await at(server, "ledger"), "lookups");
  await assert.rejects(pool.query({ text: "select 1" }), /password must be a string/);
  await pool.end();
  await promise;
  server.close();
});

test("names a missing certificate file", () => {
  assert.throws(
    () => placeOf("postgres://ada:s3cret@db/ledger?sslmode=verify-full&sslrootcert=/nowhere/ca.pem"),
    (error) =>
      error instanceof OperatorError &&
      /\/nowhere\/ca\.pem/.test(error.message) &&
      !error.message.includes("s3cret"),
  );
});

describe("connections to PostgreSQL", { skip: noPostgres ?? false }, () => {
  let server: Postgres;
  let database = "";
  let url = "";
  const opened: Store[] = [];

  before(async () => {
    server = await postgres();
  });
  beforeEach(async () => {
    database = await server.create();
    url = server.url(database);
    const store = await open();
    await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
    await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  });
  afterEach(async () => {
    for (const store of opened.splice(0)) await store.close();
    assert.deepEqual((await auditDatabase(url, null)).broken, []);
    await server.drop(database);
  });

  async function open(as = url): Promise<Store> {
    const store = await openPostgresStore({ url: as, plans, settings: patientSettings });
    opened.push(store);
    return store;
  }

  function topup(payment: string, account = "ada") {
    return { kind: "topup", account, payment, amountMicro: 1, by: "test" } as const;
  }

  /** Closes every open connection, as in a failover. */
  async function cutAll(): Promise<void> {
    await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database}' and pid <> pg_backend_pid()`,
    );
  }

  test("a pooler that lends one session to several connections is refused before anything is written", async () => {
    const empty = await server.create();
    // As PgBouncer with pool_mode = transaction: two open connections have one process.
    const pooler = createServer((node: Socket) => {
      const session = connect(path.join(server.folder, ".s.PGSQL.5432"));
      for (const socket of [node, session]) socket.on("error", () => {});
      // As long as the call, so that the lengths of the messages stay.
      const process = "42".padEnd("pg_backend_pid()".length);
      node.on("data", (bytes) =>
        session.write(bytes.toString("latin1").replace("pg_backend_pid()", process), "latin1"),
      );
      session.pipe(node);
      node.on("close", () => session.destroy());
    });
    const behind = await at(pooler, empty);
    await assert.rejects(
      openPostgresStore({ url: behind, plans }),
      (error) => error instanceof OperatorError && /set pool_mode = session in PgBouncer/.test(error.message),
    );
    pooler.close();
    const schemas = await server.sql("select count(*) from pg_namespace where nspname = 'inkwell'", empty);
    assert.match(JSON.stringify(schemas), /0/);
    await server.drop(empty);
  });

  test("an authentication failure of a running store is a transient error", async () => {
    // Roles belong to the whole server, which other tests share, so this test has its own role.
    const role = `role_of_${database}`;
    await server.sql(`create role ${role} login`);
    await server.sql(`grant usage on schema inkwell to ${role}`, database);
    await server.sql(`grant all on all tables in schema inkwell to ${role}`, database);
    const store = await open(server.url(database, role));
    await server.sql(`alter role ${role} nologin`);
    await cutAll();
    await assert.rejects(store.commit([topup("p1")]), StoreUnavailableError);
    await assert.rejects(store.accounts({ limit: 1 }), StoreUnavailableError);
    await server.sql(`alter role ${role} login`);
    assert.equal((await store.commit([topup("p1")]))[0]?.kind, "added");
    assert.equal((await store.accountSnapshot("ada"))?.account.additional[0]?.amountMicro, 1);
  });

  test("closes connections to a read-only server, for writes and for reads, because it may be a late standby", async () => {
    const store = await open();
    await server.sql(`alter database ${database} set default_transaction_read_only = on`);
    await cutAll();
    for (let attempt = 0; attempt < 3; attempt += 1) {
      await assert.rejects(store.commit([topup("p1")]), StoreUnavailableError);
      await assert.rejects(store.accounts({ limit: 1 }), StoreUnavailableError);
    }
    await assert.rejects(open(), /is read-only/);
    // The URL leads to the primary again.
    await server.sql(`alter database ${database} reset default_transaction_read_only`);
    assert.equal((await store.commit([topup("p1")]))[0]?.kind, "added");
    assert.equal((await store.accountSnapshot("ada"))?.account.additional[0]?.amountMicro, 1);
  });

  test("default settings of the database do not affect commits", async () => {
    for (const [name, value] of [
      ["default_transaction_isolation", "serializable"],
      ["extra_float_digits", "-3"],
      ["array_nulls", "off"],
      ["idle_session_timeout", "60s"],
      ["transaction_timeout", "60s"],
    ]) {
      await server.sql(`alter database ${database} set ${name} = '${value}'`);
    }
    const stores = await Promise.all([open(), open(), open()]);
    // Without retries, so no commit may fail.
    await Promise.all(
      stores.map(async (store, node) => {
        for (let n = 0; n < 20; n += 1) await store.commit([topup(`${node}-${n}`)]);
      }),
    );
    await addKey(stores[0], keyOf("limited", "ada", { hash: "1".repeat(64), requestsPerMinute: 7 }));
    await stores[0]?.commit([hold("h1", credits(1), { key: "limited" })]);
    const { requestsTatMs = 0, lastUsedMs } = (await stores[1]?.keyById("limited")) ?? {};
    assert.equal(requestsTatMs, (lastUsedMs ?? 0) + minute / 7);
    const pool = readPool(server.url(database), "service");
    for (const name of ["idle_session_timeout", "transaction_timeout"])
      assert.deepEqual((await pool.query({ text: `show ${name}` })).rows, [["0"]]);
    await pool.end();
  });

  test("a setting that an old server lacks is left out", async () => {
    const pool = readPool(server.url(database), "service", { of_later: 1, work_mem: "5MB" });
    assert.deepEqual((await pool.query({ text: "show work_mem" })).rows, [["5MB"]]);
    await pool.end();
  });

  test("a frozen node does not keep the lock for migrations", async () => {
    const { rows } = await forMigration(url, (connection) =>
      connection.query({ text: "show idle_session_timeout" }),
    );
    assert.deepEqual(rows, [["30s"]]);
  });

  for (const [name, use] of [
    ["a migration", forMigration],
    ["an audit", forAudit],
  ] as const)
    test(`${name} of a process that is gone ends on the server`, async () => {
      using proxy = await startProxy(server);
      const statement = { text: "select pg_sleep(600)" };
      const sleeping = use(proxy.url(database), (connection) => connection.query(statement));
      const isRunning = async () => {
        const text = `select from pg_stat_activity where datname = '${database}' and query = '${statement.text}'`;
        return (await server.sql(text)).length > 0;
      };
      await until("it runs", isRunning);
      proxy.close();
      await assert.rejects(sleeping, StoreUnavailableError);
      await until("it has ended", async () => !(await isRunning()));
    });

  test("nodes that open the same accounts at once do not deadlock, and open each once (BerriAI/litellm#34887)", async () => {
    const stores = await Promise.all([open(), open()]);
    // Without retries, so a deadlock would fail a commit.
    for (let round = 0; round < 30; round += 1) {
      const accounts = Array.from({ length: 40 }, (_, n) => `${round}-${n}`);
      const outcomes = await Promise.all(
        stores.map((store, n) =>
          store.commit(
            (n === 0 ? accounts : accounts.toReversed()).map(
              (account) => ({ kind: "open", account, plan: "starter", by: "test" }) as const,
            ),
          ),
        ),
      );
      assert.equal(outcomes.flat().filter(({ kind }) => kind === "opened").length, accounts.length);
    }
  });

  test("a clock set back during a commit leaves no ended hold counted on its key", async () => {
    await server.sql(
      `create sequence inkwell.looks;
       create function inkwell.clock_timestamp() returns timestamptz language sql volatile as
         $$ select pg_catalog.clock_timestamp() + (9 - nextval('inkwell.looks')) * interval '20 s' $$`,
      database,
    );
    const pool = commitPool(url, 1);
    const slipping: Connections = {
      async connect() {
        const connection = await pool.connect();
        await connection.query({ text: "set search_path = inkwell, pg_catalog" });
        return connection;
      },
    };
    const ledger = new PostgresCommits(slipping, serverClock);
    await ledger.commit([hold("h1", credits(1), { ttlMs: 0 })]);
    const [first] = opened;
    assert.ok(first !== undefined);
    await addKey(first, keyOf("other", "ada", { hash: "1".repeat(64) }));
    // The hold is overdue at the first read of the clock in the next commit, but not at the
    // second.
    await server.sql("select setval('inkwell.looks', 1, false)", database);
    await ledger.commit([hold("h2", credits(1), { key: "other" })]);
    await pool.end();
    await server.sql("drop function inkwell.clock_timestamp; drop sequence inkwell.looks", database);
    assert.equal((await opened[0]?.usage({ id: "h1", limit: 1 }))?.[0]?.ending, "expired");
    assert.equal((await opened[0]?.keyById("key"))?.holds, 0);
  });

  test("a node makes one commit at a time if the database is near, and two if it is far", async (t) => {
    const sockets: Socket[] = [];
    const longWay = createServer((node) => {
      const socket = connect(path.join(server.folder, ".s.PGSQL.5432"));
      for (const each of [node, socket]) each.on("error", () => {});
      sockets.push(node, socket);
      node.on("data", (bytes) => setTimeout(() => socket.write(bytes), 2));
      socket.on("data", (bytes) => setTimeout(() => node.write(bytes), 2));
    });
    t.after(() => {
      longWay.close();
      for (const socket of sockets) socket.destroy();
    });
    const far = await openPostgresStore({
      url: await at(longWay, database),
      plans,
      settings: patientSettings,
    });
    assert.equal(far.commitQueues, 2);
    await far.close();
    assert.equal(commitQueuesFor(0.3), 1);
    assert.equal(commitQueuesFor(1.5), 2);
  });

  test("a process ends even if the server does not close its connections", async (t) => {
    // The server never sees the end of the connection.
    const goodbye = message("X");
    const sockets: Socket[] = [];
    const way = createServer({ allowHalfOpen: true }, (node) => {
      const socket = connect(path.join(server.folder, ".s.PGSQL.5432"));
      for (const each of [node, socket]) each.on("error", () => {});
      sockets.push(node, socket);
      node.on("data", (bytes) => goodbye.equals(Buffer.from(bytes)) || socket.write(bytes));
      socket.on("data", (bytes) => node.write(bytes));
    });
    const child = startStoreChild(await at(way, database), "child", 1);
    t.after(() => {
      child.kill();
      way.close();
      for (const socket of sockets) socket.destroy();
    });
    assert.deepEqual(await child.ended, { code: 0, stderr: "" });
    assert.equal(child.acknowledged.length, 8);
  });
});
