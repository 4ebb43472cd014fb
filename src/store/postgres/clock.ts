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
import { acceptedMsMax, type ClockState, clockAtStart, type Reading } from "../../ledger/clock.ts";
import type { Times } from "../../ledger/snapshot.ts";
import { TrustedClock } from "../../ledger/trusted-clock.ts";
import type { EpochMs } from "../../units.ts";
import { requirePossibleClock } from "../../version.ts";
import {
  type ClockRow,
  type MachineClock,
  machineClock,
  pointOf,
  recordEveryMs,
  recordedIn,
} from "../clock.ts";
import type { ClockAcceptance } from "../store.ts";
import { clockTable } from "../tables.ts";
import type { ConnectionPool } from "./connection-pool.ts";
import { onlyCell } from "./rows.ts";

/** The clock of the server. */
export const serverMs = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

/** Element `n` of parameter 1 (`TimeParameter`). */
const element = (n: number) => `($1::bigint[])[${n}]`;

/**
 * Trusted time: the clock as read in `reading.ms`, if parameter 1 believes it, otherwise the
 * trusted time of the node.
 */
export const trustedMs = `case when reading.ms between ${element(2)} and ${element(3)} then reading.ms else ${element(1)} end`;

/** Elapsed time, as of `pointAt` (src/ledger/clock.ts). */
export const elapsedMs = `(${trustedMs}) + ${element(6)}`;

/** Ledger time, as of `pointAt`. */
export const ledgerMs = `greatest(${trustedMs}, ${element(7)} + ((${trustedMs}) - ${element(5)}) / 2)`;

/** The reading for `trustedMs`. A test replaces the clock of the server by element 4. */
export const reading = `select coalesce(${element(4)}, ${serverMs}) as ms`;

/**
 * An array: trusted time now, the earliest and the latest believed time, the clock of a test or
 * null, and the point from which the times of the ledger follow: trusted time, elapsed minus
 * trusted time, and ledger time.
 */
export type TimeParameter = string;

/** Returns the parameter for a fixed time. */
export function fixedTime(ms: EpochMs): TimeParameter {
  return `{${[ms, ms, ms, ms, ms, 0, ms].join()}}`;
}

