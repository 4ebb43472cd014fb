/**
 * Decides which time the ledger uses: compares each reading of a clock with monotonic time.
 *
 * Pure: readings in, trusted time out. Guarantees that a clock that steps by more than
 * `toleranceMs`, forward or back, for one reading or for months, never changes the trusted time.
 * Trusted time then continues as monotonic time. A slewed clock is followed: readings are compared
 * over an hour at most, so drift does not add up. Sleep of the machine counts as monotonic time.
 *
 * All times are whole milliseconds.
 */
import type { EpochMs } from "../units.ts";

/** A clock may differ from monotonic time by this much. */
const toleranceMs = 5000;

/**
 * NTP slews a clock by at most 500 ppm. If no reading was made for hours, that adds up to more
 * than `toleranceMs`.
 */
const slewPartsMax = 500 / 1_000_000;

/** Within this time, the believed changes add up to at most `toleranceMs`. */
const comparedMsMax = 3_600_000;

/** Shorter sleep is within the tolerance, and some systems count sleep in whole seconds. */
const sleepMsMin = 2000;

export interface Reading {
  clockMs: EpochMs;
  /** Monotonic time before the clock was read. A clock on the network is read a while later. */
  askedMs: number;
  /** Monotonic time after the clock was read. */
  answeredMs: number;
}

/** The state of the clock that the ledger has recorded last, by this or another process. */
export interface RecordedClock {
  /** Trusted time when it was recorded. No earlier time was used after it. */
  trustedMs: EpochMs;
  /** The clock at that moment. */
  clockMs: EpochMs;
  isTrusted: boolean;
  /** Time since this machine started, if it was recorded by this machine since then. */
  boot: Boot | null;
}

/** Time since the machine started, sleep included. */
export interface Boot {
  /** Unique for each start of a machine. */
  id: string;
  ms: number;
}

interface Start {
  isTrusted: boolean;
  trustedMs: EpochMs;
}

export interface ClockState extends Start {
  clockMs: EpochMs;
  /** Readings of this process that were not believed. */
  distrusted: number;
}

/** The acceptance of a clock by an operator. */
export interface AcceptedClock {
  /** 1, 2, 3 ... */
  number: number;
  /** The operator. */
  by: string;
  /** Trusted time before. */
  trustedMs: EpochMs;
  /** The accepted time. */
  clockMs: EpochMs;
}

/**
 * Returns the time at which a process begins. `boot` is the present time of this machine since its
 * start, or null if the clock belongs to another machine.
 */
export function clockAtStart(recorded: RecordedClock, clockMs: EpochMs, boot: Boot | null): Start {
  const { trustedMs } = recorded;
  const elapsedMs = elapsedSince(recorded.boot, boot);
  if (elapsedMs !== null) {
    const expectedMs = trustedMs + elapsedMs;
    const isTrusted = Math.abs(clockMs - expectedMs) <= toleranceAfter(elapsedMs);
    return { isTrusted, trustedMs: isTrusted ? clockMs : expectedMs };
  }
  if (clockMs < trustedMs - toleranceMs) return { isTrusted: false, trustedMs };
  // The clock was known to be ahead, and nobody has set it back since.
  const aheadMs = recorded.clockMs - trustedMs;
  if (!recorded.isTrusted && aheadMs > 0 && clockMs >= recorded.clockMs) {
    return { isTrusted: false, trustedMs: clockMs - aheadMs };
  }
  // The machine may have been off for any time.
  return { isTrusted: true, trustedMs: clockMs };
}

/** Returns null if the machine was started in between. */
function elapsedSince(recorded: Boot | null, boot: Boot | null): number | null {
  if (recorded === null || boot === null || recorded.id !== boot.id || boot.ms < recorded.ms) return null;
  return boot.ms - recorded.ms;
}

function toleranceAfter(elapsedMs: number): number {
  return Math.max(toleranceMs, elapsedMs * slewPartsMax);
}

export class TrustedClock {
  /**
   * Time that the machine has slept, from any moment on: monotonic time may stop in sleep. Read
   * only if the clock seems wrong, and once an hour.
   */
  readonly #sleptMs: () => number;
  /** Trusted time minus monotonic time. */
  #offsetMs: number;
  /** The earlier reading with which each reading is compared. */
  #base: { offsetMs: number; atMs: number; sleptMs: number };
  #isTrusted: boolean;
  /** The clock minus trusted time, at the last reading. */
  #aheadMs: number;
  #distrusted = 0;

