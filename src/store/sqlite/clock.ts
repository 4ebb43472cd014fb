/**
 * The clock of an SQLite file. The thread that writes reads the clock of the machine, and shares
 * the times of the ledger with the other threads of the process.
 *
 * Guarantees that all threads use the same times, and that a new process continues from those that
 * the file has recorded. Other processes follow an acceptance by an operator at their next commit
 * or `look`.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import {
  type AcceptedClock,
  acceptedMsMax,
  type ClockPoint,
  type ClockState,
  clockAtStart,
  pointAfterSet,
  type Reading,
  type Trust,
} from "../../ledger/clock.ts";
import type { Times } from "../../ledger/snapshot.ts";
import { TrustedClock } from "../../ledger/trusted-clock.ts";
import type { EpochMs } from "../../units.ts";
import {
  type ClockRow,
  type MachineClock,
  machineOf,
  pointOf,
  recordEveryMs,
  recordedIn,
  type SharedClock,
  shareClock,
} from "../clock.ts";
import type { ClockAcceptance } from "../store.ts";
import { clockAcceptTable, clockTable } from "../tables.ts";
import { inTransaction } from "./file.ts";
import { insertInto, Query, update } from "./query.ts";

/** The clock is recorded without a commit if the record is older. */
const recordIdleEveryMs = 60_000;

export class SqliteClock {
  readonly #db: DatabaseSync;
  readonly #machine: MachineClock;
  readonly #shared: SharedClock;
  readonly #clock: TrustedClock;
  readonly #row: Query<ClockRow>;
  /** Changes nothing if an acceptance has followed that this process does not know. */
  readonly #update: (row: ClockRow) => boolean;
  readonly #countAccept: StatementSync;
  readonly #insertAccept: (accepted: AcceptedClock) => void;
  /** The last record of this process. */
  #recorded: { trust: Trust | null; atMs: number } = { trust: null, atMs: Number.NEGATIVE_INFINITY };
  /** Number of the last known acceptance. */
  #accepts: number;
  /** Monotonic time of the last check for a newer one. */
  #lookedMs: number;

  constructor(db: DatabaseSync, shared: SharedClock) {
    this.#db = db;
    this.#machine = machineOf(shared);
    this.#shared = shared;
    this.#row = new Query(db, clockTable, "where id = 1");
    this.#update = update(db, clockTable, ["accepts"]);
    this.#countAccept = db.prepare("update clock set accepts = accepts + 1");
    this.#insertAccept = insertInto(db, clockAcceptTable);
    const row = this.#readRow();
    const reading = this.#reading();
    const start = clockAtStart(recordedIn(row), reading.clockMs, this.#sinceRecord(row));
    this.#clock = new TrustedClock(start, reading, this.#machine.sleptMs);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
    this.#share();
  }

  /** The times of a commit. Under its lock, no acceptance of another process is missed. */
  read(): Times {
    const reading = this.#reading();
    this.#clock.read(reading);
    if (!this.#clock.isTrusted) this.#follow(reading);
    this.#share();
    return this.#clock.times(this.#clock.clockMs(reading.answeredMs));
  }

  #follow(reading: Reading): void {
    const row = this.#readRow();
    if (row.accepts > this.#accepts) this.#clock.follow(pointOf(row), this.#lookedMs, reading);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
  }

  /** Reads the clock, and records it if the last record is old. Call it before each commit. */
  recordIfOld(): void {
    this.read();
    if (this.#recordAgeMs() >= recordEveryMs) this.#record();
  }

  /** Reads the clock, follows an acceptance of another process, and records a change. */
  look(): ClockState {
    const reading = this.#reading();
    this.#clock.read(reading);
    this.#follow(reading);
    this.#share();
    const isOld = this.#recordAgeMs() >= recordIdleEveryMs;
    if (isOld || this.#recorded.trust !== this.#clock.trust) this.#record();
    return this.#clock.state(reading.answeredMs);
  }

  /** Believes the present reading of the clock, if the operator knows the same time. */
  accept(by: string, timeMs: EpochMs): ClockAcceptance {
    const { reading, point, acceptance } = inTransaction(this.#db, () => {
      const reading = this.#reading();
      this.#clock.read(reading);
      this.#follow(reading);
      const { clockMs, answeredMs } = reading;
      const before = this.#clock.pointNow(answeredMs);
      const point = pointAfterSet(before, clockMs);
      const acceptance = this.#acceptance(by, timeMs, { before, clockMs });
      if (acceptance.kind === "accepted") this.#writeAccept(acceptance.accepted, point);
      return { reading, point, acceptance };
    });
    if (acceptance.kind === "accepted") {
      this.#clock.accept(point, reading);
      this.#accepts = acceptance.accepted.number;
    }
    this.#share();
    return acceptance;
  }

  #acceptance(
    by: string,
    timeMs: EpochMs,
    { before, clockMs }: { before: ClockPoint; clockMs: EpochMs },
  ): ClockAcceptance {
    if (this.#clock.isTrusted) return { kind: "trusted" };
    if (Math.abs(timeMs - clockMs) > acceptedMsMax) return { kind: "differs", clockMs };
    const number = this.#accepts + 1;
    return { kind: "accepted", accepted: { number, by, ledgerMs: before.atMs, clockMs } };
  }

  #writeAccept(accepted: AcceptedClock, point: ClockPoint): void {
    this.#insertAccept(accepted);
    this.#countAccept.run();
    this.#write("trusted", point, accepted.number);
  }

  #record(): void {
    const monotonicMs = this.#machine.monotonicMs();
    // If it fails, the next look tries again.
    this.#recorded = { trust: null, atMs: Number.NEGATIVE_INFINITY };
    this.#write(this.#clock.trust, this.#clock.pointNow(monotonicMs), this.#accepts);
    this.#recorded = { trust: this.#clock.trust, atMs: monotonicMs };
  }

  #write(trust: Trust, { clockMs, nowMs, atMs }: ClockPoint, accepts: number): void {
    const { bootId } = this.#machine;
    const bootMs = bootId === null ? null : this.#sinceBoot();
    this.#update({ trust, clockMs, elapsedMs: nowMs, ledgerMs: atMs, bootId, bootMs, accepts });
  }

  #recordAgeMs(): number {
    return this.#machine.monotonicMs() - this.#recorded.atMs;
  }

  /** Null if this machine was started since then, or if it does not know. */
  #sinceRecord({ bootId, bootMs }: ClockRow): number | null {
    const sinceBoot = this.#sinceBoot();
    const isThisBoot = bootId !== null && bootId === this.#machine.bootId;
    return isThisBoot && bootMs !== null && bootMs <= sinceBoot ? sinceBoot - bootMs : null;
  }

  #sinceBoot(): number {
    return this.#machine.monotonicMs() + this.#machine.sleptMs();
  }

  #readRow(): ClockRow {
    const row = this.#row.get();
    invariant(row !== undefined, "the table clock has its row");
    return row;
  }

  #reading(): Reading {
    const monotonicMs = this.#machine.monotonicMs();
    return { clockMs: this.#machine.clockMs(), askedMs: monotonicMs, answeredMs: monotonicMs };
  }

  #share(): void {
    shareClock(this.#shared, this.#clock);
  }
}
