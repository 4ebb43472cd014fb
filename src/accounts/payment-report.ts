/**
 * The changes of payments in a calendar month: the deferred revenue that an accountant asks for.
 */
import Type, { type Static } from "typebox";
import { windowFrom } from "../ledger/windows.ts";
import type { PaymentPeriod } from "../store/payment-report.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { csvOf } from "./csv.ts";
import { fieldsFor, isoTime, micro, objectFor, text, time } from "./json-objects.ts";
import { invalidValue } from "./refusals.ts";

/** Payments that are read at a time. */
const pageRows = 500;

/** `left` is `leftBefore`, plus what was added, minus what was spent and refunded. */
interface PaymentMonth {
  leftBeforeMicro: MicroCredits;
  addedMicro: MicroCredits;
  spentMicro: MicroCredits;
  refundedMicro: MicroCredits;
  leftMicro: MicroCredits;
}

interface PaymentReportRow extends PaymentMonth {
  id: string;
  account: string;
  atMs: EpochMs;
}

export interface PaymentReport {
  /** Such as 2027-01. */
  month: string;
  timezone: string;
  fromMs: EpochMs;
  /** The first moment after the month. */
  toMs: EpochMs;
  isOver: boolean;
  /** Payments of which something was left, or that were made in the month; by id. */
  rows: PaymentReportRow[];
  total: PaymentMonth;
}

/** Throws a refusal unless the month exists and has begun. */
export async function paymentReport(
  store: Pick<Store, "paymentPeriods" | "times">,
  { month, timezone }: { month: string; timezone: string },
): Promise<PaymentReport> {
  const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
  if (year === undefined) throw invalidValue("month", 'month must be a year and a month, such as "2027-01".');
  const [fromMs, toMs] = [0, 1].map((later) => startOf(Number(year), Number(number) + later, timezone));
  const { atMs } = store.times();
  if (fromMs === undefined || toMs === undefined || fromMs > atMs)
    throw invalidValue("month", `month must have begun: it is ${isoTime(atMs)} now.`);
  const rows: PaymentReportRow[] = [];
  for (let after: string | undefined; ; ) {
    const page = await store.paymentPeriods({ fromMs, toMs, after, limit: pageRows });
    rows.push(...page.map((payment) => rowOf(payment, fromMs)).filter(isShown));
    if (page.length < pageRows) break;
    after = page.at(-1)?.id;
  }
  return { month, timezone, fromMs, toMs, isOver: toMs <= atMs, rows, total: totalOf(rows) };
}

/** The first moment of a month, of which the number may be 13. */
function startOf(year: number, month: number, timezone: string): EpochMs {
  const before = Date.UTC(year, month - 2, 15);
  return windowFrom({ every: "P1M", align: "calendar", timezone }, before).untilMs;
}

function rowOf(payment: PaymentPeriod, fromMs: EpochMs): PaymentReportRow {
  const { id, account, atMs, amountMicro, spentBeforeMicro, refundedBeforeMicro, spentMicro, refundedMicro } =
    payment;
  const leftMicro = amountMicro - spentBeforeMicro - refundedBeforeMicro;
  const [leftBeforeMicro, addedMicro] = atMs < fromMs ? [leftMicro, 0] : [0, leftMicro];
  return {
    id,
    account,
    atMs,
    leftBeforeMicro,
    addedMicro,
    spentMicro,
    refundedMicro,
    leftMicro: leftMicro - spentMicro - refundedMicro,
  };
}

function isShown({ leftBeforeMicro, addedMicro }: PaymentReportRow): boolean {
  return leftBeforeMicro > 0 || addedMicro > 0;
}

function totalOf(rows: readonly PaymentReportRow[]): PaymentMonth {
  const sum = (of: keyof PaymentMonth) => rows.reduce((total, row) => total + row[of], 0);
  return {
    leftBeforeMicro: sum("leftBeforeMicro"),
    addedMicro: sum("addedMicro"),
    spentMicro: sum("spentMicro"),
    refundedMicro: sum("refundedMicro"),
    leftMicro: sum("leftMicro"),
  };
}

const amounts = fieldsFor<PaymentMonth>()({
  left_before_micro: [micro, (month) => month.leftBeforeMicro],
  added_micro: [micro, (month) => month.addedMicro],
  spent_micro: [micro, (month) => month.spentMicro],
  refunded_micro: [micro, (month) => month.refundedMicro],
  left_micro: [micro, (month) => month.leftMicro],
});

const rowObject = objectFor<PaymentReportRow>("PaymentMonth")({
  payment_id: [text, ({ id }) => id],
  account: [text, ({ account }) => account],
  at: [time, ({ atMs }) => isoTime(atMs)],
  ...amounts,
});

const totalObject = objectFor<PaymentMonth>("PaymentTotal")(amounts);

const reportObject = objectFor<PaymentReport>("PaymentReport")({
  month: [text, (report) => report.month],
  timezone: [text, (report) => report.timezone],
  from: [time, (report) => isoTime(report.fromMs)],
  to: [time, (report) => isoTime(report.toMs)],
  over: [Type.Boolean(), (report) => report.isOver],
  payments: [Type.Array(rowObject.schema), ({ rows }) => rows.map(rowObject.of)],
  total: [totalObject.schema, ({ total }) => totalObject.of(total)],
});

export const paymentReportSchema = reportObject.schema;
export const paymentReportObject = reportObject.of;
export type PaymentReportJson = Static<typeof paymentReportSchema>;

/** A line for each payment; the total is their sum. */
export function paymentReportCsv({ payments }: PaymentReportJson): string {
  return csvOf([Object.keys(rowObject.schema.properties), ...payments.map(Object.values)]);
}
