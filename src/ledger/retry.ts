/** Retries of calls to the store while it is unavailable: commits, and reads of keys and balances. */
import { retryWhile } from "../retry.ts";

/** The database is unavailable: it is locked, its disk is full, or the connection is lost. */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
  /** False: nothing was changed. True: the change may have been made, and only its answer was lost. */
  readonly mayBeDone: boolean;

  constructor(message: string, options: ErrorOptions & { mayBeDone?: boolean } = {}) {
    super(message, options);
    this.mayBeDone = options.mayBeDone ?? true;
  }
}

/** Marks the error: nothing was changed before it. */
export function withNothingDone(error: unknown): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  return new StoreUnavailableError(error.message, { cause: error.cause, mayBeDone: false });
}

interface RetryPolicy {
  /** Pauses before each further attempt. After the last one the error of the attempt counts. */
  retriesMs: readonly number[];
  /** No attempt starts after this time. An attempt that is under way may take longer. */
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
    const isOver = performance.now() - beganMs >= giveUpMs;
    return error instanceof StoreUnavailableError && !isOver ? retriesMs[failures - 1] : undefined;
  };
  return retryWhile(attempt, delayMs, signal);
}