/** Returns the parameter for the clock of the server, whatever it shows. */
export function serverTime(test: TestClock | null): TimeParameter {
  const all = [0, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
  return `{${[...all, test?.clockMs() ?? "null", 0, 0, 0].join()}}`;
}

interface Asked {
  parameter: TimeParameter;
  /** Monotonic time. */
  askedMs: number;
}

/** The part of the clock that commits use. */
export interface CommitClock {
  ask(): Asked;
  /** Takes the server's clock from the answer, and returns the times at this trusted time. */
  answered(asked: Asked, answer: { clockMs: EpochMs; trustedMs: EpochMs }): Times;
}

/** Replaces the clock of the server and monotonic time in tests. */
export type TestClock = Pick<MachineClock, "clockMs" | "monotonicMs" | "sleptMs">;

const readClock = `
  with reading as materialized (select coalesce($1::bigint, ${serverMs}) as ms)
  select reading.ms, exists (select from node), ${clockTable.list("c")} from reading cross join clock c`;

/**
 * Never waits for another node, and never moves the record back: a node that lags behind the
 * others leaves it to them. An unknown acceptance keeps its record too.
 */
const recordClock = `
  update clock set trust = $1, clock_ms = $2, elapsed_ms = $3, ledger_ms = $4
  where id in (select id from clock where accepts = $5 and elapsed_ms <= $3 for update skip locked)`;

/**
 * Parameters: the clock of a test or null, the operator, the time that the operator knows, and the
 * three times of this node (\`pointAfterSet\`). The row of the clock orders operators who accept
 * at the same time.
 */
const acceptClock = `
  with reading as materialized (select coalesce($1::bigint, ${serverMs}) as ms),
  passed as materialized (select ms, greatest(0, ms - $4::bigint) as passed_ms from reading),
  accepted as (
    update clock set accepts = accepts + 1, trust = 'trusted', clock_ms = ms,
      elapsed_ms = $5::bigint + passed_ms, ledger_ms = greatest(ms, $6::bigint)
    from passed where abs(ms - $3::bigint) <= ${acceptedMsMax}
    returning accepts, ms, elapsed_ms, ledger_ms
  ),
  written as (
    insert into clock_accept (number, by, ledger_ms, clock_ms) select accepts, $2, $6, ms from accepted
  )
  select reading.ms, a.accepts, a.elapsed_ms, a.ledger_ms from reading left join accepted a on true`;

/** A service looks every 5 s. */
const oldMs = 3 * recordEveryMs;

interface Look {
  /** True if a node is running, or has died. */
  hasNodes: boolean;
  reading: Reading;
  row: ClockRow;
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

  /** Reads the clock and its record. Throws an OperatorError if the clock is impossible. */
  static async open(pool: ConnectionPool, test: TestClock | null): Promise<PostgresClock> {
    const look = await firstLook(pool, test);
    if (test === null) requirePossibleClock(look.reading.clockMs);
    return new PostgresClock(pool, test, look);
  }

  private constructor(
    pool: ConnectionPool,
    test: TestClock | null,
    { reading, row, isRunning }: Look & { isRunning: boolean },
  ) {
    this.#pool = pool;
    this.#test = test;
    this.#machine = test ?? machineClock;
    // The server may have started again, or be another machine. Only another node can tell.
    const start = clockAtStart(recordedIn(row), reading.clockMs, isRunning ? 0 : null);
    this.#clock = new TrustedClock(start, reading, this.#machine.sleptMs);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
  }

  /** The times now, or at this trusted time. */
  times(clockMs = this.#clock.clockMs(this.#machine.monotonicMs())): Times {
    return this.#clock.times(clockMs);
  }

  ask(): Asked {
    const askedMs = this.#machine.monotonicMs();
    const { fromMs, toMs } = this.#clock.believed(askedMs);
    const { clockMs, nowMs, atMs } = this.#clock.point;
    const believed = [this.#clock.clockMs(askedMs), fromMs, toMs];
    const cells = [...believed, this.#test?.clockMs() ?? "null", clockMs, nowMs - clockMs, atMs];
    return { parameter: `{${cells.join()}}`, askedMs };
  }

  answered({ askedMs }: Asked, { clockMs, trustedMs }: { clockMs: EpochMs; trustedMs: EpochMs }): Times {
    this.#clock.read({ clockMs, askedMs, answeredMs: this.#machine.monotonicMs() });
    return this.#clock.times(trustedMs);
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
    const { reading, row } = await lookAt(pool, this.#test);
    this.#clock.read(reading);
    if (row.accepts > this.#accepts) this.#clock.follow(pointOf(row), this.#lookedMs, reading);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
    await this.#record(pool);
    return this.#clock.state(this.#machine.monotonicMs());
  }

  /** Believes the present reading of the clock, if the operator knows the same time. */
  async accept(by: string, timeMs: EpochMs): Promise<ClockAcceptance> {
    await this.look();
    if (this.#clock.isTrusted) return { kind: "trusted" };
    const askedMs = this.#machine.monotonicMs();
    const before = this.#clock.pointNow(askedMs);
    const values = [this.#test?.clockMs() ?? null, by, timeMs, before.clockMs, before.nowMs, before.atMs];
    const [cells] = (await this.#pool.query({ text: acceptClock, values })).rows;
    invariant(cells !== undefined, "the table clock has its row");
    const [clockMs, number, nowMs, atMs] = cells.map((cell) => (cell === null ? null : Number(cell)));
    invariant(typeof clockMs === "number", "the server has a clock");
    if (typeof number !== "number") return { kind: "differs", clockMs };
    const point = { clockMs, nowMs: Number(nowMs), atMs: Number(atMs) };
    this.#clock.accept(point, { clockMs, askedMs, answeredMs: this.#machine.monotonicMs() });
    this.#accepts = number;
    return { kind: "accepted", accepted: { number, by, ledgerMs: before.atMs, clockMs } };
  }

  async #record(pool: ConnectionPool): Promise<void> {
    const recordedMs = this.#machine.monotonicMs();
    const { clockMs, nowMs, atMs } = this.#clock.pointNow(recordedMs);
    const values = [this.#clock.trust, clockMs, nowMs, atMs, this.#accepts];
    await pool.query({ name: "record clock", text: recordClock, values });
    this.#recordedMs = recordedMs;
  }
}

/** A living node records the clock in this time, with a margin for a slow database. */
const recordedWithinMs = recordEveryMs + 1000;
const lookAgainMs = 250;

/**
 * If nodes seem to run, but the clock does not follow from their record, it may have stepped a
 * moment ago. Waits until a living node has recorded what it believes. No node is alive if that
 * does not happen.
 */
async function firstLook(
  pool: ConnectionPool,
  test: TestClock | null,
): Promise<Look & { isRunning: boolean }> {
  const first = await lookAt(pool, test);
  const beganMs = performance.now();
  for (let look = first; ; ) {
    const { hasNodes, row, reading } = look;
    const isNew = row.elapsedMs !== first.row.elapsedMs;
    if (isNew) return { ...look, isRunning: true };
    const passedMs = reading.clockMs - row.clockMs;
    const follows = row.trust === "trusted" && passedMs >= -recordEveryMs && passedMs <= oldMs;
    const isOver = performance.now() - beganMs > recordedWithinMs;
    if (!hasNodes || follows || isOver) return { ...look, isRunning: false };
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
  return {
    reading: { clockMs, askedMs, answeredMs: monotonicMs() },
    hasNodes: cells[1] === true,
    row: clockTable.rowOf(cells, 2),
  };
}
