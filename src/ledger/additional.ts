/**
 * Additional credits: payments, refunds and corrections by hand.
 *
 * Guarantees that a payment counts once in the installation, that refunds never exceed their
 * payment, and that the bucket never goes below zero. Each change has a grant.
 */
import { invariant } from "../errors.ts";
import type {
  AdjustOperation,
  AdjustOutcome,
  RefundOperation,
  RefundOutcome,
  TopupOperation,
  TopupOutcome,
} from "./operations.ts";
import type { AccountRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import type { FoundAccount, UnitOfWork } from "./unit-of-work.ts";

export function topup(work: UnitOfWork, found: FoundAccount, operation: TopupOperation): TopupOutcome {
  const { account } = found;
  const { payment: id, amount } = operation;
  invariant(Number.isSafeInteger(amount) && amount > 0, "a top-up is a whole positive amount");
  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    if (before.additionalDelta !== amount) return { kind: "conflict", amount: before.additionalDelta };
    return { kind: "added", additional: account.additional, replayed: true };
  }
  const elsewhere = work.payment(id);
  if (elsewhere !== null) return { kind: "payment_used", account: elsewhere.account };
  if (account.state === "closed") return { kind: "closed" };
  if (!fits(account, amount)) return { kind: "too_much" };
  work.grantAdditional(found, { kind: "topup", op, note: id, amount, cause: "payment", ref: id });
  work.putPayment({ id, account: account.id, amount, refunded: 0 });
  return { kind: "added", additional: account.additional, replayed: false };
}

/** Takes back what is free of the additional credits, up to the amount. */
export function refund(work: UnitOfWork, found: FoundAccount, operation: RefundOperation): RefundOutcome {
  const { account } = found;
  const { refund: id, payment: paymentId, amount } = operation;
  invariant(Number.isSafeInteger(amount) && amount > 0, "a refund is a whole positive amount");
  const op = opOf(operation);
  const note = `${paymentId} ${amount}`;
  const before = work.entry(account.id, op);
  if (before !== null) {
    const words = (before.note ?? "").split(" ");
    const wanted = Number(words.pop());
    if (before.note !== note) return { kind: "conflict", payment: words.join(" "), amount: wanted };
    const refunded = 0 - before.additionalDelta;
    return {
      kind: "refunded",
      amount: refunded,
      rest: amount - refunded,
      additional: account.additional,
      replayed: true,
    };
  }
  const elsewhere = work.refundAccount(id);
  if (elsewhere !== null) return { kind: "refund_used", account: elsewhere };
  const payment = work.payment(paymentId);
  if (payment === null || payment.account !== account.id) return { kind: "unknown_payment" };
  const refundable = payment.amount - payment.refunded;
  if (amount > refundable) return { kind: "too_much", refundable };
  const taken = Math.min(amount, account.additional);
  // Recorded even if nothing is left to take: a repetition gets the same answer.
  work.grantAdditional(found, {
    ...{ kind: "refund", op, note, amount: 0 - taken, cause: "refund", ref: id },
    payment: paymentId,
  });
  work.putPayment({ ...payment, refunded: payment.refunded + taken });
  work.putRefund(id, account.id);
  return {
    kind: "refunded",
    amount: taken,
    rest: amount - taken,
    additional: account.additional,
    replayed: false,
  };
}

export function adjust(work: UnitOfWork, found: FoundAccount, operation: AdjustOperation): AdjustOutcome {
  const { account } = found;
  const { amount, reason, op: ref } = operation;
  invariant(Number.isSafeInteger(amount), "an adjustment is a whole amount");
  const op = opOf(operation);
  const before = work.entry(account.id, op);
  if (before !== null) {
    const same = before.additionalDelta === amount && before.note === reason;
    if (!same) return { kind: "conflict", amount: before.additionalDelta, reason: before.note ?? "" };
    return { kind: "adjusted", additional: account.additional, replayed: true };
  }
  // What a closed account has can be written off, but nothing is granted to it.
  if (account.state === "closed" && amount > 0) return { kind: "closed" };
  if (account.additional + amount < 0) return { kind: "too_little", additional: account.additional };
  if (!fits(account, amount)) return { kind: "too_much" };
  work.grantAdditional(found, { kind: "adjust", op, note: reason, amount, cause: "adjustment", ref });
  return { kind: "adjusted", additional: account.additional, replayed: false };
}

function fits(account: AccountRow, amount: number): boolean {
  return Number.isSafeInteger(account.additional + account.additionalHeld + amount);
}
