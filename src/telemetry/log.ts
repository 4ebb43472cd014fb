/**
 * One line of the log for each request: what was asked for, how it was answered, whom it was charged to and how much.
 * Brings together what the server knows of a request and what the ledger wrote down about it.
 */
import type { Logger } from "pino";
import type { Receipt } from "../chat/generate.ts";
import type { FinishedRequest } from "../http/request-context.ts";
import { microPerCredit } from "../units.ts";

export class RequestLog {
  readonly #logger: Logger;
  /** Of requests that are about to finish: one that is settled in time finishes in the same breath. */
  readonly #receipts = new Map<string, Receipt>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  settled(receipt: Receipt): void {
    if (!receipt.isLate) {
      this.#receipts.set(receipt.requestId, receipt);
      return;
    }
    const { requestId, accountId, keyId, model } = receipt;
    const fields = { requestId, account: accountId, keyId, model, ...charged(receipt) };
    this.#logger.info(fields, "the charge of an earlier request has been recorded");
  }

  finished(finished: FinishedRequest): void {
    const { requestId, method, path, status, code, model, accountId, keyId, durationMs, firstTokenMs } =
      finished;
    const receipt = this.#receipts.get(requestId);
    this.#receipts.delete(requestId);
    const fields = {
      requestId,
      method,
      path,
      status,
      ...(code === null ? {} : { code }),
      ...(accountId === null ? {} : { account: accountId, keyId }),
      ...(model === null ? {} : { model }),
      ...(receipt === undefined ? {} : charged(receipt)),
      durationMs: Math.round(durationMs),
      ...(firstTokenMs === null ? {} : { firstTokenMs: Math.round(firstTokenMs) }),
    };
    const message = `${method} ${path ?? "(unknown path)"} ${status ?? "client gone"}`;
    // A stream that broke off had its 200 already.
    const failed = (status !== null && status >= 500) || (status === 200 && code !== null);
    if (failed) this.#logger.warn(fields, message);
    else this.#logger.info(fields, message);
  }
}

function charged({ ending, usage, cost, shortfall }: Receipt): object {
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
