/**
 * Ensures that only one process downloads a file into a shared models folder. The others wait and
 * then find the file.
 *
 * The lock is SQLite's lock of an empty database file. The operating system releases it when the
 * process ends, so no lock is ever stale. The empty file is not removed: otherwise two processes
 * could lock two files of the same name.
 */
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";

const pollMs = 250;

/**
 * Waits for the lock, which is held until it is disposed. Calls `onWait` once if another process
 * holds it. Rejects when the signal aborts.
 */
export async function lockFile(
  folder: string,
  fileName: string,
  onWait: () => void,
  signal: AbortSignal,
): Promise<Disposable> {
  const database = new DatabaseSync(join(folder, `.${fileName}.lock`));
  try {
    for (let waited = false; ; ) {
      if (tryLock(database)) return database;
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
