/** The words of `inkwell account import`. What it does is loaded when it runs. */
import { Command } from "commander";
import { inkwell } from "../invocation.ts";
import type { CommandOptions } from "./account-import.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

export function importCommand(cli: Cli): Command {
  return new Command("import")
    .description("open the accounts of a CSV file, row by row; a repetition goes on with it")
    .argument(
      "<file>",
      "columns: account, plan (for new accounts); optional owner, email, note, external_id, and of new accounts additional, payment",
    )
    .option("--dry-run", "list what would happen to each account, and change nothing")
    .option("--update", "set the contacts of accounts that exist, too")
    .option(
      "--keys <file>",
      "give each account a key, and write the keys to this CSV file; it is new, or that of an earlier import",
    )
    .option(
      "--invite [file]",
      "invite the people of the accounts who have not used a link yet: write the links to this CSV file, or mail them",
    )
    .addHelpText(
      "after",
      examples(
        inkwell("account import accounts.csv --dry-run"),
        inkwell("account import accounts.csv --keys keys.csv"),
        inkwell("account import accounts.csv --invite links.csv"),
      ),
    )
    .action(async (path: string, options: CommandOptions) => {
      const { importFile } = await import("./account-import.ts");
      await importFile(cli, path, options);
    });
}
