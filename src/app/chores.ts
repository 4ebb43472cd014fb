/** Regular work of a service on its store, besides requests. */
import type { Logger } from "pino";
import { RequestStops, type RequestsHere } from "../accounts/request-stops.ts";
import type { Ledger } from "../ledger/batcher.ts";
import { AuditRunner } from "../store/audit-runner.ts";
import { startChore } from "../store/chore.ts";
import type { Store } from "../store/store.ts";
import { startSweeper } from "../store/sweeper.ts";
import { startUsageSummer } from "../store/usage-summer.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { ServiceTimes } from "./service-times.ts";

interface ChoresOptions {
  store: Store;
  ledger: Ledger;
  times: ServiceTimes;
  /** The zone of the configuration. */
  timezone(): string;
  logger: Pick<Logger, "error">;
}

/**
 * Ends expired holds, sums usage and removes expired sessions. Returns a function that resolves
 * when all have stopped.
 */
export function startChores({ store, ledger, times, timezone, logger }: ChoresOptions): () => Promise<void> {
  const sweeper = startSweeper(store, ledger, {
    everyMs: times.sweepEveryMs,
    onError: (err) => logger.error({ err }, "expired holds could not be ended; trying again"),
  });
  const summer = startUsageSummer(store, {
    everyMs: times.sumUsageEveryMs,
    timezone,
    onError: (err) => logger.error({ err }, "usage could not be summed; trying again"),
  });
  const sessions = startChore(() => store.removeSessions(store.times().nowMs), {
    everyMs: times.removeSessionsEveryMs,
    onError: (err) => logger.error({ err }, "expired sessions could not be removed; trying again"),
  });
  return async () => {
    await Promise.all([sweeper.stop(), summer.stop(), sessions.stop()]);
  };
}

export function startAudits(
  store: Store,
  times: ServiceTimes,
  metrics: Pick<Metrics, "audited">,
  logger: Pick<Logger, "error">,
): AuditRunner {
  return new AuditRunner(store, {
    everyMs: times.heartbeatEveryMs,
    onResult: (problems, atMs) => metrics.audited(problems, atMs),
    onError: (err) => logger.error({ err }, "the audit failed, or its state could not be read or stored"),
  });
}

export function startRequestStops(
  dependencies: { store: Store; ledger: Ledger },
  requests: RequestsHere,
  times: ServiceTimes,
  logger: Pick<Logger, "warn">,
): RequestStops {
  return new RequestStops({ ...dependencies, by: "operator" }, requests, {
    everyMs: times.stopsEveryMs,
    onError: (err) => logger.warn({ err }, "the stops of requests could not be read; trying again"),
  });
}
