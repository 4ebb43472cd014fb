/** `/admin/usage`: the receipts of finished requests, as pages of JSON or all of them as CSV. */
import { Readable } from "node:stream";
import Type, { type Static } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { usageObject } from "../../accounts/operator-objects.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { usageCsv } from "../../accounts/usage-csv.ts";
import type { UsageQuery } from "../../store/store.ts";
import { type ApiApp, route } from "../api/app.ts";
import { acceptsCsv, pageOf, placeCursor, placeIn, seqIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import { formatFilter, periodIn, usageFilters } from "../api/usage-filters.ts";

const filters = closed({
  ...schema.pageQuery,
  account: Type.Optional(schema.accountName),
  ...usageFilters,
  request_id: Type.Optional(schema.noteThatIs("the x-request-id of an answer")),
  order: Type.Optional(Type.Enum(["oldest", "newest"], { description: '"oldest" (default) or "newest"' })),
  format: formatFilter,
});

const page = schema.pageOf(usageObject.schema);

export function usageRoutes(app: ApiApp, actions: OperatorActions): void {
  app.get(
    "/admin/usage",
    route("listUsage", {
      summary: "List receipts of finished requests, in the order of account and journal",
      description:
        "With `order=newest` the newest receipt of an account comes first; the list must name an account or a key then. `from` is inclusive, `to` exclusive. With `format=csv` or `accept: text/csv`, all receipts come as one CSV; `limit` is not accepted then.",
      querystring: filters,
      response: { 200: Type.Unsafe<Static<typeof page> | Readable>(page) },
      refusals: ["account_not_found", "list_too_slow"],
      csv: true,
    }),
    async ({ query, headers }, reply) => {
      const wanted = queryOf(query, actions.timezone);
      const { limit, format = acceptsCsv(headers.accept) ? "csv" : "json" } = query;
      if (format === "json") {
        return pageOf(
          limit,
          (rows) => actions.usage({ ...wanted, limit: rows }),
          usageObject.of,
          ({ account, seq }) => placeCursor(account, seq),
        );
      }
      const pages = await actions.usagePages(wanted);
      if (limit !== undefined) throw invalidValue("limit", "limit is for JSON: a CSV has every row.");
      reply.header("content-type", "text/csv; charset=utf-8; header=present");
      return Readable.from(usageCsv(pages));
    },
  );
}

function queryOf(query: Static<typeof filters>, timezone: string): Omit<UsageQuery, "limit"> {
  const { account, model, key, request_id: id } = query;
  const newestFirst = query.order === "newest";
  if (newestFirst && account === undefined && key === undefined) {
    throw invalidValue(
      "order",
      "order=newest needs account or key: receipts of all accounts are in the order of account and journal.",
    );
  }
  const place = placeIn(query.after);
  const after = place && { account: place.account, seq: seqIn(place.rest) };
  return { account, model, key, id, ...periodIn(query, timezone), newestFirst, after };
}
