/** `inkwell usage`: the receipts of finished requests, read and written a page at a time, however many there are. */
import { once } from "node:events";
import type { Writable } from "node:stream";
import { Command } from "commander";
import { usageObject } from "../http/admin/objects.ts";
import { usageCsv } from "../http/admin/usage-csv.ts";
import type { UsageRow } from "../ledger/rows.ts";
import type { UsageQuery } from "../store/store.ts";
import { usagePages } from "../store/usage-pages.ts";
import { type EpochMs, exactCredits, grouped, type MicroCredits } from "../units.ts";
import { moment } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { type Column, count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";
import { noAccount } from "./refusals.ts";

interface Options {
  from?: EpochMs;
  to?: EpochMs;
  csv?: boolean;
}

type Pages = AsyncIterable<readonly UsageRow[]>;

export function usageCommand(cli: Cli): Command {
  return new Command("usage")
    .description("what finished requests used and cost, of one account or of all")
    .argument("[account]", "as account list shows it (default: all)")
    .option("--from <time>", "from this moment on, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z", moment)
    .option("--to <time>", "before this moment", moment)
    .option("--csv", "as CSV, with every field of a receipt")
    .addHelpText(
      "after",
      examples(
        "inkwell usage ada",
        "inkwell usage --from 2027-01-01 --to 2027-02-01 --csv > january.csv",
        "inkwell usage ada --json | jq 'map(.cost_micro - .shortfall_micro) | add / 1e6'",
      ),
    )
    .action(async (account: string | undefined, options: Options, command: Command) => {
      if (options.csv === true && cli.json) command.error("error: it is --csv or --json, not both");
      const { from, to } = options;
      if (from !== undefined && to !== undefined && to <= from) {
        command.error("error: --to must be after --from, and does not count itself");
      }
      await usage(cli, account, options);
    });
}

async function usage(cli: Cli, account: string | undefined, { from, to, csv }: Options): Promise<void> {
  const query: Omit<UsageQuery, "limit"> = {
    ...(account === undefined ? {} : { account }),
    ...(from === undefined ? {} : { fromMs: from }),
    ...(to === undefined ? {} : { toMs: to }),
  };
  await cli.withStore(cli.config(), async ({ store }) => {
    if (account !== undefined && (await store.snapshot(account)) === null) throw noAccount(account);
    const sum = { requests: 0, tokens: 0, cost: 0 };
    const pages = added(usagePages(store, query), sum);
    const text = csv === true ? usageCsv(pages) : cli.json ? usageJson(pages) : usageTable(pages);
    for await (const piece of text) await write(cli.host.stdout, piece);
    cli.say(summary(sum));
  });
}

/** Adds up what passes. */
async function* added(pages: Pages, sum: { requests: number; tokens: number; cost: MicroCredits }): Pages {
  for await (const rows of pages) {
    for (const row of rows) {
      sum.requests += 1;
      sum.tokens += row.promptTokens + row.completionTokens;
      sum.cost += row.cost - row.shortfall;
    }
    yield rows;
  }
}

function summary({
  requests,
  tokens,
  cost,
}: {
  requests: number;
  tokens: number;
  cost: MicroCredits;
}): string {
  if (requests === 0) return "No such request has finished.";
  return `${count(requests, "request")}, ${count(tokens, "token")}, ${exactCredits(cost)} credits.`;
}

/** One array, a row in each line. */
async function* usageJson(pages: Pages): AsyncGenerator<string, void, undefined> {
  let before = "[\n";
  for await (const rows of pages) {
    for (const row of rows) {
      yield `${before}  ${JSON.stringify(usageObject(row))}`;
      before = ",\n";
    }
  }
  yield before === "[\n" ? "[]\n" : "\n]\n";
}

const columns: readonly Column[] = [
  { head: "FINISHED", width: 17 },
  { head: "ACCOUNT", width: 12 },
  { head: "MODEL", width: 24 },
  { head: "PROMPT", align: "right", width: 9 },
  { head: "CACHED", align: "right", width: 9 },
  { head: "COMPLETION", align: "right" },
  { head: "CREDITS", align: "right", width: 14 },
  { head: "ENDING", width: 13 },
  { head: "REQUEST" },
];

/** The same widths on every page, where nothing is wider than expected. */
async function* usageTable(pages: Pages): AsyncGenerator<string, void, undefined> {
  let isFirst = true;
  for await (const rows of pages) {
    const lines = table(columns, rows.map(cellsOf));
    yield `${isFirst ? lines : lines.slice(lines.indexOf("\n") + 1)}\n`;
    isFirst = false;
  }
}

function cellsOf(row: UsageRow): string[] {
  return [
    shortTime(row.atMs),
    row.account,
    row.model,
    grouped(row.promptTokens),
    grouped(row.cachedTokens),
    `${grouped(row.completionTokens)}${row.estimated ? "?" : ""}`,
    exactCredits(row.cost - row.shortfall),
    row.ending,
    row.id,
  ];
}

/** Waits for a reader that is slower than the store. */
async function write(stream: Writable, text: string): Promise<void> {
  if (!stream.write(text)) await once(stream, "drain");
}
