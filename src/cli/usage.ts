/**
 * `inkwell usage`: prints the receipts of finished requests, reading and writing a page at a time.
 */
import { once } from "node:events";
import type { Writable } from "node:stream";
import { Command } from "commander";
import { usageObject } from "../accounts/operator-objects.ts";
import { usageCsv } from "../accounts/usage-csv.ts";
import type { UsageRow } from "../ledger/rows.ts";
import { type EpochMs, exactCredits, grouped } from "../units.ts";
import { moment } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { type Column, count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";

interface Options {
  from?: EpochMs;
  to?: EpochMs;
  csv?: boolean;
}

type Pages = AsyncIterable<readonly UsageRow[]>;

export function usageCommand(cli: Cli): Command {
  return new Command("usage")
    .description("list what finished requests used and cost, of one account or of all")
    .argument("[account]", "as account list shows it (default: all)")
    .option("--from <time>", "start, included, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z", moment)
    .option("--to <time>", "end, excluded", moment)
    .option("--csv", "as CSV, with every field of a receipt")
    .addHelpText(
      "after",
      examples(
        "inkwell usage ada",
        "inkwell usage --from 2027-01-01 --to 2027-02-01 --csv > january.csv",
        "inkwell usage ada --json | jq 'map(.cost_micro - .shortfall_micro) | add / 1e6'",
      ),
    )
    .action(async (account: string | undefined, { from, to, csv }: Options, command: Command) => {
      if (csv === true && cli.json) command.error("error: it is --csv or --json, not both");
      if (from !== undefined && to !== undefined && to <= from) {
        command.error("error: --to must be after --from: the time of --to is excluded");
      }
      await cli.withActions(cli.config(), async (actions) => {
        const sum = { requests: 0, tokens: 0, costMicro: 0 };
        const pages = summed(await actions.usagePages({ account, fromMs: from, toMs: to }), sum);
        const text = csv === true ? usageCsv(pages) : cli.json ? usageJson(pages) : usageTable(pages);
        for await (const part of text) await write(cli.host.stdout, part);
        cli.remark(
          sum.requests === 0
            ? "No matching request has finished."
            : `${count(sum.requests, "request")}, ${count(sum.tokens, "token")}, ${exactCredits(sum.costMicro)} credits.`,
        );
      });
    });
}

/** Passes the pages on and adds up their receipts. */
async function* summed(pages: Pages, sum: { requests: number; tokens: number; costMicro: number }): Pages {
  for await (const rows of pages) {
    for (const row of rows) {
      sum.requests += 1;
      sum.tokens += row.promptTokens + row.completionTokens;
      sum.costMicro += row.cost - row.shortfall;
    }
    yield rows;
  }
}

/** One array, a row in each line. */
async function* usageJson(pages: Pages): AsyncGenerator<string, void, undefined> {
  let before = "[\n";
  for await (const rows of pages) {
    for (const row of rows) {
      yield `${before}  ${JSON.stringify(usageObject.of(row))}`;
      before = ",\n";
    }
  }
  yield before === "[\n" ? "[]\n" : "\n]\n";
}

/** The minimum widths keep the pages aligned. */
const columns: readonly Column<UsageRow>[] = [
  { head: "FINISHED", width: 17, cell: (row) => shortTime(row.atMs) },
  { head: "ACCOUNT", width: 12, cell: (row) => row.account },
  { head: "MODEL", width: 24, cell: (row) => row.model },
  { head: "PROMPT", right: true, width: 9, cell: (row) => grouped(row.promptTokens) },
  { head: "CACHED", right: true, width: 9, cell: (row) => grouped(row.cachedTokens) },
  { head: "COMPLETION", right: true, cell: completionText },
  { head: "CREDITS", right: true, width: 14, cell: (row) => exactCredits(row.cost - row.shortfall) },
  { head: "ENDING", width: 13, cell: (row) => row.ending },
  { head: "REQUEST", cell: (row) => row.id },
];

function completionText({ completionTokens, estimated }: UsageRow): string {
  return `${grouped(completionTokens)}${estimated ? "?" : ""}`;
}

async function* usageTable(pages: Pages): AsyncGenerator<string, void, undefined> {
  let isFirst = true;
  for await (const rows of pages) {
    const lines = table(rows, columns);
    yield `${isFirst ? lines : lines.slice(lines.indexOf("\n") + 1)}\n`;
    isFirst = false;
  }
}

/** Waits until a slow reader has taken the text. */
async function write(stream: Writable, text: string): Promise<void> {
  if (!stream.write(text)) await once(stream, "drain");
}
