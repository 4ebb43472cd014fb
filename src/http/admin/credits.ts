/** Below `/admin/accounts/{account}`: credits bought and corrected, the balance, the journal. */
import { balanceOf } from "../../ledger/balance.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { Store } from "../../store/store.ts";
import { creditsIn, microOf, microPerCredit } from "../../units.ts";
import { balanceObject } from "../openai-format/response.ts";
import { accountOf, faultOf } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { journalObject } from "./objects.ts";
import { pageOf, seqIn } from "./paging.ts";
import { accountNotFound, invalidValue, OperatorRefusal } from "./refusals.ts";
import * as schema from "./schemas.ts";

const tags = ["credits"];
const params = schema.closed({ account: schema.accountName });

export function creditRoutes(app: AdminApp, { store, ledger, plans }: AdminDependencies): void {
  app.post(
    "/admin/accounts/:account/topups",
    {
      schema: {
        summary: "Add credits that were paid for",
        description:
          "Once per payment id, ever. Sent again the answer says so (`again`); with another amount it is refused.",
        operationId: "addCredits",
        tags,
        params,
        body: schema.closed({ payment_id: schema.note, credits: schema.credits }),
        response: { 200: schema.topup },
        refusals: ["account_not_found", "payment_differs", "too_many_credits"],
      },
    },
    async ({ params: { account }, body: { payment_id: payment, credits } }) => {
      const outcome = await ledger.apply({ kind: "topup", account, payment, amount: microOf(credits) });
      if (outcome.kind === "conflict") throw paidOtherwise(payment, outcome.amount, credits);
      if (outcome.kind === "too_much") throw tooMany(account);
      if (outcome.kind !== "added") throw faultOf(account, outcome);
      const balance = await balanceIn(store, plans, account);
      return { account, payment_id: payment, credits, again: outcome.replayed, balance };
    },
  );

  app.post(
    "/admin/accounts/:account/adjustments",
    {
      schema: {
        summary: "Correct the additional credits by hand, up or down",
        description:
          "Once per operation id. Sent again the answer says so (`again`); with another amount or reason it is refused.",
        operationId: "adjustCredits",
        tags,
        params,
        body: schema.closed({
          operation_id: schema.operationId,
          credits: schema.signedCredits,
          reason: schema.note,
        }),
        response: { 200: schema.adjustment },
        refusals: ["account_not_found", "operation_differs", "too_few_credits", "too_many_credits"],
      },
    },
    async ({ params: { account }, body: { operation_id: op, credits, reason } }) => {
      if (credits === 0) throw invalidValue("credits", "credits must not be 0: that would change nothing.");
      const outcome = await ledger.apply({ kind: "adjust", account, op, amount: microOf(credits), reason });
      if (outcome.kind === "conflict") throw adjustedOtherwise(op, outcome, { credits, reason });
      if (outcome.kind === "too_little") {
        throw new OperatorRefusal(
          "too_few_credits",
          `${account} has ${creditsIn(outcome.additional)} additional credits; no more than that can be taken away. Nothing has changed.`,
          "credits",
        );
      }
      if (outcome.kind === "too_much") throw tooMany(account);
      if (outcome.kind !== "adjusted") throw faultOf(account, outcome);
      const balance = await balanceIn(store, plans, account);
      return { account, operation_id: op, credits, again: outcome.replayed, balance };
    },
  );

  app.get(
    "/admin/accounts/:account/balance",
    {
      schema: {
        summary: "The balance of an account, as GET /v1/balance shows it",
        operationId: "showBalance",
        tags,
        params,
        response: { 200: schema.balance },
        refusals: ["account_not_found"],
      },
    },
    async ({ params: { account } }) => balanceIn(store, plans, account),
  );

  app.get(
    "/admin/accounts/:account/journal",
    {
      schema: {
        summary: "Every change of an account's buckets, oldest first",
        operationId: "listJournal",
        tags,
        params,
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(schema.journalEntry) },
        refusals: ["account_not_found", "list_too_slow"],
      },
    },
    async ({ params: { account }, query: { limit, after } }) => {
      await accountOf(store, account);
      const afterSeq = after === undefined ? 0 : seqIn(after);
      const read = (rows: number) => store.journal(account, { afterSeq, limit: rows });
      return pageOf(limit, read, journalObject, ({ seq }) => String(seq));
    },
  );
}

async function balanceIn(store: Store, plans: Plans, account: string) {
  const snapshot = await store.snapshot(account);
  if (snapshot === null) throw accountNotFound(account);
  return balanceObject(balanceOf(snapshot, plans));
}

function paidOtherwise(payment: string, beforeMicro: number, credits: number) {
  return new OperatorRefusal(
    "payment_differs",
    `The payment "${payment}" was counted before, with ${beforeMicro / microPerCredit} credits instead of ${credits}. Nothing has changed; another payment needs another id.`,
    "credits",
  );
}

function adjustedOtherwise(
  operation: string,
  before: { amount: number; reason: string },
  { credits, reason }: { credits: number; reason: string },
) {
  const creditsBefore = before.amount / microPerCredit;
  return new OperatorRefusal(
    "operation_differs",
    `The operation "${operation}" was done before, with ${creditsBefore} credits and the reason "${before.reason}" instead of ${credits} and "${reason}". Nothing has changed; another operation needs another id.`,
    creditsBefore === credits ? "reason" : "credits",
  );
}

function tooMany(account: string) {
  return new OperatorRefusal(
    "too_many_credits",
    `${account} cannot hold that many credits. Nothing has changed.`,
    "credits",
  );
}
