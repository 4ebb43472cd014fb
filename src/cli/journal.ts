/**
 * `inkwell account journal`: prints the changes of an account's credits, as many as `--limit`
 * allows. It reads a page at a time.
 */
import type { Command } from "commander";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { type JournalJson, journalObject } from "../accounts/operator-objects.ts";
import { valuesText } from "../actions/columns.ts";
import { journalKindsIn } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import type { ListedEntry } from "../store/store.ts";
import { journalKinds, limit } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";

interface Options {
  kind?: string;
  oldest?: boolean;
  limit: number;
}

const pageRows = 500;

export function journalCommand(cli: Cli, account: Command): void {
  account
    .command("journal")
    .description("list the changes of an account's credits, the newest first")
    .argument("<account>", "as account list shows it")
    .option("--kind <kinds>", "only these kinds of entries, with commas between them", journalKinds)
    .option("--oldest", "the oldest first")
    .option("--limit <rows>", "only the first rows", limit, 100)
    .addHelpText(
      "after",
      examples(
        inkwell("account journal ada --kind payment,refund,promotion"),
        inkwell("account journal ada --oldest --limit 1000000 --json > journal.json"),
      ),
    )
    .action((name: string, options: Options) =>
      cli.withActions(cli.config(), async (actions) => {
        const { rows, isCut } = await listed(actions, name, options);
        const entries = rows.map(journalObject.of);
        cli.print(entries, rows.length === 0 ? "" : table(entries, columns));
        if (rows.length === 0) cli.remark("No entry of the journal matches.");
        if (isCut) cli.remark("There are more entries. Raise --limit to see them.");
      }),
    );
}

/** Returns the entries up to the limit, and whether the limit leaves some out. */
async function listed(
  actions: OperatorActions,
  account: string,
  { kind, oldest = false, limit }: Options,
): Promise<{ rows: ListedEntry[]; isCut: boolean }> {
  const kinds = kind === undefined ? undefined : journalKindsIn(kind);
  const rows: ListedEntry[] = [];
  for (let afterSeq: number | undefined; ; afterSeq = rows.at(-1)?.seq) {
    // One more than is shown, to know whether another one follows.
    const wanted = Math.min(pageRows, limit + 1 - rows.length);
    const page = await actions.journal(account, { kinds, newestFirst: !oldest, afterSeq, limit: wanted });
    rows.push(...page);
    if (rows.length > limit) return { rows: rows.slice(0, limit), isCut: true };
    if (page.length < wanted) return { rows, isCut: false };
  }
}

const columns = columnsOf(
  "journalEntry",
  "seq at kind bucket amount_micro grant by operation subject after",
  {
    after: (entry: JournalJson) => valuesText(entry) || "-",
  },
);
