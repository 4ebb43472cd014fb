/**
 * Work that a service does regularly, beside requests. Any number of processes may do the same
 * work on one store.
 */

export interface Chore {
  /** Resolves after the work that is under way, or that starts now. */
  run(): Promise<void>;
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

  async function run(): Promise<void> {
    if (stopped) return;
    underWay ??= work(() => stopped)
      .catch(onError)
      .finally(() => {
        underWay = null;
      });
    await underWay;
  }

  void run();
  const timer = setInterval(run, everyMs);
  return {
    run,
    async stop() {
      stopped = true;
      clearInterval(timer);
      await underWay;
    },
  };
}
