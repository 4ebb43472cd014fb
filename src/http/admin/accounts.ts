/** `/admin/accounts`: opening, listing and showing accounts, and changing their plans. */
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountObject } from "../../accounts/operator-objects.ts";
import { type AdminApp, operation } from "./app.ts";
import { pageOf } from "./paging.ts";
import * as schema from "./schemas.ts";

const params = closed({ account: schema.accountName });

const openAccount = operation("openAccount", {
  summary: "Open an account",
  description:
    "A repetition with the same plan returns 200 and the present account, even if its plan has changed since.",
  body: closed({ id: schema.accountName, plan: schema.planName }),
  response: { 200: accountObject.schema, 201: accountObject.schema },
  refusals: ["account_exists"],
});

const listAccounts = operation("listAccounts", {
  summary: "List accounts, in the order of their ids",
  ...schema.listOf(accountObject.schema),
});

const showAccount = operation("showAccount", {
  summary: "Show one account",
  params,
  response: { 200: accountObject.schema },
  refusals: ["account_not_found"],
});

const changePlan = operation("changePlan", {
  summary: "Change the plan of an account",
  description:
    "A larger grant counts at once, a smaller one from the next refresh on. Each operation id takes effect once.",
  params,
  body: closed({ operation_id: schema.operationId, plan: schema.planName }),
  response: { 200: accountObject.schema },
  refusals: ["account_not_found", "operation_differs"],
});

export function accountRoutes(app: AdminApp, actions: OperatorActions): void {
  app.post("/admin/accounts", { schema: openAccount }, async ({ body: { id, plan } }, reply) => {
    const { account, isNew } = await actions.openAccount(id, plan);
    return reply.code(isNew ? 201 : 200).send(accountObject.of(account));
  });

  app.get("/admin/accounts", { schema: listAccounts }, async ({ query: { limit, after } }) =>
    pageOf(
      limit,
      (rows) => actions.accounts({ after, limit: rows }),
      accountObject.of,
      (row) => row.id,
    ),
  );

  app.get("/admin/accounts/:account", { schema: showAccount }, async ({ params: { account } }) =>
    accountObject.of(await actions.account(account)),
  );

  app.patch(
    "/admin/accounts/:account",
    { schema: changePlan },
    async ({ params: { account }, body: { operation_id, plan } }) =>
      accountObject.of(await actions.changePlan(account, operation_id, plan)),
  );
}
