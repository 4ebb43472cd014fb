/**
 * The clock of a PostgreSQL database: that of the server. Uptime is that of the node's machine.
 *
 * Guarantees that the times of a statement are those of the server's clock, read in the statement.
 * Only a node that does not follow this clock uses its own.
 */
import { invariant, StoreUnavailableError, withNothingDone } from "../../errors.ts";
import { type Asked, type ClockState, clockCells, LedgerClock } from "../../ledger/clock.ts";
import type { Times } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import { requirePossibleClock } from "../../version.ts";
import { acceptanceOf, type ClockRow, type MachineClock, machineClock, recordEveryMs } from "../clock.ts";
import { readMark } from "../plans.ts";
import { changeLogTable, clockTable } from "../tables.ts";
import { type ConnectionPool, inTransaction } from "./connection-pool.ts";
import { insertInto } from "./writing.ts";

/** The clock of the server. */
export const serverMs = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

/** Element `n` of parameter 1 (`TimeParameter`). */
const element = (n: number) => `($1::bigint[])[${n}]`;

/** The reading for the times below. A test replaces the clock of the server by element 1. */
export const reading = `select coalesce(${element(1)}, ${serverMs}) as ms`;

/** The clock as read in `reading.ms`, or the own clock of a node that does not follow it. */
const followedMs = `case when reading.ms <= ${element(2)} then reading.ms else ${element(3)} end`;

/** Elapsed time and ledger time, as of `LedgerClock.answer`. */
const elapsedMs = `greatest((${followedMs}) + ${element(4)}, ${element(5)})`;
export const ledgerMs = `greatest(${followedMs}, ${element(6)})`;

/** The parts `reading` and `clock` of a statement: its times, and the mark of the plans. */
export const readClockAndMark = `reading as materialized (${reading}),
  clock as materialized (
    select reading.ms as clock_ms, ${elapsedMs} as now_ms, (${readMark}) as mark from reading
  )`;

/**
 * An array: the clock of a test or null, the latest clock that is followed, the own clock of the
 * node, the shift, elapsed time and ledger time.
 */
export type TimeParameter = string;

const always = Number.MAX_SAFE_INTEGER;

/** Returns the parameter for the clock of the server, or for this time. */
export function serverTime(testMs: EpochMs | null): TimeParameter {
  return `{${[testMs ?? "null", always, 0, 0, 0, 0].join()}}`;
}

/** The part of the clock that commits use. */
export interface CommitClock {
  ask(): { parameter: TimeParameter; asked: Asked };
  /** Takes the server's clock from the answer, and returns the times of the statement. */
  answered(asked: Asked, clockMs: EpochMs): Times;
}

/**
 * Records the times, and reads the record of all nodes. Never waits for another node, and then
 * records nothing. The row is as it was before.
 */
const lookAtClock = `
  with reading as materialized (${reading}),
  recorded as (
    update clock set elapsed_ms = greatest(clock.elapsed_ms, ${elapsedMs}),
      ledger_ms = greatest(clock.ledger_ms, ${ledgerMs})
    from reading where clock.id in (select id from clock for update skip locked) returning clock.id
  )
  select reading.ms, ${clockTable.list("c")}, exists (select from recorded) from reading cross join clock c`;

/** Reads without a change, before the start is allowed. */
const readClock = `
  with reading as materialized (${reading})
  select reading.ms, ${clockTable.list("c")} from reading cross join clock c`;

/** A service looks every 5 s. */
export const oldMs = 3 * recordEveryMs;

export class PostgresClock implements CommitClock {
  readonly #pool: ConnectionPool;
  readonly #test: MachineClock | null;
  readonly #machine: Pick<MachineClock, "uptimeMs">;
  readonly #clock = new LedgerClock(clockCells());
  /** Uptime at the last look. */
  #lookedMs = Number.NEGATIVE_INFINITY;
  /** Uptime at the first look since then that did not find the times recorded, by any node. */
  #unrecordedSinceMs: number | null = null;
  #told: Times = { nowMs: 0, atMs: 0 };

