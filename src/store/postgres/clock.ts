/**
 * The trusted clock of a PostgreSQL database: the clock of the server, compared with the monotonic
 * time of this node.
 *
 * Guarantees that a statement uses the server's clock only if this node believes it at that
 * moment, and otherwise trusted time. Nodes that trust the clock use exactly the same one. Other
 * nodes follow an acceptance by an operator at their next commit or `look`.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { invariant } from "../../errors.ts";
import type { AcceptedClock, ClockState, Reading, TrustedClock } from "../../ledger/clock.ts";
import type { EpochMs } from "../../units.ts";
import { type ClockRow, clockFrom, type MachineClock, machineClock, recordEveryMs } from "../clock.ts";
import { clockAcceptTable, clockTable } from "../tables.ts";
import type { ConnectionPool } from "./connection.ts";
import { onlyCell } from "./rows.ts";

/** The clock of the server. */
export const serverMs = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

/**
 * The clock as read in `reading.ms`, if parameter 1 (`TimeParameter`) believes it, otherwise the
 * trusted time of the node.
 */
export const trustedMs = `case when reading.ms between ($1::bigint[])[2] and ($1::bigint[])[3]
  then reading.ms else ($1::bigint[])[1] end`;

/** The reading for `trustedMs`. A test replaces the clock of the server by element 4. */
export const reading = `select coalesce(($1::bigint[])[4], ${serverMs}) as ms`;

/**
 * An array: trusted time now, the earliest and the latest believed time, and the clock of a test
 * or null.
 */
export type TimeParameter = string;

/** Returns the parameter for a fixed time. */
export function fixedTime(ms: EpochMs): TimeParameter {
  return `{${ms},${ms},${ms},${ms}}`;
}

/** Returns the parameter for the clock of the server, whatever it shows. */
export function serverTime(test: TestClock | null): TimeParameter {
  return `{0,${Number.MIN_SAFE_INTEGER},${Number.MAX_SAFE_INTEGER},${test?.clockMs() ?? "null"}}`;
}

interface Asked {
  parameter: TimeParameter;
  /** Monotonic time. */
  askedMs: number;
}

/** The part of the clock that commits use. */
export interface CommitClock {
  ask(): Asked;
  /** Takes the server's clock from the answer. */
  answered(asked: Asked, clockMs: EpochMs): void;
}

/** Replaces the clock of the server and monotonic time in tests. */
export type TestClock = Pick<MachineClock, "clockMs" | "monotonicMs" | "sleptMs">;

const readClock = `
  with reading as materialized (select coalesce($1::bigint, ${serverMs}) as ms)
  select reading.ms, exists (select from node), ${clockTable.list("c")}, ${clockAcceptTable.list("a")}
  from reading cross join clock c left join clock_accept a on a.number = (select max(number) from clock_accept)`;

/**
 * Never waits for another node, and never moves the record back: a node that lags behind the
 * others leaves it to them. An unknown acceptance keeps its record too.
 */
const recordClock = `
  update clock set trusted_ms = $1, clock_ms = $2, is_trusted = $3
  where id in (select id from clock where accepts = $4 and trusted_ms <= $1 for update skip locked)`;

/** The row of the clock orders operators who accept at the same time. */
const acceptClock = `
  with reading as materialized (select coalesce($1::bigint, ${serverMs}) as ms),
  accepted as (
    update clock set accepts = accepts + 1, trusted_ms = reading.ms, clock_ms = reading.ms, is_trusted = true
    from reading returning accepts, reading.ms
  )
  insert into clock_accept (number, by, trusted_ms, clock_ms) select accepts, $2, $3, ms from accepted
  returning ${clockAcceptTable.list()}`;

/** A service looks every 5 s. */
const oldMs = 3 * recordEveryMs;

interface Look {
  /** True if a node is running, or has died. */
  hasNodes: boolean;
  reading: Reading;
  row: ClockRow;
  lastAccept: AcceptedClock | null;
}

export class PostgresClock implements CommitClock {
  readonly #pool: ConnectionPool;
  readonly #test: TestClock | null;
  readonly #machine: TestClock;
  readonly #clock: TrustedClock;
  #accepts: number;
  /** Monotonic time of the last check for a newer acceptance. */
  #lookedMs: number;
  /** Monotonic time of the last record by this node. */
  #recordedMs = Number.NEGATIVE_INFINITY;

  /** Reads the clock and its record. */
  static async open(pool: ConnectionPool, test: TestClock | null): Promise<PostgresClock> {
    return new PostgresClock(pool, test, await firstLook(pool, test));
  }

  private constructor(pool: ConnectionPool, test: TestClock | null, { reading, row }: Look) {
    this.#pool = pool;
    this.#test = test;
    this.#machine = test ?? machineClock;
    // The server may have started again, or be another machine.
    this.#clock = clockFrom(row, reading, this.#machine, null);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
  }

