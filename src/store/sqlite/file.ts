/**
 * Opens an SQLite file for Inkwell: creates it if necessary, recognises it, migrates it, and makes
 * it durable.
 *
 * Guarantees that the result is an Inkwell database of this version. Any problem with the file or
 * its folder is an OperatorError with the cause, the place and the remedy. The databases of other
 * programs are never changed.
 */
import { closeSync, openSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { messageOf, OperatorError } from "../../errors.ts";
import type { Plans } from "../../ledger/plan.ts";
import { makeFolder } from "../../make-folder.ts";
import type { EpochMs } from "../../units.ts";
import { storeError } from "../errors.ts";
import type { AppliedMigration } from "../migrations.ts";
import { accountsWithoutPlan, appliedMigration, pendingMigrations, requirePlans } from "../migrations.ts";
import { applyPlans } from "./plans.ts";

/** A file, and how long a statement waits while another process writes to it. */
export interface SqliteFile {
  path: string;
  busyMs: number;
}

/** "Inkw" in ASCII. In the file's header it marks an Inkwell database. */
const applicationId = 0x496e6b77;

const migrationsFolder = new URL("../migrations/sqlite/", import.meta.url);

/** Primary result codes of SQLite. */
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

const transient: ReadonlySet<number | null> = new Set([
  code.busy,
  code.locked,
  code.nomem,
  code.ioerr,
  code.full,
  code.cantopen,
  code.readonly,
  code.protocol,
]);

/**
 * Returns the primary result code: the low byte of the code. Null if SQLite did not raise the
 * error.
 */
function codeOf(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}

/**
 * Converts an error of a statement. If a retry can succeed, the result is a
 * `StoreUnavailableError`.
 */
export function sqliteError(error: unknown): Error {
  return storeError(error, transient.has(codeOf(error)));
}

/**
 * Opens the connection that writes. Creates the file and its folder, and applies missing
 * migrations.
 */
export function openToWrite(file: SqliteFile, options: Migrating): DatabaseSync {
  const { path, busyMs } = file;
  makeFile(path);
  return explained(file, () => {
    const db = new DatabaseSync(path, { timeout: busyMs });
    try {
      recognise(db, path);
      // In this mode readers and the writer do not wait for each other.
      db.exec("pragma journal_mode = wal");
      // Each commit is on disk before it is answered. macOS needs fullfsync for that.
      db.exec("pragma synchronous = full; pragma fullfsync = on; pragma checkpoint_fullfsync = on");
      db.exec("pragma recursive_triggers = on; pragma temp_store = memory");
      // 64 MiB of pages in memory. A checkpoint every 16 MiB of log copies pages that are written
      // often only once.
      db.exec("pragma cache_size = -65536; pragma wal_autocheckpoint = 4000");
      // Off, because migrations make tables anew that others refer to.
      db.exec("pragma foreign_keys = off");
      migrate(db, path, options);
      db.exec("pragma foreign_keys = on");
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  });
}

/** Opens a read-only connection to a file that `openToWrite` has opened before. */
export function openToRead(file: SqliteFile): DatabaseSync {
  return explained(file, () => new DatabaseSync(file.path, { readOnly: true, timeout: file.busyMs }));
}

/**
 * Opens a read-only connection to a file of any version (`versionOf`), without creating it.
 * `purpose` completes the sentence "There is no database to ...".
 */
export function openAsItIs(file: SqliteFile, purpose: "copy" | "check"): DatabaseSync {
  const { path } = file;
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.size === 0) {
    throw new OperatorError(
      `There is no database ${path} to ${purpose}. Set the right path: database: sqlite:PATH`,
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

/**
 * Returns the number of the last applied migration, and how many are pending. Throws an
 * OperatorError if they are not those of this build.
 */
export function versionOf(db: DatabaseSync, file: SqliteFile): { version: number; pending: number } {
  return explained(file, () => {
    const made = db.prepare("select 1 from sqlite_schema where name = 'migration'").get() !== undefined;
    const applied = made ? appliedMigrations(db) : [];
    const pending = pendingMigrations(migrationsFolder, { where: file.path, applied });
    return { version: applied.length, pending: pending.length };
  });
}

/** Returns whether `openToWrite` would migrate an existing ledger. Changes nothing. */
export function needsUpgrade(file: SqliteFile): boolean {
  const found = statSync(file.path, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.size === 0) return false;
  const db = openAsItIs(file, "check");
  try {
    const { version, pending } = versionOf(db, file);
    return version > 0 && pending > 0;
  } finally {
    db.close();
  }
}

function makeFile(path: string): void {
  try {
    makeFolder(dirname(path));
    // Only for the owner: the file contains the hashes of keys and all usage. SQLite gives its log
    // the same mode.
    closeSync(openSync(path, "a", 0o600));
  } catch (error) {
    const why = messageOf(error);
    const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
    throw new OperatorError(
      isFolder
        ? `The database ${path} is a folder. Set the path of a file: database: sqlite:${path}/inkwell.db`
        : `The database ${path} cannot be written (${why}). Make its folder writable for the user that runs Inkwell, or set another path: database: sqlite:PATH`,
      error,
    );
  }
}

function recognise(db: DatabaseSync, path: string): void {
  // One statement, because another process may create the database meanwhile.
  const found = db
    .prepare(
      "select application_id as id, (select count(*) from sqlite_schema) as tables from pragma_application_id",
    )
    .get();
  if (found?.id === applicationId) return;
  if (found?.id !== 0 || found.tables !== 0) {
    throw new OperatorError(
      `${path} is an SQLite database, but not one of Inkwell's. Nothing was changed. Set another path: database: sqlite:PATH`,
    );
  }
}

/** A ledger without grants is carried over with the plans of the configuration. */
interface Migrating {
  nowMs: EpochMs;
  plans: Plans;
  /** If false, a file with an older schema is refused. Default: true. */
  upgrade?: boolean;
}

function migrate(db: DatabaseSync, path: string, { nowMs, plans, upgrade }: Migrating): void {
  // Under the lock: if two processes start at once, one migrates and the other finds the
  // migrations applied.
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
    for (const migration of pendingMigrations(migrationsFolder, { where: path, applied, upgrade })) {
      if (migration.needsPlans) carryPlansOver(db, path, { nowMs, plans });
      db.exec(migration.sql);
      record.run(migration.version, migration.name, migration.checksum, nowMs);
    }
    db.exec("commit");
  } catch (error) {
    if (db.isTransaction) db.exec("rollback");
    throw error;
  }
}

/** Throws an OperatorError if an account has a plan that the configuration does not have. */
function carryPlansOver(db: DatabaseSync, path: string, { nowMs, plans }: Migrating): void {
  applyPlans(db, plans, { force: false, nowMs });
  const rows = db.prepare(accountsWithoutPlan).all();
  requirePlans(
    rows.map(({ plan, accounts }) => [String(plan), Number(accounts)]),
    path,
  );
}

function appliedMigrations(db: DatabaseSync): AppliedMigration[] {
  const rows = db.prepare("select version, name, checksum from migration order by version").all();
  return rows.map(({ version, name, checksum }) => appliedMigration(version, name, checksum));
}

function explained<T>({ path, busyMs }: SqliteFile, open: () => T): T {
  try {
    return open();
  } catch (error) {
    const why = messageOf(error);
    switch (codeOf(error)) {
      case code.notadb:
        throw new OperatorError(
          `${path} is not an SQLite database. Nothing was changed. Set another path (database: sqlite:PATH), or restore a backup.`,
          error,
        );
      case code.corrupt:
        throw new OperatorError(
          `The database ${path} is damaged (${why}). Keep a copy of it, and replace it with a backup.`,
          error,
        );
      case code.busy:
      case code.locked:
        throw new OperatorError(
          `The database ${path} is locked by another process for longer than ${busyMs / 1000} s. Find that process (lsof ${path}), stop it, and try again.`,
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
          `The database ${path} cannot be opened (${why}). Inkwell writes to this file and to two files beside it that end in -wal and -shm; network file systems do not work.`,
          error,
        );
      default:
        throw error;
    }
  }
}

function noSpace(path: string, error: unknown): OperatorError {
  return new OperatorError(
    `There is no space left for the database ${path} and the two files beside it that end in -wal and -shm. Nothing was changed. Free space on that disk, and try again.`,
    error,
  );
}

/** The smaller of the two files beside a database takes 32 KiB before anything is written. */
const openBytesMin = 256 * 1024;

/**
 * Returns whether the disk is full. While SQLite opens a file, a full disk is an I/O error like
 * any other.
 */
function isFull(folder: string): boolean {
  try {
    const { bavail, bsize, blocks } = statfsSync(folder);
    // Some file systems do not report their size.
    return blocks > 0 && bavail * bsize < openBytesMin;
  } catch {
    return false;
  }
}
