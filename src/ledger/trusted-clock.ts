/**
 * The clock of a running process: compares each reading with monotonic time, and returns the times
 * of the ledger, as clock.ts decides. Pure: the caller reads the clocks.
 */
import type { EpochMs } from "../units.ts";
import {
  type ClockPoint,
  type ClockState,
  comparedMsMax,
  differenceMs,
  pointAt,
  type Reading,
  type Start,
  sleepMsMin,
  type Trust,
  timesFrom,
  toleranceAfter,
  toleranceMs,
} from "./clock.ts";
import type { Times } from "./snapshot.ts";

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
  /** Monotonic time of the last reading, believed or not. Slewing since then was not seen. */
  #readMs: number;
  #trust: Trust;
  #point: ClockPoint;
  /** The clock minus trusted time, at the last reading. */
  #aheadMs: number;
  #distrusted = 0;

  constructor({ trust, point }: Start, reading: Reading, sleptMs: () => number) {
    this.#sleptMs = sleptMs;
    // Between both times, so that the next reading may come from either side.
    const atMs = Math.floor((reading.askedMs + reading.answeredMs) / 2);
    this.#offsetMs = point.clockMs - atMs;
    this.#base = { offsetMs: this.#offsetMs, atMs, sleptMs: sleptMs() };
    this.#readMs = atMs;
    this.#trust = trust;
    this.#point = point;
    this.#aheadMs = reading.clockMs - point.clockMs;
  }

  get trust(): Trust {
    return this.#trust;
  }

  get isTrusted(): boolean {
    return this.#trust === "trusted";
  }

  /** A point from which the times follow. */
  get point(): ClockPoint {
    return this.#point;
  }

  /** Trusted time minus monotonic time, until the next reading. */
  get offsetMs(): number {
    return this.#offsetMs;
  }

  /** How far the clock is ahead of trusted time, if what has ended by the clock is refused. */
  get refusedMs(): number {
    return this.#trust === "ahead" ? Math.max(0, this.#aheadMs) : 0;
  }

  /** Trusted time at a monotonic time. */
  clockMs(monotonicMs: number): EpochMs {
    return this.#offsetMs + monotonicMs;
  }

  /** The times of the ledger at a trusted time. */
  times(clockMs: EpochMs): Times {
    return timesFrom(this.#point, this.refusedMs, clockMs);
  }

  pointNow(monotonicMs: number): ClockPoint {
    return pointAt(this.#point, this.clockMs(monotonicMs));
  }

  state(monotonicMs: number): ClockState {
    const { clockMs, atMs } = this.pointNow(monotonicMs);
    return {
      isTrusted: this.isTrusted,
      clockMs: clockMs + this.#aheadMs,
      ledgerMs: atMs,
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
    if (isBelieved) {
      this.#trust = "trusted";
      this.#offsetMs += differenceMs(this.#offsetMs, reading);
      if (answeredMs - this.#base.atMs >= comparedMsMax) this.#compareFrom(answeredMs);
    } else {
      this.#distrusted += 1;
      if (this.isTrusted) this.#trust = "stepped";
    }
    this.#readMs = answeredMs;
    this.#aheadMs = clockMs - this.clockMs(answeredMs);
    return this.clockMs(answeredMs);
  }

  /** Believes the reading, because an operator says so. The times continue from `point`. */
  accept(point: ClockPoint, reading: Reading): void {
    this.#offsetMs = reading.clockMs - reading.answeredMs;
    this.#compareFrom(reading.answeredMs);
    this.#readMs = reading.answeredMs;
    this.#trust = "trusted";
    this.#point = point;
    this.#aheadMs = 0;
  }

  /**
   * Continues from the record of another process that has accepted its clock, not before the
   * monotonic time `sinceMs`. The present reading is believed if it can have followed that time.
   */
  follow(point: ClockPoint, sinceMs: number, reading: Reading): void {
    const { clockMs, answeredMs } = reading;
    if (this.isTrusted) {
      this.#point = point;
      return;
    }
    this.accept(point, { clockMs: point.clockMs, askedMs: sinceMs, answeredMs });
    const latestMs = point.clockMs + answeredMs - sinceMs;
    if (clockMs >= point.clockMs - toleranceMs && clockMs <= latestMs + toleranceMs)
      this.accept(point, reading);
    else this.read(reading);
  }

  #agrees(reading: Reading): boolean {
    return Math.abs(differenceMs(this.#base.offsetMs, reading)) <= this.#tolerance(reading.answeredMs);
  }

  #tolerance(monotonicMs: number): number {
    return toleranceAfter(monotonicMs - this.#readMs);
  }

  #compareFrom(monotonicMs: number): void {
    this.#base = { offsetMs: this.#offsetMs, atMs: monotonicMs, sleptMs: this.#sleptMs() };
  }

  /** Counts sleep since the last comparison as elapsed time. Returns whether there was any. */
  #addSleep(): boolean {
    const sleptMs = this.#sleptMs();
    const addedMs = sleptMs - this.#base.sleptMs;
    if (addedMs < sleepMsMin) return false;
    // A short sleep may have been followed as a reading that agrees.
    this.#offsetMs = Math.max(this.#offsetMs, this.#base.offsetMs + addedMs);
    this.#base = { offsetMs: this.#base.offsetMs + addedMs, atMs: this.#base.atMs - addedMs, sleptMs };
    this.#readMs -= addedMs;
    return true;
  }
}
