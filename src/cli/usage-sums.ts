/** `inkwell usage --by`: prints sums of usage as a table, CSV or JSON. */
import { isoDay, type UsageReport, usageReportCsv, usageReportObject } from "../accounts/usage-sums.ts";
import type { UsageGroup } from "../store/usage-sums.ts";
import { exactCredits } from "../units.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, count, table } from "./format.ts";

export async function printSums(cli: Cli, report: UsageReport, csv: boolean): Promise<void> {
  const document = usageReportObject(report, null);
  if (csv) cli.host.stdout.write(usageReportCsv(report));
  else cli.print(document, table(document.data, columnsBy(report.query.by)));
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

type SumJson = ReturnType<typeof usageReportObject>["data"][number];

function columnsBy(by: UsageGroup) {
  const name = by === "day" ? "day final" : by === "key" ? "key account" : by;
  return columnsOf(
    "usageSum",
    `${name} requests prompt_tokens cached_tokens completion_tokens cost_micro base_micro overage_micro additional_micro`,
    { final: ({ final }: SumJson) => (final ? "final" : "provisional"), cost_micro: paidText },
  );
}

/** The part of the cost that was paid. */
export function paidText(row: { cost_micro: number; shortfall_micro: number }): string {
  return exactCredits(row.cost_micro - row.shortfall_micro);
}
