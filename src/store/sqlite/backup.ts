/**
 * A copy of an SQLite database as it is at one moment, made beside whatever runs on it.
 *
 * Guarantees that the copy is whole and on disk before it has its name, that nothing is overwritten, and that the
 * database itself is neither made, migrated nor written: one reader, which holds up no writer. SQLite's own backup
 * interface would begin anew with each commit of another process; `vacuum into` reads one state to its end.
 */
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, dirname } from "node:path";
import { messageOf, OperatorError } from "../../errors.ts";
import { openAsItIs, type SqliteFile } from "./file.ts";

export interface Backup {
  bytes: number;
}

/** Throws an OperatorError where there is no database, or where the copy cannot be written. */
export function backUpSqlite(from: SqliteFile, to: string): Backup {
  if (existsSync(to)) {
    throw new OperatorError(
      `${to} is there already. Nothing was copied: name a file that does not exist yet.`,
    );
  }
  if (!existsSync(dirname(to))) {
    throw new OperatorError(
      `There is no folder ${dirname(to)} for the backup ${basename(to)}. Make it, or name a file in one that is there.`,
    );
  }
  const db = openAsItIs(from, "copy");
  try {
    // It gets its name when it is whole; until then this file also keeps a second copy from the same name.
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

/** For the owner only, from its first byte: it has the hashes of keys and everybody's usage. */
function reserve(part: string, to: string): void {
  try {
    closeSync(openSync(part, "wx", 0o600));
  } catch (error) {
    if (existsSync(part)) {
      throw new OperatorError(
        `${part} is there already: another backup to the same name is under way, or one was cut off. If none is, delete it and try again.`,
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
  // Under the name that was asked for, not the one that it has until it is whole.
  const why = messageOf(error).replaceAll(`${to}.part`, to);
  return new OperatorError(
    `The backup ${to} cannot be written (${why}). Its folder must be writable and have room for it.`,
    error,
  );
}
