/** What a request cannot do without is read again for as long as its commits are sent again. */
import { setTimeout as pause } from "node:timers/promises";
import { StoreUnavailableError } from "../credits/ledger.ts";

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
      await pause(pauseMs, undefined, { signal }).catch(() => {
        throw error;
      });
    }
  }
  return await attempt();
}
