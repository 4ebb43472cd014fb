/**
 * The clock of an SQLite file: that of the machine. The thread that writes records the times of
 * the ledger, and all threads of the process read them in shared memory.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { invariant, StoreUnavailableError, withNothingDone } from "../../errors.ts";
import { type ClockCells, type ClockState, clockCells, LedgerClock } from "../../ledger/clock.ts";
import type { Times } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import { acceptanceOf, type MachineClock, machineClock, recordEveryMs } from "../clock.ts";
import { changeLogTable, clockTable } from "../tables.ts";
import { inTransaction, sqliteError } from "./file.ts";
import { cellsOf, insertInto, prepare, Query } from "./query.ts";

/** What the threads of a store share. */
export interface SharedClock {
  cells: ClockCells;
  /**
   * For tests: the clock and uptime, in place of the machine's. Uptime follows the clock if there
   * is only one cell.
   */
  readings: BigInt64Array<SharedArrayBuffer> | null;
}

export function sharedClock(readings: SharedClock["readings"]): SharedClock {
  return { cells: clockCells(), readings };
}

export function machineOf({ readings }: SharedClock): MachineClock {
  if (readings === null) return machineClock;
  return {
    clockMs: () => Number(Atomics.load(readings, 0)),
    uptimeMs: () => Number(Atomics.load(readings, readings.length - 1)),
  };
}

/** Returns a function that reads the clock, on any thread. */
export function timesOf(shared: SharedClock): () => Times {
  const clock = new LedgerClock(shared.cells);
  const { clockMs, uptimeMs } = machineOf(shared);
  return () => {
    const asked = clock.ask(uptimeMs());
    return clock.answer(asked, clockMs());
  };
}

/** The times are recorded without a commit if the record is older. */
const recordIdleEveryMs = 60_000;

export class SqliteClock {
  readonly #machine: MachineClock;
  readonly #clock: LedgerClock;
  readonly #record: StatementSync;
  /** Reads the clock, and returns the times of a commit. */
  readonly read: () => Times;
  /** Elapsed time of the last record of this process. */
  #recordedMs: EpochMs = 0;
  /** The error of the last write if it was refused and no look has reported it. */
  #refusal: unknown = null;

  /** Throws an OperatorError if the clock is too far behind, and `acceptedBy` is null. */
  constructor(db: DatabaseSync, shared: SharedClock, acceptedBy: string | null) {
    this.#machine = machineOf(shared);
    this.#clock = new LedgerClock(shared.cells);
    this.#record = prepare(
      db,
      `update clock set elapsed_ms = max(elapsed_ms, ?), ledger_ms = max(ledger_ms, ?)
       returning elapsed_ms, ledger_ms`,
    );
    this.read = timesOf(shared);
    // Another thread of this process may have died.
    if (!this.#clock.hasBegun) this.#begin(db, acceptedBy);
  }

  #begin(db: DatabaseSync, acceptedBy: string | null): void {
    const clockMs = this.#machine.clockMs();
    const row = new Query(db, clockTable, "").get();
    invariant(row !== undefined, "the table clock has its row");
    const accepted = acceptanceOf(row, clockMs, acceptedBy);
    if (accepted !== null) {
      inTransaction(db, () => {
        db.prepare("update clock set accepted_ms = ?").run(row.ledgerMs);
        insertInto(db, changeLogTable)(accepted);
      });
    }
    this.#clock.begin(clockMs, this.#machine.uptimeMs(), row);
    this.read();
  }

  /** Records the times if the last record is old. */
  #recordIfOld(everyMs: number): void {
    const { nowMs, atMs } = this.read();
    if (nowMs - this.#recordedMs < everyMs) return;
    // If it fails, the next look tries again.
    this.#recordedMs = Number.NEGATIVE_INFINITY;
    // Another thread may have read a later clock in between.
    const [elapsedMs, ledgerMs] = cellsOf(this.#record.get(Math.max(nowMs, atMs), atMs)).map(Number);
    invariant(elapsedMs !== undefined && ledgerMs !== undefined, "the table clock has its row");
    this.#clock.learn({ elapsedMs, ledgerMs });
    this.#recordedMs = nowMs;
  }

  /**
   * Writes, and before it the times if their record is old. If that is refused, the next look
   * fails, and the one after it tries to record.
   */
  watch<T>(write: () => T): T {
    let hasBegun = false;
    try {
      this.#recordIfOld(recordEveryMs);
      hasBegun = true;
      const result = write();
      this.#refusal = null;
      return result;
    } catch (error) {
      const failure = sqliteError(error);
      if (failure instanceof StoreUnavailableError) this.#refusal = failure;
      throw hasBegun ? failure : withNothingDone(failure);
    }
  }

  /** Reads the clock, and records the times from time to time. Throws after a refused write. */
  look(): ClockState {
    const refusal = this.#refusal;
    this.#refusal = null;
    if (refusal !== null) {
      this.#recordedMs = Number.NEGATIVE_INFINITY;
      throw refusal;
    }
    this.#recordIfOld(recordIdleEveryMs);
    const asked = this.#clock.ask(this.#machine.uptimeMs());
    return this.#clock.state(asked, this.#machine.clockMs());
  }
}
