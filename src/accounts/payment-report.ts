/**
 * The changes of payments in a calendar month: the deferred revenue that an accountant asks for.
 */
import { windowFrom } from "../ledger/windows.ts";
import type { PaymentPeriod } from "../store/payment-report.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { csvOf } from "./csv.ts";
import { isoTime } from "./json-objects.ts";
import { invalidValue } from "./refusals.ts";

/** Payments that are read at a time. */
const pageRows = 500;

/** `left` is `leftBefore`, plus what was added, minus what was spent and refunded. */
interface PaymentMonth {
  leftBefore: MicroCredits;
  added: MicroCredits;
  spent: MicroCredits;
  refunded: MicroCredits;
  left: MicroCredits;
}

export interface PaymentReportRow extends PaymentMonth {
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

/** Throws an OperatorRefusal unless the month exists and has begun. */
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
  const { id, account, atMs, amount, spentBefore, refundedBefore, spent, refunded } = payment;
  const left = amount - spentBefore - refundedBefore;
  const [leftBefore, added] = atMs < fromMs ? [left, 0] : [0, left];
  return { id, account, atMs, leftBefore, added, spent, refunded, left: left - spent - refunded };
}

function isShown({ leftBefore, added }: PaymentReportRow): boolean {
  return leftBefore > 0 || added > 0;
}

function totalOf(rows: readonly PaymentReportRow[]): PaymentMonth {
  const sum = (of: keyof PaymentMonth) => rows.reduce((total, row) => total + row[of], 0);
  return {
    leftBefore: sum("leftBefore"),
    added: sum("added"),
    spent: sum("spent"),
    refunded: sum("refunded"),
    left: sum("left"),
  };
}

function amountsObject({ leftBefore, added, spent, refunded, left }: PaymentMonth) {
  return {
    left_before_micro: leftBefore,
    added_micro: added,
    spent_micro: spent,
    refunded_micro: refunded,
    left_micro: left,
  };
}

function rowObject({ id, account, atMs, ...amounts }: PaymentReportRow) {
  return { payment_id: id, account, at: isoTime(atMs), ...amountsObject(amounts) };
}

export function paymentReportObject({ month, timezone, fromMs, toMs, isOver, rows, total }: PaymentReport) {
  return {
    ...{ month, timezone, from: isoTime(fromMs), to: isoTime(toMs), over: isOver },
    payments: rows.map(rowObject),
    total: amountsObject(total),
  };
}

/** A line for each payment; the total is their sum. */
export function paymentReportCsv({ rows }: PaymentReport): string {
  const head = ["payment_id", "account", "at", "left_before_micro", "added_micro"];
  return csvOf([
    [...head, "spent_micro", "refunded_micro", "left_micro"],
    ...rows.map((row) => Object.values(rowObject(row))),
  ]);
}
