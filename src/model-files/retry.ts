/** Trying again what may pass: with back-off, a bounded number of times, and told to whoever watches. */
import { setTimeout as sleep } from "node:timers/promises";
import type { FetchProgress } from "./progress.ts";
import { type Transport, TransportFailure } from "./transport.ts";

const attemptsMax = 5;

export interface FetchTools {
  transport: Transport;
  progress: FetchProgress;
  signal: AbortSignal;
  /** Before the second attempt; twice as long before each further one. */
  backoffMs: number;
}

/**
 * Runs the action until it succeeds or fails for good. Attempts that got further (`reached` is more than before)
 * do not count against it, so that a long fetch over a poor line comes to its end.
 */
export async function fetchWithRetries<T>(
  tools: FetchTools,
  reached: () => Promise<number>,
  action: () => Promise<T>,
): Promise<T> {
  let failures = 0;
  for (;;) {
    const before = await reached();
    try {
      return await action();
    } catch (error) {
      tools.signal.throwIfAborted();
      if (!(error instanceof TransportFailure) || !error.transient) throw error;
      failures = (await reached()) > before ? 1 : failures + 1;
      if (failures === attemptsMax) {
        throw new TransportFailure(`${error.message} (${attemptsMax} times)`, false, { cause: error });
      }
      const waitMs = error.retryAfterMs ?? tools.backoffMs * 2 ** (failures - 1);
      const when = waitMs >= 1000 ? ` in ${Math.round(waitMs / 1000)} s` : "";
      tools.progress.note(`${error.message}; trying again${when}`);
      await sleep(waitMs, undefined, { signal: tools.signal });
    }
  }
}
