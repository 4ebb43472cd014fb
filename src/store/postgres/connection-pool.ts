/**
 * Connections to PostgreSQL: the URL, the pools, and the settings of each connection.
 *
 * Guarantees that every wait has a limit (limits.ts), that every error is converted (errors.ts),
 * and that no message contains a password.
 */

import { Socket } from "node:net";
import pg from "pg";
import { OperatorError, withNothingDone } from "../../errors.ts";
import { shipped } from "../../invocation.ts";
import { given } from "../../objects.ts";
import { causeOf, unavailable } from "../errors.ts";
import { type Place, postgresError } from "./errors.ts";
import { exchange, type Statement, types } from "./exchange.ts";
import { connectionsMax, databaseLimits } from "./limits.ts";
import type { Cell } from "./rows.ts";

/** The schema of the tables, apart from the tables of other programs. */
export const schemaName = "inkwell";

interface PostgresResult {
  rows: Cell[][];
  /** The names of the columns. */
  columns: string[];
}

/** A connection for commits and reads. The server runs statements one after another. */
export interface Connection {
  query(statement: Statement): Promise<PostgresResult>;
  /**
   * Sends all statements with one write, and returns the rows of each. After an error the server
   * skips the rest.
   */
  exchange(statements: readonly Statement[]): Promise<Cell[][][]>;
  /** Returns the connection to the pool, or closes it if it is broken. */
  release(broken?: boolean): void;
}

/**
 * Rolls back. Returns whether the connection is broken. The server then ends the transaction.
 */
export async function rollBack(connection: Connection): Promise<boolean> {
  return await connection.query({ text: "rollback" }).then(
    () => false,
    () => true,
  );
}

export interface Connections {
  connect(): Promise<Connection>;
}

/** Runs the work in a transaction of its own, which is rolled back if the work fails. */
export async function inTransaction<T>(
  connections: Connections,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const connection = await connections.connect();
  let broken = true;
  try {
    await connection.query({ text: "begin" });
    const result = await work(connection);
    await connection.exchange([{ text: "commit" }]);
    broken = false;
    return result;
  } catch (error) {
    broken = await rollBack(connection);
    throw error;
  } finally {
    connection.release(broken);
  }
}

export type Settings = Readonly<Record<string, string | number>>;

/** Settings that replace the defaults of the database and the user. */
const readSettings: Settings = {
  search_path: schemaName,
  // After a wait for a lock, a statement must read the rows that the lock's owner wrote.
  default_transaction_isolation: "read committed",
  // Fractions of a millisecond of the rate limits are not rounded.
  extra_float_digits: 1,
  statement_timeout: databaseLimits.statementMs,
  lock_timeout: databaseLimits.lockMs,
  idle_in_transaction_session_timeout: databaseLimits.idleInTransactionMs,
  tcp_user_timeout: databaseLimits.unreadAnswerMs,
  client_min_messages: "error",
  idle_session_timeout: 0,
  transaction_timeout: 0,
  array_nulls: "on",
};

/**
 * Every statement of a commit is a lookup by key. A plan that is made while the tables are empty
 * must not be a scan, and to plan each statement again would take longer than to run it.
 */
const commitSettings: Settings = {
  ...readSettings,
  lock_timeout: databaseLimits.commitLockMs,
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  jit: "off",
};

/**
 * Lookups of requests are prepared statements that use an index. To plan each of them again would
 * take as long as to run it.
 */
const lookupSettings: Settings = {
  ...readSettings,
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  jit: "off",
};

/**
 * A list leaves the other cores of the server to the commits: no parallel workers, no compilation.
 */
const listSettings: Settings = {
  ...readSettings,
  statement_timeout: databaseLimits.listMs,
  max_parallel_workers_per_gather: 0,
  jit: "off",
};

const auditSettings: Settings = {
  ...readSettings,
  idle_in_transaction_session_timeout: databaseLimits.idleAloneMs,
  statement_timeout: databaseLimits.auditStatementMs,
  work_mem: "64MB",
  jit: "off",
};

