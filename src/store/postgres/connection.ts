/**
 * Connections to PostgreSQL: the address, and what is set on each of them.
 *
 * Guarantees that no wait is without a limit (limits.ts), that every error is one of ours (errors.ts),
 * and that no password is in any message.
 */
import { Socket } from "node:net";
import pg from "pg";
import { OperatorError } from "../../errors.ts";
import { type Place, storeError, unavailable, whyOf } from "./errors.ts";
import { connectionsMax, limits } from "./limits.ts";
import type { Cell } from "./rows.ts";

/** The tables are in a schema of their own, so that they meet nobody else's. */
export const schemaName = "inkwell";

export interface PostgresResult {
  rows: Cell[][];
  /** Their names. */
  columns: string[];
  rowCount: number | null;
}

export interface Statement {
  text: string;
  /** Prepared under this name, once on each connection. */
  name?: string;
  values?: readonly unknown[];
}

/** What commits and reads need of a connection; statements are sent at once and done one after another. */
export interface Connection {
  query(statement: Statement): Promise<PostgresResult>;
  /** Back to the pool; `broken`: closed instead. */
  release(broken?: boolean): void;
}

export interface Connections {
  connect(): Promise<Connection>;
}

/** Whole numbers as numbers where those are exact, lists of text; everything else as the driver has it. */
const types: pg.CustomTypesConfig = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === pg.types.builtins.INT8 || oid === pg.types.builtins.NUMERIC) return wholeNumber;
    return pg.types.getTypeParser(oid, format);
  },
};

function wholeNumber(text: string): number | bigint {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

type Settings = Readonly<Record<string, string | number>>;

/** What a database sets by default for all that use it counts for nothing here. */
const readSettings: Settings = {
  search_path: schemaName,
  // What waits for a lock must then read what the lock was waited for.
  default_transaction_isolation: "read committed",
  // No fraction of a millisecond of a rate limit is rounded away.
  extra_float_digits: 1,
  statement_timeout: limits.statementMs,
  lock_timeout: limits.lockMs,
  idle_in_transaction_session_timeout: limits.idleInTransactionMs,
  tcp_user_timeout: limits.unreadAnswerMs,
  client_min_messages: "error",
};

/**
 * Every statement of a commit is a lookup by key. A plan that is made while the tables are still empty must not be a
 * scan of what they become, and planning each statement anew would take longer than running it.
 */
const commitSettings: Settings = {
  ...readSettings,
  lock_timeout: limits.commitLockMs,
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  jit: "off",
};

/** A list leaves the server's other cores to the commits: no helpers, and no compilation of what runs once. */
function listSettings(listMs: number): Settings {
  return { statement_timeout: listMs, max_parallel_workers_per_gather: 0, jit: "off" };
}

const auditSettings: Settings = {
  ...readSettings,
  idle_in_transaction_session_timeout: limits.idleAloneMs,
  statement_timeout: limits.auditStatementMs,
  work_mem: "64MB",
  jit: "off",
};

const migrationSettings: Settings = {
  ...readSettings,
  idle_in_transaction_session_timeout: limits.idleAloneMs,
  statement_timeout: limits.auditStatementMs,
  lock_timeout: limits.migrationLockMs,
};

/** Throws an OperatorError where the address is none. */
export function placeOf(url: string): Place {
  const { host, port, database = "", user = "" } = clientOf(checked(url));
  const at = host.startsWith("/") ? host : `${host}:${port}`;
  return { where: `${at}/${database}`, database, user };
}

function clientOf(address: URL): pg.Client {
  try {
    return new pg.Client({ connectionString: address.href });
  } catch (error) {
    // A file of a certificate, say, that cannot be read.
    throw new OperatorError(
      `The address of the database asks for something that cannot be had: ${whyOf(error)}. Correct what it says after the question mark.`,
      error,
    );
  }
}

/** Why there is no `inkwell backup` of it, and what there is. */
export function pgDumpInstead(url: string, file: string): OperatorError {
  const address = checked(url);
  address.password = "";
  address.searchParams.delete("password");
  return new OperatorError(
    `The ledger is in PostgreSQL, whose own tools copy it, beside a running service too: pg_dump --format=custom --schema=${schemaName} --file="${file}" "${address.href}" (docs/operating/postgresql-backup.md)`,
  );
}

function checked(url: string): URL {
  // What `new URL` throws has the whole text in it, and so the password.
  if (!URL.canParse(url)) {
    throw new OperatorError(
      "The address of the database is none: database: postgres://USER:PASSWORD@HOST:5432/DATABASE. Letters of the password that mean something in an address are written as %XX.",
    );
  }
  return new URL(url);
}

/**
 * The first words on each connection, in one round trip. Not in its options, which pooling proxies refuse. A server that
 * only reads is refused: it may be a standby that an address leads to for a moment, which never writes and reads late.
 */
function firstWords(settings: Settings): string {
  const set = Object.entries(settings).map(([name, value]) => `set_config('${name}', '${value}', false)`);
  return `select ${set.join(", ")};
  do $$ begin
    if current_setting('transaction_read_only') = 'on' then
      raise exception 'the server only reads' using errcode = 'read_only_sql_transaction';
    end if;
  end $$`;
}

export class ConnectionPool implements Connections {
  readonly #pool: pg.Pool;
  readonly #firstWords: string;
  /** To which they have been said. */
  readonly #ready = new WeakSet<pg.PoolClient>();
  readonly #sockets = new Set<Socket>();

  constructor(url: string, settings: Settings, config: pg.PoolConfig) {
    this.#firstWords = firstWords(settings);
    this.#pool = new pg.Pool({
      connectionString: checked(url).href,
      fallback_application_name: "inkwell",
      connectionTimeoutMillis: limits.connectMs,
      query_timeout: Number(settings.statement_timeout) + limits.answerMs - limits.statementMs,
      keepAlive: true,
      types,
      stream: () => this.#socket(),
      ...config,
    });
    // A connection that breaks while nobody uses it is replaced when somebody does; one that breaks in use tells it
    // to those who wait for its answers. Whenever it is, an error that nobody hears would end the process.
    this.#pool.on("error", () => {});
    this.#pool.on("connect", (client) => client.on("error", () => {}));
  }

  /** Whatever is wrong with a connection from its beginning is nothing that is wrong with what is asked. */
  async connect(): Promise<Connection> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw unavailable(error);
    });
    if (!this.#ready.has(client)) {
      try {
        await client.query(this.#firstWords);
        this.#ready.add(client);
      } catch (error) {
        client.release(true);
        throw unavailable(error);
      }
    }
    return {
      query: (statement) => send(client, statement),
      release: (broken = false) => client.release(broken),
    };
  }

  /** One statement on any connection. */
  async query(statement: Statement): Promise<PostgresResult> {
    const connection = await this.connect();
    let broken = true;
    try {
      const result = await connection.query(statement);
      broken = false;
      return result;
    } finally {
      connection.release(broken);
    }
  }

  /** Rows that are looked for. A text with a zero byte, which PostgreSQL cannot keep, is in none of them. */
  async find(statement: Statement): Promise<Cell[][]> {
    const { values = [] } = statement;
    if (values.some((value) => typeof value === "string" && value.includes("\0"))) return [];
    return (await this.query(statement)).rows;
  }

  /** Resolves when all connections have been given back. No process waits for a server to take note of it. */
  async end(): Promise<void> {
    await this.#pool.end();
    for (const socket of this.#sockets) {
      socket.unref();
      // One that was never let in is closed by nobody else, and the server would wait a minute for its next word.
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
      ...(name === undefined ? {} : { name }),
      ...(values === undefined ? {} : { values: [...values] }),
    });
    // A file of several statements has several answers, which nobody asks for.
    if (Array.isArray(result)) return { rows: [], columns: [], rowCount: null };
    const { rows, fields, rowCount } = result;
    return { rows, columns: fields.map((field) => field.name), rowCount };
  } catch (error) {
    throw storeError(error);
  }
}

