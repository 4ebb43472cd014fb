/**
 * Reads and records the clock of the store regularly, so that trusted time follows it while the
 * service is idle, and reports when the clock is not believed, or cannot be recorded.
 *
 * Guarantees one report for each change, and a report of wrong readings between two looks.
 */
import type { Jobs } from "../jobs.ts";
import type { ClockState } from "../ledger/clock.ts";
import type { Store } from "./store.ts";

export const clockEveryMs = 5000;

export interface ClockWatch {
  /** The state at the last look. */
  state(): ClockState;
  /**
   * Whether the database could be written at the last look. SQLite writes each minute, and at each
   * look after a failure.
   */
  isWritable(): boolean;
}

interface ClockWatchOptions {
  jobs: Jobs;
  everyMs: number;
  /**
   * Called if the clock is no longer believed, or is believed again, or if `readings` readings
   * since the last look were not believed and the clock is right again.
   */
  onChange(state: ClockState, readings: number): void;
}

/** Looks before it resolves, and then every `everyMs`. */
export async function startClockWatch(
  store: Pick<Store, "clock">,
  { jobs, everyMs, onChange }: ClockWatchOptions,
): Promise<ClockWatch> {
  let seen: ClockState = await store.clock();
  if (!seen.isTrusted) onChange(seen, seen.distrusted);

  async function look(): Promise<void> {
    const before = seen;
    seen = await store.clock();
    const readings = seen.distrusted - before.distrusted;
    if (seen.isTrusted !== before.isTrusted || (seen.isTrusted && readings > 0)) onChange(seen, readings);
  }

  const failure = "the clock could not be read and recorded";
  const job = jobs.start({ name: "watch_clock", everyMs, failure, run: look });
  return { state: () => seen, isWritable: () => job.state.state === "ok" };
}
