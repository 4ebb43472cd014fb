/**
 * `inkwell usage`: prints the receipts of finished requests, reading and writing a page at a time,
 * or sums of them.
 */
import type { Command } from "commander";
import type { Static } from "typebox";
import type { ReceiptJson } from "../accounts/operator-objects.ts";
import type { usageHoursSchema } from "../accounts/usage-hours.ts";
import type { UsageReportJson } from "../accounts/usage-sums.ts";
import { optionally } from "../actions/field.ts";
import { listUsage, showUsageHours, sumUsage } from "../actions/views.ts";
import { exactCredits, grouped } from "../units.ts";
import { visibleText } from "../visible-text.ts";
import { commandWith, type Given, rowsField } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { csvField } from "./credits.ts";
import { columnsOf, count, table } from "./format.ts";

export function usageCommand(cli: Cli): Command {
  const { account, from, to, model, key, request_id } = listUsage.input;
  const { hours } = showUsageHours.input;
  const groups = ["day", "model", "key", "account"] as const;
  return commandWith(
    {
      words: "usage [account]",
      about: "list what finished requests used and cost, of one account or of all, or sum it",
      fields: {
        account: { ...account, about: "as account list shows it (default: all)" },
        by: optionally.choice(groups, { rule: "", option: "--by <what>", about: "sum instead" }),
        hours: { ...hours, option: "--hours <number>", about: "sum the last hours instead, by hour" },
        last: optionally.choice(["week", "month"], {
          rule: "",
          option: "--last <period>",
          about: "the week (from Monday) or the month before this one, in place of --from and --to",
        }),
        from: {
          ...from,
          option: "--from <time>",
          about: "start, included, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z",
        },
        to: {
          ...to,
          option: "--to <time>",
          about: "end, excluded; days are in the timezone of the configuration",
        },
        model: { ...model, option: "--model <id>" },
        key: { ...key, option: "--key <id>" },
        request_id: { ...request_id, option: "--request-id <id>" },
        rows: { ...rowsField, about: "with --by: only the rows with the highest cost, or the first days" },
        csv: csvField,
      },
      examples: [
        "usage ada",
        "usage --by account --last week",
        "usage --by account --last month --csv > invoices.csv",
        "usage --by account --from 2027-01-01 --to 2027-02-01 --csv > january.csv",
        "usage ada --by day",
        "usage --hours 24 --by model",
        "usage ada --json | jq 'map(.cost_micro - .shortfall_micro) | add / 1e6'",
      ],
    },
    async (given, command) => {
      const { by, csv, hours, rows, request_id, last, ...others } = given;
      if (csv === true && cli.json) command.error("error: it is --csv or --json, not both");
      if (by === undefined && rows !== undefined) command.error("error: --limit needs --by");
      if (by !== undefined && request_id !== undefined)
        command.error("error: --request-id shows the charges of one request: leave out --by");
      if (last !== undefined && ("from" in others || "to" in others))
        command.error("error: it is --last, or --from and --to");
      if (hours !== undefined) return await printHours(cli, given, command);
      const filters = last === undefined ? others : { ...others, ...(await periodBefore(cli, last)) };
      const asked = { ...filters, request_id };
      if (csv === true) await printCsv(cli, by === undefined ? listUsage : sumUsage, { ...asked, by });
      if (by !== undefined) return await printSums(cli, { ...filters, by }, { rows, isCsv: csv === true });
      if (csv !== true) await printReceipts(cli, asked);
    },
  );
}

/** Returns the week or the month before the present one; `to` is excluded. */
async function periodBefore(cli: Cli, last: unknown): Promise<{ from: string; to: string }> {
  const { nowMs, timezone } = await cli.api.clock();
  const now = Temporal.Instant.fromEpochMilliseconds(nowMs).toZonedDateTimeISO(timezone).toPlainDate();
  const to = last === "month" ? now.with({ day: 1 }) : now.subtract({ days: now.dayOfWeek - 1 });
  const from = to.subtract(last === "month" ? { months: 1 } : { weeks: 1 });
  return { from: from.toString(), to: to.toString() };
}

/** The sums come a day, or in the order of their names, and are shown by their cost. */
async function printCsv(cli: Cli, action: typeof listUsage | typeof sumUsage, asked: Given): Promise<void> {
  const order = asked.by === undefined || asked.by === "day" ? {} : { order: "cost" };
  for await (const part of cli.api.text(action, { ...asked, ...order, format: "csv" })) await cli.write(part);
}

