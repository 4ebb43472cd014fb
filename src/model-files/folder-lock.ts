/**
 * One fetch of a file at a time, also between processes that share a models folder: the others wait and then find
 * the file there.
 *
 * The lock is SQLite's on an empty database file, which is the operating system's: it ends with the process that
 * held it, however that ended, so there is no stale lock to guess about. The empty file stays behind on purpose;
 * removing it would let two processes lock two different files of one name.
 */
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";

const pollMs = 250;

export interface FolderLock {
  release(): void;
}

/** Waits for its turn; `onWait` is called once if there is a wait. Rejects when the signal aborts. */
export async function lockFile(
  folder: string,
  fileName: string,
  onWait: () => void,
  signal: AbortSignal,
): Promise<FolderLock> {
  const database = new DatabaseSync(join(folder, `.${fileName}.lock`));
  try {
    for (let waited = false; ; ) {
      if (tryLock(database)) return { release: () => database.close() };
      if (!waited) onWait();
      waited = true;
      await sleep(pollMs, undefined, { signal });
    }
  } catch (error) {
    database.close();
    throw error;
  }
}

function tryLock(database: DatabaseSync): boolean {
  try {
    database.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    const busy = error instanceof Error && "errcode" in error && error.errcode === 5;
    if (!busy) throw error;
    return false;
  }
}
