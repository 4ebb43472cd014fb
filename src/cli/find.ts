/** `inkwell find`: one search over accounts, people, keys, payments and requests. */
import type { Command } from "commander";
import type { FindingJson } from "../accounts/operator-objects.ts";
import { search } from "../actions/search.ts";
import { commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

const columns = columnsOf("finding", "kind id account? name? email? detail? amount_micro? at");

export function findCommand(cli: Cli): Command {
  const { cli: words = "", title: about, examples, input: fields } = search;
  return commandWith({ words, about, fields, examples }, async (given) => {
    const { data } = await cli.api.get<{ data: FindingJson[] }>(search, given);
    cli.print(data, data.length === 0 ? "" : table(data, columns, cli));
    if (data.length === 0) cli.remark("Nothing begins with this.");
  });
}
