/** What a request cannot do without is asked of the store again while it stays away: its commits, its key, its balance. */
/** The database cannot be reached or written just now (locked, disk full, connection lost). */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
  /** False: nothing of what was asked has been done. True: it may have been, and only its answer was lost. */
  readonly mayBeDone: boolean;

  constructor(message: string, options: ErrorOptions & { mayBeDone?: boolean } = {}) {
    super(message, options);
    this.mayBeDone = options.mayBeDone ?? true;
  }
}

/** The error, if it can be known that nothing was done before it. */
export function withNothingDone(error: unknown): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  return new StoreUnavailableError(error.message, { cause: error.cause, mayBeDone: false });
}

export interface RetryPolicy {
  /** Pauses before each further attempt; when they are used up the last one counts. */
  retriesMs: readonly number[];
  /** After so long there is no further one either: the attempts themselves may take their time. */
  giveUpMs: number;
}

/**
 * Answers with the first attempt that succeeds. Rejects as the last one did, and at once with anything but a
 * `StoreUnavailableError`. When the signal aborts there is no further attempt.
 */
export async function retry<T>(
  attempt: () => Promise<T>,
  { retriesMs, giveUpMs }: RetryPolicy,
  signal: AbortSignal,
): Promise<T> {
  const beganMs = performance.now();
  for (const pauseMs of retriesMs) {
    try {
      return await attempt();
    } catch (error) {
      const isOver = performance.now() - beganMs >= giveUpMs;
      if (!(error instanceof StoreUnavailableError) || isOver) throw error;
      if ((await pause(pauseMs, signal)) === "aborted") throw error;
    }
  }
  return await attempt();
}

/**
 * What ends the pauses that hang on a signal. One listener for all of them: to add or take one off takes as long as
 * there are others, and every request waits while the store is away.
 */
const pauses = new WeakMap<AbortSignal, Set<() => void>>();

/** Resolves after the pause, or as soon as the signal aborts. */
export function pause(pauseMs: number, signal: AbortSignal): Promise<"over" | "aborted"> {
  const { promise, resolve } = Promise.withResolvers<"over" | "aborted">();
  if (signal.aborted) {
    resolve("aborted");
    return promise;
  }
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
  signal.addEventListener(
    "abort",
    () => {
      for (const abort of pausing) abort();
      pausing.clear();
    },
    { once: true },
  );
  return pausing;
}
