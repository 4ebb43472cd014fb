/** `/admin/usage`: the receipts of finished requests, by the page as JSON or all of them as CSV. */
import { Readable } from "node:stream";
import Type, { type Static } from "typebox";
import type { UsageQuery } from "../../store/store.ts";
import { usagePages } from "../../store/usage-pages.ts";
import { accountOf } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { momentNamed } from "./keys.ts";
import { usageObject } from "./objects.ts";
import { pageOf, placeCursor, placeIn, seqIn } from "./paging.ts";
import { invalidValue } from "./refusals.ts";
import * as schema from "./schemas.ts";
import { usageCsv } from "./usage-csv.ts";

const filters = schema.closed({
  ...schema.pageQuery,
  account: Type.Optional(schema.accountName),
  from: Type.Optional(schema.moment),
  to: Type.Optional(schema.moment),
  model: Type.Optional(schema.noteThatIs("the id of a model")),
  key: Type.Optional(schema.noteThatIs("the id of a key")),
  request_id: Type.Optional(schema.noteThatIs("the x-request-id of an answer")),
  format: Type.Optional(Type.Enum(["json", "csv"], { description: '"json" or "csv"' })),
});

const page = schema.pageOf(schema.usageRecord);

export function usageRoutes(app: AdminApp, { store }: AdminDependencies): void {
  app.get(
    "/admin/usage",
    {
      schema: {
        summary: "One receipt for each finished request, in the order of account and journal",
        description:
          "`from` counts, `to` does not. With `format=csv` or `accept: text/csv` all receipts come as one CSV, whatever their number; it takes no `limit`.",
        operationId: "listUsage",
        tags: ["usage"],
        querystring: filters,
        response: { 200: Type.Unsafe<Static<typeof page> | Readable>(page) },
        refusals: ["account_not_found", "list_too_slow"],
        csv: true,
      },
    },
    async ({ query, headers }, reply) => {
      const wanted = queryOf(query);
      if (wanted.account !== undefined) await accountOf(store, wanted.account);
      if (query.format === "csv" || (query.format === undefined && acceptsCsv(headers.accept))) {
        if (query.limit !== undefined) throw invalidValue("limit", "limit is for JSON: a CSV has every row.");
        reply.header("content-type", "text/csv; charset=utf-8; header=present");
        return Readable.from(usageCsv(usagePages(store, wanted)));
      }
      return pageOf(
        query.limit,
        (rows) => store.usage({ ...wanted, limit: rows }),
        usageObject,
        ({ account, seq }) => placeCursor(account, seq),
      );
    },
  );
}

function acceptsCsv(accept: string | undefined): boolean {
  return (accept ?? "")
    .split(",")
    .some((range) => range.split(";", 1)[0]?.trim().toLowerCase() === "text/csv");
}

function queryOf(query: Static<typeof filters>): Omit<UsageQuery, "limit"> {
  const { account, model, key } = query;
  const place = placeIn(query.after);
  const fromMs = query.from === undefined ? undefined : momentNamed("from", query.from);
  const toMs = query.to === undefined ? undefined : momentNamed("to", query.to);
  if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs) {
    throw invalidValue("to", "to must be after from, and does not count itself: no receipt is between them.");
  }
  return {
    ...(account === undefined ? {} : { account }),
    ...(model === undefined ? {} : { model }),
    ...(key === undefined ? {} : { key }),
    ...(query.request_id === undefined ? {} : { id: query.request_id }),
    ...(fromMs === undefined ? {} : { fromMs }),
    ...(toMs === undefined ? {} : { toMs }),
    ...(place === undefined ? {} : { after: { account: place.account, seq: seqIn(place.rest) } }),
  };
}
