/**
 * The store in one SQLite file, for a single machine, with nothing to install.
 *
 * Guarantees that an answered write is on disk (WAL, synchronous = full), and that every read sees
 * every write answered before it. One thread writes. Three threads read (worker.ts): one for the
 * service itself, one for lists, and one for receipts and journals. Lists may take seconds if a
 * filter matches few rows, and end at their time limit. Only the lookups that requests wait for
 * run here, on a read-only connection: keys, sessions, and a balance with its plans. They take
 * 7 us, and a message to a thread and back takes 40 us.
 *
 * Several processes may use one file: the lock of each commit covers the whole file, so the ledger
 * stays exact. Two servers on one file are safe for the same reason, but each counts its own
 * queues, and neither is faster for it.
 */

import { extname } from "node:path";
import type { Worker } from "node:worker_threads";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import type { EventSettings } from "../../ledger/events.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { Times } from "../../ledger/snapshot.ts";
import { startThread } from "../../threads/start.ts";
import { requirePossibleClock } from "../../version.ts";
import { KeptPlans } from "../kept-plans.ts";
import type { Purpose } from "../queries.ts";
import type { SqlStatement } from "../sql.ts";
import { sqlStoreOn } from "../sql-store.ts";
import { ListTooSlowError, listLimitMs, type Store } from "../store.ts";
import { type SharedClock, sharedClock, timesOf } from "./clock.ts";
import { sqliteDialect } from "./dialect.ts";
import { openToRead, type SqliteFile, sqliteError } from "./file.ts";
import type { Cells } from "./query.ts";
import { SqliteSnapshots } from "./snapshots.ts";
import { Statements } from "./statements.ts";
import { type Calls, type Fault, openedId, type SqliteThreadData, type ThreadReply } from "./thread.ts";

const defaultBusyMs = 5000;
/** A thread that reads keeps 11 MB, and starts in 50 ms. */
const defaultRestMs = 10_000;

interface SqliteStoreOptions {
  /** The database file. It is created with its folder if it does not exist. */
  path: string;
  /** The plans section of the configuration. A database without plans gets them. */
  plans: Plans;
  /** If false, a file with an older schema is refused. Default: it is migrated. */
  upgrade?: boolean;
  /** Read at each commit: null if it writes no events. Default: null. */
  events?: (() => EventSettings | null) | undefined;
  /** Opens the store although ledger time is far ahead of the clock: who accepts that. */
  clockAcceptedBy?: string | null;
  /** How long to wait while another process writes. */
  busyMs?: number;
  /** For tests: the time limit of a list. */
  listMs?: number;
  /** For tests: how long a reader that is not used keeps its thread. */
  restMs?: number;
  /** For tests: shared memory that is read in place of the machine's clock and uptime. */
  clock?: NonNullable<SharedClock["readings"]>;
}

/** Throws an OperatorError if the file, its folder or the clock cannot be used. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const { path, plans, upgrade = true, busyMs = defaultBusyMs, listMs = listLimitMs } = options;
  const { events = () => null, clockAcceptedBy = null, restMs = defaultRestMs } = options;
  if (options.clock === undefined) requirePossibleClock(Date.now());
  const clock = sharedClock(options.clock ?? null);
  const threadOf = (role: SqliteThreadData["role"]) =>
    new Remote({ role, file: { path, busyMs }, plans, upgrade, clock, clockAcceptedBy, listMs }, restMs);
  const writer = threadOf("writer");
  await writer.open();
  try {
    return sqliteStoreOn({ path, busyMs }, writer, threadOf, { times: timesOf(clock), events });
  } catch (error) {
    await writer.close();
    throw error;
  }
}

function sqliteStoreOn(
  file: SqliteFile,
  writer: Remote,
  threadOf: (role: SqliteThreadData["role"]) => Remote,
  { times, events }: { times: () => Times; events: () => EventSettings | null },
): Store {
  const db = openToRead(file);
  const statements = new Statements(db);
  const snapshots = new SqliteSnapshots(db, times);
  const reader = () => threadOf("reader");
  // They start with their first call, and end when they are not used.
  const threads = { service: reader(), lists: reader(), history: reader() };

  function lookUp<T>(read: () => T): T {
    if (!db.isOpen) throw storeClosed();
    try {
      return read();
    } catch (error) {
      throw sqliteError(error);
    }
  }

  async function find(purpose: Purpose, statement: SqlStatement): Promise<Cells[]> {
    if (purpose === "lookups") return lookUp(() => statements.rows(statement));
    return await threads[purpose].call("rows", statement);
  }

  const write = (...statements: SqlStatement[]) => writer.call("write", statements);

  const plans = new KeptPlans((text) => find("lookups", { name: text, text, values: [] }));

  const reads = { find, findPage: find, write };
  const dialect = sqliteDialect(() => times().atMs);

  return {
    ...sqlStoreOn(reads, dialect, { plans, events }),

    commit: (operations) => writer.call("commit", operations, events()),

    putAccount: (draft, options) => writer.call("putAccount", draft, options, events()),

    applyPlans: (section, options) => writer.call("applyPlans", section, options),

    async accountSnapshot(account) {
      const found = lookUp(() => snapshots.of(account));
      if (found === null) return null;
      const { mark, ...snapshot } = found;
      return { ...snapshot, plans: await plans.at(mark) };
    },
    times,
    clock: () => writer.call("clock"),
    sumUsage: (timezone) => writer.call("sumUsage", timezone),

    async close() {
      await Promise.all(Object.values(threads).map((thread) => thread.close()));
      // The connection that writes is closed last, so that it moves the log into the file.
      if (db.isOpen) db.close();
      await writer.close();
    },
  };
}

/**
 * Calls the functions of a thread (worker.ts), and matches the answers to the calls by number.
 *
 * A thread that dies, for lack of memory for example, loses nothing: its unanswered calls are
 * rejected with a `StoreUnavailableError`, so the ledger sends them again, and the next call
 * starts another thread.
 */
