/**
 * `inkwell usage`: prints the receipts of finished requests, reading and writing a page at a time.
 */
import { Command, Option } from "commander";
import { type ReceiptJson, usageObject } from "../accounts/operator-objects.ts";
import { usageCsv } from "../accounts/usage-csv.ts";
import { dayNamed } from "../accounts/usage-sums.ts";
import { inkwell } from "../invocation.ts";
import type { Receipt } from "../store/store.ts";
import { graphHoursMax } from "../store/usage-hours.ts";
import { type UsageGroup, usageGroups } from "../store/usage-sums.ts";
import { exactCredits, grouped, localMomentOf } from "../units.ts";
import { visibleText } from "../visible-text.ts";
import { dayOrMoment, graphHours, limit, note } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, count, table } from "./format.ts";
import { examples } from "./help.ts";
import { printHours } from "./usage-hours.ts";
import { paidText, printSums } from "./usage-sums.ts";

interface Options {
  hours?: number;
  by?: UsageGroup;
  from?: string;
  to?: string;
  model?: string;
  key?: string;
  requestId?: string;
  limit?: number;
  csv?: boolean;
}

type Pages = AsyncIterable<readonly Receipt[]>;

export function usageCommand(cli: Cli): Command {
  return new Command("usage")
    .description("list what finished requests used and cost, of one account or of all, or sum it")
    .argument("[account]", "as account list shows it (default: all)")
    .addOption(new Option("--by <what>", "sum instead").choices([...usageGroups]))
    .option("--hours <number>", `sum the last hours instead, at most ${graphHoursMax}, by hour`, graphHours)
    .option("--from <time>", "start, included, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z", dayOrMoment)
    .option("--to <time>", "end, excluded; days are in the timezone of the configuration", dayOrMoment)
    .option("--model <id>", "only this model", note)
    .option("--key <id>", "only this key, as key list shows it", note)
    .option("--request-id <id>", "only this request: the x-request-id of its answer", note)
    .option("--limit <rows>", "with --by: only the rows with the highest cost, or the first days", limit)
    .option("--csv", "as CSV, with every field")
    .addHelpText(
      "after",
      examples(
        inkwell("usage ada"),
        inkwell("usage --by account --from 2027-01-01 --to 2027-02-01 --csv > january.csv"),
        inkwell("usage ada --by day"),
        inkwell("usage --hours 24 --by model"),
        inkwell("usage ada --json | jq 'map(.cost_micro - .shortfall_micro) | add / 1e6'"),
      ),
    )
    .action(async (account: string | undefined, options: Options, command: Command) => {
      const { by, csv, model, key, requestId: id } = options;
      if (csv === true && cli.json) command.error("error: it is --csv or --json, not both");
      if (by === undefined && options.limit !== undefined) command.error("error: --limit needs --by");
      if (by !== undefined && id !== undefined) {
        command.error("error: --request-id shows the charges of one request: leave out --by");
      }
      if (options.hours !== undefined) return await hours(cli, account, options, command);
      const config = cli.config();
      const { timezone } = config;
      const momentIn = (text?: string) => (text === undefined ? undefined : localMomentOf(text, timezone));
      const [fromMs, toMs] = [momentIn(options.from) ?? undefined, momentIn(options.to) ?? undefined];
      if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs) {
        command.error("error: --to must be after --from: the time of --to is excluded");
      }
      await cli.withActions(config, async (actions) => {
        if (by !== undefined) {
          const days = {
            from: dayNamed("--from", options.from, timezone),
            to: dayNamed("--to", options.to, timezone),
          };
          const order = by === "day" ? "name" : "cost";
          const query = { by, account, model, key, ...days, order, limit: options.limit } as const;
          return await printSums(cli, await actions.usageReport(query), csv === true);
        }
        const sum = { requests: 0, tokens: 0, costMicro: 0 };
        const pages = summed(await actions.usagePages({ account, model, key, id, fromMs, toMs }), sum);
        const text = csv === true ? usageCsv(pages) : cli.json ? usageJson(pages) : usageTable(pages);
        for await (const part of text) await cli.write(part);
        cli.remark(
          sum.requests === 0 && sum.tokens === 0
            ? "No matching request has finished."
            : `${count(sum.requests, "request")}, ${count(sum.tokens, "token")}, ${exactCredits(sum.costMicro)} credits.`,
        );
      });
    });
}

async function hours(cli: Cli, account: string | undefined, options: Options, command: Command) {
  const { hours = 1, by, model, key, ...others } = options;
  if (Object.keys(others).length > 0 || (by !== undefined && by !== "model")) {
    command.error("error: --hours takes an account, --model, --key and --by model, and no other option");
  }
  await cli.withActions(cli.config(), async (actions) => {
    printHours(cli, await actions.usageHours({ account, model, key, byModel: by === "model" }, hours));
  });
}

/** Passes the pages on and adds up their receipts. */
async function* summed(pages: Pages, sum: { requests: number; tokens: number; costMicro: number }): Pages {
  for await (const rows of pages) {
    for (const row of rows) {
      // A late charge belongs to a request that has a charge of its own.
      if (!row.late) sum.requests += 1;
      sum.tokens += row.promptTokens + row.completionTokens;
      sum.costMicro += row.costMicro - row.shortfallMicro;
    }
    yield rows;
  }
}

/** One array, a row in each line. */
async function* usageJson(pages: Pages): AsyncGenerator<string, void, undefined> {
  let before = "[\n";
  for await (const rows of pages) {
    for (const row of rows) {
      yield `${before}  ${visibleText(JSON.stringify(usageObject.of(row)))}`;
      before = ",\n";
    }
  }
  yield before === "[\n" ? "[]\n" : "\n]\n";
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

async function* usageTable(pages: Pages): AsyncGenerator<string, void, undefined> {
  let isFirst = true;
  for await (const rows of pages) {
    const lines = table(rows.map(usageObject.of), columns, widthsMin);
    yield `${isFirst ? lines : lines.slice(lines.indexOf("\n") + 1)}\n`;
    isFirst = false;
  }
}
