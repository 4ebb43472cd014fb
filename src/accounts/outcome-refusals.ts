/** Refusals of operations that the ledger has decided and not executed. */
import type {
  AdjustOperation,
  PlanOperation,
  PostedOperation,
  PromoteOperation,
  RefundOperation,
  TopupOperation,
} from "../ledger/operations.ts";
import type { AccountError, OutcomeOf, PlanOutcome } from "../ledger/outcomes.ts";
import type { JournalRow } from "../ledger/rows.ts";
import { exactCredits, type MicroCredits } from "../units.ts";
import { isoTime } from "./json-objects.ts";
import {
  accountClosed,
  accountRefusal,
  invalidValue,
  newIdNeeded,
  OperatorRefusal,
  planRefusal,
} from "./refusals.ts";

const unchanged = "Nothing has changed.";

export function planChangeRefusal(
  { account, op, plan }: Pick<PlanOperation, "account" | "op" | "plan">,
  outcome: Exclude<PlanOutcome, { kind: "changed" }> | AccountError,
): Error {
  switch (outcome.kind) {
    case "unknown_plan":
    case "retired_plan":
      return planRefusal(plan, outcome);
    case "window_differs": {
      const buckets = outcome.buckets.join(" and ");
      const refresh = isoTime(outcome.refreshMs);
      return new OperatorRefusal(
        "window_differs",
        `The plan ${plan} has another window for ${buckets}, so it cannot change now. ${unchanged} At the refresh, ${refresh}, it can (refresh). Or begin a new window now (new_window).`,
        "at",
      );
    }
    default:
      return otherRefusal({ account, op }, outcome);
  }
}

export function topupRefusal(
  { account, payment, amountMicro }: TopupOperation,
  outcome: Exclude<OutcomeOf<TopupOperation>, { kind: "added" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "payment_differs",
        `Payment "${payment}" was counted before, with ${exactCredits(outcome.amountMicro)} credits instead of ${exactCredits(amountMicro)}. ${newIdNeeded}`,
        "credits",
      );
    case "id_used":
      return paymentUsed(payment, outcome.account);
    case "too_much":
      return tooManyCredits(account);
    default:
      return otherRefusal({ account }, outcome);
  }
}

export function paymentUsed(payment: string, account: string): OperatorRefusal {
  return new OperatorRefusal(
    "payment_used",
    `Payment "${payment}" was credited to account ${account} before. A payment counts once. ${newIdNeeded}`,
    "payment_id",
  );
}

export function promotionRefusal(
  operation: PromoteOperation,
  outcome: Exclude<OutcomeOf<PromoteOperation>, { kind: "added" }>,
): Error {
  const { account, untilMs, requestId } = operation;
  switch (outcome.kind) {
    case "ended":
      return invalidValue(
        "expires_at",
        `The credits would have ended already, at ${isoTime(untilMs ?? 0)}. Choose a later time.`,
      );
    case "unknown_request":
      return new OperatorRefusal(
        "request_not_found",
        `Account ${account} was not charged for a request "${requestId}". ${unchanged}`,
        "request_id",
      );
    case "hold_open":
      return new OperatorRefusal(
        "request_running",
        `Request "${requestId}" is still running, so its charge is not known. ${unchanged} Try again when it has ended.`,
        "request_id",
      );
    case "too_much":
      return outcome.leftMicro === null
        ? tooManyCredits(account)
        : memoTooLarge(requestId ?? "", outcome.leftMicro);
    default:
      return otherRefusal(operation, outcome);
  }
}

function memoTooLarge(request: string, left: MicroCredits): OperatorRefusal {
  return new OperatorRefusal(
    "memo_too_large",
    `Of what was paid for request "${request}", ${exactCredits(left)} credits are not made up for yet. A memo cannot be larger. ${unchanged}`,
    "credits",
  );
}

export function adjustmentRefusal(
  operation: AdjustOperation,
  outcome: Exclude<OutcomeOf<AdjustOperation>, { kind: "adjusted" }>,
): Error {
  const { account, grant } = operation;
  switch (outcome.kind) {
    case "unknown_grant":
      return new OperatorRefusal(
        "grant_not_found",
        `Account ${account} has no promotional credits with the number ${grant} that are still open. ${unchanged} A payment is taken back by a refund.`,
        "grant",
      );
    case "too_little":
      return new OperatorRefusal(
        "too_few_credits",
        `Account ${account} has ${exactCredits(outcome.freeMicro)} promotional credits that no request holds. An adjustment cannot take away more, and never takes what was paid for: that is a refund. ${unchanged}`,
        "credits",
      );
    default:
      return otherRefusal(operation, outcome);
  }
}

export function refundRefusal(
  { account, refund, payment }: RefundOperation,
  outcome: Exclude<OutcomeOf<RefundOperation>, { kind: "refunded" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "refund_differs",
        `Refund "${refund}" was made before, with other values: ${entryText(outcome.entry)}. ${newIdNeeded}`,
        "refund_id",
      );
    case "id_used":
      return new OperatorRefusal(
        "refund_used",
        `Refund "${refund}" was made on account ${outcome.account} before. ${newIdNeeded}`,
        "refund_id",
      );
    case "unknown_payment":
      return new OperatorRefusal(
        "payment_not_found",
        `Account ${account} has no payment "${payment}". ${unchanged}`,
        "payment_id",
      );
    case "too_much":
      return new OperatorRefusal(
        "refund_too_large",
        `Of payment "${payment}", ${exactCredits(outcome.refundableMicro)} credits are neither spent nor refunded. A refund cannot be larger. ${unchanged}`,
        "credits",
      );
    default:
      return accountRefusal(account, outcome);
  }
}

function tooManyCredits(account: string): OperatorRefusal {
  return new OperatorRefusal(
    "too_many_credits",
    `Account ${account} cannot hold that many credits. ${unchanged}`,
    "credits",
  );
}

/** Returns the refusal of an outcome that several operations have. */
export function otherRefusal(
  { account, op }: Pick<PostedOperation, "account"> & { op?: string },
  outcome:
    | { kind: "closed" }
    | { kind: "conflict"; entry: JournalRow }
    | { kind: "id_used"; account: string }
    | AccountError,
): Error {
  switch (outcome.kind) {
    case "closed":
      return accountClosed(account);
    case "conflict":
      return new OperatorRefusal(
        "operation_differs",
        `Operation "${op}" made another change before: ${entryText(outcome.entry)}. ${newIdNeeded}`,
        "operation_id",
      );
    case "id_used":
      return new OperatorRefusal(
        "operation_differs",
        `Operation "${op}" changed account ${outcome.account} before. ${newIdNeeded}`,
        "operation_id",
      );
    default:
      return accountRefusal(account, outcome);
  }
}

/** `plan {"at":"refresh","plan":"pro"}` */
function entryText({ kind, subject, after }: JournalRow): string {
  return [kind, subject, after].filter((part) => part !== null).join(" ");
}
