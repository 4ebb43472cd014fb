/**
 * Retries of downloads: with back-off, a bounded number of times, and reported to the operator.
 */
import { retryWhile } from "../retry.ts";
import type { FetchProgress } from "./progress.ts";
import { type Transport, TransportFailure } from "./transport.ts";

const attemptsMax = 5;

export interface FetchTools {
  transport: Transport;
  progress: FetchProgress;
  signal: AbortSignal;
  /** Pause before the second attempt. Doubles for each further one. */
  backoffMs: number;
}

/**
 * Runs the action until it succeeds or fails permanently. An attempt that got further (`reached`
 * has grown) starts the count again, so that a long download over a poor connection completes.
 */
export function fetchWithRetries<T>(
  tools: FetchTools,
  reached: () => Promise<number>,
  action: () => Promise<T>,
): Promise<T> {
  let failures = 0;
  let before = 0;
  const attempt = async () => {
    before = await reached();
    return action();
  };
  const delayMs = async (error: unknown) => {
    if (!(error instanceof TransportFailure) || !error.transient || tools.signal.aborted) return undefined;
    failures = (await reached()) > before ? 1 : failures + 1;
    if (failures === attemptsMax) {
      throw new TransportFailure(`${error.message} (${attemptsMax} times)`, false, { cause: error });
    }
    const waitMs = error.retryAfterMs ?? tools.backoffMs * 2 ** (failures - 1);
    const when = waitMs >= 1000 ? ` in ${Math.round(waitMs / 1000)} s` : "";
    tools.progress.note(`${error.message}; trying again${when}`);
    return waitMs;
  };
  return retryWhile(attempt, delayMs, tools.signal);
}
