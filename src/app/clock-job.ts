/**
 * Reads and records the clock of the store regularly, so that the record is new while the service
 * is idle, and logs what operators should know of the clock, once for each change.
 */
import type { Logger } from "pino";
import { isoTime } from "../accounts/json-objects.ts";
import type { Jobs } from "../jobs.ts";
import { type ClockPlace, type ClockState, wrongMsMax } from "../ledger/clock.ts";
import type { Store } from "../store/store.ts";

interface ClockJob {
  /** The state at the last look. */
  state(): ClockState;
  /**
   * Whether the database could be written. On SQLite, false after a refused write. A look writes
   * each minute, and after a failure.
   */
  isWritable(): boolean;
}

interface ClockJobOptions {
  jobs: Jobs;
  everyMs: number;
  logger: Logger;
}

/** Looks before it resolves, and then every `everyMs`. */
export async function startClockJob(
  store: Pick<Store, "clock">,
  { jobs, everyMs, logger }: ClockJobOptions,
): Promise<ClockJob> {
  let seen = await store.clock();
  logStart(logger, seen);
  if (seen.place !== "ok") logPlace(logger, seen);

  async function look(): Promise<void> {
    const before = seen.place;
    seen = await store.clock();
    if (seen.place !== before) logPlace(logger, seen);
  }

  const failure = "the clock could not be read and recorded";
  const job = jobs.start({ name: "record_clock", everyMs, failure, run: look });
  return { state: () => seen, isWritable: () => job.state.state === "ok" };
}

function logStart(logger: Logger, { clockMs, recordedMs }: ClockState): void {
  if (recordedMs === 0 || clockMs - recordedMs <= wrongMsMax) return;
  logger.warn(
    { clock: isoTime(clockMs), recorded: isoTime(recordedMs) },
    "the clock is more than a day after the last record of the ledger, and the ledger follows it; if nobody had stopped the service for so long, stop it now and correct the clock",
  );
}

const sentences: Readonly<Record<ClockPlace, { level: "info" | "warn" | "error"; text: string }>> = {
  ok: { level: "info", text: "the ledger follows the clock again" },
  ahead: {
    level: "error",
    text: "the clock is more than a day beyond the uptime of the machine, and the ledger goes on by uptime; correct the clock, or restart the service if the clock is right",
  },
  behind: {
    level: "warn",
    text: "the clock is behind the time of the ledger, which stands until the clock has caught up; until then nothing is refilled",
  },
};

function logPlace(logger: Logger, { place, clockMs, ledgerMs }: ClockState): void {
  const { level, text } = sentences[place];
  logger[level]({ clock: isoTime(clockMs), ledger: isoTime(ledgerMs) }, text);
}
