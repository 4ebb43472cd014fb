/** Reports: sums of usage by day, model, key or account, with whether they can still change. */
import Type, { type Static } from "typebox";
import type { Store } from "../store/store.ts";
import { type Day, dayOf } from "../store/usage-days.ts";
import type { UsageSum } from "../store/usage-measures.ts";
import type { UsageGroup, UsageSumRow, UsageSums, UsageSumsQuery } from "../store/usage-sums.ts";
import { dayMs, exactCredits, type MicroCredits } from "../units.ts";
import { csvOf } from "./csv.ts";
import { closed, count, fieldsFor, micro, objectFor, orNull, text } from "./json-objects.ts";
import { type Currency, moneyOf } from "./money.ts";
import { invalidValue, momentNamed } from "./refusals.ts";

export interface UsageReport extends UsageSums {
  query: UsageSumsQuery;
  /** Whether no later report of the same period can differ. */
  isFinal: boolean;
  /** Null: sums have no money. */
  currency: Currency | null;
}

/** Sums what is due first, so that the report is fast, and final as soon as it can be. */
export async function usageReport(
  store: Pick<Store, "sumUsage" | "usageSums">,
  query: UsageSumsQuery,
  { timezone, currency }: { timezone: string; currency: Currency | null },
): Promise<UsageReport> {
  while (await store.sumUsage(timezone));
  const sums = await store.usageSums(query);
  const isFinal = query.to !== undefined && query.to <= sums.finalDay + 1;
  return { ...sums, query, isFinal, currency };
}

/** Returns the day that the field `param` of a request names: a date, or the time of its start. */
export function dayNamed(param: string, text: string | undefined, timezone: string): Day | undefined {
  const ms = momentNamed(param, text);
  if (text === undefined || ms === undefined) return undefined;
  if (!text.includes("T")) return ms / dayMs;
  const day = dayOf(ms, timezone);
  if (dayOf(ms - 1, timezone) !== day) return day;
  throw invalidValue(param, `${param} must be a day, 2027-01-31, or the start of one in ${timezone}.`);
}

function isoDay(day: Day): string {
  return new Date(day * dayMs).toISOString().slice(0, 10);
}

/** A row with its report. */
interface SumRow extends UsageSumRow {
  report: UsageReport;
}

const day = Type.String({ format: "date", description: "a day in the zone of the report" });
/** Late charges can correct counts downwards. */
const tokens = Type.Integer({ description: "tokens; a correction can be negative" });

export const sumFields = fieldsFor<UsageSum>()({
  requests: [count, (sum) => sum.requests],
  late_charges: [count, (sum) => sum.late],
  prompt_tokens: [tokens, (sum) => sum.promptTokens],
  cached_tokens: [tokens, (sum) => sum.cachedTokens],
  completion_tokens: [tokens, (sum) => sum.completionTokens],
  reasoning_tokens: [tokens, (sum) => sum.reasoningTokens],
  cost_micro: [micro, (sum) => sum.costMicro],
  base_micro: [micro, (sum) => sum.baseMicro],
  overage_micro: [micro, (sum) => sum.overageMicro],
  additional_micro: [micro, (sum) => sum.additionalMicro],
  shortfall_micro: [micro, (sum) => sum.shortfallMicro],
});

const money = (of: string) =>
  orNull(Type.String({ description: `${of} in money, if the configuration has a currency` }));

function moneyIn(micro: MicroCredits, { currency }: UsageReport): string | null {
  return currency && moneyOf(micro, currency);
}

const moneyFields = fieldsFor<UsageSum & { report: UsageReport }>()({
  paid_money: [
    money("what was paid of the cost"),
    ({ costMicro, shortfallMicro, report }) => moneyIn(costMicro - shortfallMicro, report),
  ],
  overage_money: [
    money("what overage credits have paid"),
    ({ overageMicro, report }) => moneyIn(overageMicro, report),
  ],
});

const totalObject = objectFor<UsageSum & { report: UsageReport }>("UsageTotal")({
  ...sumFields,
  ...moneyFields,
});

function nameIf(row: SumRow, group: UsageGroup): string | null {
  return row.report.query.by === group ? row.name : null;
}

const contact = Type.String({ description: "of the account, in sums by account" });

const sumObject = objectFor<SumRow>("UsageSum")({
  day: [orNull(day), (row) => (row.report.query.by === "day" ? isoDay(Number(row.name)) : null)],
  account: [orNull(text), (row) => row.account ?? nameIf(row, "account")],
  owner: [orNull(contact), (row) => row.owner],
  email: [orNull(contact), (row) => row.email],
  external_id: [orNull(contact), (row) => row.externalId],
  key: [orNull(text), (row) => nameIf(row, "key")],
  model: [orNull(text), (row) => nameIf(row, "model")],
  final: [
    Type.Boolean({ description: "whether the row can no longer change" }),
    (row) => isFinalRow(row, row.report),
  ],
  ...sumFields,
  ...moneyFields,
});

/** Whether a row can no longer change. */
function isFinalRow({ name }: UsageSumRow, { query, finalDay, isFinal }: UsageReport): boolean {
  return query.by === "day" ? Number(name) <= finalDay : isFinal;
}

export const usageReportSchema = closed({
  by: text,
  from: orNull(day),
  to: orNull(day),
  timezone: text,
  final: Type.Boolean({
    description: "whether the period is over, so that no later report of it can differ",
  }),
  final_until: orNull(day),
  currency: orNull(Type.String({ description: "of the amounts of money" })),
  data: Type.Array(sumObject.schema),
  total: totalObject.schema,
  next: orNull(Type.String({ description: "a cursor" })),
});

export type UsageReportJson = Static<typeof usageReportSchema>;

/** `next` continues the list. */
export function usageReportObject(report: UsageReport, next: string | null) {
  const { query, rows, total, isFinal, finalDay, timezone } = report;
  return {
    by: query.by,
    from: query.from === undefined ? null : isoDay(query.from),
    to: query.to === undefined ? null : isoDay(query.to),
    timezone,
    final: isFinal,
    final_until: finalDay < 0 ? null : isoDay(finalDay + 1),
    currency: report.currency?.code ?? null,
    data: rows.map((row) => sumObject.of({ ...row, report })),
    total: totalObject.of({ ...total, report }),
    next,
  };
}

/**
 * A line of field names, and a line for each row, without the total. Spreadsheets read amounts in
 * credits: `cost` is `cost_micro` with its decimals.
 */
export function usageReportCsv(report: UsageReport): string {
  const currency = report.currency?.code ?? null;
  const names = Object.keys(sumObject.schema.properties);
  const lines = report.rows.map((row) => {
    const values = Object.entries(sumObject.of({ ...row, report })).map(([name, value]) =>
      // All digits, without separators.
      name.endsWith("_micro") ? exactCredits(Number(value)).replaceAll(",", "") : value,
    );
    return [...values, currency];
  });
  return csvOf([[...names.map((name) => name.replace(/_micro$/, "")), "currency"], ...lines]);
}