const migrationSettings: Settings = {
  ...readSettings,
  idle_in_transaction_session_timeout: databaseLimits.idleAloneMs,
  statement_timeout: databaseLimits.auditStatementMs,
  // It keeps the lock for migrations between its attempts.
  idle_session_timeout: databaseLimits.idleAloneMs,
};

/** Parses a URL for messages. Throws an OperatorError if it is invalid. */
export function placeOf(url: string): Place {
  const { host, port, database = "", user = "" } = newClient(parsed(url));
  const at = host.startsWith("/") ? host : `${host}:${port}`;
  return { where: `${at}/${database}`, database, user };
}

function newClient({ href }: URL): pg.Client {
  try {
    return new pg.Client({ connectionString: href });
  } catch (error) {
    // For example, a file of a certificate cannot be read.
    throw new OperatorError(
      `The URL of the database has a parameter that does not work: ${causeOf(error)}. Correct the part after the question mark.`,
      error,
    );
  }
}

/** Returns the error of `inkwell backup` on PostgreSQL, with the command that makes a backup. */
export function pgDumpInstead(url: string, file: string): OperatorError {
  const withoutPassword = parsed(url);
  withoutPassword.password = "";
  withoutPassword.searchParams.delete("password");
  return new OperatorError(
    `The ledger is in PostgreSQL. Copy it with PostgreSQL's own tools, also while the service runs: pg_dump --format=custom --schema=${schemaName} --file="${file}" "${withoutPassword.href}" (${shipped("docs/operating/backup.md")})`,
  );
}

function parsed(url: string): URL {
  // The error of `new URL` would contain the whole URL, and so the password.
  if (!URL.canParse(url)) {
    throw new OperatorError(
      "The URL of the database is invalid. Write it as database: postgres://USER:PASSWORD@HOST:5432/DATABASE. Percent-encode reserved characters in the password.",
    );
  }
  return new URL(url);
}

/**
 * Returns the first statement on each connection. It sets the settings in one round trip, because
 * pooling proxies reject them as connection options. It also rejects a read-only server: after a
 * failover the URL may lead to a standby for a moment, and reads there are late.
 */
function firstStatement(settings: Settings): string {
  const set = Object.entries(settings).map(([name, value]) => `('${name}', '${value}')`);
  // A server that is too old lacks some, and the start says that it is.
  return `select set_config(name, value, false) from (values ${set.join(", ")}) setting (name, value)
    where current_setting(name, true) is not null;
  do $$ begin
    if current_setting('transaction_read_only') = 'on' then
      raise exception 'the server is read-only' using errcode = 'read_only_sql_transaction';
    end if;
  end $$`;
}

export class ConnectionPool implements Connections {
  readonly #pool: pg.Pool;
  readonly #firstStatement: string;
  /** Connections that have run the first statement. */
  readonly #ready = new WeakSet<pg.PoolClient>();
  readonly #sockets = new Set<Socket>();

