/**
 * The store on one SQLite file: what a single machine runs on, with nothing to install.
 *
 * Guarantees that what it has answered to a write is on disk (WAL, synchronous = full), and that every read sees
 * every write answered before it. One thread writes, one reads lists, one goes through receipts and journals, which may
 * take seconds where a filter matches few (worker.ts); an audit has one of its own. Only the two lookups by key that requests wait for, key and balance, read here, on a connection that
 * cannot write: 7 microseconds, where a message to a thread and back takes 40.
 *
 * Several processes may work on one file: the lock of each commit covers all of it, so that the ledger stays
 * exact. Two servers on one file are safe for the same reason, but each would count its own queues, and neither
 * is faster for it.
 *
 * SQL is written by hand: Kysely has no dialect of its own for node:sqlite, the ones published for it are small
 * and young, and what is not hot here comes to a dozen statements.
 */
import type { DatabaseSync } from "node:sqlite";
import type { Worker } from "node:worker_threads";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { Decision, Operation } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../../ledger/rows.ts";
import type { EpochMs } from "../../units.ts";
import type { AuditReport } from "../audit.ts";
import type {
  AccountsQuery,
  FoundKey,
  HoldsQuery,
  HoldTotals,
  JournalQuery,
  Store,
  UsageQuery,
} from "../store.ts";
import { auditInThread } from "./audit.ts";
import { openToRead, type SqliteFile, storeError } from "./file.ts";
import { SqliteKeyring } from "./keys.ts";
import { SqliteSnapshots } from "./reads.ts";
import { Remote, storeClosed } from "./remote.ts";
import { clockOf, type ReaderCalls, type WriterCalls } from "./thread.ts";

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
  const writer = new Remote<WriterCalls>({ role: "writer", file, plans, clock });
  const reader = new Remote<ReaderCalls>({ role: "reader", file, plans, clock });
  const searcher = new Remote<ReaderCalls>({ role: "reader", file, plans, clock });
  await writer.open();
  try {
    return new SqliteStore(file, { writer, reader, searcher }, openToRead(file), clockOf(clock));
  } catch (error) {
    await writer.close();
    throw error;
  }
}

interface Threads {
  writer: Remote<WriterCalls>;
  /** Begins with the first list that is asked for. */
  reader: Remote<ReaderCalls>;
  /** For what may take long: readiness and metrics are asked of the other. Begins with the first such question. */
  searcher: Remote<ReaderCalls>;
}

class SqliteStore implements Store {
  readonly #file: SqliteFile;
  readonly #now: () => EpochMs;
  readonly #writer: Remote<WriterCalls>;
  readonly #reader: Remote<ReaderCalls>;
  readonly #searcher: Remote<ReaderCalls>;
  readonly #db: DatabaseSync;
  readonly #keyring: SqliteKeyring;
  readonly #snapshots: SqliteSnapshots;
  readonly #audits = new Set<Worker>();

  constructor(file: SqliteFile, threads: Threads, db: DatabaseSync, now: () => EpochMs) {
    this.#file = file;
    this.#now = now;
    this.#writer = threads.writer;
    this.#reader = threads.reader;
    this.#searcher = threads.searcher;
    this.#db = db;
    this.#keyring = new SqliteKeyring(db);
    this.#snapshots = new SqliteSnapshots(db, now);
  }

  commit(operations: readonly Operation[]): Promise<Decision[]> {
    return this.#writer.call("commit", operations);
  }

  async findKey(hash: string): Promise<FoundKey | null> {
    return this.#read(() => this.#keyring.find(hash));
  }

  addKey(key: KeyRow): Promise<boolean> {
    return this.#writer.call("addKey", key);
  }

  keyById(id: string): Promise<KeyRow | null> {
    return this.#reader.call("keyById", id);
  }

  keys(account?: string): Promise<KeyRow[]> {
    return this.#reader.call("keys", account);
  }

  revokeKey(id: string, atMs: EpochMs): Promise<KeyRow | null> {
    return this.#writer.call("revokeKey", id, atMs);
  }

  async snapshot(account: string): Promise<AccountSnapshot | null> {
    return this.#read(() => this.#snapshots.of(account));
  }

  accounts(query: AccountsQuery): Promise<AccountRow[]> {
    return this.#reader.call("accounts", query);
  }

  usage(query: UsageQuery): Promise<UsageRow[]> {
    return this.#searcher.call("usage", query);
  }

  journal(account: string, query: JournalQuery): Promise<JournalRow[]> {
    return this.#searcher.call("journal", account, query);
  }

  holds(query: HoldsQuery): Promise<HoldRow[]> {
    return this.#reader.call("holds", query);
  }

  holdTotals(): Promise<HoldTotals> {
    return this.#reader.call("holdTotals");
  }

  overdueHolds(atMs: EpochMs | null, limit: number): Promise<HoldRow[]> {
    return this.#reader.call("overdueHolds", atMs, limit);
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
    await Promise.all([this.#reader.close(), this.#searcher.close()]);
    // The connection that writes is closed last, so that it empties the log into the file.
    if (this.#db.isOpen) this.#db.close();
    await this.#writer.close();
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
