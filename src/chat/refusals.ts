/**
 * Converts refusals of the ledger and errors of engines to messages for callers, without internal
 * details.
 */

import { Refusal } from "../errors.ts";
import { balanceUnavailable } from "../ledger/balance.ts";
import type { AccountError, Halted, HoldOutcome } from "../ledger/outcomes.ts";
import { rateLimits } from "../ledger/rate-limits.ts";
import { given } from "../objects.ts";
import { creditMessage, type UnpaidRequest } from "./credit-refusals.ts";
import type { EngineError, RejectionReason } from "./engine.ts";

export function refusalOfHold(
  outcome: Extract<HoldOutcome, { kind: "refused" }> | AccountError,
  accountId: string,
  request: UnpaidRequest,
): Refusal {
  if (outcome.kind === "no_account") return balanceUnavailable(`account ${accountId}: it has no row`);
  if (outcome.kind === "balance_invalid") {
    return balanceUnavailable(`account ${accountId}: ${outcome.problem}`);
  }
  switch (outcome.reason) {
    case "insufficient_credits":
    case "key_budget_exceeded":
      return new Refusal(outcome.reason, creditMessage(outcome, request), { rates: outcome.rates });
    case "account_suspended":
    case "account_closed":
      return accountHalted(outcome.reason);
    case "credits_reserved": {
      const what =
        outcome.scope === "key"
          ? "The rest of the budget of this key is held by its requests"
          : "The credits that are left are held by requests of this account";
      return new Refusal(
        "credits_reserved",
        `${what} that are still running. Try again when some have ended, or ask for fewer max_tokens in each.`,
        { retryAfterSeconds: outcome.retryAfterMs / 1000, rates: outcome.rates },
      );
    }
    case "rate_limit_exceeded": {
      const whose = outcome.scope === "key" ? "this key" : "this account's plan";
      const state = outcome.rates[outcome.of];
      const limit = `The limit of ${whose} is ${state?.limit} ${outcome.of} per ${rateLimits[outcome.of].period}.`;
      if (outcome.retryAfterMs === null) {
        const message = `${limit} This prompt alone has more ${outcome.of} than that; send a shorter one.`;
        return new Refusal("rate_limit_exceeded", message, { waitingHelps: false, rates: outcome.rates });
      }
      const seconds = Math.max(1, Math.ceil(outcome.retryAfterMs / 1000));
      return new Refusal("rate_limit_exceeded", `${limit} Try again in ${seconds} s.`, {
        retryAfterSeconds: outcome.retryAfterMs / 1000,
        rates: outcome.rates,
      });
    }
    case "concurrency_limit_exceeded": {
      const whose = outcome.scope === "key" ? "this key" : "this account's plan";
      return new Refusal(
        "concurrency_limit_exceeded",
        `The limit of ${whose} is ${outcome.limit} requests running at once. Try again when one has ended.`,
        { retryAfterSeconds: 1, rates: outcome.rates },
      );
    }
    case "key_revoked":
    case "key_expired":
    case "key_unknown": {
      const what = { key_revoked: "was revoked", key_expired: "has expired", key_unknown: "is not known" };
      return new Refusal("invalid_api_key", `This API key ${what[outcome.reason]}. Use another one.`);
    }
    case "hold_ended":
      return new Refusal("internal_error", "This request could not be run. Send it again.", {
        detail: "a request id was used twice",
      });
  }
}

export function accountHalted(halted: Halted): Refusal {
  const what = halted === "account_closed" ? "closed" : "suspended";
  return new Refusal(
    "account_suspended",
    `This account is ${what}. Its balance can still be read. The operator of this service can say why.`,
  );
}

/** Agents shorten their conversation if they find these words. Few know the code. */
export function contextWords(contextWindow: number): string {
  return `This model's maximum context length is ${contextWindow} tokens. The prompt is too long.`;
}

export function refusalOfEngine(error: EngineError, model: string, contextWindow: number): Refusal {
  const retryAfterSeconds = error.retryAfterSeconds ?? 2;
  const options = { detail: error.message, cause: error };
  switch (error.failure) {
    case "overloaded":
      return new Refusal("overloaded", `Too many requests are waiting for "${model}". Try again shortly.`, {
        ...options,
        retryAfterSeconds,
      });
    case "unavailable":
      return new Refusal(
        "model_unavailable",
        `The model "${model}" is not running just now. Try again shortly.`,
        {
          ...options,
          retryAfterSeconds,
        },
      );
    case "failed":
      return new Refusal(
        "upstream_error",
        `The model "${model}" failed on this request. Try again.`,
        options,
      );
    case "out_of_credit":
      return new Refusal(
        "upstream_error",
        `The model "${model}" cannot answer until the operator of this service acts. Trying again does not help.`,
        { ...options, waitingHelps: false },
      );
    case "filtered":
      return new Refusal(
        "content_filter",
        `The moderation of "${model}" refused these messages. Change them; the same messages are refused again.`,
        { ...options, param: "messages" },
      );
    case "too_long":
      return new Refusal(
        "context_length_exceeded",
        `${contextWords(contextWindow)} The messages do not fit the window of "${model}". Send fewer or shorter messages, or ask for fewer max_tokens.`,
        { ...options, param: "messages" },
      );
    case "rejected": {
      const reason: Partial<RejectionReason> = error.reason ?? {};
      return new Refusal("invalid_value", `The model rejected the request${wordsOf(reason)}`, {
        ...options,
        ...given({ param: reason.param }),
      });
    }
    case "timeout":
      return new Refusal(
        "upstream_timeout",
        `The model "${model}" did not answer in time. Try again.`,
        options,
      );
  }
}

/** Returns the rest of the message about a rejected request. */
function wordsOf({ sentence = "", param = null, isTooLarge }: Partial<RejectionReason>): string {
  if (sentence !== "") return `. ${sentence}`;
  if (param !== null) return `: parameter "${param}". Check its value.`;
  if (isTooLarge === true) return ", because it is too large. Send fewer or shorter messages.";
  return ". Check its parameters and messages. The operator of this service can look up the reason in the log, under the id of this request.";
}
