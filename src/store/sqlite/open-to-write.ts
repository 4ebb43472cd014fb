/**
 * Opens an SQLite file for the connection that writes: creates the file if necessary, migrates it,
 * and makes it durable. Only the thread that writes loads this.
 *
 * Guarantees that the result is an Inkwell database of this version. If several processes start at
 * once, one of them migrates.
 */
import { closeSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { service } from "../../actors.ts";
import { messageOf, OperatorError } from "../../errors.ts";
import type { Plans } from "../../ledger/plan.ts";
import { makeFolder } from "../../make-folder.ts";
import type { EpochMs } from "../../units.ts";
import { pendingMigrations } from "../migrations.ts";
import { applicationId, appliedMigrations, explained, isBusy, recognise, type SqliteFile } from "./file.ts";
import { applyPlans } from "./plans.ts";

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
      whenUnlocked(busyMs, () => db.exec("pragma journal_mode = wal"));
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

/**
 * Repeats the work until the database is not locked, for `busyMs` at most. SQLite does not wait if
 * two connections change the journal mode of a new file at once, since they could wait for each
 * other.
 */
function whenUnlocked(busyMs: number, work: () => void): void {
  const deadlineMs = performance.now() + busyMs;
  for (;;) {
    try {
      work();
      return;
    } catch (error) {
      if (!isBusy(error) || performance.now() >= deadlineMs) throw error;
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
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

interface Migrating {
  nowMs: EpochMs;
  /** Those of a new ledger. */
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
    const pending = pendingMigrations({ kind: "sqlite", where: path, applied, upgrade });
    for (const { version, name, sql, checksum } of pending) {
      db.exec(sql);
      record.run(version, name, checksum, nowMs);
    }
    if (applied.length === 0) applyPlans(db, plans, { force: false, nowMs, by: service });
    db.exec("commit");
  } catch (error) {
    if (db.isTransaction) db.exec("rollback");
    throw error;
  }
}
