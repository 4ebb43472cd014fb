/** `inkwell usage --hours`: prints the usage of the last hours by hour. */
import { isoHour, usageHoursObject } from "../accounts/usage-hours.ts";
import { type Hour, hourMs, type UsageHour } from "../store/usage-hours.ts";
import { exactCredits, grouped, shortTime } from "../units.ts";
import type { Cli } from "./cli.ts";
import { type Column, table } from "./format.ts";

export function printHours(cli: Cli, report: { from: Hour; to: Hour; rows: readonly UsageHour[] }): void {
  cli.print(usageHoursObject(report), table(report.rows, columnsOf(report.rows)));
  if (report.rows.length === 0) {
    cli.remark(`No matching request has finished since ${isoHour(report.from)}.`);
  }
}

function columnsOf(rows: readonly UsageHour[]): Column<UsageHour>[] {
  const number = (head: string, of: (row: UsageHour) => string) => ({ head, right: true, cell: of });
  const model: Column<UsageHour> = { head: "MODEL", cell: (row) => row.model ?? "" };
  return [
    { head: "HOUR", cell: ({ hour }) => shortTime(hour * hourMs) },
    ...(rows.some((row) => row.model !== null) ? [model] : []),
    number("REQUESTS", (row) => grouped(row.requests)),
    number("PROMPT", (row) => grouped(row.promptTokens)),
    number("CACHED", (row) => grouped(row.cachedTokens)),
    number("COMPLETION", (row) => grouped(row.completionTokens)),
    number("CREDITS", (row) => exactCredits(row.costMicro - row.shortfallMicro)),
  ];
}
