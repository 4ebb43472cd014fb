/** How the service does what operators do with credits. */
import { balanceObject } from "../accounts/balance-object.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import {
  adjustmentObject,
  balance,
  journalObject,
  paymentObject,
  refundObject,
  topupObject,
} from "../accounts/operator-objects.ts";
import { bindFor } from "./bind.ts";
import { addCredits, adjustCredits, refundCredits } from "./credits.ts";
import { pageOf, pageSchema, seqIn } from "./pages.ts";
import { journalKindsIn, listJournal, listPayments, showBalance } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const creditActions = {
  addCredits: bind(addCredits, topupObject.schema, async (actions, { account, paymentId: id, credits }) =>
    topupObject.of({ account, id, credits, change: await actions.addCredits(account, id, credits) }),
  ),
  adjustCredits: bind(adjustCredits, adjustmentObject.schema, async (actions, input) => {
    const { account, operationId: id, requestId: request, credits, ...rest } = input;
    const change = await actions.adjustCredits(account, { ...rest, op: id, credits, request });
    return adjustmentObject.of({ account, id, credits, change });
  }),
  refundCredits: bind(refundCredits, refundObject.schema, async (actions, input) => {
    const { account, refundId: id, paymentId: payment, credits } = input;
    const change = await actions.refundCredits(account, { refund: id, payment, credits });
    return refundObject.of({ account, id, payment, credits, change });
  }),
  showBalance: bind(showBalance, balance, async (actions, { account }) =>
    balanceObject(await actions.balance(account)),
  ),
  listJournal: bind(listJournal, pageSchema(journalObject.schema), async (actions, input) => {
    const { account, kind, order, limit, after } = input;
    const kinds = kind === undefined ? undefined : journalKindsIn(kind);
    const query = { kinds, newestFirst: order === "newest", afterSeq: afterSeqIn(after) };
    return await pageOf(
      limit,
      (rows) => actions.journal(account, { ...query, limit: rows }),
      journalObject.of,
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
};

function afterSeqIn(cursor: string | undefined): number | undefined {
  return cursor === undefined ? undefined : seqIn(cursor);
}
