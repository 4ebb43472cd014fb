/**
 * The store on one SQLite file: what a single machine runs on, with nothing to install.
 *
 * Guarantees that what it has answered to a write is on disk (WAL, synchronous = full), and that every read sees
 * every write answered before it. Writes and lists are done by a thread of their own (sqlite-worker.ts). Only the
 * two lookups by key that requests wait for, key and balance, read here, on a connection that cannot write: 7
 * microseconds, where a message to a thread and back takes 40 and waits behind the commit under way.
 *
 * Several processes may work on one file: the lock of each commit covers all of it, so that the ledger stays
 * exact. Two servers on one file are safe for the same reason, but each would count its own queues, and neither
 * is faster for it.
 *
 * SQL is written by hand: Kysely has no dialect of its own for node:sqlite, the ones published for it are small
 * and young, and what is not hot here comes to a dozen statements.
 */
import { extname } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { Worker } from "node:worker_threads";
import type { AccountSnapshot } from "../credits/balance.ts";
import { StoreUnavailableError } from "../credits/ledger.ts";
import type { Operation, Outcome } from "../credits/operations.ts";
import type { Plans } from "../credits/plan.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../credits/rows.ts";
import { OperatorError } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import type { AuditReport } from "./audit.ts";
import { auditInThread } from "./sqlite-audit.ts";
import { openToRead, type SqliteFile, storeError } from "./sqlite-file.ts";
import { SqliteKeyring } from "./sqlite-keys.ts";
import { SqliteSnapshots } from "./sqlite-reads.ts";
import { type Answer, type Calls, clockOf, openedId, type SqliteThreadData } from "./sqlite-thread.ts";
import type {
  AccountsQuery,
  FoundKey,
  HoldsQuery,
  HoldTotals,
  JournalQuery,
  Store,
  UsageQuery,
} from "./store.ts";

const defaultBusyMs = 5000;

export interface SqliteStoreOptions {
  /** The database file; it and its folder are made where they are missing. */
  path: string;
  plans: Plans;
  /** How long to wait while another process writes. */
  busyMs?: number;
  /** For tests: one number of milliseconds in shared memory, read instead of the machine's clock. */
  clock?: BigInt64Array<SharedArrayBuffer>;
}