  nowMs(): EpochMs {
    return this.#clock.nowMs(this.#machine.monotonicMs());
  }

  ask(): Asked {
    const askedMs = this.#machine.monotonicMs();
    const { fromMs, toMs } = this.#clock.believed(askedMs);
    const times = [this.#clock.nowMs(askedMs), fromMs, toMs, this.#test?.clockMs() ?? "null"];
    return { parameter: `{${times.join()}}`, askedMs };
  }

  answered({ askedMs }: Asked, clockMs: EpochMs): void {
    this.#clock.read({ clockMs, askedMs, answeredMs: this.#machine.monotonicMs() });
  }

  /**
   * Follows an acceptance before a commit, and records the clock if this process does not `look`
   * regularly. Uses a connection for commits: those never wait for other reads.
   */
  async prepareCommit(commits: ConnectionPool): Promise<void> {
    if (!this.#clock.isTrusted) await this.look(commits);
    else if (this.#machine.monotonicMs() - this.#recordedMs >= oldMs) await this.#record(commits);
  }

  /** Reads the clock, follows an acceptance of another process, and records the clock. */
  async look(pool = this.#pool): Promise<ClockState> {
    const { reading, lastAccept } = await lookAt(pool, this.#test);
    this.#clock.read(reading);
    if (lastAccept !== null && lastAccept.number > this.#accepts) {
      if (!this.#clock.isTrusted) this.#clock.follow(lastAccept.clockMs, this.#lookedMs, reading);
      this.#accepts = lastAccept.number;
    }
    this.#lookedMs = reading.answeredMs;
    await this.#record(pool);
    return this.#state();
  }

  /** Believes the present reading of the clock. Returns null if it is trusted already. */
  async accept(by: string): Promise<AcceptedClock | null> {
    await this.look();
    if (this.#clock.isTrusted) return null;
    const askedMs = this.#machine.monotonicMs();
    const values = [this.#test?.clockMs() ?? null, by, this.#clock.nowMs(askedMs)];
    const [cells] = (await this.#pool.query({ text: acceptClock, values })).rows;
    invariant(cells !== undefined, "the table clock has its row");
    const accepted = clockAcceptTable.rowOf(cells);
    this.#clock.accept({ clockMs: accepted.clockMs, askedMs, answeredMs: this.#machine.monotonicMs() });
    this.#accepts = accepted.number;
    return accepted;
  }

  async #record(pool: ConnectionPool): Promise<void> {
    const { trustedMs, clockMs, isTrusted } = this.#state();
    const values = [trustedMs, clockMs, isTrusted, this.#accepts];
    await pool.query({ name: "record clock", text: recordClock, values });
    this.#recordedMs = this.#machine.monotonicMs();
  }

  #state(): ClockState {
    return this.#clock.state(this.#machine.monotonicMs());
  }
}

/** A living node records the clock in this time, with a margin for a slow database. */
const recordedWithinMs = recordEveryMs + 1000;
const lookAgainMs = 250;

/**
 * If nodes seem to run, but their last record is old, the clock may have stepped a moment ago.
 * Waits until a living node has recorded what it believes. No node is alive if that does not
 * happen.
 */
async function firstLook(pool: ConnectionPool, test: TestClock | null): Promise<Look> {
  const first = await lookAt(pool, test);
  const beganMs = performance.now();
  for (let look = first; ; ) {
    const { hasNodes, row } = look;
    const isOld = row.isTrusted && look.reading.clockMs - row.trustedMs > oldMs;
    const isNew = row.trustedMs !== first.row.trustedMs;
    if (!hasNodes || !isOld || isNew || performance.now() - beganMs > recordedWithinMs) return look;
    await sleep(lookAgainMs);
    look = await lookAt(pool, test);
  }
}

async function lookAt(pool: ConnectionPool, test: TestClock | null): Promise<Look> {
  const { monotonicMs } = test ?? machineClock;
  const askedMs = monotonicMs();
  const { rows } = await pool.query({
    name: "look at clock",
    text: readClock,
    values: [test?.clockMs() ?? null],
  });
  const [cells] = rows;
  invariant(cells !== undefined, "the table clock has its row");
  const clockMs = onlyCell(rows);
  invariant(typeof clockMs === "number", "the server has a clock");
  const acceptFrom = 2 + clockTable.columns.length;
  return {
    reading: { clockMs, askedMs, answeredMs: monotonicMs() },
    hasNodes: cells[1] === true,
    row: clockTable.rowOf(cells, 2),
    lastAccept: cells[acceptFrom] === null ? null : clockAcceptTable.rowOf(cells, acceptFrom),
  };
}
