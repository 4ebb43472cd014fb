/**
 * The clock of the server of a simulated database, which may be wrong, and the record of the
 * ledger's times. Answers the statements of src/store/postgres/clock.ts.
 */
import assert from "node:assert/strict";
import type { ClockRow } from "../../src/store/clock.ts";
import { clockTable } from "../../src/store/tables.ts";
import type { EpochMs } from "../../src/units.ts";
import type { Timeline } from "./timeline.ts";

export class DatabaseClock {
  readonly #timeline: Timeline;
  /** How far the clock is ahead of true time. */
  aheadMs = 0;
  row: ClockRow = { elapsedMs: 0, ledgerMs: 0, acceptedMs: 0 };

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  get nowMs(): EpochMs {
    return Math.floor(this.#timeline.nowMs + this.aheadMs);
  }

  /** What `inkwell clock accept` does with the record. */
  accept(): void {
    this.row = { ...this.row, acceptedMs: this.row.ledgerMs };
  }

  /** Runs a statement by its name, and returns the cells of its row. */
  run(name: string, [parameter]: readonly unknown[]): unknown[] {
    const { nowMs, row } = this;
    if (name === "look at clock") this.#record(String(parameter));
    else assert.equal(name, "read clock");
    return [nowMs, ...clockTable.valuesOf(row)];
  }

  #record(parameter: string): void {
    const [, limitMs = 0, ownMs = 0, shiftMs = 0, elapsedMs = 0, ledgerMs = 0] = parameter
      .slice(1, -1)
      .split(",")
      .map(Number);
    const followedMs = this.nowMs <= limitMs ? this.nowMs : ownMs;
    this.row = {
      ...this.row,
      elapsedMs: Math.max(this.row.elapsedMs, followedMs + shiftMs, elapsedMs),
      ledgerMs: Math.max(this.row.ledgerMs, followedMs, ledgerMs),
    };
  }
}
