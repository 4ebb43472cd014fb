/** `inkwell usage --by`: prints sums of usage as a table, CSV or JSON. */
import {
  isFinalRow,
  isoDay,
  type UsageReport,
  usageReportCsv,
  usageReportObject,
} from "../accounts/usage-sums.ts";
import type { UsageSumRow } from "../store/usage-sums.ts";
import { exactCredits, grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { type Column, count, table } from "./format.ts";

export async function printSums(cli: Cli, report: UsageReport, csv: boolean): Promise<void> {
  if (csv) cli.host.stdout.write(usageReportCsv(report));
  else cli.print(usageReportObject(report, null), table(report.rows, columnsOf(report)));
  const { total, isFinal, finalDay, timezone } = report;
  cli.remark(
    `Total: ${count(total.requests, "request")}, ${count(total.promptTokens + total.completionTokens, "token")}, ${exactCredits(total.costMicro - total.shortfallMicro)} credits.`,
  );
  if (total.shortfallMicro > 0) {
    cli.remark(`Written off: ${exactCredits(total.shortfallMicro)} credits that accounts did not have.`);
  }
  const days = `Days are in ${timezone}.`;
  if (isFinal) cli.remark(`Final: this period never changes. ${days}`);
  else if (finalDay < 0) cli.remark(`Provisional: no day is final. ${days}`);
  else cli.remark(`Provisional: days before ${isoDay(finalDay + 1)} are final. ${days}`);
}

function columnsOf(report: UsageReport): Column<UsageSumRow>[] {
  const { by } = report.query;
  const names: Column<UsageSumRow>[] =
    by === "day"
      ? [
          { head: "DAY", cell: ({ name }) => isoDay(Number(name)) },
          { head: "STATE", cell: (row) => (isFinalRow(row, report) ? "final" : "provisional") },
        ]
      : [
          { head: by.toUpperCase(), cell: ({ name }) => name },
          ...(by === "key" ? [{ head: "ACCOUNT", cell: (row: UsageSumRow) => row.account ?? "" }] : []),
        ];
  const number = (head: string, of: (row: UsageSumRow) => string) => ({ head, right: true, cell: of });
  return [
    ...names,
    number("REQUESTS", (row) => grouped(row.requests)),
    number("PROMPT", (row) => grouped(row.promptTokens)),
    number("CACHED", (row) => grouped(row.cachedTokens)),
    number("COMPLETION", (row) => grouped(row.completionTokens)),
    number("CREDITS", (row) => exactCredits(row.costMicro - row.shortfallMicro)),
    number("BASE", (row) => exactCredits(row.base)),
    number("OVERAGE", (row) => exactCredits(row.overage)),
    number("ADDITIONAL", (row) => exactCredits(row.additional)),
  ];
}