/** Throws an OperatorError where the file or its folder will not do. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const { path, plans, clock = null, busyMs = defaultBusyMs } = options;
  const file = { path, busyMs };
  const thread = new Thread({ file, plans, clock });
  await thread.opened;
  try {
    return new SqliteStore(file, thread, openToRead(file), clockOf(clock));
  } catch (error) {
    await thread.close();
    throw error;
  }
}

class SqliteStore implements Store {
  readonly #file: SqliteFile;
  readonly #now: () => EpochMs;
  readonly #thread: Thread;
  readonly #db: DatabaseSync;
  readonly #keyring: SqliteKeyring;
  readonly #snapshots: SqliteSnapshots;
  readonly #audits = new Set<Worker>();

  constructor(file: SqliteFile, thread: Thread, db: DatabaseSync, now: () => EpochMs) {
    this.#file = file;
    this.#now = now;
    this.#thread = thread;
    this.#db = db;
    this.#keyring = new SqliteKeyring(db);
    this.#snapshots = new SqliteSnapshots(db, now);
  }

  commit(operations: readonly Operation[]): Promise<Outcome[]> {
    return this.#thread.call("commit", operations);
  }

  async findKey(hash: string): Promise<FoundKey | null> {
    return this.#read(() => this.#keyring.find(hash));
  }

  addKey(key: KeyRow): Promise<boolean> {
    return this.#thread.call("addKey", key);
  }

  keyById(id: string): Promise<KeyRow | null> {
    return this.#thread.call("keyById", id);
  }

  keys(account?: string): Promise<KeyRow[]> {
    return this.#thread.call("keys", account);
  }

  revokeKey(id: string, atMs: EpochMs): Promise<KeyRow | null> {
    return this.#thread.call("revokeKey", id, atMs);
  }

  async snapshot(account: string): Promise<AccountSnapshot | null> {
    return this.#read(() => this.#snapshots.of(account));
  }

  accounts(query: AccountsQuery): Promise<AccountRow[]> {
    return this.#thread.call("accounts", query);
  }

  usage(query: UsageQuery): Promise<UsageRow[]> {
    return this.#thread.call("usage", query);
  }

  journal(account: string, query: JournalQuery): Promise<JournalRow[]> {
    return this.#thread.call("journal", account, query);
  }

  holds(query: HoldsQuery): Promise<HoldRow[]> {
    return this.#thread.call("holds", query);
  }

  holdTotals(): Promise<HoldTotals> {
    return this.#thread.call("holdTotals");
  }

  overdueHolds(atMs: EpochMs, limit: number): Promise<HoldRow[]> {
    return this.#thread.call("overdueHolds", atMs, limit);
  }

  async audit(): Promise<AuditReport> {
    if (!this.#db.isOpen) throw storeClosed();
    return await auditInThread({ file: this.#file, nowMs: this.#now() }, (thread) => {
      this.#audits.add(thread);
      thread.once("exit", () => this.#audits.delete(thread));
    });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#audits].map((thread) => thread.terminate()));
    // The connection that writes is closed last, so that it empties the log into the file.
    if (this.#db.isOpen) this.#db.close();
    await this.#thread.close();
  }

  #read<T>(read: () => T): T {
    if (!this.#db.isOpen) throw storeClosed();
    try {
      return read();
    } catch (error) {
      throw storeError(error);
    }
  }
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** The other side of sqlite-worker.ts: calls and their answers, matched by number. */
class Thread {
  /** Settles when the file is open, or with the reason why it is not. */
  readonly opened: Promise<unknown>;
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  readonly #exited: Promise<void>;
  #lastId = openedId;
  /** Why nothing can be asked any more. */
  #ended: Error | null = null;

  constructor(data: SqliteThreadData) {
    // Run from the sources and from what tsc emits: the worker's file ends as this one does.
    const file = new URL(`./sqlite-worker${extname(import.meta.filename)}`, import.meta.url);
    this.opened = this.#expect(openedId);
    this.#worker = new Worker(file, { workerData: data });
    this.#worker.on("message", (answer: Answer) => this.#settle(answer));
    this.#worker.on("error", (error) => this.#end(threadStopped(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on("exit", () => {
        this.#end(threadStopped());
        resolve();
      });
    });
  }

  call<M extends keyof Calls>(method: M, ...args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    if (this.#ended !== null) return Promise.reject(this.#ended);
    this.#lastId += 1;
    const answer = this.#expect(this.#lastId);
    this.#worker.postMessage({ id: this.#lastId, method, args });
    // The thread answers a call with what `Calls` says; both ends are this module's.
    return answer as Promise<ReturnType<Calls[M]>>;
  }

  async close(): Promise<void> {
    if (this.#ended === null) {
      const closed = this.call("close");
      this.#ended = storeClosed();
      await closed;
    }
    await this.#exited;
  }

  #expect(id: number): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#pending.set(id, { resolve, reject });
    return promise;
  }

  #settle(answer: Answer): void {
    const pending = this.#pending.get(answer.id);
    this.#pending.delete(answer.id);
    if ("value" in answer) pending?.resolve(answer.value);
    else pending?.reject(errorOf(answer.error));
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }
}

function storeClosed(): Error {
  return new Error("the store is closed");
}

function threadStopped(cause?: unknown): Error {
  return new StoreUnavailableError("the thread that writes the database has stopped", { cause });
}

function errorOf({ kind, message, stack }: Extract<Answer, { error: unknown }>["error"]): Error {
  switch (kind) {
    case "operator":
      return new OperatorError(message);
    case "unavailable":
      return new StoreUnavailableError(message);
    case "defect": {
      const error = new Error(message);
      error.stack = stack;
      return error;
    }
  }
}
