/** Filters of both APIs for lists and sums of usage. */
import type { FastifyReply } from "fastify";
import Type, { type Static } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import { invalidValue, momentNamed } from "../../accounts/refusals.ts";
import { dayNamed, type UsageReport, usageReportCsv, usageReportObject } from "../../accounts/usage-sums.ts";
import { graphHoursMax } from "../../store/usage-hours.ts";
import type { UsageGroup, UsageSumsQuery } from "../../store/usage-sums.ts";
import type { EpochMs } from "../../units.ts";
import { acceptsCsv } from "./paging.ts";
import * as schema from "./schemas.ts";

export const usageFilters = {
  from: Type.Optional(schema.moment),
  to: Type.Optional(schema.moment),
  model: Type.Optional(schema.noteThatIs("the id of a model")),
  key: Type.Optional(schema.noteThatIs("the id of a key")),
};

export const formatFilter = Type.Optional(Type.Enum(["json", "csv"], { description: '"json" or "csv"' }));

export const sumsFilters = {
  ...usageFilters,
  order: Type.Optional(Type.Enum(["name", "cost"], { description: '"name" or "cost"' })),
  ...schema.pageQuery,
  format: formatFilter,
};

export const sumsDescription =
  "`from` is inclusive, `to` exclusive; both are days in the `timezone` of the configuration. The total is that of all rows, not of the page. " +
  "A day is final five minutes after its end; `final_until` is the first day that is not. " +
  "With `order=cost` the rows with the highest cost come first, and there is one page. " +
  "With `format=csv` or `accept: text/csv`, all rows come as one CSV; `limit` and `after` are not accepted then.";

const hoursDefault = 24;

export const hoursFilters = {
  hours: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: graphHoursMax,
      description: `a whole number of hours from 1 to ${graphHoursMax} (default ${hoursDefault})`,
    }),
  ),
  model: usageFilters.model,
  key: usageFilters.key,
  by: Type.Optional(Type.Enum(["hour", "model"], { description: '"hour" (default) or "model"' })),
};

const hoursQuery = closed(hoursFilters);

export function hoursIn({ hours = hoursDefault, model, key, by }: Static<typeof hoursQuery>) {
  return { hours, query: { model, key, byModel: by === "model" } };
}

/** Reads the period of a list. Days begin in the time zone. */
export function periodIn(
  query: { from?: string; to?: string },
  timezone: string,
): { fromMs: EpochMs | undefined; toMs: EpochMs | undefined } {
  const fromMs = momentNamed("from", query.from, timezone);
  const toMs = momentNamed("to", query.to, timezone);
  if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs) {
    throw invalidValue("to", "to must be after from: to itself is excluded.");
  }
  return { fromMs, toMs };
}

const sumsQuery = closed(sumsFilters);

/** Returns the body of a response with sums, as JSON or CSV. `read` makes the report. */
export async function sumsResponse(
  by: UsageGroup,
  query: Static<typeof sumsQuery>,
  { accept, reply, timezone }: { accept: string | undefined; reply: FastifyReply; timezone: string },
  read: (query: UsageSumsQuery) => Promise<UsageReport>,
) {
  const { model, key, after, limit, order = "name" } = query;
  const { format = acceptsCsv(accept) ? "csv" : "json" } = query;
  const from = dayNamed("from", query.from, timezone);
  const to = dayNamed("to", query.to, timezone);
  if (from !== undefined && to !== undefined && to <= from) {
    throw invalidValue("to", "to must be after from: the day of to is excluded.");
  }
  const wanted = { by, model, key, from, to, order };
  if (format === "csv") {
    if (limit !== undefined) throw invalidValue("limit", "limit is for JSON: a CSV has every row.");
    if (after !== undefined) throw invalidValue("after", "after is for JSON: a CSV has every row.");
    reply.header("content-type", "text/csv; charset=utf-8; header=present");
    return usageReportCsv(await read(wanted));
  }
  if (after !== undefined && order === "cost") {
    throw invalidValue("after", "after needs order=name: rows in the order of their cost are one page.");
  }
  if (after !== undefined && by === "day" && !/^\d{1,9}$/.test(after)) {
    throw invalidValue("after", "after must be the `next` of the page before, unchanged.");
  }
  const size = limit ?? schema.listRowsDefault;
  const report = await read({ ...wanted, after, limit: size + 1 });
  const rows = report.rows.slice(0, size);
  const hasMore = report.rows.length > size && order === "name";
  return usageReportObject({ ...report, rows }, hasMore ? (rows.at(-1)?.name ?? null) : null);
}
