/** Reports: sums of usage by day, model, key or account, with whether they can still change. */
import Type from "typebox";
import type { Store } from "../store/store.ts";
import {
  type Day,
  dayMs,
  type UsageGroup,
  type UsageSum,
  type UsageSumRow,
  type UsageSums,
  type UsageSumsQuery,
} from "../store/usage-sums.ts";
import type { EpochMs } from "../units.ts";
import { csvOf } from "./csv.ts";
import { closed, count, fieldsFor, micro, objectFor, orNull, text } from "./json-objects.ts";
import { invalidValue } from "./refusals.ts";

export interface UsageReport extends UsageSums {
  query: UsageSumsQuery;
  /** Whether no later report of the same period can differ. */
  isFinal: boolean;
}

/** Sums what is due first, so that the report is fast, and final as soon as it can be. */
export async function usageReport(
  store: Pick<Store, "sumUsage" | "usageSums">,
  query: UsageSumsQuery,
): Promise<UsageReport> {
  while (await store.sumUsage());
  const sums = await store.usageSums(query);
  return { ...sums, query, isFinal: query.to !== undefined && query.to <= sums.finalDay + 1 };
}

/** Returns the day that begins at a time, which the field `param` of a request names. */
export function dayAt(param: string, ms: EpochMs | undefined): Day | undefined {
  if (ms === undefined || ms % dayMs === 0) return ms === undefined ? undefined : ms / dayMs;
  throw invalidValue(param, `${param} must be the start of a day in UTC: 2027-01-31.`);
}

export function isoDay(day: Day): string {
  return new Date(day * dayMs).toISOString().slice(0, 10);
}

/** A row with its report. */
interface SumRow extends UsageSumRow {
  report: UsageReport;
}

const day = Type.String({ format: "date", description: "a day in UTC" });
/** Late charges can correct counts downwards. */
const tokens = Type.Integer({ description: "tokens; a correction can be negative" });

export const sumFields = fieldsFor<UsageSum>()({
  requests: [count, (sum) => sum.requests],
  late_charges: [count, (sum) => sum.late],
  prompt_tokens: [tokens, (sum) => sum.promptTokens],
  cached_tokens: [tokens, (sum) => sum.cachedTokens],
  completion_tokens: [tokens, (sum) => sum.completionTokens],
  reasoning_tokens: [tokens, (sum) => sum.reasoningTokens],
  cost_micro: [micro, (sum) => sum.cost],
  base_micro: [micro, (sum) => sum.base],
  overage_micro: [micro, (sum) => sum.overage],
  additional_micro: [micro, (sum) => sum.additional],
  shortfall_micro: [micro, (sum) => sum.shortfall],
});

const totalObject = objectFor<UsageSum>("UsageTotal")(sumFields);

function nameIf(row: SumRow, group: UsageGroup): string | null {
  return row.report.query.by === group ? row.name : null;
}

const sumObject = objectFor<SumRow>("UsageSum")({
  day: [orNull(day), (row) => (row.report.query.by === "day" ? isoDay(Number(row.name)) : null)],
  account: [orNull(text), (row) => row.account ?? nameIf(row, "account")],
  key: [orNull(text), (row) => nameIf(row, "key")],
  model: [orNull(text), (row) => nameIf(row, "model")],
  final: [
    Type.Boolean({ description: "whether the row can no longer change" }),
    (row) => isFinalRow(row, row.report),
  ],
  ...sumFields,
});

/** Whether a row can no longer change. */
export function isFinalRow({ name }: UsageSumRow, { query, finalDay, isFinal }: UsageReport): boolean {
  return query.by === "day" ? Number(name) <= finalDay : isFinal;
}

export const usageReportSchema = closed({
  by: text,
  from: orNull(day),
  to: orNull(day),
  final: Type.Boolean({
    description: "whether the period is over, so that no later report of it can differ",
  }),
  final_until: orNull(day),
  data: Type.Array(sumObject.schema),
  total: totalObject.schema,
  next: orNull(Type.String({ description: "a cursor" })),
});

/** `next` continues the list. */
export function usageReportObject(report: UsageReport, next: string | null) {
  const { query, rows, total, isFinal, finalDay } = report;
  return {
    by: query.by,
    from: query.from === undefined ? null : isoDay(query.from),
    to: query.to === undefined ? null : isoDay(query.to),
    final: isFinal,
    final_until: finalDay < 0 ? null : isoDay(finalDay + 1),
    data: rows.map((row) => sumObject.of({ ...row, report })),
    total: totalObject.of(total),
    next,
  };
}

/** A line of field names, as in the JSON, and a line for each row, without the total. */
export function usageReportCsv(report: UsageReport): string {
  const lines = report.rows.map((row) => Object.values(sumObject.of({ ...row, report })));
  return csvOf([Object.keys(sumObject.schema.properties), ...lines]);
}