/** `listMs`: for tests. */
export function readPool(
  url: string,
  purpose: keyof typeof connectionsMax,
  listMs: number = limits.listMs,
): ConnectionPool {
  const settings = purpose === "lists" ? { ...readSettings, ...listSettings(listMs) } : readSettings;
  return new ConnectionPool(url, settings, { max: connectionsMax[purpose], idleTimeoutMillis: 60_000 });
}

/** Statements of one commit are sent without waiting for the answer to the one before. */
export function commitPool(url: string, connectionsMax: number): ConnectionPool {
  return new ConnectionPool(url, commitSettings, {
    pipeline: true,
    max: connectionsMax,
    idleTimeoutMillis: 0,
  });
}

/** One connection of its own, for as long as `use` takes; cut off when the signal says so. */
async function alone<T>(
  url: string,
  settings: Settings,
  use: (client: Connection) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const pool = new ConnectionPool(url, settings, { max: 1 });
  try {
    const connection = await pool.connect();
    const release = once(() => connection.release(true));
    signal?.addEventListener("abort", release);
    try {
      signal?.throwIfAborted();
      return await use(connection);
    } finally {
      signal?.removeEventListener("abort", release);
      release();
    }
  } finally {
    await pool.end();
  }
}

function once(work: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) work();
    isDone = true;
  };
}

export function forAudit<T>(
  url: string,
  signal: AbortSignal,
  use: (connection: Connection) => Promise<T>,
): Promise<T> {
  return alone(url, auditSettings, use, signal);
}

export function forMigration<T>(url: string, use: (connection: Connection) => Promise<T>): Promise<T> {
  return alone(url, migrationSettings, use);
}
