/**
 * Converts refusals of the ledger and errors of engines to messages for callers, without internal
 * details.
 */

import { type CallerCode, Refusal } from "../errors.ts";
import type { AccountError, HoldOutcome } from "../ledger/outcomes.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { creditMessage, type UnpaidRequest } from "./credit-refusals.ts";
import type { EngineError, RejectionReason } from "./engine.ts";

export function refusalOfHold(
  outcome: Exclude<HoldOutcome, { kind: "held" }> | AccountError,
  account: string,
  request: UnpaidRequest,
): Refusal {
  switch (outcome.kind) {
    case "insufficient_credits":
    case "cap_reached":
      return new Refusal(outcome.kind, creditMessage(outcome, request), { rates: outcome.rates });
    case "ended":
      return new Refusal("internal_error", "This request could not be run. Send it again.", {
        detail: "a request id was used twice",
      });
    // The key of the request says that there is one.
    case "account_not_found":
      return refusalOf({ kind: "balance_unavailable", account, problem: "it has no row" });
    default:
      return refusalOf(outcome satisfies { kind: CallerCode });
  }
}

/** Agents shorten their conversation if they find these words. Few know the code. */
export function contextWords(contextWindow: number): string {
  return `This model's maximum context length is ${contextWindow} tokens. The prompt is too long.`;
}

export function refusalOfEngine(error: EngineError, model: string, contextWindow: number): Refusal {
  const options = { detail: error.message, cause: error };
  const retried = { ...options, retryAfterSeconds: error.retryAfterSeconds ?? 2 };
  switch (error.failure) {
    case "overloaded":
      return new Refusal(
        "overloaded",
        `Too many requests are waiting for "${model}". Try again shortly.`,
        retried,
      );
    case "unavailable":
      return new Refusal(
        "model_unavailable",
        `The model "${model}" is not running just now. Try again shortly.`,
        retried,
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
      const { reason } = error;
      const message = `The model rejected the request${wordsOf(reason ?? {})}`;
      return new Refusal("invalid_value", message, { ...options, param: reason?.param ?? undefined });
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
