/**
 * Copies an SQLite database while other processes use it. The copy has the state of one moment.
 *
 * Guarantees that the copy is complete and on disk before it gets its name, and that no file is
 * overwritten. The database is not created, migrated or written; a reader does not delay the
 * writer. SQLite's backup interface would start again at each commit of another process, but
 * `vacuum into` reads one state to its end.
 */
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, dirname } from "node:path";
import { messageOf, OperatorError } from "../../errors.ts";
import { openAsItIs, type SqliteFile } from "./file.ts";

export interface Backup {
  bytes: number;
}

/** Throws an OperatorError if there is no database, or if the copy cannot be written. */
export function backUpSqlite(from: SqliteFile, to: string): Backup {
  if (existsSync(to)) {
    throw new OperatorError(
      `The file ${to} already exists. Nothing was copied. Choose another name for the backup.`,
    );
  }
  if (!existsSync(dirname(to))) {
    throw new OperatorError(
      `The folder ${dirname(to)} for the backup ${basename(to)} does not exist. Create it, or choose another folder.`,
    );
  }
  const db = openAsItIs(from, "copy");
  try {
    // The copy gets its name when it is complete. Until then this file keeps a second backup from
    // the same name.
    const part = `${to}.part`;
    reserve(part, to);
    try {
      db.prepare("vacuum into ?").run(part);
      sync(part);
      renameSync(part, to);
      sync(dirname(to));
    } catch (error) {
      rmSync(part, { force: true });
      throw cannotWrite(to, error);
    }
    return { bytes: statSync(to).size };
  } finally {
    db.close();
  }
}

/**
 * Creates the file for its owner only, because it will contain the hashes of keys and the usage of
 * all accounts.
 */
function reserve(part: string, to: string): void {
  try {
    closeSync(openSync(part, "wx", 0o600));
  } catch (error) {
    if (existsSync(part)) {
      throw new OperatorError(
        `The file ${part} already exists: another backup to the same name is running, or one was interrupted. If none is running, delete the file and try again.`,
        error,
      );
    }
    throw cannotWrite(to, error);
  }
}

function sync(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function cannotWrite(to: string, error: unknown): OperatorError {
  // The message has the name of the backup, not the temporary one.
  const why = messageOf(error).replaceAll(`${to}.part`, to);
  return new OperatorError(
    `The backup ${to} cannot be written (${why}). Its folder must be writable and have enough space.`,
    error,
  );
}
