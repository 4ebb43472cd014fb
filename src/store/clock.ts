/**
 * The clocks of this machine, the times that the threads of an SQLite store share, and the
 * row in which a ledger records its clock.
 *
 * Monotonic time is that of `process.hrtime`, which all threads share. On Linux it stops while the
 * machine sleeps. `os.uptime` includes sleep there, and on macOS and Windows.
 */
import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { type ClockPoint, type RecordedClock, timesFrom, trusts } from "../ledger/clock.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { Times } from "../ledger/snapshot.ts";
import type { TrustedClock } from "../ledger/trusted-clock.ts";
import type { EpochMs } from "../units.ts";

/** A clock and the monotonic time to compare it with, in whole milliseconds. */
export interface MachineClock {
  clockMs(): EpochMs;
  monotonicMs(): number;
  /** Time that the machine has slept since any fixed moment. */
  sleptMs(): number;
  /** Unique for each start of the machine; null if the system has no such id. */
  readonly bootId: string | null;
}

export const machineClock: MachineClock = {
  clockMs: Date.now,
  monotonicMs,
  sleptMs: () => Math.floor(uptime() * 1000) - monotonicMs(),
  bootId: bootIdOfLinux(),
};

function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}

/** Containers of a machine share this id and its uptime. */
function bootIdOfLinux(): string | null {
  if (process.platform !== "linux") return null;
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Some sandboxes hide it. Processes then cannot compare their clocks.
    return null;
  }
}

/** Shared by the threads of a store. */
export interface SharedClock {
  /**
   * The number of times that the rest was written, and two places for it, which are written in
   * turn: the cells of `shareClock`.
   */
  state: BigInt64Array<SharedArrayBuffer>;
  /**
   * For tests: the clock, monotonic time and the time slept, in place of the machine's. Monotonic
   * time follows the clock if there is only one cell.
   */
  readings: BigInt64Array<SharedArrayBuffer> | null;
}

const stateCells = 5;

export function sharedClock(readings: SharedClock["readings"]): SharedClock {
  return { state: new BigInt64Array(new SharedArrayBuffer(8 * (1 + 2 * stateCells))), readings };
}

/** Returns where the state is after it was written `writes` times. */
function placeOf(writes: bigint): number {
  return 1 + Number(writes % 2n) * stateCells;
}

/** Tells the other threads. Only one thread writes. */
export function shareClock({ state }: SharedClock, { offsetMs, refusedMs, point }: TrustedClock): void {
  const writes = Atomics.load(state, 0) + 1n;
  const cells = [offsetMs, refusedMs, point.clockMs, point.nowMs, point.atMs];
  const place = placeOf(writes);
  for (const [n, cell] of cells.entries()) Atomics.store(state, place + n, BigInt(cell));
  Atomics.store(state, 0, writes);
}

export function machineOf({ readings }: SharedClock): MachineClock {
  if (readings === null) return machineClock;
  const cell = (n: number) => Number(Atomics.load(readings, n));
  const followsClock = readings.length === 1;
  return {
    clockMs: () => cell(0),
    monotonicMs: () => cell(followsClock ? 0 : 1),
    sleptMs: () => (followsClock ? 0 : cell(2)),
    bootId: followsClock ? null : "test",
  };
}

/** Returns the times of the ledger without a reading of the clock, on any thread. */
export function timesOf(clock: SharedClock): () => Times {
  const machine = machineOf(clock);
  const { state } = clock;
  return () => {
    for (;;) {
      const writes = Atomics.load(state, 0);
      const place = placeOf(writes);
      const cell = (n: number) => Number(Atomics.load(state, place + n));
      const [offsetMs, refusedMs] = [cell(0), cell(1)];
      const point = { clockMs: cell(2), nowMs: cell(3), atMs: cell(4) };
      if (Atomics.load(state, 0) === writes) {
        return timesFrom(point, refusedMs, machine.monotonicMs() + offsetMs);
      }
    }
  };
}

/** The row of the table `clock`. */
export const clockColumns = {
  trust: trusts,
  /** Trusted time. 0 in a new ledger. */
  clockMs: "ms",
  elapsedMs: "ms",
  ledgerMs: "ms",
  /** The start of the machine that has recorded it, and the time since then, sleep included. */
  bootId: "text?",
  bootMs: "integer?",
  /** Number of the last acceptance by an operator. */
  accepts: "integer",
} as const satisfies Columns;
export interface ClockRow extends RowOf<typeof clockColumns> {}

export function pointOf({ clockMs, elapsedMs, ledgerMs }: ClockRow): ClockPoint {
  return { clockMs, nowMs: elapsedMs, atMs: ledgerMs };
}

export function recordedIn(row: ClockRow): RecordedClock {
  return row.clockMs === 0 ? null : { trust: row.trust, point: pointOf(row) };
}

/** Commits record the clock if the last record is older. So the ledger is ahead of it by less. */
export const recordEveryMs = 5000;
