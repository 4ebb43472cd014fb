/** `inkwell usage --hours`: prints the usage of the last hours by hour. */
import { isoHour, usageHoursObject } from "../accounts/usage-hours.ts";
import type { Hour, UsageHour } from "../store/usage-hours.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { paidText } from "./usage-sums.ts";

export function printHours(cli: Cli, report: { from: Hour; to: Hour; rows: readonly UsageHour[] }): void {
  const document = usageHoursObject(report);
  cli.print(document, table(document.data, columns));
  if (report.rows.length === 0) {
    cli.remark(`No matching request has finished since ${isoHour(report.from)}.`);
  }
}

const columns = columnsOf(
  "usageSum",
  "hour model? requests prompt_tokens cached_tokens completion_tokens cost_micro",
  { cost_micro: paidText },
);
