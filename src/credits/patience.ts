/** What a request cannot do without is asked of the store again while it stays away: its commits, its key, its balance. */
import timers from "node:timers/promises";

/** The database cannot be reached or written just now (locked, disk full, connection lost). */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
}

export interface Patience {
  /** Pauses before each further attempt; when they are used up the last one counts. */
  retriesMs: readonly number[];
  /** After so long there is no further one either: the attempts themselves may take their time. */
  giveUpMs: number;
}

/**
 * Answers with the first attempt that succeeds. Rejects as the last one did, and at once with anything but a
 * `StoreUnavailableError`. When the signal aborts there is no further attempt.
 */
export async function patiently<T>(
  attempt: () => Promise<T>,
  { retriesMs, giveUpMs }: Patience,
  signal: AbortSignal,
): Promise<T> {
  const beganMs = performance.now();
  for (const pauseMs of retriesMs) {
    try {
      return await attempt();
    } catch (error) {
      const isOver = performance.now() - beganMs >= giveUpMs;
      if (!(error instanceof StoreUnavailableError) || isOver) throw error;
      await timers.setTimeout(pauseMs, undefined, { signal }).catch(() => {
        throw error;
      });
    }
  }
  return await attempt();
}
