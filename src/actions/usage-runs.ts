/** How the service lists and sums usage, for operators and for holders of keys. */
import { Readable } from "node:stream";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { usageObject } from "../accounts/operator-objects.ts";
import { invalidValue } from "../accounts/refusals.ts";
import { usageCsv } from "../accounts/usage-csv.ts";
import { usageHoursObject, usageHoursSchema } from "../accounts/usage-hours.ts";
import {
  dayNamed,
  type UsageReport,
  usageReportCsv,
  usageReportObject,
  usageReportSchema,
} from "../accounts/usage-sums.ts";
import type { UsageSumRow, UsageSumsQuery } from "../store/usage-sums.ts";
import type { EpochMs } from "../units.ts";
import { bindFor } from "./bind.ts";
import type { InputOf } from "./field.ts";
import { rowsDefault } from "./page-fields.ts";
import { pageOf, pageSchema, placeCursor, placeIn, seqIn, wrongCursor } from "./pages.ts";
import { graphHoursDefault, listUsage, showUsageHours, type sumsOfAll, sumUsage } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const usageActions = {
  listUsage: bind(listUsage, pageSchema(usageObject.schema), async (actions, input) => {
    const { limit, after, order, format, requestId: id, from, to, ...filters } = input;
    const place = placeIn(after);
    const wanted = {
      ...filters,
      ...periodIn({ from, to }),
      id,
      newestFirst: order === "newest",
      after: place && { account: place.account, seq: seqIn(place.rest) },
    };
    if (format === "csv") {
      const pages = await actions.usagePages(wanted);
      if (limit !== undefined) throw onlyInJson("limit");
      return Readable.from(usageCsv(pages));
    }
    return await pageOf(
      limit,
      (rows) => actions.usage({ ...wanted, limit: rows }),
      usageObject.of,
      ({ account, seq }) => placeCursor(account, seq),
    );
  }),
  sumUsage: bind(sumUsage, usageReportSchema, async (actions, { account, ...input }) =>
    sumsIn(input, actions.timezone, (query) => actions.usageReport({ ...query, account })),
  ),
  showUsageHours: bind(showUsageHours, usageHoursSchema, async (actions, input) => {
    const { hours = graphHoursDefault, by, ...filters } = input;
    return usageHoursObject(await actions.usageHours({ ...filters, byModel: by === "model" }, hours));
  }),
};

/** Returns the period of a list. */
export function periodIn({ from, to }: { from?: EpochMs | undefined; to?: EpochMs | undefined }) {
  if (from !== undefined && to !== undefined && to <= from) {
    throw invalidValue("to", "to must be after the beginning of the period: its own time is excluded.");
  }
  return { fromMs: from, toMs: to };
}

function onlyInJson(param: "limit" | "after") {
  return invalidValue(param, `${param} is for JSON: a CSV has every row.`);
}

function cursorOf(row: UsageSumRow | undefined): string | null {
  if (row === undefined) return null;
  return row.account === null ? row.name : placeCursor(row.account, row.name);
}

/** Returns sums as JSON or CSV. `read` makes the report. */
export async function sumsIn(
  input: Omit<InputOf<typeof sumsOfAll>, "account">,
  timezone: string,
  read: (query: UsageSumsQuery) => Promise<UsageReport>,
) {
  const { by = "day", model, key, after, limit, order = "name", format } = input;
  const from = dayNamed("from", input.from, timezone);
  const to = dayNamed("to", input.to, timezone);
  if (from !== undefined && to !== undefined && to <= from) {
    throw invalidValue("to", "to must be after the beginning of the period: its own day is excluded.");
  }
  const wanted = { by, model, key, from, to, order };
  if (format === "csv") {
    if (limit !== undefined) throw onlyInJson("limit");
    if (after !== undefined) throw onlyInJson("after");
    return usageReportCsv(await read(wanted));
  }
  if (after !== undefined && order === "cost") {
    throw invalidValue("after", "after needs order=name: rows in the order of their cost are one page.");
  }
  if (after !== undefined && by === "day" && !/^\d{1,9}$/.test(after)) throw wrongCursor();
  const size = limit ?? rowsDefault;
  const place = by === "key" ? placeIn(after) : undefined;
  const beyond = place === undefined ? { after } : { after: place.rest, afterAccount: place.account };
  const report = await read({ ...wanted, ...beyond, limit: size + 1 });
  const rows = report.rows.slice(0, size);
  const hasMore = report.rows.length > size && order === "name";
  return usageReportObject({ ...report, rows }, hasMore ? cursorOf(rows.at(-1)) : null);
}
