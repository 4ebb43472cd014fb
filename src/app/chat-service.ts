/**
 * Puts the pipeline, the ledger and the public listener together, and tells whoever watches (metrics, the request log,
 * traces) of each request. Nothing in it listens yet.
 */
import type { Logger } from "pino";
import { authenticate } from "../accounts/authentication.ts";
import type { Catalog } from "../chat/catalog.ts";
import { generate, type Receipt } from "../chat/generate.ts";
import type { ChatRequest } from "../chat/request.ts";
import { createPublicServer, type PublicOptions, type PublicServer } from "../http/public/server.ts";
import type { FinishedRequest } from "../http/request-context.ts";
import { balanceOf } from "../ledger/balance.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Plans } from "../ledger/plan.ts";
import type { Store } from "../store/store.ts";
import { RequestLog } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { RefusedConnectionLog } from "../telemetry/refused-connection-log.ts";

/** Told of each request, in the order asked, settled, finished; a late charge is settled after the end. */
export interface Watcher {
  /** `model` is null where there is none of that name. */
  asked?(requestId: string, model: string | null, request: ChatRequest): void;
  settled(receipt: Receipt): void;
  finished(finished: FinishedRequest): void;
}

export interface ChatServiceParts {
  store: Store;
  ledger: Ledger;
  catalog: Catalog;
  plans: Plans;
  metrics: Metrics;
  logger: Logger;
  /** Beside the metrics and the request log. */
  watchers?: readonly Watcher[];
}

export interface ChatServiceOptions extends PublicOptions {
  /** Without a heartbeat for so long, a hold is ended by its last checkpoint. */
  holdTtlMs: number;
}

export function createChatService(
  { store, ledger, catalog, plans, metrics, logger, watchers = [] }: ChatServiceParts,
  { holdTtlMs, ...options }: ChatServiceOptions,
): PublicServer {
  const everyone: readonly Watcher[] = [metrics, new RequestLog(logger), ...watchers];
  const refusedConnections = new RefusedConnectionLog(logger);
  const known = authenticate(store, plans);
  const pipeline = {
    catalog,
    ledger,
    holdTtlMs,
    onSettled: (receipt: Receipt) => {
      for (const watcher of everyone) watcher.settled(receipt);
    },
    onUnsettled: (requestId: string, reason: unknown) => {
      metrics.unsettled();
      logger.error(
        { requestId, err: reason },
        "a charge could not be recorded and is given up; its last checkpoint will be charged",
      );
    },
  };
  return createPublicServer(
    {
      catalog,
      logger,
      authenticate: (header) => known(header, Date.now()),
      generate: (caller, request, requestId, signal) => {
        for (const watcher of watchers) {
          watcher.asked?.(requestId, catalog.find(request.model)?.id ?? null, request);
        }
        return generate(pipeline, caller, request, requestId, signal);
      },
      readBalance: async (accountId) => balanceOf(await store.snapshot(accountId), plans),
      onConnectionRefused: (reason, address) => {
        metrics.connectionRefused(reason);
        refusedConnections.tell(reason, address);
      },
      onFinished: (finished) => {
        for (const watcher of everyone) watcher.finished(finished);
      },
    },
    options,
  );
}
