/**
 * Additional credits: payments and their refunds, promotions, memos and corrections.
 *
 * Guarantees that a payment counts once in the installation, that a refund returns only what is
 * left of its payment, and that memos never exceed what was paid for their request.
 */
import { invariant } from "../errors.ts";
import { exactCredits, type MicroCredits } from "../units.ts";
import { freeOf, sumOf } from "./grants.ts";
import type {
  AdjustOperation,
  AdjustOutcome,
  PromoteOperation,
  PromoteOutcome,
  RefundOperation,
  RefundOutcome,
  TopupOperation,
  TopupOutcome,
} from "./operations.ts";
import type { AccountRow } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import { earlier, type FoundAccount, type UnitOfWork } from "./unit-of-work.ts";

/** What is left of all additional grants, with what running requests hold. */
export function additionalOf({ additional, later }: AccountRow): MicroCredits {
  return additional.reduce((sum, { amount, spent }) => sum + (amount - spent), later.free + later.held);
}

function assertAmount(amount: MicroCredits): void {
  invariant(Number.isSafeInteger(amount) && amount > 0, "an amount is whole and positive");
}

export function topup(work: UnitOfWork, found: FoundAccount, operation: TopupOperation): TopupOutcome {
  const { account } = found;
  const { payment, amount, by } = operation;
  assertAmount(amount);
  const before = work.payment(payment);
  if (before !== null && before.account !== account.id) return { kind: "id_used", account: before.account };
  if (before !== null) {
    if (before.amount !== amount) return { kind: "conflict", amount: before.amount };
    return { kind: "added", additional: additionalOf(account), replayed: true };
  }
  if (account.state === "closed") return { kind: "closed" };
  if (!fits(account, amount)) return { kind: "too_much" };
  const posting = { kind: "payment", op: opOf(operation), by, amount, note: payment } as const;
  work.grantAdditional(found, posting, { untilMs: null, payment, request: null });
  return { kind: "added", additional: additionalOf(account), replayed: false };
}

/**
 * Adds what a new account brings along. The opening is its operation, so it comes once. A payment
 * is found again by its id.
 */
export function bringAdditional(
  work: UnitOfWork,
  found: FoundAccount,
  { amount, payment, by }: { amount: MicroCredits; payment: string | null; by: string },
): void {
  assertAmount(amount);
  const posting =
    payment === null
      ? ({ kind: "promotion", note: `${exactCredits(amount)}: brought along` } as const)
      : ({ kind: "payment", op: `payment:${payment}`, note: payment } as const);
  work.grantAdditional(found, { ...posting, by, amount }, { untilMs: null, payment, request: null });
}

/** Adds promotional credits: to an open grant with the same end, or as a new one. */
export function promote(work: UnitOfWork, found: FoundAccount, operation: PromoteOperation): PromoteOutcome {
  const { account, grants, times } = found;
  const { amount, untilMs, reason, request, by } = operation;
  assertAmount(amount);
  const until = untilMs === null ? "" : ` until ${new Date(untilMs).toISOString()}`;
  const note = `${exactCredits(amount)}${until}${request === null ? "" : ` for ${request}`}: ${reason}`;
  const before = earlier(work, operation, note);
  if (before?.kind === "replayed") {
    return { kind: "added", additional: additionalOf(account), replayed: true };
  }
  if (before !== null) return before;
  if (account.state === "closed") return { kind: "closed" };
  if (untilMs !== null && untilMs <= times.latestMs) return { kind: "ended" };
  if (!fits(account, amount)) return { kind: "too_much", left: null };
  const posting = { op: opOf(operation), by, amount, note };
  if (request !== null) {
    if (work.hold(account.id, request) !== null) return { kind: "hold_open" };
    const { charges, memos } = work.ended(account.id, request);
    if (charges.length === 0) return { kind: "unknown_request" };
    const paid = charges.reduce((sum, charge) => sum + sumOf(charge), 0);
    if (amount > paid - memos) return { kind: "too_much", left: paid - memos };
    work.grantAdditional(found, { kind: "memo", ...posting }, { untilMs, payment: null, request });
    return { kind: "added", additional: additionalOf(account), replayed: false };
  }
  const open = grants.find((grant) => !grant.isPayment && grant.untilMs === untilMs);
  if (open === null) {
    work.grantAdditional(found, { kind: "promotion", ...posting }, { untilMs, payment: null, request: null });
  } else {
    work.post(found, { kind: "promotion", ...posting, bucket: "additional", grantSeq: open.seq });
    grants.change(open.seq, amount);
  }
  return { kind: "added", additional: additionalOf(account), replayed: false };
}

/** Takes promotional credits that nothing holds. */
export function adjust(work: UnitOfWork, found: FoundAccount, operation: AdjustOperation): AdjustOutcome {
  const { account, grants } = found;
  const { amount, grant: named, reason, by } = operation;
  assertAmount(amount);
  const note = `-${exactCredits(amount)}${named === null ? "" : ` of ${named}`}: ${reason}`;
  const before = earlier(work, operation, note);
  if (before?.kind === "replayed") {
    return { kind: "adjusted", additional: additionalOf(account), replayed: true };
  }
  if (before !== null) return before;
  const promotions = grants.promotions().filter(({ seq }) => named === null || seq === named);
  if (named !== null && promotions.length === 0) return { kind: "unknown_grant" };
  const free = promotions.reduce((sum, grant) => sum + freeOf(grant), 0);
  if (amount > free) return { kind: "too_little", free };
  let rest = amount;
  for (const promotion of promotions) {
    const part = Math.min(rest, freeOf(promotion));
    if (part === 0) continue;
    const op = rest === amount ? opOf(operation) : null;
    const entry = { kind: "adjust", op, by, note, bucket: "additional", amount: -part } as const;
    work.post(found, { ...entry, grantSeq: promotion.seq });
    grants.change(promotion.seq, -part);
    rest -= part;
  }
  return { kind: "adjusted", additional: additionalOf(account), replayed: false };
}

/** Takes back what is neither spent nor held of a payment, up to the amount. */
export function refund(work: UnitOfWork, found: FoundAccount, operation: RefundOperation): RefundOutcome {
  const { account, grants } = found;
  const { payment: id, amount, by } = operation;
  assertAmount(amount);
  const note = `${exactCredits(amount)} of ${id}`;
  const op = opOf(operation);
  const before = earlier(work, operation, note);
  if (before?.kind === "replayed") {
    const refunded = 0 - (work.entry(op)?.amount ?? 0);
    const rest = amount - refunded;
    return { kind: "refunded", amount: refunded, rest, additional: additionalOf(account), replayed: true };
  }
  if (before !== null) return before;
  const payment = work.payment(id);
  if (payment === null || payment.account !== account.id) return { kind: "unknown_payment" };
  const open = grants.find(({ seq }) => seq === payment.seq);
  const refundable = open === null ? 0 : open.amount - open.spent;
  if (amount > refundable) return { kind: "too_much", refundable };
  const taken = open === null ? 0 : Math.min(amount, freeOf(open));
  // Recorded even if nothing is free: a repetition gets the same answer.
  const entry = { kind: "refund", op, by, note, bucket: "additional", amount: 0 - taken } as const;
  work.post(found, { ...entry, grantSeq: payment.seq });
  if (taken > 0) grants.change(payment.seq, 0 - taken);
  work.countRefund(id, taken);
  const rest = amount - taken;
  return { kind: "refunded", amount: taken, rest, additional: additionalOf(account), replayed: false };
}

function fits(account: AccountRow, amount: number): boolean {
  return Number.isSafeInteger(additionalOf(account) + amount);
}
