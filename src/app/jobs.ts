/** The jobs of a service that only work on its store, besides requests. */
import type { Jobs } from "../jobs.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Store } from "../store/store.ts";
import { applyDueChanges, endExpiredHolds } from "../store/sweeper.ts";
import type { ServiceTimes } from "./service-times.ts";

interface StoreJobsOptions {
  store: Store;
  ledger: Ledger;
  times: ServiceTimes;
  /** The zone of the configuration. */
  timezone(): string;
}

/**
 * Commits what time does to accounts, sums usage, and removes expired sessions and mailed codes.
 */
export function startStoreJobs(jobs: Jobs, { store, ledger, times, timezone }: StoreJobsOptions): void {
  jobs.start({
    name: "end_expired_holds",
    everyMs: times.sweepEveryMs,
    failure: "expired holds could not be ended",
    run: (isStopped) => endExpiredHolds(store, ledger, isStopped),
  });
  jobs.start({
    name: "apply_due_changes",
    everyMs: times.sweepEveryMs,
    failure: "scheduled plans and ends of accounts could not be applied",
    run: (isStopped) => applyDueChanges(store, ledger, isStopped),
  });
  // So reports are fast, and days become final without one.
  jobs.start({
    name: "sum_usage",
    everyMs: times.sumUsageEveryMs,
    failure: "usage could not be summed",
    run: async (isStopped) => {
      while (!isStopped() && (await store.sumUsage(timezone())));
    },
  });
  jobs.start({
    name: "remove_sessions",
    everyMs: times.removeSessionsEveryMs,
    failure: "expired sessions and mailed codes could not be removed",
    run: async () => {
      const { nowMs } = store.times();
      await store.removeSessions(nowMs);
      await store.links.removeWaiting(nowMs);
    },
  });
}
