/** Refusals of operations that the ledger has decided and not executed. */
import type {
  AccountError,
  AdjustOperation,
  OutcomeOf,
  PlanOperation,
  PlanOutcome,
  RefundOperation,
  StateOperation,
  TopupOperation,
} from "../ledger/operations.ts";
import { exactCredits } from "../units.ts";
import { accountClosed, accountRefusal, newIdNeeded, OperatorRefusal, planRefusal } from "./refusals.ts";

export function planChangeRefusal(
  { account, op, plan }: Pick<PlanOperation, "account" | "op" | "plan">,
  outcome: Exclude<PlanOutcome, { kind: "changed" }> | AccountError,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "operation_differs",
        `Operation "${op}" put ${account} on the plan ${outcome.plan} before, not on ${plan}. ${newIdNeeded}`,
        "plan",
      );
    case "unknown_plan":
    case "retired_plan":
      return planRefusal(plan, outcome);
    default:
      return otherRefusal(account, outcome);
  }
}

export function stateRefusal(
  { account, op }: StateOperation,
  outcome: Exclude<OutcomeOf<StateOperation>, { kind: "changed" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "operation_differs",
        `Operation "${op}" made another change of ${account} before: ${outcome.note}. ${newIdNeeded}`,
        "operation_id",
      );
    default:
      return otherRefusal(account, outcome);
  }
}

export function topupRefusal(
  { account, payment, amount }: TopupOperation,
  outcome: Exclude<OutcomeOf<TopupOperation>, { kind: "added" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "payment_differs",
        `Payment "${payment}" was counted before, with ${exactCredits(outcome.amount)} credits instead of ${exactCredits(amount)}. ${newIdNeeded}`,
        "credits",
      );
    case "payment_used":
      return new OperatorRefusal(
        "payment_used",
        `Payment "${payment}" was credited to account ${outcome.account} before. A payment counts once. ${newIdNeeded}`,
        "payment_id",
      );
    default:
      return otherRefusal(account, outcome);
  }
}

export function adjustmentRefusal(
  { account, op, amount, reason }: AdjustOperation,
  outcome: Exclude<OutcomeOf<AdjustOperation>, { kind: "adjusted" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "operation_differs",
        `Adjustment "${op}" was made before, with ${exactCredits(outcome.amount)} credits and the reason "${outcome.reason}" instead of ${exactCredits(amount)} and "${reason}". ${newIdNeeded}`,
        outcome.amount === amount ? "reason" : "credits",
      );
    case "too_little":
      return new OperatorRefusal(
        "too_few_credits",
        `Account ${account} has ${exactCredits(outcome.additional)} additional credits. An adjustment cannot take away more. Nothing has changed.`,
        "credits",
      );
    default:
      return otherRefusal(account, outcome);
  }
}

export function refundRefusal(
  { account, refund, payment, amount }: RefundOperation,
  outcome: Exclude<OutcomeOf<RefundOperation>, { kind: "refunded" }>,
): Error {
  switch (outcome.kind) {
    case "conflict":
      return new OperatorRefusal(
        "refund_differs",
        `Refund "${refund}" was made before, of payment "${outcome.payment}" with ${exactCredits(outcome.amount)} credits instead of payment "${payment}" with ${exactCredits(amount)}. ${newIdNeeded}`,
        outcome.payment === payment ? "credits" : "payment_id",
      );
    case "refund_used":
      return new OperatorRefusal(
        "refund_used",
        `Refund "${refund}" was made on account ${outcome.account} before. ${newIdNeeded}`,
        "refund_id",
      );
    case "unknown_payment":
      return new OperatorRefusal(
        "payment_not_found",
        `Account ${account} has no payment "${payment}". Nothing has changed.`,
        "payment_id",
      );
    case "too_much":
      return new OperatorRefusal(
        "refund_too_large",
        `Of payment "${payment}", ${exactCredits(outcome.refundable)} credits are not refunded yet. A refund cannot be larger. Nothing has changed.`,
        "credits",
      );
    default:
      return accountRefusal(account, outcome);
  }
}

/** Returns the refusal of an outcome that several operations have. */
function otherRefusal(
  account: string,
  outcome: { kind: "closed" } | { kind: "too_much" } | AccountError,
): Error {
  switch (outcome.kind) {
    case "closed":
      return accountClosed(account);
    case "too_much":
      return new OperatorRefusal(
        "too_many_credits",
        `Account ${account} cannot hold that many credits. Nothing has changed.`,
        "credits",
      );
    default:
      return accountRefusal(account, outcome);
  }
}
