/**
 * Work that a service does regularly, beside requests. Any number of processes may do the same
 * work on one store.
 */

interface Chore {
  /** Resolves when the work under way has ended. */
  stop(): Promise<void>;
}

/**
 * Starts `work` at once, and then every `everyMs` unless it is still under way. A failure is
 * reported to `onError`, and the next time retries. `work` ends early if `isStopped()`.
 */
export function startChore(
  work: (isStopped: () => boolean) => Promise<void>,
  { everyMs, onError }: { everyMs: number; onError(error: unknown): void },
): Chore {
  let stopped = false;
  let underWay: Promise<void> | null = null;

  function start(): void {
    underWay ??= work(() => stopped)
      .catch(onError)
      .finally(() => {
        underWay = null;
      });
  }

  start();
  const timer = setInterval(start, everyMs);
  return {
    async stop() {
      stopped = true;
      clearInterval(timer);
      await underWay;
    },
  };
}