async function printReceipts(cli: Cli, asked: Given): Promise<void> {
  const sum = { requests: 0, tokens: 0, costMicro: 0 };
  let isFirst = true;
  let before = "[\n";
  for await (const { data: rows } of cli.api.pages<ReceiptJson>(listUsage, asked)) {
    for (const row of rows) {
      // A late charge belongs to a request that has a charge of its own.
      if (!row.late) sum.requests += 1;
      sum.tokens += row.prompt_tokens + row.completion_tokens;
      sum.costMicro += row.cost_micro - row.shortfall_micro;
      if (cli.json) await cli.write(`${before}  ${visibleText(JSON.stringify(row))}`);
      before = ",\n";
    }
    if (cli.json || rows.length === 0) continue;
    const lines = table(rows, columns, { width: cli.width, widths: widthsMin, hasHead: isFirst });
    await cli.write(`${visibleText(lines)}\n`);
    isFirst = false;
  }
  if (cli.json) await cli.write(before === "[\n" ? "[]\n" : "\n]\n");
  cli.remark(
    sum.requests === 0 && sum.tokens === 0
      ? "No matching request has finished."
      : `${count(sum.requests, "request")}, ${count(sum.tokens, "token")}, ${exactCredits(sum.costMicro)} credits.`,
  );
}

const columns = columnsOf(
  "receipt",
  "finished_at account model prompt_tokens cached_tokens completion_tokens cost_micro ending request_id",
  {
    completion_tokens: (row: ReceiptJson) => `${grouped(row.completion_tokens)}${row.estimated ? "?" : ""}`,
    cost_micro: paidText,
    ending: (row: ReceiptJson) => (row.late ? `${row.ending} (late)` : row.ending),
  },
);
/** They keep the columns of the pages below each other. */
const widthsMin = [17, 12, 24, 9, 9, 0, 14, 13];

async function printSums(
  cli: Cli,
  asked: Given,
  { rows, isCsv }: { rows: unknown; isCsv: boolean },
): Promise<void> {
  // The sums are in the CSV, so a row is enough for what is said of all of them.
  const report = await cli.api.list<SumJson, UsageReportJson>(sumUsage, asked, isCsv ? 1 : undefined);
  if (!isCsv) {
    const { data: all } = report;
    if (asked.by !== "day") all.sort((one, other) => other.cost_micro - one.cost_micro);
    const data = typeof rows === "number" ? all.slice(0, rows) : all;
    cli.print({ ...report, data }, table(data, columnsBy(asked.by, report.currency), cli));
  }
  const { total, final, final_until, timezone, currency } = report;
  cli.remark(
    `Total: ${count(total.requests, "request")}, ${count(total.prompt_tokens + total.completion_tokens, "token")}, ${paidText(total)} credits${total.paid_money === null ? "" : `, ${total.paid_money} ${currency}`}.`,
  );
  if (total.shortfall_micro > 0)
    cli.remark(`Written off: ${exactCredits(total.shortfall_micro)} credits that accounts did not have.`);
  const state = final
    ? "Final: this period never changes."
    : `Provisional: ${final_until === null ? "no day is final" : `days before ${final_until} are final`}.`;
  cli.remark(`${state} Days are in ${timezone}.`);
}

type SumJson = UsageReportJson["data"][number];

function columnsBy(by: unknown, currency: string | null) {
  const name =
    by === "day"
      ? "day final"
      : by === "key"
        ? "key account"
        : by === "model"
          ? "model"
          : "account owner? email? external_id?";
  return columnsOf(
    "usageSum",
    `${name} requests prompt_tokens cached_tokens completion_tokens cost_micro paid_money? base_micro overage_micro additional_micro`,
    {
      paid_money: ({ paid_money: money }: SumJson) => (money === null ? "-" : `${money} ${currency}`),
      final: ({ final }: SumJson) => (final ? "final" : "provisional"),
      cost_micro: paidText,
    },
  );
}

async function printHours(cli: Cli, given: Given, command: Command): Promise<void> {
  const { account, hours, by, model, key, ...others } = given;
  if (Object.keys(others).length > 0 || (by !== undefined && by !== "model"))
    command.error("error: --hours takes an account, --model, --key and --by model, and no other option");
  const report = await cli.api.get<Static<typeof usageHoursSchema>>(showUsageHours, {
    account,
    hours,
    by,
    model,
    key,
  });
  cli.print(report, table(report.data, hourColumns, cli));
  if (report.data.length === 0) cli.remark(`No matching request has finished since ${report.from}.`);
}

const hourColumns = columnsOf(
  "usageSum",
  "hour model? requests prompt_tokens cached_tokens completion_tokens cost_micro",
  { cost_micro: paidText },
);

/** The part of the cost that was paid. */
function paidText(row: { cost_micro: number; shortfall_micro: number }): string {
  return exactCredits(row.cost_micro - row.shortfall_micro);
}
