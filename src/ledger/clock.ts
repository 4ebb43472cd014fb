/**
 * Decides which clock is believed, and which times the ledger uses.
 *
 * Pure: readings in, times out. A running process compares each reading of the clock with
 * monotonic time. A clock that steps by more than `toleranceMs`, forward or back, for one reading
 * or for months, never changes trusted time, which then continues as monotonic time. A slewed
 * clock is followed: readings are compared over an hour at most, so drift does not add up. Sleep
 * of the machine counts as monotonic time.
 *
 * Trusted time can be set back, at a start or by an operator. The times of the ledger never are:
 * elapsed time goes on at its pace, and ledger time at half of it until the clock has caught up.
 *
 * All times are whole milliseconds.
 */
import type { EpochMs } from "../units.ts";
import type { Columns, RowOf } from "./columns.ts";
import type { Times } from "./snapshot.ts";

/** A clock may differ from monotonic time by this much. */
export const toleranceMs = 5000;

/**
 * NTP slews a clock by at most 500 ppm. If no reading was made for hours, that adds up to more
 * than `toleranceMs`.
 */
const slewPartsMax = 500 / 1_000_000;

/** Within this time, the believed changes add up to at most `toleranceMs`. */
export const comparedMsMax = 3_600_000;

/** Shorter sleep is within the tolerance, and some systems count sleep in whole seconds. */
export const sleepMsMin = 2000;

export interface Reading {
  clockMs: EpochMs;
  /** Monotonic time before the clock was read. A clock on the network is read a while later. */
  askedMs: number;
  /** Monotonic time after the clock was read. */
  answeredMs: number;
}

/** Times of one moment. Those after it follow from the clock, until it is set. */
export interface ClockPoint {
  /** Trusted time. */
  clockMs: EpochMs;
  /** Elapsed time. */
  nowMs: EpochMs;
  /** Ledger time. */
  atMs: EpochMs;
}

/**
 * - `trusted`: the clock agrees with monotonic time.
 * - `stepped`: it does not.
 * - `ahead`: it was more than `aheadMsMax` ahead of ledger time when the process started.
 */
export const trusts = ["trusted", "stepped", "ahead"] as const;
export type Trust = (typeof trusts)[number];

export interface Start {
  trust: Trust;
  point: ClockPoint;
}

/** What the ledger has recorded last, by this or another process. Null: a new ledger. */
export type RecordedClock = Start | null;

export interface ClockState {
  isTrusted: boolean;
  clockMs: EpochMs;
  ledgerMs: EpochMs;
  /** Readings of this process that were not believed. */
  distrusted: number;
}

/** The acceptance of a clock by an operator. */
export const acceptedColumns = {
  /** 1, 2, 3 ... */
  number: "integer",
  /** The operator. */
  by: "text",
  /** Ledger time before. */
  ledgerMs: "ms",
  /** The accepted time. */
  clockMs: "ms",
} as const satisfies Columns;
export interface AcceptedClock extends RowOf<typeof acceptedColumns> {}

/** A process that starts does not believe a clock that is further ahead of ledger time. */
const aheadMsMax = 40 * 24 * 3_600_000;

/** An operator who accepts a clock has to know the time to within a minute. */
export const acceptedMsMax = 60_000;

/** Returns the point at another reading of a clock that goes on. Only trusted time may go back. */
export function pointAt(point: ClockPoint, clockMs: EpochMs): ClockPoint {
  const passedMs = Math.max(0, clockMs - point.clockMs);
  return {
    clockMs,
    nowMs: point.nowMs + passedMs,
    atMs: Math.max(clockMs, point.atMs + Math.floor(passedMs / 2)),
  };
}

/** Returns the point after the clock was set, forward or back. Ledger time never goes back. */
export function pointAfterSet(point: ClockPoint, clockMs: EpochMs): ClockPoint {
  const passedMs = Math.max(0, clockMs - point.clockMs);
  return { clockMs, nowMs: point.nowMs + passedMs, atMs: Math.max(clockMs, point.atMs) };
}

/**
 * Returns where a process begins. `elapsedMs`: time since the record, if the process can know that
 * without the clock.
 */
export function clockAtStart(recorded: RecordedClock, clockMs: EpochMs, elapsedMs: number | null): Start {
  if (recorded === null) return { trust: "trusted", point: { clockMs, nowMs: clockMs, atMs: clockMs } };
  const { trust, point } = recorded;
  if (elapsedMs !== null) {
    const expectedMs = point.clockMs + elapsedMs;
    if (Math.abs(clockMs - expectedMs) <= toleranceAfter(elapsedMs)) {
      return { trust: "trusted", point: pointAt(point, clockMs) };
    }
    return { trust: trust === "trusted" ? "stepped" : trust, point: pointAt(point, expectedMs) };
  }
  if (clockMs > point.atMs + aheadMsMax) return { trust: "ahead", point };
  return { trust: "trusted", point: pointAfterSet(point, clockMs) };
}

export function toleranceAfter(elapsedMs: number): number {
  return Math.max(toleranceMs, elapsedMs * slewPartsMax);
}

/** The times of the ledger at a trusted time. `refusedMs`: see `TrustedClock`. */
export function timesFrom(point: ClockPoint, refusedMs: number, clockMs: EpochMs): Times {
  const { nowMs, atMs } = pointAt(point, clockMs);
  return { nowMs, atMs, latestMs: refusedMs === 0 ? atMs : Math.max(atMs, clockMs + refusedMs) };
}

/**
 * Returns how far the clock is from monotonic time plus `offsetMs`: 0 if it may have been read at
 * a moment when they were equal.
 */
export function differenceMs(offsetMs: number, { clockMs, askedMs, answeredMs }: Reading): number {
  const earliestMs = offsetMs + askedMs;
  const latestMs = offsetMs + answeredMs;
  if (clockMs < earliestMs) return clockMs - earliestMs;
  return Math.max(0, clockMs - latestMs);
}
