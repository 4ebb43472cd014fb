/**
 * The trusted clock of an SQLite file. The thread that writes reads the clock of the machine, and
 * shares trusted time with the other threads of the process.
 *
 * Guarantees that all threads use the same time, and that a new process continues at the time that
 * the file has recorded if its clock disagrees. Other processes follow an acceptance by an
 * operator at their next commit or `look`.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import type { AcceptedClock, ClockState, Reading, TrustedClock } from "../../ledger/clock.ts";
import type { EpochMs } from "../../units.ts";
import {
  bootOf,
  type ClockRow,
  clockFrom,
  type MachineClock,
  machineOf,
  recordEveryMs,
  type SharedClock,
} from "../clock.ts";
import { clockAcceptTable, clockTable } from "../tables.ts";
import { inTransaction } from "./file.ts";
import { insertInto, Query, update } from "./query.ts";

/** The clock is recorded without a commit if trusted time has moved by more against the record. */
const movedMsMax = 1000;
/** Even then it is recorded this often, so that slewing does not add up. */
const recordIdleEveryMs = 3_600_000;

export class SqliteClock {
  readonly #db: DatabaseSync;
  readonly #machine: MachineClock;
  readonly #offset: SharedClock["offset"];
  readonly #clock: TrustedClock;
  readonly #lastAccept: Query<AcceptedClock>;
  /** Changes nothing if an acceptance has followed that this process does not know. */
  readonly #update: (row: ClockRow) => boolean;
  readonly #countAccept: StatementSync;
  readonly #insertAccept: (accepted: AcceptedClock) => void;
  /** The last record of this process. */
  #recorded = { offsetMs: Number.NaN, atMs: Number.NEGATIVE_INFINITY, isTrusted: true };
  /** Number of the last known acceptance. */
  #accepts: number;
  /** Monotonic time of the last check for a newer one. */
  #lookedMs: number;

  constructor(db: DatabaseSync, shared: SharedClock) {
    this.#db = db;
    this.#machine = machineOf(shared);
    this.#offset = shared.offset;
    this.#lastAccept = new Query(db, clockAcceptTable, "order by number desc limit 1");
    this.#update = update(db, clockTable, ["accepts"]);
    this.#countAccept = db.prepare("update clock set accepts = accepts + 1");
    this.#insertAccept = insertInto(db, clockAcceptTable);
    const row = new Query(db, clockTable, "where id = 1").get();
    invariant(row !== undefined, "the table clock has its row");
    const reading = this.#reading();
    const boot = bootOf(this.#machine);
    this.#clock = clockFrom(row, reading, this.#machine, boot);
    this.#accepts = row.accepts;
    this.#lookedMs = reading.answeredMs;
    this.#share();
    if (boot !== null && boot.id === row.bootId && row.bootMs !== null) {
      // The record of another process of this boot is as good as one of this process.
      const atMs = reading.answeredMs - (boot.ms - row.bootMs);
      this.#recorded = { offsetMs: row.trustedMs - atMs, atMs, isTrusted: row.isTrusted };
    }
  }

  /**
   * Reads the clock. Returns trusted time. Under the lock of a commit, no acceptance of another
   * process is missed.
   */
  read(): EpochMs {
    const reading = this.#reading();
    this.#clock.read(reading);
    if (!this.#clock.isTrusted) this.#follow(reading);
    this.#share();
    return this.#clock.nowMs(reading.answeredMs);
  }

  #follow(reading: Reading): void {
    const accepted = this.#lastAccept.get();
    if (accepted !== undefined && accepted.number > this.#accepts) {
      if (!this.#clock.isTrusted) this.#clock.follow(accepted.clockMs, this.#lookedMs, reading);
      this.#accepts = accepted.number;
    }
    this.#lookedMs = reading.answeredMs;
  }

  /** Reads the clock, and records it if the last record is old. Call it before each commit. */
  recordIfOld(): void {
    this.read();
    if (this.#machine.monotonicMs() - this.#recorded.atMs >= recordEveryMs) this.#record();
  }

  /** Reads the clock, follows an acceptance of another process, and records a change. */
  look(): ClockState {
    const reading = this.#reading();
    this.#clock.read(reading);
    this.#follow(reading);
    this.#share();
    const { offsetMs, atMs, isTrusted } = this.#recorded;
    const isMoved = !(Math.abs(this.#clock.offsetMs - offsetMs) <= movedMsMax);
    const isOld = reading.answeredMs - atMs >= recordIdleEveryMs;
    if (isMoved || isOld || isTrusted !== this.#clock.isTrusted) this.#record();
    return this.#state();
  }

  /** Believes the present reading of the clock. Returns null if it is trusted already. */
  accept(by: string): AcceptedClock | null {
    const { reading, accepted } = inTransaction(this.#db, () => {
      const reading = this.#reading();
      const trustedMs = this.#clock.read(reading);
      return { reading, accepted: this.#clock.isTrusted ? null : this.#writeAccept(by, trustedMs, reading) };
    });
    if (accepted !== null) {
      this.#clock.accept(reading);
      this.#accepts = accepted.number;
    }
    this.#share();
    return accepted;
  }

  #writeAccept(by: string, trustedMs: EpochMs, { clockMs }: Reading): AcceptedClock {
    const number = (this.#lastAccept.get()?.number ?? 0) + 1;
    const accepted = { number, by, trustedMs, clockMs };
    this.#insertAccept(accepted);
    this.#countAccept.run();
    this.#write({ trustedMs: clockMs, clockMs, isTrusted: true }, number);
    return accepted;
  }

  #record(): void {
    const state = this.#state();
    this.#write(state, this.#accepts);
    const { isTrusted } = state;
    this.#recorded = { offsetMs: this.#clock.offsetMs, atMs: this.#machine.monotonicMs(), isTrusted };
  }

  #write({ trustedMs, clockMs, isTrusted }: Omit<ClockState, "distrusted">, accepts: number): void {
    const boot = bootOf(this.#machine);
    const bootFields = { bootId: boot?.id ?? null, bootMs: boot?.ms ?? null };
    this.#update({ trustedMs, clockMs, isTrusted, ...bootFields, accepts });
  }

  #state(): ClockState {
    return this.#clock.state(this.#machine.monotonicMs());
  }

  #reading(): Reading {
    const monotonicMs = this.#machine.monotonicMs();
    return { clockMs: this.#machine.clockMs(), askedMs: monotonicMs, answeredMs: monotonicMs };
  }

  #share(): void {
    Atomics.store(this.#offset, 0, BigInt(this.#clock.offsetMs));
  }
}
