/**
 * Ends holds whose time has run out: those of processes that died. Any number of processes may sweep one store;
 * each hold is checked again under the lock and ends once.
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { ExpireOperation, OutcomeOf } from "../ledger/operations.ts";
import { pageRowsMax, type Store } from "./store.ts";

/** Holds expired per look; a look follows at once while there are more. They share a commit with requests, which must not take long. */
const sweepMax = 64;

export interface Sweeper {
  /** Resolves when no sweep is under way and none will follow. */
  stop(): Promise<void>;
}

/** Sweeps now and then every `everyMs`. A sweep that fails is told to `onError`; the next one tries again. */
export function startSweeper(
  store: Store,
  ledger: Ledger,
  options: { everyMs: number; onError(error: unknown): void },
): Sweeper {
  let stopped = false;
  let underWay: Promise<void> | null = null;

  async function sweep(): Promise<void> {
    // Holds that cannot be ended (their account is at fault, or locked) come first in every look; each looks past them.
    let stuck = 0;
    let failures: unknown[] = [];
    for (let hasMore = true; hasMore && !stopped; ) {
      const limit = Math.min(stuck + sweepMax, pageRowsMax);
      const overdue = await store.overdueHolds(null, limit);
      const outcomes = await Promise.allSettled(
        overdue.map(({ account, id }) => ledger.apply({ kind: "expire", account, hold: id })),
      );
      hasMore = overdue.length === limit && stuck < pageRowsMax - sweepMax;
      failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
      stuck = outcomes.filter((outcome) => !isEnded(outcome)).length;
    }
    if (failures.length > 0) options.onError(failures[0]);
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

function isEnded(outcome: PromiseSettledResult<OutcomeOf<ExpireOperation>>): boolean {
  return outcome.status === "fulfilled" && ["expired", "ended"].includes(outcome.value.kind);
}
