/**
 * Log lines of the public listener: one line per request with its answer and its charge, one line
 * for a charge that is recorded later, and one line per minute for refused connections.
 */

import type { Logger } from "pino";
import type { Charge } from "../chat/generate.ts";
import { given } from "../given.ts";
import { microPerCredit } from "../units.ts";
import { isFailure, type RequestObserver, type RequestRecord } from "./request-record.ts";

export class RequestLog implements RequestObserver {
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  finished(record: RequestRecord): void {
    const { requestId, method, path, status, code, caller, charge, durationMs, firstTokenMs } = record;
    const model = record.acceptedModel;
    const fields = {
      requestId,
      method,
      path,
      status,
      ...given({ code, account: caller?.accountId, keyId: caller?.keyId, model }),
      ...(charge === null ? {} : chargeFields(charge)),
      durationMs: Math.round(durationMs),
      ...(firstTokenMs === null ? {} : { firstTokenMs: Math.round(firstTokenMs) }),
    };
    const message = `${method} ${path ?? "(unknown path)"} ${status ?? "client gone"}`;
    if (isFailure(record)) this.#logger.warn(fields, message);
    else this.#logger.info(fields, message);
  }

  chargedLate({ requestId, caller }: RequestRecord, charge: Charge): void {
    const { accountId: account, keyId } = caller ?? {};
    const fields = { requestId, account, keyId, model: charge.model, ...chargeFields(charge) };
    this.#logger.info(fields, "the charge of an earlier request has been recorded");
  }

  unsettled({ requestId }: RequestRecord, reason: unknown): void {
    this.#logger.error(
      { requestId, err: reason },
      "a charge could not be recorded and is given up; its last checkpoint will be charged",
    );
  }
}

function chargeFields({ ending, usage, cost, shortfall }: Charge): object {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    ending,
    promptTokens,
    cachedTokens,
    completionTokens,
    ...(reasoningTokens === 0 ? {} : { reasoningTokens }),
    credits: cost / microPerCredit,
    ...(shortfall === 0 ? {} : { shortfall: shortfall / microPerCredit }),
  };
}

/** `total`: the limit of all connections. `address`: the limit of one address. */
export type ConnectionRefusal = "total" | "address";

const silentMs = 60_000;

const explanations: Record<ConnectionRefusal, string> = {
  total: "connections are refused: as many are open as limits.connections allows",
  address:
    "connections are refused: an address has as many open as limits.connections_per_address allows; if it is a proxy, name it in limits.trusted_proxies",
};

/**
 * Logs at most one line per minute and reason, with the number of refusals since the last line.
 */
export class RefusedConnectionLog {
  readonly #logger: Logger;
  readonly #lastLines = new Map<ConnectionRefusal, { atMs: number; since: number }>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  refused(reason: ConnectionRefusal, address: string): void {
    const last = this.#lastLines.get(reason);
    const nowMs = performance.now();
    if (last !== undefined && nowMs - last.atMs < silentMs) {
      last.since += 1;
      return;
    }
    this.#lastLines.set(reason, { atMs: nowMs, since: 0 });
    this.#logger.warn({ address, refusedSinceLastLine: last?.since ?? 0 }, explanations[reason]);
  }
}
