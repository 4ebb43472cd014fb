/** `inkwell find`: one search over accounts, people, keys, payments and requests. */
import type { Command } from "commander";
import type { FindingJson } from "../accounts/operator-objects.ts";
import { search } from "../actions/search.ts";
import { listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf } from "./format.ts";

export function findCommand(cli: Cli): Command {
  return listCommand<FindingJson>(cli, search, {
    columns: columnsOf("finding", "kind id account? name? email? detail? amount_micro? at"),
    none: () => "Nothing begins with this.",
  });
}
