/**
 * The two times of the ledger, and what they follow. Pure: readings in, times out.
 *
 * Elapsed time is the clock plus a shift. A clock that is behind elapsed time raises the shift, so
 * elapsed time goes on at the pace of the clock and never goes back. Ledger time is the greater of
 * the clock and ledger time before: after a clock was set back, it stands. Both are recorded, and
 * a process goes on from the record.
 *
 * A process follows a clock at most a day further than the uptime of its machine has gone on since
 * the process began. Beyond that its own clock goes on by uptime, until the clock is back or the
 * process starts again. A start believes any clock that is ahead.
 *
 * All times are whole milliseconds.
 */
import type { EpochMs } from "../units.ts";
import type { Times } from "./snapshot.ts";

/** So far a process follows a clock beyond uptime, and ledger time may be ahead at a start. */
export const wrongMsMax = 24 * 3_600_000;

/** What the ledger has recorded last, by this or another process. 0: nothing. */
export interface RecordedTimes {
  elapsedMs: EpochMs;
  ledgerMs: EpochMs;
}

/**
 * - `ahead`: the clock is more than a day beyond uptime, and the process goes on by uptime.
 * - `behind`: ledger time stands until the clock has caught up.
 */
export const clockPlaces = ["ok", "ahead", "behind"] as const;
export type ClockPlace = (typeof clockPlaces)[number];

/** A clock that is behind by less is not reported. */
const behindMsMin = 60_000;

export interface ClockState {
  clockMs: EpochMs;
  ledgerMs: EpochMs;
  place: ClockPlace;
  /** The recorded ledger time at the start of the process. 0: a new ledger. */
  recordedMs: EpochMs;
}

/** What was known before a clock is read. */
export interface Asked extends RecordedTimes {
  uptimeMs: number;
  /** A later clock is not followed. */
  limitMs: EpochMs;
  /** The clock of the process by uptime: followed in place of a later clock. */
  ownMs: EpochMs;
  shiftMs: number;
}

/** Cells that the threads of a process share. */
export type ClockCells = BigInt64Array<SharedArrayBuffer>;

const cellNumbers = {
  /** The clock minus uptime when the process began. */
  base: 0,
  /** The process's own clock minus uptime. */
  own: 1,
  shift: 2,
  elapsed: 3,
  ledger: 4,
  recorded: 5,
} as const;

export function clockCells(): ClockCells {
  return new BigInt64Array(new SharedArrayBuffer(8 * Object.keys(cellNumbers).length));
}

/** Several threads may use the same cells: no cell has to fit another one. */
export class LedgerClock {
  readonly #cells: ClockCells;

  constructor(cells: ClockCells) {
    this.#cells = cells;
  }

  /** The process begins: its clock is believed. */
  begin(clockMs: EpochMs, uptimeMs: number, recorded: RecordedTimes): void {
    this.#set("base", clockMs - uptimeMs);
    this.#set("own", clockMs - uptimeMs);
    this.#set("recorded", recorded.ledgerMs);
    this.learn(recorded);
  }

  /** True after the first reading. */
  get hasBegun(): boolean {
    return this.#get("elapsed") !== 0;
  }

  /** Times go on from what another process has recorded, if that is later. */
  learn({ elapsedMs, ledgerMs }: RecordedTimes): void {
    this.#raise("elapsed", elapsedMs);
    this.#raise("ledger", ledgerMs);
  }

  /** Call it before the clock is read: then only a clock that was set is behind elapsed time. */
  ask(uptimeMs: number): Asked {
    return {
      elapsedMs: this.#get("elapsed"),
      ledgerMs: this.#get("ledger"),
      shiftMs: this.#get("shift"),
      limitMs: this.#get("base") + uptimeMs + wrongMsMax,
      ownMs: this.#get("own") + uptimeMs,
      uptimeMs,
    };
  }

  /**
   * Returns the times at a reading of the clock. `answeredMs`: uptime after the clock was read, if
   * that took a while.
   */
  answer(asked: Asked, clockMs: EpochMs, answeredMs = asked.uptimeMs): Times {
    if (clockMs <= asked.limitMs) {
      this.#follow(clockMs, asked.uptimeMs, answeredMs);
      this.#raise("shift", asked.elapsedMs - clockMs);
    }
    const followedMs = followed(asked, clockMs);
    const nowMs = Math.max(followedMs + asked.shiftMs, asked.elapsedMs);
    this.#raise("elapsed", nowMs);
    return { nowMs, atMs: this.#raise("ledger", followedMs) };
  }

  /** Returns the times by uptime, without a reading of the clock. */
  timesAt(uptimeMs: number): Times {
    const { ownMs, shiftMs, elapsedMs, ledgerMs } = this.ask(uptimeMs);
    return { nowMs: Math.max(ownMs + shiftMs, elapsedMs), atMs: Math.max(ownMs, ledgerMs) };
  }

  state(asked: Asked, clockMs: EpochMs): ClockState {
    const ledgerMs = this.#get("ledger");
    const isBehind = ledgerMs - clockMs >= behindMsMin;
    const place = clockMs > asked.limitMs ? "ahead" : isBehind ? "behind" : "ok";
    return { clockMs, ledgerMs, place, recordedMs: this.#get("recorded") };
  }

  /** Changes nothing if the clock may have been read when it and the own clock were equal. */
  #follow(clockMs: EpochMs, askedMs: number, answeredMs: number): void {
    const own = this.#get("own");
    if (clockMs < own + askedMs) this.#set("own", clockMs - askedMs);
    else if (clockMs > own + answeredMs) this.#set("own", clockMs - answeredMs);
  }

  #get(cell: keyof typeof cellNumbers): number {
    return Number(Atomics.load(this.#cells, cellNumbers[cell]));
  }

  #set(cell: keyof typeof cellNumbers, ms: number): void {
    Atomics.store(this.#cells, cellNumbers[cell], BigInt(ms));
  }

  /** Returns the greater of both. */
  #raise(cell: keyof typeof cellNumbers, ms: number): number {
    for (;;) {
      const before = Atomics.load(this.#cells, cellNumbers[cell]);
      if (BigInt(ms) <= before) return Number(before);
      const found = Atomics.compareExchange(this.#cells, cellNumbers[cell], before, BigInt(ms));
      if (found === before) return ms;
    }
  }
}

function followed({ limitMs, ownMs }: Asked, clockMs: EpochMs): EpochMs {
  return clockMs <= limitMs ? clockMs : ownMs;
}
