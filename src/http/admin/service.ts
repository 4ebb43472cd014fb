/**
 * `/admin/models`, `/admin/nodes`, `/admin/holds` and `/admin/audit`: the state of the service and
 * its ledger.
 */
import Type from "typebox";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { auditObject, holdObject, modelObject, nodeObject } from "./objects.ts";
import { pageIn, pageOf, placeCursor, placeIn } from "./paging.ts";
import * as schema from "./schemas.ts";

export function serviceRoutes(
  app: AdminApp,
  actions: OperatorActions,
  { store, catalog, metrics, nodes }: AdminDependencies,
): void {
  app.get(
    "/admin/models",
    {
      schema: {
        summary: "List models with their state, price and load",
        operationId: "listModels",
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(modelObject.schema) },
      },
    },
    async ({ query }) => pageIn(catalog.all(), query, modelObject.of),
  );

  app.get(
    "/admin/nodes",
    {
      schema: {
        summary: "List the live processes on this database, in the order of their start",
        description:
          "As this process last saw them, a few seconds ago. `differs` lists the settings that affect credits and differ from this process.",
        operationId: "listNodes",
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(nodeObject.schema) },
      },
    },
    async ({ query }) => pageIn(nodes(), query, nodeObject.of),
  );

  app.get(
    "/admin/holds",
    {
      schema: {
        summary:
          "List running requests and the credits that they hold, in the order of account and request id",
        description:
          "A hold whose `expires_at` has passed belongs to a process that died. It is charged by its last checkpoint within seconds.",
        operationId: "listHolds",
        querystring: schema.closed({ ...schema.pageQuery, account: Type.Optional(schema.accountName) }),
        response: { 200: schema.pageOf(holdObject.schema) },
        refusals: ["account_not_found", "list_too_slow"],
      },
    },
    async ({ query: { limit, after, account } }) => {
      const place = placeIn(after);
      const from = place && { account: place.account, id: place.rest };
      return pageOf(
        limit,
        (rows) => actions.holds({ account, after: from, limit: rows }),
        holdObject.of,
        (row) => placeCursor(row.account, row.id),
      );
    },
  );

  app.get(
    "/admin/audit",
    {
      schema: {
        summary: "Check the ledger's invariants over all rows",
        description:
          "Reads all rows, which takes minutes on a large ledger. No request waits for it, but on PostgreSQL requests of a busy account become slower meanwhile. The metrics keep the result.",
        operationId: "audit",
        response: { 200: auditObject.schema },
      },
    },
    async () => {
      const report = await store.audit();
      metrics.audited(report.broken.length, report.checkedMs);
      return auditObject.of(report);
    },
  );
}
