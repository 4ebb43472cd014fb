/**
 * Ends expired holds, which processes that died have left behind. Any number of processes may
 * sweep one store: each hold is checked again under the lock and ends once.
 */
import type { Ledger } from "../ledger/batcher.ts";
import type { HoldRow } from "../ledger/rows.ts";
import { startChore } from "./chore.ts";
import type { Store } from "./store.ts";

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
    const failures: unknown[] = [];
    // Holds whose account is damaged or locked are left behind.
    for (let after: HoldRow | undefined; !isStopped(); ) {
      const overdue = await store.overdueHolds(store.times().nowMs, { after, limit: sweepMax });
      const outcomes = await Promise.allSettled(
        overdue.map(({ account, id }) => ledger.apply({ kind: "expire", account, hold: id })),
      );
      for (const outcome of outcomes) if (outcome.status === "rejected") failures.push(outcome.reason);
      after = overdue.at(-1);
      if (overdue.length < sweepMax) break;
    }
    if (failures.length > 0) options.onError(failures[0]);
  }, options);
}
