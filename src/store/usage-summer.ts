/**
 * Sums charges regularly, so that reports are fast and days become final without one. Any number
 * of processes may do it on one store.
 */
import type { Store } from "./store.ts";

interface UsageSummer {
  /** Resolves when the last step has ended. */
  stop(): Promise<void>;
}

/** Begins at once. A failure is reported to `onError`, and tried again after `everyMs`. */
export function startUsageSummer(
  store: Pick<Store, "sumUsage">,
  { everyMs, onError }: { everyMs: number; onError(error: unknown): void },
): UsageSummer {
  let stopped = false;
  let underWay: Promise<void> | null = null;

  async function sum(): Promise<void> {
    while (!stopped && (await store.sumUsage()));
  }

  function start(): void {
    underWay ??= sum()
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
      if (underWay !== null) await underWay;
    },
  };
}
