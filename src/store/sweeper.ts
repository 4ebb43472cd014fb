/**
 * Ends expired holds, which processes that died have left behind. Any number of processes may
 * sweep one store: each hold is checked again under the lock and ends once.
 */
import type { Ledger } from "../ledger/batcher.ts";
import type { ExpireOperation, OutcomeOf } from "../ledger/operations.ts";
import { startChore } from "./chore.ts";
import { pageRowsMax, type Store } from "./store.ts";

/** Holds ended per read. They share a commit with requests, which must stay short. */
const sweepMax = 64;

/**
 * Sweeps at once, and then every `everyMs`. A failure is reported to `onError`, and the next sweep
 * retries.
 */
export function startSweeper(
  store: Store,
  ledger: Ledger,
  options: { everyMs: number; onError(error: unknown): void },
) {
  return startChore(async (isStopped) => {
    // Holds that cannot be ended, because their account is damaged or locked, come first in every
    // read. Skip them.
    let stuck = 0;
    let failures: unknown[] = [];
    for (let hasMore = true; hasMore && !isStopped(); ) {
      const limit = Math.min(stuck + sweepMax, pageRowsMax);
      const overdue = await store.overdueHolds(store.times().nowMs, limit);
      const outcomes = await Promise.allSettled(
        overdue.map(({ account, id }) => ledger.apply({ kind: "expire", account, hold: id })),
      );
      hasMore = overdue.length === limit && stuck < pageRowsMax - sweepMax;
      failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
      stuck = outcomes.filter((outcome) => !isEnded(outcome)).length;
    }
    if (failures.length > 0) options.onError(failures[0]);
  }, options);
}

function isEnded(outcome: PromiseSettledResult<OutcomeOf<ExpireOperation>>): boolean {
  return outcome.status === "fulfilled" && ["expired", "ended"].includes(outcome.value.kind);
}
