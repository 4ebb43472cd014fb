/** `/admin/accounts/{account}/...`: top-ups, refunds, adjustments, the balance and the journal. */

import Type from "typebox";
import { balanceObject } from "../../accounts/balance-object.ts";
import { journalKindsIn } from "../../accounts/fields.ts";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import {
  adjustmentObject,
  balance,
  journalObject,
  paymentObject,
  refundObject,
  topupObject,
} from "../../accounts/operator-objects.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageOf, seqIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";

export function creditRoutes(app: ApiApp, actions: OperatorActions): void {
  app.post(
    "/admin/accounts/:account/topups",
    route("addCredits", {
      summary: "Add credits that were paid for",
      description:
        "Each payment id takes effect once. A repetition changes nothing and has `again: true`; with another amount it is refused.",
      body: closed({ payment_id: schema.id, credits: schema.credits }),
      response: { 200: topupObject.schema },
      ...schema.ofAccount("account_closed", "payment_differs", "payment_used", "too_many_credits"),
    }),
    async ({ params: { account }, body: { payment_id: payment, credits } }) => {
      const change = await actions.addCredits(account, payment, credits);
      return topupObject.of({ account, id: payment, credits, change });
    },
  );

  app.post(
    "/admin/accounts/:account/adjustments",
    route("adjustCredits", {
      summary: "Give promotional credits, or take them away",
      description:
        "A positive number gives credits: until `expires_at`, if it is set, or to make up for the request `request_id`, at most what was paid for it. A negative number takes promotional credits that no request holds: those of the entry `grant` of the journal, or the newest first. It never takes what was paid for. Each operation id takes effect once. A repetition changes nothing and has `again: true`; with other values it is refused.",
      body: closed({
        operation_id: schema.operationId,
        credits: schema.signedCredits,
        reason: schema.note,
        expires_at: Type.Optional(schema.lastDay),
        request_id: Type.Optional(schema.requestId),
        grant: Type.Optional(schema.limit),
      }),
      response: { 200: adjustmentObject.schema },
      ...schema.ofAccount(
        "account_closed",
        "operation_differs",
        "too_few_credits",
        "too_many_credits",
        "grant_not_found",
        "request_not_found",
        "request_running",
        "memo_too_large",
      ),
    }),
    async ({ params: { account }, body }) => {
      const {
        operation_id: operation,
        credits,
        reason,
        expires_at: expires,
        request_id: request,
        grant,
      } = body;
      if (credits === 0) throw invalidValue("credits", "credits must not be 0, which changes nothing.");
      requireSign("expires_at", expires, credits > 0);
      requireSign("request_id", request, credits > 0);
      requireSign("grant", grant, credits < 0);
      const adjustment = { op: operation, credits, reason, expires, request, grant };
      const change = await actions.adjustCredits(account, adjustment);
      return adjustmentObject.of({ account, id: operation, credits, change });
    },
  );

  app.post(
    "/admin/accounts/:account/refunds",
    route("refundCredits", {
      summary: "Take back the credits of a payment that was returned",
      description:
        "Takes what is neither spent nor held of this payment. `rest_micro` is held by running requests, and can be refunded when these have ended. Each refund id takes effect once, also if it could take nothing.",
      body: closed({ refund_id: schema.id, payment_id: schema.id, credits: schema.credits }),
      response: { 200: refundObject.schema },
      ...schema.ofAccount("payment_not_found", "refund_differs", "refund_used", "refund_too_large"),
    }),
    async ({ params: { account }, body: { refund_id: refund, payment_id: payment, credits } }) => {
      const change = await actions.refundCredits(account, { refund, payment, credits });
      return refundObject.of({ account, id: refund, payment, credits, change });
    },
  );

  app.get(
    "/admin/accounts/:account/balance",
    route("showBalance", {
      summary: "Show the balance of an account, as GET /v1/balance does",
      response: { 200: balance },
      ...schema.ofAccount(),
    }),
    async ({ params: { account } }) => balanceObject(await actions.balance(account)),
  );

  app.get(
    "/admin/accounts/:account/journal",
    route("listJournal", {
      summary: "List the changes of an account's buckets",
      description:
        "All of them, oldest first, unless `kind` and `order` say otherwise. `kind=payment,refund` lists the changes of purchased credits.",
      querystring: closed({
        ...schema.pageQuery,
        kind: Type.Optional(schema.journalKinds),
        order: Type.Optional(
          Type.Enum(["oldest", "newest"], { description: '"oldest" (default) or "newest"' }),
        ),
      }),
      response: { 200: schema.pageOf(journalObject.schema) },
      ...schema.ofAccount("list_too_slow"),
    }),
    async ({ params: { account }, query: { limit, after, kind, order } }) => {
      const afterSeq = after === undefined ? undefined : seqIn(after);
      const kinds = kind === undefined ? undefined : journalKindsIn(kind);
      return pageOf(
        limit,
        (rows) => actions.journal(account, { kinds, newestFirst: order === "newest", afterSeq, limit: rows }),
        journalObject.of,
        ({ seq }) => String(seq),
      );
    },
  );

  app.get(
    "/admin/accounts/:account/payments",
    route("listPayments", {
      summary: "List the payments of an account, newest first, with what was spent and refunded of each",
      ...schema.listOf(paymentObject.schema),
      ...schema.ofAccount("list_too_slow"),
    }),
    async ({ params: { account }, query: { limit, after } }) => {
      const afterSeq = after === undefined ? undefined : seqIn(after);
      return pageOf(
        limit,
        (rows) => actions.payments(account, { afterSeq, limit: rows }),
        paymentObject.of,
        ({ seq }) => String(seq),
      );
    },
  );
}

/** Refuses a field that belongs to credits of the other sign. */
function requireSign(field: string, value: unknown, hasSign: boolean): void {
  if (value === undefined || hasSign) return;
  const sign = field === "grant" ? "taken away: credits must be negative" : "given: credits must be positive";
  throw invalidValue(field, `${field} belongs to credits that are ${sign}.`);
}