  /**
   * Throws an OperatorError if the clock is impossible, or if it is too far behind and nobody
   * accepts that.
   */
  static async open(
    pool: ConnectionPool,
    test: MachineClock | null,
    acceptedBy: string | null,
  ): Promise<PostgresClock> {
    const clock = new PostgresClock(pool, test);
    const { parameter, asked } = clock.ask();
    const { clockMs, row } = found(
      await pool.query({ name: "read clock", text: readClock, values: [parameter] }),
    );
    if (test === null) requirePossibleClock(clockMs);
    const accepted = acceptanceOf(row, clockMs, acceptedBy);
    if (accepted !== null) {
      const writing = insertInto(changeLogTable)([accepted]);
      invariant(writing !== null, "a row is written");
      await inTransaction(pool, async (connection) => {
        const text = "update clock set accepted_ms = $1";
        await connection.query({ text, values: [row.ledgerMs] });
        await connection.query(writing);
      });
    }
    clock.#clock.begin(clockMs, asked.uptimeMs, row);
    await clock.look();
    return clock;
  }

  private constructor(pool: ConnectionPool, test: MachineClock | null) {
    this.#pool = pool;
    this.#test = test;
    this.#machine = test ?? machineClock;
  }

  /** The times by uptime, without a reading. They never go back. */
  times(): Times {
    const { nowMs, atMs } = this.#clock.timesAt(this.#machine.uptimeMs());
    this.#told = { nowMs: Math.max(nowMs, this.#told.nowMs), atMs: Math.max(atMs, this.#told.atMs) };
    return this.#told;
  }

  ask(): { parameter: TimeParameter; asked: Asked } {
    const asked = this.#clock.ask(this.#machine.uptimeMs());
    const { limitMs, ownMs, shiftMs, elapsedMs, ledgerMs } = asked;
    const cells = [this.#test?.clockMs() ?? "null", limitMs, ownMs, shiftMs, elapsedMs, ledgerMs];
    return { parameter: `{${cells.join()}}`, asked };
  }

  answered(asked: Asked, clockMs: EpochMs): Times {
    return this.#clock.answer(asked, clockMs, this.#machine.uptimeMs());
  }

  /**
   * Records the times if this process does not `look` regularly. Uses a connection for commits:
   * those never wait for other reads. After an error nothing of the commit is done.
   */
  async prepareCommit(commits: ConnectionPool): Promise<void> {
    if (this.#machine.uptimeMs() - this.#lookedMs < oldMs) return;
    await this.look(commits).catch((error: unknown) => {
      throw withNothingDone(error);
    });
  }

  /**
   * Reads the clock, records the times, and goes on from what other nodes have recorded. Rejects
   * if nobody has recorded them for `unrecordedMsMax`: who has locked the row may wait for a
   * standby that is gone, and so would every commit.
   */
  async look(pool = this.#pool, unrecordedMsMax = always): Promise<ClockState> {
    const { parameter, asked } = this.ask();
    const { clockMs, row, isRecorded } = found(
      await pool.query({ name: "look at clock", text: lookAtClock, values: [parameter] }),
    );
    const { nowMs } = this.answered(asked, clockMs);
    this.#clock.learn(row);
    this.#lookedMs = asked.uptimeMs;
    if (isRecorded || nowMs - row.elapsedMs < oldMs) this.#unrecordedSinceMs = null;
    else this.#unrecordedSinceMs ??= asked.uptimeMs;
    if (asked.uptimeMs - (this.#unrecordedSinceMs ?? asked.uptimeMs) >= unrecordedMsMax)
      throw new StoreUnavailableError(
        "another session has kept the row of the clock locked; it may wait for a synchronous standby",
      );
    return this.#clock.state(asked, clockMs);
  }
}

function found({ rows }: { rows: unknown[][] }): { clockMs: EpochMs; row: ClockRow; isRecorded: boolean } {
  const [cells] = rows;
  invariant(cells !== undefined, "the table clock has its row");
  const [clockMs] = cells;
  invariant(typeof clockMs === "number", "the server has a clock");
  return { clockMs, row: clockTable.rowOf(cells, 1), isRecorded: cells.at(-1) === true };
}
