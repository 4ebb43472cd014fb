/** How the service does what operators do with credits. */
import { balanceObject } from "../accounts/balance-object.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import {
  adjustmentObject,
  balance,
  paymentObject,
  refundObject,
  topupObject,
} from "../accounts/operator-objects.ts";
import { paymentReportCsv, paymentReportObject, paymentReportSchema } from "../accounts/payment-report.ts";
import { requireFresh } from "../accounts/refusals.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { opOf } from "../ledger/snapshot.ts";
import { microOf } from "../units.ts";
import { bindFor } from "./bind.ts";
import { addCredits, adjustCredits, refundCredits } from "./credits.ts";
import type { InputOf } from "./field.ts";
import { afterSeqIn, pageOf, pageSchema } from "./pages.ts";
import { toldEntry, toldEntryOf, withNames } from "./told.ts";
import { journalKindsIn, listJournal, listPayments, reportPayments, showBalance } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const creditActions = {
  addCredits: bind(addCredits, topupObject.schema, async (operator, input) => {
    const { account, paymentId: payment, credits } = input;
    const { ledger, by } = operator;
    const operation = { kind: "topup", account, payment, amountMicro: microOf(credits), by } as const;
    const outcome = await ledger.apply(operation);
    if (outcome.kind !== "added") throw refusalOf(outcome);
    const balance = await operator.balance(account);
    return topupObject.of({ account, id: payment, credits, replayed: outcome.replayed, balance });
  }),
  adjustCredits: bind(adjustCredits, adjustmentObject.schema, async (operator, input) => {
    const { account, operationId: op, credits } = input;
    const replayed = await (credits < 0 ? take(operator, input) : give(operator, input));
    return adjustmentObject.of({
      account,
      id: op,
      credits,
      replayed,
      balance: await operator.balance(account),
    });
  }),
  refundCredits: bind(refundCredits, refundObject.schema, async (operator, input) => {
    const { account, refundId: refund, paymentId: payment, credits, reason } = input;
    const { ledger, by, actor } = operator;
    requireFresh(actor);
    const operation = {
      kind: "refund",
      account,
      refund,
      payment,
      amountMicro: microOf(credits),
      reason,
      by,
    } as const;
    const outcome = await ledger.apply(operation);
    if (outcome.kind !== "refunded") throw refusalOf(outcome);
    const balance = await operator.balance(account);
    return refundObject.of({ ...outcome, account, id: refund, payment, credits, balance });
  }),
  showBalance: bind(showBalance, balance, async (actions, { account }) =>
    balanceObject(await actions.balance(account)),
  ),
  listJournal: bind(listJournal, pageSchema(toldEntry), async (actions, input) => {
    const { account, kind, order, limit, after } = input;
    const kinds = kind === undefined ? undefined : journalKindsIn(kind);
    const query = { kinds, newestFirst: order === "newest", afterSeq: afterSeqIn(after) };
    return await pageOf(
      limit,
      async (rows) => withNames(actions.store, await actions.journal(account, { ...query, limit: rows })),
      toldEntryOf,
      ({ seq }) => String(seq),
    );
  }),
  listPayments: bind(listPayments, pageSchema(paymentObject.schema), async (actions, input) => {
    const { account, limit, after } = input;
    const afterSeq = afterSeqIn(after);
    return await pageOf(
      limit,
      (rows) => actions.payments(account, { afterSeq, limit: rows }),
      paymentObject.of,
      ({ seq }) => String(seq),
    );
  }),
  reportPayments: bind(reportPayments, paymentReportSchema, async (actions, { month, format }) => {
    const report = paymentReportObject(await actions.paymentReport(month));
    return format === "csv" ? paymentReportCsv(report) : report;
  }),
};

type Adjustment = InputOf<typeof adjustCredits.input>;

/** Gives promotional credits. Returns whether they were given before. */
async function give(actions: OperatorActions, input: Adjustment): Promise<boolean> {
  const { ledger, by } = actions;
  const { account, operationId: op, credits, reason, expiresMs: untilMs = null, requestId = null } = input;
  const amountMicro = microOf(credits);
  const operation = { kind: "promote", account, op, requestId, amountMicro, untilMs, reason, by } as const;
  return await actions.giveWithinAllowance({ amountMicro, op: opOf(operation) }, async () => {
    const outcome = await ledger.apply(operation);
    if (outcome.kind === "added") return outcome.replayed;
    throw refusalOf(outcome);
  });
}

/** Takes promotional credits away. Returns whether they were taken before. */
async function take({ ledger, by }: OperatorActions, input: Adjustment): Promise<boolean> {
  const { account, operationId: op, credits, reason, grant = null } = input;
  const operation = {
    kind: "adjust",
    account,
    op,
    amountMicro: microOf(0 - credits),
    grant,
    reason,
    by,
  } as const;
  const outcome = await ledger.apply(operation);
  if (outcome.kind === "adjusted") return outcome.replayed;
  throw refusalOf(outcome);
}
