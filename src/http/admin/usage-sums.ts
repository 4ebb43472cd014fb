/**
 * `/admin/usage/sums`: usage summed by day, model, key or account, as pages of JSON or as one CSV.
 */
import Type, { type Static } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { dayAt, usageReportCsv, usageReportObject, usageReportSchema } from "../../accounts/usage-sums.ts";
import { usageGroups } from "../../store/usage-sums.ts";
import { type ApiApp, operation } from "../api/app.ts";
import { acceptsCsv, momentNamed } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";

const query = closed({
  by: Type.Optional(
    Type.Enum([...usageGroups], { description: `"day" (default), "model", "key" or "account"` }),
  ),
  from: Type.Optional(schema.moment),
  to: Type.Optional(schema.moment),
  account: Type.Optional(schema.accountName),
  model: Type.Optional(schema.noteThatIs("the id of a model")),
  key: Type.Optional(schema.noteThatIs("the id of a key")),
  order: Type.Optional(Type.Enum(["name", "cost"], { description: '"name" or "cost"' })),
  ...schema.pageQuery,
  format: Type.Optional(Type.Enum(["json", "csv"], { description: '"json" or "csv"' })),
});

const sumUsage = operation("sumUsage", {
  summary: "Sum usage by day, model, key or account",
  description:
    "`from` is inclusive, `to` exclusive; both are days in UTC. The total is that of all rows, not of the page. " +
    "A day is final five minutes after its end; `final_until` is the first day that is not. " +
    "With `order=cost` the rows with the highest cost come first, and there is one page. " +
    "With `format=csv` or `accept: text/csv`, all rows come as one CSV; `limit` and `after` are not accepted then.",
  querystring: query,
  response: { 200: Type.Unsafe<Static<typeof usageReportSchema> | string>(usageReportSchema) },
  refusals: ["account_not_found", "list_too_slow"],
  csv: true,
});

export function usageSumsRoutes(app: ApiApp, actions: OperatorActions): void {
  app.get("/admin/usage/sums", { schema: sumUsage }, async ({ query, headers }, reply) => {
    const { by = "day", account, model, key, after, limit, order = "name" } = query;
    const { format = acceptsCsv(headers.accept) ? "csv" : "json" } = query;
    const from = dayAt("from", momentNamed("from", query.from));
    const to = dayAt("to", momentNamed("to", query.to));
    if (from !== undefined && to !== undefined && to <= from) {
      throw invalidValue("to", "to must be after from: the day of to is excluded.");
    }
    const wanted = { by, account, model, key, from, to, order };
    if (format === "csv") {
      if (limit !== undefined) throw invalidValue("limit", "limit is for JSON: a CSV has every row.");
      if (after !== undefined) throw invalidValue("after", "after is for JSON: a CSV has every row.");
      reply.header("content-type", "text/csv; charset=utf-8; header=present");
      return usageReportCsv(await actions.usageReport(wanted));
    }
    if (after !== undefined && order === "cost") {
      throw invalidValue("after", "after needs order=name: rows in the order of their cost are one page.");
    }
    if (after !== undefined && by === "day" && !/^\d{1,9}$/.test(after)) {
      throw invalidValue("after", "after must be the `next` of the page before, unchanged.");
    }
    const size = limit ?? schema.listRowsDefault;
    const report = await actions.usageReport({ ...wanted, after, limit: size + 1 });
    const rows = report.rows.slice(0, size);
    const hasMore = report.rows.length > size && order === "name";
    return usageReportObject({ ...report, rows }, hasMore ? (rows.at(-1)?.name ?? null) : null);
  });
}