class Remote {
  readonly #data: SqliteThreadData;
  #thread: Thread | null = null;
  /** Of the thread that ended last because it was not used. */
  #ended = Promise.resolve();
  readonly #rest: NodeJS.Timeout;
  #isClosed = false;

  /** `restMs`: a reader that gets no call for so long ends until the next one. */
  constructor(data: SqliteThreadData, restMs: number) {
    this.#data = data;
    this.#rest = setTimeout(() => this.#endReader(), restMs).unref();
  }

  /** Starts the thread; otherwise the first call does. Rejects if the file cannot be opened. */
  async open(): Promise<void> {
    await this.#running().opened;
  }

  call<M extends keyof Calls>(method: M, ...args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    if (this.#isClosed) return Promise.reject(storeClosed());
    this.#rest.refresh();
    return this.#running().call(method, args);
  }

  /** Resolves when all calls are answered and the thread has ended. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#rest);
    await Promise.all([this.#ended, this.#thread?.close()]);
  }

  /** Its calls are answered before. */
  #endReader(): void {
    if (this.#data.role !== "reader" || this.#thread === null) return;
    this.#ended = this.#thread.close();
    this.#thread = null;
  }

  #running(): Thread {
    if (this.#thread === null || this.#thread.isEnded) this.#thread = new Thread(this.#data);
    return this.#thread;
  }
}

/** One run of worker.ts. */
class Thread {
  /** Settles when the file is open, or with the reason why it is not. */
  readonly opened: Promise<unknown>;
  readonly #data: SqliteThreadData;
  readonly #worker: Worker;
  readonly #pending = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #exited: Promise<void>;
  #lastId = openedId;
  #isEnded = false;
  #closed: Promise<void> | null = null;

  constructor(data: SqliteThreadData) {
    // The worker's file has the ending of this one, in the sources and in the output of tsc.
    const file = new URL(`./worker${extname(import.meta.filename)}`, import.meta.url);
    this.#data = data;
    this.opened = this.#expect(openedId);
    // Rejects the calls that were sent before.
    this.opened.catch((error: Error) => this.#end(error));
    this.#worker = startThread(file, data);
    this.#worker.on("message", (answer: ThreadReply) => this.#settle(answer));
    this.#worker.on("error", (error) => this.#end(error));
    const exited = Promise.withResolvers<void>();
    this.#exited = exited.promise;
    this.#worker.on("exit", () => {
      this.#end();
      exited.resolve();
    });
  }

  /** True if the thread answers no more calls. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  call<M extends keyof Calls>(method: M, args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    this.#lastId += 1;
    const answer = this.#expect(this.#lastId);
    this.#worker.postMessage({ id: this.#lastId, method, args });
    // The thread answers with the type that `Calls` has; worker.ts implements that interface.
    return answer as Promise<ReturnType<Calls[M]>>;
  }

  async close(): Promise<void> {
    // A thread that dies here loses nothing: everything that it answered is on disk.
    const unlessEnded = (error: unknown) => {
      if (!this.#isEnded) throw error;
    };
    if (!this.#isEnded) this.#closed ??= this.call("close", []).catch(unlessEnded);
    await this.#closed;
    await this.#exited;
  }

  #expect(id: number): Promise<unknown> {
    const pending = Promise.withResolvers<unknown>();
    this.#pending.set(id, pending);
    return pending.promise;
  }

  #settle(answer: ThreadReply): void {
    const pending = this.#pending.get(answer.id);
    this.#pending.delete(answer.id);
    if ("value" in answer) pending?.resolve(answer.value);
    else pending?.reject(errorOf(answer.error, this.#data.listMs));
  }

  #end(cause?: unknown): void {
    this.#isEnded = true;
    const error = new StoreUnavailableError(`the ${this.#data.role} of the database has stopped`, { cause });
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }
}

function storeClosed(): Error {
  return new Error("the store is closed");
}

function errorOf({ kind, message, stack, mayBeDone }: Fault, listMs: number): Error {
  if (kind === "list too slow") return new ListTooSlowError(listMs);
  if (kind === "operator") return new OperatorError(message);
  if (kind === "unavailable") return new StoreUnavailableError(message, { mayBeDone });
  return Object.assign(new Error(message), { stack });
}