  constructor({ isTrusted, trustedMs }: Start, reading: Reading, sleptMs: () => number) {
    this.#sleptMs = sleptMs;
    // Between both times, so that the next reading may come from either side.
    const atMs = Math.floor((reading.askedMs + reading.answeredMs) / 2);
    this.#offsetMs = trustedMs - atMs;
    this.#base = { offsetMs: this.#offsetMs, atMs, sleptMs: sleptMs() };
    this.#isTrusted = isTrusted;
    this.#aheadMs = reading.clockMs - trustedMs;
  }

  get isTrusted(): boolean {
    return this.#isTrusted;
  }

  /** Trusted time minus monotonic time, until the next reading. */
  get offsetMs(): number {
    return this.#offsetMs;
  }

  /** Trusted time at a monotonic time. */
  nowMs(monotonicMs: number): EpochMs {
    return this.#offsetMs + monotonicMs;
  }

  state(monotonicMs: number): ClockState {
    const trustedMs = this.nowMs(monotonicMs);
    return {
      isTrusted: this.#isTrusted,
      trustedMs,
      clockMs: trustedMs + this.#aheadMs,
      distrusted: this.#distrusted,
    };
  }

  /** The times between which the clock is believed, if it is read at this monotonic time. */
  believed(monotonicMs: number): { fromMs: EpochMs; toMs: EpochMs } {
    const expectedMs = this.#base.offsetMs + monotonicMs;
    const tolerance = Math.floor(this.#tolerance(monotonicMs));
    return { fromMs: expectedMs - tolerance, toMs: expectedMs + tolerance };
  }

  /** Returns the trusted time of a reading: the clock, if it agrees with monotonic time. */
  read(reading: Reading): EpochMs {
    const { clockMs, answeredMs } = reading;
    const isBelieved = this.#agrees(reading) || (this.#addSleep() && this.#agrees(reading));
    this.#isTrusted = isBelieved;
    if (isBelieved) {
      this.#offsetMs += differenceMs(this.#offsetMs, reading);
      if (answeredMs - this.#base.atMs >= comparedMsMax) this.#compareFrom(answeredMs);
    } else this.#distrusted += 1;
    this.#aheadMs = clockMs - this.nowMs(answeredMs);
    return this.nowMs(answeredMs);
  }

  /** Believes the reading, because an operator says so. */
  accept(reading: Reading): void {
    this.#offsetMs = reading.clockMs - reading.answeredMs;
    this.#compareFrom(reading.answeredMs);
    this.#isTrusted = true;
    this.#aheadMs = 0;
  }

  /**
   * Continues from a time that another process has accepted, not before the monotonic time
   * `sinceMs`. The present reading is believed if it can have followed that time.
   */
  follow(acceptedMs: EpochMs, sinceMs: number, reading: Reading): void {
    const { clockMs, answeredMs } = reading;
    this.accept({ clockMs: acceptedMs, askedMs: sinceMs, answeredMs });
    const latestMs = acceptedMs + answeredMs - sinceMs;
    if (clockMs >= acceptedMs - toleranceMs && clockMs <= latestMs + toleranceMs) this.accept(reading);
    else this.read(reading);
  }

  #agrees(reading: Reading): boolean {
    return Math.abs(differenceMs(this.#base.offsetMs, reading)) <= this.#tolerance(reading.answeredMs);
  }

  #tolerance(monotonicMs: number): number {
    return toleranceAfter(monotonicMs - this.#base.atMs);
  }

  #compareFrom(monotonicMs: number): void {
    this.#base = { offsetMs: this.#offsetMs, atMs: monotonicMs, sleptMs: this.#sleptMs() };
  }

  /** Counts sleep since the last comparison as elapsed time. Returns whether there was any. */
  #addSleep(): boolean {
    const sleptMs = this.#sleptMs();
    const addedMs = sleptMs - this.#base.sleptMs;
    if (addedMs < sleepMsMin) return false;
    this.#offsetMs += addedMs;
    this.#base = { offsetMs: this.#base.offsetMs + addedMs, atMs: this.#base.atMs - addedMs, sleptMs };
    return true;
  }
}

/**
 * Returns how far the clock is from monotonic time plus `offsetMs`: 0 if it may have been read at
 * a moment when they were equal.
 */
function differenceMs(offsetMs: number, { clockMs, askedMs, answeredMs }: Reading): number {
  const earliestMs = offsetMs + askedMs;
  const latestMs = offsetMs + answeredMs;
  if (clockMs < earliestMs) return clockMs - earliestMs;
  return Math.max(0, clockMs - latestMs);
}
