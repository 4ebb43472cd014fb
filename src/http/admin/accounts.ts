/** `/admin/accounts`: open them, list them, show one, put one on another plan. */
import { balanceUnavailable } from "../../ledger/balance.ts";
import type { AccountError } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { AccountRow } from "../../ledger/rows.ts";
import type { Store } from "../../store/store.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { accountObject } from "./objects.ts";
import { pageOf } from "./paging.ts";
import { accountNotFound, invalidValue, OperatorRefusal } from "./refusals.ts";
import * as schema from "./schemas.ts";

const tags = ["accounts"];
const params = schema.closed({ account: schema.accountName });

export function accountRoutes(app: AdminApp, { store, ledger, plans }: AdminDependencies): void {
  app.post(
    "/admin/accounts",
    {
      schema: {
        summary: "Open an account",
        description:
          "Sent again with the same plan it answers 200 and the account as it is now, also where its plan was changed since.",
        operationId: "openAccount",
        tags,
        body: schema.closed({ id: schema.accountName, plan: schema.planName }),
        response: { 200: schema.account, 201: schema.account },
        refusals: ["account_exists"],
      },
    },
    async ({ body }, reply) => {
      requirePlan(plans, body.plan);
      const outcome = await ledger.apply({ kind: "open", account: body.id, plan: body.plan });
      if (outcome.kind === "no_account" || outcome.kind === "balance_invalid") {
        throw faultOf(body.id, outcome);
      }
      if (outcome.kind === "exists") await requireOpenedOn(store, body.id, body.plan);
      return reply
        .code(outcome.kind === "opened" ? 201 : 200)
        .send(accountObject(await accountOf(store, body.id)));
    },
  );

  app.get(
    "/admin/accounts",
    {
      schema: {
        summary: "List accounts, in the order of their ids",
        operationId: "listAccounts",
        tags,
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(schema.account) },
      },
    },
    async ({ query: { limit, after } }) =>
      pageOf(
        limit,
        (rows) => store.accounts({ ...(after === undefined ? {} : { after }), limit: rows }),
        accountObject,
        (row) => row.id,
      ),
  );

  app.get(
    "/admin/accounts/:account",
    {
      schema: {
        summary: "Show one account",
        operationId: "showAccount",
        tags,
        params,
        response: { 200: schema.account },
        refusals: ["account_not_found"],
      },
    },
    async ({ params: { account } }) => accountObject(await accountOf(store, account)),
  );

  app.patch(
    "/admin/accounts/:account",
    {
      schema: {
        summary: "Put an account on another plan",
        description:
          "What the new plan grants more counts at once, what it grants less from the next refresh. Once per operation id.",
        operationId: "changePlan",
        tags,
        params,
        body: schema.closed({ operation_id: schema.operationId, plan: schema.planName }),
        response: { 200: schema.account },
        refusals: ["account_not_found", "operation_differs"],
      },
    },
    async ({ params: { account }, body }) => {
      requirePlan(plans, body.plan);
      const outcome = await ledger.apply({ kind: "plan", account, op: body.operation_id, plan: body.plan });
      if (outcome.kind === "conflict") {
        throw new OperatorRefusal(
          "operation_differs",
          `The operation "${body.operation_id}" put ${account} on the plan ${outcome.plan} before, not on ${body.plan}. Nothing has changed; another change needs another id.`,
          "plan",
        );
      }
      if (outcome.kind !== "changed") throw faultOf(account, outcome);
      return accountObject(await accountOf(store, account));
    },
  );
}

export async function accountOf(store: Store, id: string): Promise<AccountRow> {
  const snapshot = await store.snapshot(id);
  if (snapshot === null) throw accountNotFound(id);
  return snapshot.account;
}

export function faultOf(account: string, fault: AccountError): Error {
  if (fault.kind === "no_account") return accountNotFound(account);
  return balanceUnavailable(`account ${account}: ${fault.problem}`);
}

function requirePlan(plans: Plans, plan: string): void {
  if (plans.has(plan)) return;
  throw invalidValue(
    "plan",
    `There is no plan "${plan}" in the configuration; it has ${[...plans.keys()].join(", ")}.`,
  );
}

/** The plan that the account was opened on stands in the first entry of its journal. */
async function requireOpenedOn(store: Store, account: string, plan: string): Promise<void> {
  const [opening] = await store.journal(account, { limit: 1 });
  if (opening?.note === plan) return;
  throw new OperatorRefusal(
    "account_exists",
    `There is an account "${account}" already, opened on the plan ${opening?.note}. PATCH /admin/accounts/${account} changes its plan.`,
    "id",
  );
}
