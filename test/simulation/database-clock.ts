/**
 * The clock of the server of a simulated database, which may be wrong, and the record of the
 * ledger's clock. Answers the statements of src/store/postgres/clock.ts.
 */
import assert from "node:assert/strict";
import { acceptedMsMax } from "../../src/ledger/clock.ts";
import type { ClockRow } from "../../src/store/clock.ts";
import { clockTable } from "../../src/store/tables.ts";
import type { EpochMs } from "../../src/units.ts";
import type { Timeline } from "./timeline.ts";

export class DatabaseClock {
  readonly #timeline: Timeline;
  /** How far the clock is ahead of true time. */
  aheadMs = 0;
  row: ClockRow = {
    ...{ trust: "trusted", clockMs: 0, elapsedMs: 0, ledgerMs: 0 },
    ...{ bootId: null, bootMs: null, accepts: 0 },
  };

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  get nowMs(): EpochMs {
    return Math.floor(this.#timeline.nowMs + this.aheadMs);
  }

  /** Runs a statement by its name, and returns the cells of its row. */
  run(name: string, values: readonly unknown[], hasNodes: boolean): unknown[] | null {
    if (name === "look at clock") return [this.nowMs, hasNodes, ...clockTable.valuesOf(this.row)];
    if (name === "record clock") {
      this.#record(values as [ClockRow["trust"], EpochMs, EpochMs, EpochMs, number]);
      return null;
    }
    assert.equal(name, "accept");
    return this.#accept(values as [null, string, EpochMs, EpochMs, EpochMs, EpochMs]);
  }

  #record([trust, clockMs, elapsedMs, ledgerMs, accepts]: [
    ClockRow["trust"],
    EpochMs,
    EpochMs,
    EpochMs,
    number,
  ]): void {
    if (this.row.accepts !== accepts || this.row.elapsedMs > elapsedMs) return;
    this.row = { ...this.row, trust, clockMs, elapsedMs, ledgerMs };
  }

  #accept([, , knownMs, clockMs, nowMs, atMs]: [
    null,
    string,
    EpochMs,
    EpochMs,
    EpochMs,
    EpochMs,
  ]): unknown[] {
    const readMs = this.nowMs;
    if (Math.abs(readMs - knownMs) > acceptedMsMax) return [readMs, null, null, null];
    const elapsedMs = nowMs + Math.max(0, readMs - clockMs);
    const ledgerMs = Math.max(readMs, atMs);
    const accepts = this.row.accepts + 1;
    this.row = { ...this.row, accepts, trust: "trusted", clockMs: readMs, elapsedMs, ledgerMs };
    return [readMs, accepts, elapsedMs, ledgerMs];
  }
}
