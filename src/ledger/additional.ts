/**
 * Additional credits: payments and their refunds, promotions, memos and corrections.
 *
 * Guarantees that a payment counts once in the installation, that a refund returns only what is
 * left of its payment, and that memos never exceed what was paid for their request.
 */
import { invariant } from "../errors.ts";
import type { MicroCredits } from "../units.ts";
import { factText } from "./fact-values.ts";
import { additionalOf, freeOf, paidOf, sumOf } from "./grants.ts";
import type {
  AdjustOperation,
  OpeningCredits,
  PromoteOperation,
  RefundOperation,
  TopupOperation,
} from "./operations.ts";
import type { AdjustOutcome, PromoteOutcome, RefundOutcome, TopupOutcome } from "./outcomes.ts";
import type { AccountRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import { earlier, type FoundAccount, type UnitOfWork } from "./unit-of-work.ts";

function assertAmount(amountMicro: MicroCredits): void {
  invariant(Number.isSafeInteger(amountMicro) && amountMicro > 0, "an amount is whole and positive");
}

export function topup(work: UnitOfWork, found: FoundAccount, operation: TopupOperation): TopupOutcome {
  const { account } = found;
  const { payment, amountMicro, by } = operation;
  assertAmount(amountMicro);
  const before = work.payment(payment);
  if (before !== null) {
    if (before.account !== account.id) return { kind: "payment_used", payment, account: before.account };
    const { amountMicro: beforeMicro } = before;
    if (beforeMicro !== amountMicro)
      return { kind: "payment_differs", payment, beforeMicro, nowMicro: amountMicro };
    return { kind: "added", additionalMicro: additionalOf(account), replayed: true };
  }
  if (account.state === "closed") return { kind: "account_closed", account: account.id };
  if (!fits(account, amountMicro)) return { kind: "too_many_credits", account: account.id };
  const posting = { kind: "payment", op: opOf(operation), by, amountMicro, subject: payment } as const;
  work.grantAdditional(found, posting, { untilMs: null, payment, requestId: null });
  return { kind: "added", additionalMicro: additionalOf(account), replayed: false };
}

/**
 * Adds the additional credits of an opening. The opening is their operation, so they come once. A
 * payment is found again by its id.
 */
export function addAtOpening(
  work: UnitOfWork,
  found: FoundAccount,
  { amountMicro, payment, by }: OpeningCredits & { by: string },
): void {
  assertAmount(amountMicro);
  const posting =
    payment === null
      ? ({
          kind: "promotion",
          after: factText({ amountMicro, endsMs: null, reason: "opening" }),
        } as const)
      : ({ kind: "payment", op: `payment:${payment}`, subject: payment } as const);
  work.grantAdditional(found, { ...posting, by, amountMicro }, { untilMs: null, payment, requestId: null });
}

/** Adds promotional credits: to an open grant with the same end, or as a new one. */
export function promote(work: UnitOfWork, found: FoundAccount, operation: PromoteOperation): PromoteOutcome {
  const { account, grants, times } = found;
  const { amountMicro, untilMs, reason, requestId: request, by } = operation;
  assertAmount(amountMicro);
  const fact = { subject: request, after: factText({ amountMicro, endsMs: untilMs, reason }) };
  const before = earlier(work, operation, fact);
  if (before?.kind === "replayed") {
    return { kind: "added", additionalMicro: additionalOf(account), replayed: true };
  }
  if (before !== null) return before;
  if (account.state === "closed") return { kind: "account_closed", account: account.id };
  if (untilMs !== null && untilMs <= times.atMs) return { kind: "promotion_over", untilMs };
  if (!fits(account, amountMicro)) return { kind: "too_many_credits", account: account.id };
  const posting = { op: opOf(operation), by, amountMicro, ...fact };
  const grant = { untilMs, payment: null, requestId: request };
  if (request !== null) {
    if (work.hold(account.id, request) !== null) return { kind: "request_running", request };
    const { charges, memosMicro } = work.ended(account.id, request);
    if (charges.length === 0) return { kind: "request_not_found", account: account.id, request };
    const paidMicro = charges.reduce((sum, charge) => sum + sumOf(paidOf(charge)), 0);
    const leftMicro = paidMicro - memosMicro;
    if (amountMicro > leftMicro) return { kind: "memo_too_large", request, leftMicro };
    work.grantAdditional(found, { kind: "memo", ...posting }, grant);
    return { kind: "added", additionalMicro: additionalOf(account), replayed: false };
  }
  const open = grants.find((grant) => !grant.isPayment && grant.untilMs === untilMs);
  if (open === null) {
    work.grantAdditional(found, { kind: "promotion", ...posting }, grant);
  } else {
    work.post(found, { kind: "promotion", ...posting, bucket: "additional", grantSeq: open.seq });
    grants.change(open.seq, amountMicro);
  }
  return { kind: "added", additionalMicro: additionalOf(account), replayed: false };
}

/** Takes promotional credits that nothing holds. */
export function adjust(work: UnitOfWork, found: FoundAccount, operation: AdjustOperation): AdjustOutcome {
  const { account, grants } = found;
  const { amountMicro, grant: named, reason, by } = operation;
  assertAmount(amountMicro);
  const after = factText({ amountMicro, grant: named, reason });
  const before = earlier(work, operation, { after });
  if (before?.kind === "replayed") {
    return { kind: "adjusted", additionalMicro: additionalOf(account), replayed: true };
  }
  if (before !== null) return before;
  const promotions = grants.promotions().filter(({ seq }) => named === null || seq === named);
  if (named !== null && promotions.length === 0)
    return { kind: "grant_not_found", account: account.id, grant: named };
  const freeMicro = promotions.reduce((sum, grant) => sum + freeOf(grant), 0);
  if (amountMicro > freeMicro) return { kind: "too_few_credits", account: account.id, freeMicro };
  let rest = amountMicro;
  for (const promotion of promotions) {
    const part = Math.min(rest, freeOf(promotion));
    if (part === 0) continue;
    const op = rest === amountMicro ? opOf(operation) : null;
    const entry = { kind: "adjust", op, by, after, bucket: "additional", amountMicro: -part } as const;
    work.post(found, { ...entry, grantSeq: promotion.seq });
    grants.change(promotion.seq, -part);
    rest -= part;
  }
  return { kind: "adjusted", additionalMicro: additionalOf(account), replayed: false };
}

/** Takes back what is neither spent nor held of a payment, up to the amount. */
export function refund(work: UnitOfWork, found: FoundAccount, operation: RefundOperation): RefundOutcome {
  const { account, grants } = found;
  const { payment: id, amountMicro, reason, by } = operation;
  assertAmount(amountMicro);
  const fact = { subject: id, after: factText({ amountMicro, reason }) };
  const op = opOf(operation);
  const refunded = (takenMicro: MicroCredits, replayed: boolean): RefundOutcome => ({
    kind: "refunded",
    amountMicro: takenMicro,
    restMicro: amountMicro - takenMicro,
    additionalMicro: additionalOf(account),
    replayed,
  });
  const before = earlier(work, operation, fact);
  if (before?.kind === "replayed") return refunded(0 - (work.entry(op)?.amountMicro ?? 0), true);
  if (before !== null) {
    const { entry } = before;
    return { kind: entry.account === account.id ? "refund_differs" : "refund_used", entry };
  }
  const payment = work.payment(id);
  if (payment === null || payment.account !== account.id)
    return { kind: "payment_not_found", account: account.id, payment: id };
  const open = grants.find(({ seq }) => seq === payment.seq);
  const refundableMicro = open === null ? 0 : open.amountMicro - open.spentMicro;
  if (amountMicro > refundableMicro) return { kind: "refund_too_large", payment: id, refundableMicro };
  const takenMicro = open === null ? 0 : Math.min(amountMicro, freeOf(open));
  // Recorded even if nothing is free: a repetition gets the same answer.
  const entry = {
    kind: "refund",
    op,
    by,
    ...fact,
    bucket: "additional",
    amountMicro: 0 - takenMicro,
  } as const;
  work.post(found, { ...entry, grantSeq: payment.seq });
  if (takenMicro > 0) grants.change(payment.seq, 0 - takenMicro);
  work.countRefund(id, takenMicro);
  if (takenMicro > 0) work.tell(found, "payment.refunded", { payment: id, amount_micro: takenMicro, by });
  return refunded(takenMicro, false);
}

function fits(account: AccountRow, amountMicro: number): boolean {
  return Number.isSafeInteger(additionalOf(account) + amountMicro);
}
