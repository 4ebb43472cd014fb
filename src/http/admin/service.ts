/** `/admin/models`, `/admin/nodes`, `/admin/holds` and `/admin/audit`: what is offered, by whom, what is running, is it sound. */
import Type from "typebox";
import { accountOf } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { auditObject, holdObject, modelObject, nodeObject } from "./objects.ts";
import { pageIn, pageOf, placeCursor, placeIn } from "./paging.ts";
import * as schema from "./schemas.ts";

export function serviceRoutes(app: AdminApp, { store, catalog, metrics, nodes }: AdminDependencies): void {
  app.get(
    "/admin/models",
    {
      schema: {
        summary: "The models, their state, price and load",
        operationId: "listModels",
        tags: ["service"],
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(schema.modelRecord) },
      },
    },
    async ({ query }) => pageIn(catalog.all(), query, modelObject),
  );

  app.get(
    "/admin/nodes",
    {
      schema: {
        summary: "The processes on this database that live, in the order of their start",
        description:
          "As this one saw them at its last look, seconds ago. `differs` names what decides about credits and is not the same there.",
        operationId: "listNodes",
        tags: ["service"],
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(schema.nodeRecord) },
      },
    },
    async ({ query }) => pageIn(nodes(), query, nodeObject),
  );

  app.get(
    "/admin/holds",
    {
      schema: {
        summary: "Running requests and what they hold, in the order of account and request id",
        description:
          "A hold whose `expires_at` has passed is of a process that died; it is charged by its last checkpoint within seconds.",
        operationId: "listHolds",
        tags: ["service"],
        querystring: schema.closed({ ...schema.pageQuery, account: Type.Optional(schema.accountName) }),
        response: { 200: schema.pageOf(schema.holdRecord) },
        refusals: ["account_not_found", "list_too_slow"],
      },
    },
    async ({ query: { limit, after, account } }) => {
      if (account !== undefined) await accountOf(store, account);
      const place = placeIn(after);
      return pageOf(
        limit,
        (rows) =>
          store.holds({
            ...(account === undefined ? {} : { account }),
            ...(place === undefined ? {} : { after: { account: place.account, id: place.rest } }),
            limit: rows,
          }),
        holdObject,
        (row) => placeCursor(row.account, row.id),
      );
    },
  );

  app.get(
    "/admin/audit",
    {
      schema: {
        summary: "Check over all rows what always holds in the ledger",
        description:
          "Reads all rows, which takes minutes on a large ledger. No request waits for it; on PostgreSQL those on a busy account become slower meanwhile. The metrics keep the result.",
        operationId: "audit",
        tags: ["service"],
        response: { 200: schema.auditReport },
      },
    },
    async () => {
      const report = await store.audit();
      metrics.audited(report.broken.length, report.checkedMs);
      return auditObject(report);
    },
  );
}