  constructor(url: string, settings: Settings, config: pg.PoolConfig) {
    this.#firstStatement = firstStatement(settings);
    this.#pool = new pg.Pool({
      connectionString: parsed(url).href,
      fallback_application_name: "inkwell",
      connectionTimeoutMillis: databaseLimits.connectMs,
      query_timeout:
        Number(settings.statement_timeout) + databaseLimits.answerMs - databaseLimits.statementMs,
      keepAlive: true,
      // The kernel's 2 hours are longer than firewalls remember a connection.
      keepAliveInitialDelayMillis: 10_000,
      types,
      stream: () => this.#socket(),
      ...config,
    });
    // A connection that breaks while it is idle is replaced at its next use. If it breaks in use,
    // the statements reject. Without these listeners the error events would end the process.
    this.#pool.on("error", () => {});
    this.#pool.on("connect", (client) => client.on("error", () => {}));
  }

  /**
   * Opens or reuses a connection. Every error is a `StoreUnavailableError`, with nothing done: no
   * statement of the caller has been sent yet.
   */
  async connect(): Promise<Connection> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw withNothingDone(unavailable(error));
    });
    if (!this.#ready.has(client)) {
      try {
        await client.query(this.#firstStatement);
        this.#ready.add(client);
      } catch (error) {
        client.release(true);
        throw withNothingDone(unavailable(error));
      }
    }
    return {
      query: (statement) => send(client, statement),
      exchange: (statements) => exchange(client, statements),
      // A transaction that is open would go on with the next user.
      release: (broken = false) => client.release(broken || client.getTransactionStatus() !== "I"),
    };
  }

  /** Runs one statement on any connection. */
  query(statement: Statement): Promise<PostgresResult> {
    return this.#on((connection) => connection.query(statement));
  }

  async #on<T>(run: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await this.connect();
    let broken = true;
    try {
      const result = await run(connection);
      broken = false;
      return result;
    } finally {
      connection.release(broken);
    }
  }

  /**
   * Finds rows. Returns none if a value contains a zero byte, because PostgreSQL cannot store such
   * text.
   */
  async find(statement: Statement): Promise<Cell[][]> {
    const { values = [] } = statement;
    if (values.some((value) => typeof value === "string" && value.includes("\0"))) return [];
    const [rows = []] = await this.#on((connection) => connection.exchange([statement]));
    return rows;
  }

  /**
   * Resolves when all connections have been returned. The process does not wait for the server to
   * close them.
   */
  async end(): Promise<void> {
    await this.#pool.end();
    for (const socket of this.#sockets) {
      socket.unref();
      // Nothing else closes a connection that was never authenticated, and the server would wait a
      // minute for it.
      socket.destroySoon();
    }
  }

  #socket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    return socket;
  }
}

async function send(client: pg.ClientBase, { text, name, values }: Statement): Promise<PostgresResult> {
  try {
    const result = await client.query<Cell[]>({
      text,
      rowMode: "array",
      ...given({ name, values: values && [...values] }),
    });
    // A migration of several statements has several results, and none is used.
    if (Array.isArray(result)) return { rows: [], columns: [] };
    const { rows, fields } = result;
    return { rows, columns: fields.map((field) => field.name) };
  } catch (error) {
    throw postgresError(error);
  }
}

/** `changes` replace settings for tests. `workers` share the connections. */
export function readPool(
  url: string,
  purpose: keyof typeof connectionsMax,
  changes: Settings = {},
  workers = 1,
): ConnectionPool {
  const settings = purpose === "lists" ? listSettings : purpose === "lookups" ? lookupSettings : readSettings;
  return new ConnectionPool(
    url,
    { ...settings, ...changes },
    { max: Math.ceil(connectionsMax[purpose] / workers), idleTimeoutMillis: 60_000 },
  );
}

/**
 * Connections for commits. In the driver's mode for pipelines, a statement that gets no answer
 * breaks its connection, so that `rollback` does not wait for it. `changes` replace settings for
 * tests.
 */
export function commitPool(url: string, connectionsMax: number, changes: Settings = {}): ConnectionPool {
  return new ConnectionPool(
    url,
    { ...commitSettings, ...changes },
    {
      pipeline: true,
      max: connectionsMax,
      idleTimeoutMillis: 0,
    },
  );
}

/** Runs `use` with its own connection, which is closed afterwards. */
async function alone<T>(
  url: string,
  settings: Settings,
  use: (client: Connection) => Promise<T>,
): Promise<T> {
  const pool = new ConnectionPool(url, settings, { max: 1 });
  try {
    const connection = await pool.connect();
    try {
      // If this process is killed, the server ends its statement, which may hold locks for hours.
      // Some platforms refuse it.
      const text = "set client_connection_check_interval = 1000";
      await connection.query({ text }).catch(() => {});
      return await use(connection);
    } finally {
      connection.release(true);
    }
  } finally {
    await pool.end();
  }
}

export function forAudit<T>(url: string, use: (connection: Connection) => Promise<T>): Promise<T> {
  return alone(url, auditSettings, use);
}

export function forMigration<T>(url: string, use: (connection: Connection) => Promise<T>): Promise<T> {
  return alone(url, migrationSettings, use);
}
