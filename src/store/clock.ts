/**
 * The clocks of this machine, the trusted time that the threads of an SQLite store share, and the
 * row in which a ledger records its clock.
 *
 * Monotonic time is that of `process.hrtime`, which all threads share. On Linux it stops while the
 * machine sleeps. `os.uptime` includes sleep there, and on macOS and Windows.
 */
import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { type Boot, clockAtStart, type Reading, type RecordedClock, TrustedClock } from "../ledger/clock.ts";
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
  /** One cell: trusted time minus monotonic time. */
  offset: BigInt64Array<SharedArrayBuffer>;
  /**
   * For tests: the clock, monotonic time and the time slept, in place of the machine's. Monotonic
   * time follows the clock if there is only one cell.
   */
  readings: BigInt64Array<SharedArrayBuffer> | null;
}

export function sharedClock(readings: SharedClock["readings"]): SharedClock {
  return { offset: new BigInt64Array(new SharedArrayBuffer(8)), readings };
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

/** Returns trusted time without a reading of the clock, on any thread. */
export function trustedTimeOf(clock: SharedClock): () => EpochMs {
  const machine = machineOf(clock);
  return () => machine.monotonicMs() + Number(Atomics.load(clock.offset, 0));
}

export function bootOf(machine: MachineClock): Boot | null {
  return machine.bootId === null
    ? null
    : { id: machine.bootId, ms: machine.monotonicMs() + machine.sleptMs() };
}

/** The row of the table `clock`. */
export interface ClockRow {
  trustedMs: EpochMs;
  clockMs: EpochMs;
  isTrusted: boolean;
  bootId: string | null;
  bootMs: number | null;
  /** Number of the last acceptance by an operator. */
  accepts: number;
}

/** Returns the clock that continues from the record. `boot`: of the machine that was read. */
export function clockFrom(
  row: ClockRow,
  reading: Reading,
  machine: Pick<MachineClock, "sleptMs">,
  boot: Boot | null,
): TrustedClock {
  const start = clockAtStart(recordedIn(row), reading.clockMs, boot);
  return new TrustedClock(start, reading, machine.sleptMs);
}

function recordedIn({ trustedMs, clockMs, isTrusted, bootId, bootMs }: ClockRow): RecordedClock {
  const boot = bootId === null || bootMs === null ? null : { id: bootId, ms: bootMs };
  return { trustedMs, clockMs, isTrusted, boot };
}

/** Commits record the clock if the last record is older. So the ledger is ahead of it by less. */
export const recordEveryMs = 5000;
