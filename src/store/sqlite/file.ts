/**
 * Opens an SQLite file for reading, recognises it, and explains its errors. open-to-write.ts
 * creates and migrates it.
 *
 * Any problem with the file or its folder is an OperatorError with the cause, the place and the
 * remedy. The databases of other programs are never changed.
 */
import { statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { messageOf, OperatorError } from "../../errors.ts";
import { inkwell } from "../../invocation.ts";
import { storeError } from "../errors.ts";
import type { AppliedMigration } from "../migrations.ts";
import { appliedMigration, pendingMigrations } from "../migrations.ts";

/** A file, and how long a statement waits while another process writes to it. */
export interface SqliteFile {
  path: string;
  busyMs: number;
}

/** "Inkw" in ASCII. In the file's header it marks an Inkwell database. */
export const applicationId = 0x496e6b77;

/** Primary result codes of SQLite. */
const code = {
  error: 1,
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
function sqliteCodeOf(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}

/** Reports whether another connection has the lock that the statement needs. */
export function isBusy(error: unknown): boolean {
  return sqliteCodeOf(error) === code.busy;
}

/**
 * Converts an error of a statement. If a retry can succeed, the result is a
 * `StoreUnavailableError`.
 */
export function sqliteError(error: unknown): Error {
  return storeError(error, transient.has(sqliteCodeOf(error)));
}

/** Runs the work under the lock that writers need. If it fails, nothing is written. */
export function inTransaction<T>(db: DatabaseSync, work: () => T): T {
  try {
    db.exec("begin immediate");
    const result = work();
    db.exec("commit");
    return result;
  } catch (error) {
    // Some errors, such as a full disk, have rolled back already.
    if (db.isTransaction) db.exec("rollback");
    throw sqliteError(error);
  }
}

/** Opens a read-only connection to a file that `openToWrite` has opened before. */
export function openToRead(file: SqliteFile): DatabaseSync {
  return explained(file, () => new DatabaseSync(file.path, { readOnly: true, timeout: file.busyMs }));
}

/**
 * Opens a read-only connection to a file of any version (`schemaVersionOf`), without creating it.
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
 * Reads a file of this version, without creating or changing it. Throws an OperatorError if it has
 * another schema.
 */
export function readAsItIs<T>(file: SqliteFile, work: (db: DatabaseSync) => T): T {
  const db = openAsItIs(file, "check");
  try {
    const { version, pending } = schemaVersionOf(db, file);
    if (version === 0) throw otherSchema(file, "it has no tables");
    if (pending > 0) throw otherSchema(file, "an older version of Inkwell made it");
    return work(db);
  } catch (error) {
    // Unknown tables and columns.
    if (sqliteCodeOf(error) === code.error) throw otherSchema(file, messageOf(error), error);
    throw sqliteError(error);
  } finally {
    db.close();
  }
}

function otherSchema({ path }: SqliteFile, why: string, cause?: unknown): OperatorError {
  return new OperatorError(
    `${path} cannot be checked, because it has not the schema of this version (${why}). Nothing was changed. Check it with the version of Inkwell that made it, or start "${inkwell("serve")}" of this version on it, which upgrades it.`,
    cause,
  );
}

/**
 * Returns the number of the last applied migration, and how many are pending. Throws an
 * OperatorError if they are not those of this build.
 */
function schemaVersionOf(db: DatabaseSync, file: SqliteFile): { version: number; pending: number } {
  return explained(file, () => {
    const made = db.prepare("select 1 from sqlite_schema where name = 'migration'").get() !== undefined;
    const applied = made ? appliedMigrations(db) : [];
    const pending = pendingMigrations({ kind: "sqlite", where: file.path, applied });
    return { version: applied.length, pending: pending.length };
  });
}

/** Returns whether `openToWrite` would migrate an existing ledger. Changes nothing. */
export function needsUpgrade(file: SqliteFile): boolean {
  const found = statSync(file.path, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.size === 0) return false;
  const db = openAsItIs(file, "check");
  try {
    const { version, pending } = schemaVersionOf(db, file);
    return version > 0 && pending > 0;
  } finally {
    db.close();
  }
}

/** Throws an OperatorError if the file is a database of another program. */
export function recognise(db: DatabaseSync, path: string): void {
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

/** Returns the migrations that were applied, in order. */
export function appliedMigrations(db: DatabaseSync): AppliedMigration[] {
  const rows = db.prepare("select version, name, checksum from migration order by version").all();
  return rows.map(({ version, name, checksum }) => appliedMigration(version, name, checksum));
}

/** Runs `open`, and explains its errors to the operator. */
export function explained<T>({ path, busyMs }: SqliteFile, open: () => T): T {
  try {
    return open();
  } catch (error) {
    const why = messageOf(error);
    switch (sqliteCodeOf(error)) {
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
