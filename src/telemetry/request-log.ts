/**
 * One line per request with its answer and its charge, and one line for a charge that is recorded
 * later.
 */
import type { Logger } from "pino";
import type { Charge } from "../chat/generate.ts";
import { fieldOf, given } from "../objects.ts";
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
      ...given({ code, account: caller?.accountId, keyId: caller?.key.id, model }),
      ...(charge === null ? {} : chargeFields(charge)),
      durationMs: Math.round(durationMs),
      ...(firstTokenMs === null ? {} : { firstTokenMs: Math.round(firstTokenMs) }),
    };
    const message = `${method} ${path ?? "(unknown path)"} ${status ?? "client gone"}`;
    if (isFailure(record)) this.#logger.warn(fields, message);
    else this.#logger.info(fields, message);
    if (charge !== null) this.#reportUncharged(record, charge);
  }

  chargedLate(record: RequestRecord, charge: Charge): void {
    const { requestId, caller } = record;
    const fields = {
      requestId,
      account: caller?.accountId,
      keyId: caller?.key.id,
      model: charge.model,
      ...chargeFields(charge),
    };
    this.#logger.info(fields, "the charge of an earlier request has been recorded");
    this.#reportUncharged(record, charge);
  }

  #reportUncharged({ requestId }: RequestRecord, { model, usage, uncharged }: Charge): void {
    const { promptTokens, completionTokens } = uncharged;
    if (promptTokens + completionTokens === 0) return;
    this.#logger.error(
      {
        requestId,
        model,
        chargedPromptTokens: usage.promptTokens,
        unchargedPromptTokens: promptTokens,
        chargedCompletionTokens: usage.completionTokens,
        unchargedCompletionTokens: completionTokens,
      },
      "the engine of a model reported more tokens than the hold paid for; the rest is not charged",
    );
  }

  unsettled({ requestId }: RequestRecord, reason: unknown): void {
    const isUnknown = fieldOf(reason, "kind") === "unknown_hold";
    const instead = isUnknown ? "the database has no hold of it, so nothing" : "its last checkpoint";
    this.#logger.error(
      { requestId, err: reason },
      `a charge could not be recorded and is given up; ${instead} will be charged`,
    );
  }
}

function chargeFields({ ending, usage, costMicro, shortfallMicro }: Charge): object {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    ending,
    promptTokens,
    cachedTokens,
    completionTokens,
    ...(reasoningTokens === 0 ? {} : { reasoningTokens }),
    credits: costMicro / microPerCredit,
    ...(shortfallMicro === 0 ? {} : { shortfall: shortfallMicro / microPerCredit }),
  };
}
