/**
 * The clock and the uptime of this machine, and the row in which a ledger records its times.
 *
 * Uptime is that of `os.uptime`. On Linux (CLOCK_BOOTTIME), macOS and Windows it includes the time
 * that the machine has slept.
 */
import { uptime } from "node:os";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { type RecordedTimes, wrongMsMax } from "../ledger/clock.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";
import { type ChangeLogRow, changeLogRow } from "./change-log.ts";

/** The clock, and the time since the machine has started, in whole milliseconds. */
export interface MachineClock {
  clockMs(): EpochMs;
  uptimeMs(): number;
}

/** A change of the difference of two clocks, after which uptime is read again. */
const driftMsMax = 500;

let sleptMs = 0;
let comparedMs = Number.NaN;

/**
 * `os.uptime` takes 5 us, so monotonic time stands for it: it only stops in sleep. After that the
 * clock is ahead of it.
 */
function uptimeMs(): number {
  const monotonicMs = Number(process.hrtime.bigint() / 1_000_000n);
  const aheadMs = Date.now() - monotonicMs;
  if (!(Math.abs(aheadMs - comparedMs) <= driftMsMax)) {
    comparedMs = aheadMs;
    sleptMs = Math.floor(uptime() * 1000) - monotonicMs;
  }
  return monotonicMs + sleptMs;
}

export const machineClock: MachineClock = { clockMs: Date.now, uptimeMs };

/** The row of the table `clock`. */
export const clockColumns = {
  elapsedMs: "ms",
  ledgerMs: "ms",
  /** The last ledger time that an operator has accepted, although it is ahead of the clock. */
  acceptedMs: "ms",
} as const satisfies Columns;
export interface ClockRow extends RowOf<typeof clockColumns>, RecordedTimes {}

/** Commits record the times if the last record is older. So they are ahead of it by less. */
export const recordEveryMs = 5000;

/**
 * Decides about a start. Returns null if it may go on, or the change with which `by` accepts that
 * ledger time stands. Throws an OperatorError if the clock is more than a day behind ledger time
 * and nobody accepts that, or if there is nothing to accept.
 */
export function acceptanceOf(
  { ledgerMs, acceptedMs }: ClockRow,
  clockMs: EpochMs,
  by: string | null,
): ChangeLogRow | null {
  const isBehind = ledgerMs - clockMs > wrongMsMax && ledgerMs !== acceptedMs;
  const clock_at = new Date(clockMs).toISOString();
  const ledger_at = new Date(ledgerMs).toISOString();
  if (by === null) {
    if (!isBehind) return null;
    throw new OperatorError(
      `The clock shows ${clock_at}, which is more than a day before the time of the ledger, ${ledger_at}. Correct the clock if it is wrong. If it is right, the ledger was written while a clock was ahead: ${inkwell("clock accept")} lets the time of the ledger stand until the clock has caught up, and until then nothing is refilled. Otherwise restore a backup.`,
    );
  }
  if (!isBehind) {
    throw new OperatorError(
      `The clock shows ${clock_at}, and the time of the ledger is ${ledger_at}. A start needs nothing to be accepted. Nothing has changed.`,
    );
  }
  return changeLogRow({ atMs: ledgerMs, kind: "clock", by, before: null, after: { ledger_at, clock_at } });
}
