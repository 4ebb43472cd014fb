/**
 * Opens an SQLite file for Inkwell: made if it is not there, recognised, migrated, set up to be durable.
 *
 * Guarantees that what it returns is an Inkwell database of this version, and that whatever is wrong with the file
 * or its folder is one OperatorError that says what, where and what to do. No database is changed that is not ours.
 */
import { closeSync, openSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { messageOf, OperatorError } from "../../errors.ts";
import { StoreUnavailableError } from "../../ledger/retry.ts";
import { makeFolder } from "../../make-folder.ts";
import type { EpochMs } from "../../units.ts";
import { type AppliedMigration, pendingMigrations, readMigrations } from "../migrations.ts";

/** What to open, and how long a statement waits while another process writes. */
export interface SqliteFile {
  path: string;
  busyMs: number;
}

/** "Inkw" in ASCII, in the file's header: tells an Inkwell database from any other. */
const applicationId = 0x496e6b77;

const migrationsFolder = new URL("../migrations/sqlite/", import.meta.url);

/** Result codes of SQLite (the low byte; the rest is detail). */
const code = {
  busy: 5,
  locked: 6,
  nomem: 7,
  readonly: 8,
  ioerr: 10,
  corrupt: 11,
  full: 13,
  cantopen: 14,
  protocol: 15,
  notadb: 26,
} as const;

/** The low byte of the error's SQLite result code; null where it is none of SQLite's. */
function codeOf(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}

/** An error of a statement as the rest of the service knows it; what trying again can mend is told apart. */
export function storeError(error: unknown): Error {
  const found = codeOf(error);
  const why = messageOf(error);
  switch (found) {
    case code.busy:
    case code.locked:
    case code.nomem:
    case code.ioerr:
    case code.full:
    case code.cantopen:
    case code.readonly:
    case code.protocol:
      return new StoreUnavailableError(`the database cannot be read or written just now: ${why}`, {
        cause: error,
      });
    default:
      return error instanceof Error ? error : new Error(why);
  }
}

/** The connection that writes. Makes the file and its folder, applies what migrations are missing. */
export function openToWrite(file: SqliteFile, nowMs: EpochMs): DatabaseSync {
  const { path, busyMs } = file;
  makeFile(path);
  return explained(file, () => {
    const db = new DatabaseSync(path, { timeout: busyMs });
    try {
      recognise(db, path);
      // Readers never wait for the writer, nor the writer for readers.
      db.exec("pragma journal_mode = wal");
      // Each commit is on disk before it is answered; on macOS that takes fullfsync.
      db.exec("pragma synchronous = full; pragma fullfsync = on; pragma checkpoint_fullfsync = on");
      db.exec("pragma foreign_keys = on; pragma recursive_triggers = on; pragma temp_store = memory");
      // 64 MiB of pages in memory, and a checkpoint every 16 MiB of log, so that pages written often are copied once.
      db.exec("pragma cache_size = -65536; pragma wal_autocheckpoint = 4000");
      migrate(db, path, nowMs);
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  });
}

/** A connection that only reads, on a file that `openToWrite` has opened before. */
export function openToRead(file: SqliteFile): DatabaseSync {
  return explained(file, () => new DatabaseSync(file.path, { readOnly: true, timeout: file.busyMs }));
}

/**
 * A connection that only reads, on a file as it was left: not made where it is missing, and of whatever version
 * (`versionOf`). `purpose` completes "there is no database to ...".
 */
export function openAsItIs(file: SqliteFile, purpose: "copy" | "check"): DatabaseSync {
  const { path } = file;
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.size === 0) {
    throw new OperatorError(
      `There is no database ${path} to ${purpose}. Name the right one: database: sqlite:PATH`,
    );
  }
  const db = openToRead(file);
  try {
    explained(file, () => recognise(db, path));
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** The number of the last migration that the file has had. Throws an OperatorError where they are not ours. */
export function versionOf(db: DatabaseSync, file: SqliteFile): number {
  return explained(file, () => {
    const made = db.prepare("select 1 from sqlite_schema where name = 'migration'").get() !== undefined;
    const applied = made ? appliedMigrations(db) : [];
    pendingMigrations(readMigrations(migrationsFolder), applied, file.path);
    return applied.length;
  });
}

function makeFile(path: string): void {
  try {
    makeFolder(dirname(path));
    // Hashes of keys and everybody's usage: for the owner only. SQLite gives its log the same mode.
    closeSync(openSync(path, "a", 0o600));
  } catch (error) {
    const why = messageOf(error);
    const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
    throw new OperatorError(
      isFolder
        ? `The database ${path} is a folder. Name a file: database: sqlite:${path}/inkwell.db`
        : `The database ${path} cannot be written (${why}). Make its folder writable for the user that runs Inkwell, or name another file: database: sqlite:PATH`,
      error,
    );
  }
}

function recognise(db: DatabaseSync, path: string): void {
  const id = db.prepare("pragma application_id").get()?.application_id;
  if (id === applicationId) return;
  const tables = db.prepare("select count(*) as n from sqlite_schema").get()?.n;
  if (id !== 0 || tables !== 0) {
    throw new OperatorError(
      `${path} is an SQLite database, but not one of Inkwell's. Nothing was changed. Name another file: database: sqlite:PATH`,
    );
  }
}

function migrate(db: DatabaseSync, path: string, nowMs: EpochMs): void {
  // Under the lock, so that of two processes that start at once one migrates and the other finds it done.
  db.exec("begin immediate");
  try {
    recognise(db, path);
    db.exec(`pragma application_id = ${applicationId}`);
    db.exec(
      "create table if not exists migration (version integer primary key, name text not null, checksum text not null, applied_ms integer not null) strict",
    );
    const applied = appliedMigrations(db);
    const record = db.prepare(
      "insert into migration (version, name, checksum, applied_ms) values (?, ?, ?, ?)",
    );
    for (const migration of pendingMigrations(readMigrations(migrationsFolder), applied, path)) {
      db.exec(migration.sql);
      record.run(migration.version, migration.name, migration.checksum, nowMs);
    }
    db.exec("commit");
  } catch (error) {
    if (db.isTransaction) db.exec("rollback");
    throw error;
  }
}

function appliedMigrations(db: DatabaseSync): AppliedMigration[] {
  const rows = db.prepare("select version, name, checksum from migration order by version").all();
  return rows.map((row) => ({
    version: Number(row.version),
    name: String(row.name),
    checksum: String(row.checksum),
  }));
}

function explained<T>({ path, busyMs }: SqliteFile, open: () => T): T {
  try {
    return open();
  } catch (error) {
    const why = messageOf(error);
    switch (codeOf(error)) {
      case code.notadb:
        throw new OperatorError(
          `${path} is not an SQLite database. Nothing was changed. Name another file (database: sqlite:PATH), or restore a backup.`,
          error,
        );
      case code.corrupt:
        throw new OperatorError(
          `The database ${path} is damaged (${why}). Keep a copy of it, and restore a backup in its place.`,
          error,
        );
      case code.busy:
      case code.locked:
        throw new OperatorError(
          `The database ${path} is locked by another process for longer than ${busyMs / 1000} s. Find the program that holds it (lsof ${path}) and try again.`,
          error,
        );
      case code.full:
        throw noSpace(path, error);
      case code.cantopen:
      case code.readonly:
      case code.ioerr:
      case code.protocol:
        if (isFull(dirname(path))) throw noSpace(path, error);
        throw new OperatorError(
          `The database ${path} cannot be opened (${why}). Inkwell needs to write it, and two files beside it that end in -wal and -shm; network file systems do not do.`,
          error,
        );
      default:
        throw error;
    }
  }
}

function noSpace(path: string, error: unknown): OperatorError {
  return new OperatorError(
    `There is no space left for the database ${path} and the two files beside it that end in -wal and -shm. Nothing was changed: make room on that disk, and try again.`,
    error,
  );
}

/** The smaller of the two files beside a database takes 32 KiB to begin with, before anything is written. */
const openBytesMin = 256 * 1024;

/** SQLite has no word for it while it opens a file: on a full disk that is an I/O error like any other. */
function isFull(folder: string): boolean {
  try {
    const { bavail, bsize, blocks } = statfsSync(folder);
    // Some file systems do not tell their size.
    return blocks > 0 && bavail * bsize < openBytesMin;
  } catch {
    return false;
  }
}
