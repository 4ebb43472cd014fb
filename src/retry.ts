/**
 * Retries, cancellable pauses, and a limit for waiting.
 *
 * Any number of pauses share one listener on a signal: adding a listener takes longer the more
 * there are, and every request pauses while the store is unavailable.
 */
import { StoreUnavailableError } from "./errors.ts";

/**
 * Returns the result of the first attempt that succeeds. After a failed attempt `delayMs`
 * decides: it returns the pause before the next attempt, or undefined to give up with that error.
 * When the signal aborts there is no further attempt.
 */
export async function retryWhile<T>(
  attempt: () => Promise<T>,
  delayMs: (error: unknown, failures: number) => Promise<number | undefined> | number | undefined,
  signal: AbortSignal,
): Promise<T> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      const pauseMs = await delayMs(error, failures);
      if (pauseMs === undefined || (await pause(pauseMs, signal)) === "aborted") throw error;
    }
  }
}

interface RetryPolicy {
  /** Pauses before each further attempt. After the last one the error of the attempt counts. */
  retriesMs: readonly number[];
  /** No attempt starts later. One that is under way may take longer. */
  giveUpMs: number;
}

/** Retries while the store is unavailable. Any other error ends the retries at once. */
export function retry<T>(
  attempt: () => Promise<T>,
  { retriesMs, giveUpMs }: RetryPolicy,
  signal: AbortSignal,
): Promise<T> {
  const beganMs = performance.now();
  const delayMs = (error: unknown, failures: number) => {
    const leftMs = giveUpMs - (performance.now() - beganMs);
    const pauseMs = retriesMs[failures - 1];
    if (!(error instanceof StoreUnavailableError) || leftMs <= 0 || pauseMs === undefined) return undefined;
    return Math.min(pauseMs, leftMs);
  };
  return retryWhile(attempt, delayMs, signal);
}

/** Rejects if a read of the database takes longer than that. Nobody waits for its end then. */
export async function inTime<T>(work: Promise<T>, ms = 3_000): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(reject, ms, new Error("the database did not answer in time"));
  return await Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** For each signal, the functions that end the pauses under way. */
const pauses = new WeakMap<AbortSignal, Set<() => void>>();

/** Resolves after the pause, or as soon as the signal aborts. */
export function pause(pauseMs: number, signal: AbortSignal): Promise<"over" | "aborted"> {
  if (signal.aborted) return Promise.resolve("aborted");
  const { promise, resolve } = Promise.withResolvers<"over" | "aborted">();
  const pausing = pausesUntil(signal);
  const abort = () => {
    clearTimeout(timer);
    resolve("aborted");
  };
  const timer = setTimeout(() => {
    pausing.delete(abort);
    resolve("over");
  }, pauseMs);
  pausing.add(abort);
  return promise;
}

function pausesUntil(signal: AbortSignal): Set<() => void> {
  const known = pauses.get(signal);
  if (known !== undefined) return known;
  const pausing = new Set<() => void>();
  pauses.set(signal, pausing);
  const abortAll = () => {
    for (const abort of pausing) abort();
    pausing.clear();
  };
  signal.addEventListener("abort", abortAll, { once: true });
  return pausing;
}
