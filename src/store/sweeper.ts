/**
 * Ends holds whose time has run out: those of processes that died. Any number of processes may sweep one store;
 * each hold is checked again under the lock and ends once.
 */
import type { Ledger } from "../credits/ledger.ts";
import type { Store } from "./store.ts";

/** Holds expired per look; a look follows at once while there are more. */
const sweepMax = 256;

export interface Sweeper {
  /** Resolves when no sweep is under way and none will follow. */
  stop(): Promise<void>;
}

/** Sweeps now and then every `everyMs`. A sweep that fails is told to `onError`; the next one tries again. */
export function startSweeper(
  store: Store,
  ledger: Ledger,
  options: { everyMs: number; onExpired(count: number): void; onError(error: unknown): void },
): Sweeper {
  let stopped = false;
  let underWay: Promise<void> | null = null;

  async function sweep(): Promise<void> {
    let found = sweepMax;
    while (found === sweepMax && !stopped) {
      const overdue = await store.overdueHolds(Date.now(), sweepMax);
      found = overdue.length;
      const outcomes = await Promise.all(
        overdue.map(({ account, id }) => ledger.apply({ kind: "expire", account, hold: id })),
      );
      const expired = outcomes.filter((outcome) => outcome.kind === "expired").length;
      if (expired > 0) options.onExpired(expired);
      // What cannot be expired (its account is at fault) must not keep this loop turning.
      if (expired === 0) return;
    }
  }

  function start(): void {
    underWay ??= sweep()
      .catch(options.onError)
      .finally(() => {
        underWay = null;
      });
  }

  start();
  const timer = setInterval(start, options.everyMs);
  return {
    async stop() {
      stopped = true;
      clearInterval(timer);
      if (underWay !== null) await underWay;
    },
  };
}
