/**
 * `inkwell reload`: makes the running service read its configuration again, over its operator
 * listener, and shows what has changed.
 */
import { Command } from "commander";
import { Compile } from "typebox/compile";
import { OperatorError } from "../errors.ts";
import { reloadObject } from "../http/admin/service.ts";
import { serviceUrl } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { operatorUrl, post, refusalIn, tokenOf } from "./operator-client.ts";

export function reloadCommand(cli: Cli): Command {
  return new Command("reload")
    .description("make the running service read its configuration again; shows what has changed")
    .option("--url <url>", "URL of the operator listener (default: from the configuration)", serviceUrl)
    .addHelpText("after", examples("inkwell reload", "inkwell reload --url http://127.0.0.1:8081"))
    .action(({ url }: { url?: string }) => reload(cli, url));
}

const isReport = Compile(reloadObject.schema);

async function reload(cli: Cli, url: string | undefined): Promise<void> {
  const config = cli.config();
  const answer = await post(`${url ?? operatorUrl(config)}/admin/reload`, tokenOf(config));
  if (!isReport.Check(answer)) throw new OperatorError(refusalIn(answer));
  const { models, prices, plans, settings, needs_restart } = answer;
  const lines: [label: string, names: readonly string[]][] = [
    ["models added", models.added],
    ["models removed", models.removed],
    ["models changed", models.changed],
    ["prices changed", prices],
    ["plans added", plans.added],
    ["plans changed", plans.changed],
    ["plans retired", plans.retired],
    ["settings changed", settings],
    ["needs a restart", needs_restart],
  ];
  const changed = lines.filter(([, names]) => names.length > 0);
  cli.print(answer, changed.map(([label, names]) => `${label}: ${names.join(", ")}`).join("\n"));
  for (const warning of answer.warnings) cli.remark(warning);
  cli.remark(
    changed.length === 0
      ? "The configuration is reloaded. Nothing has changed."
      : "The configuration is reloaded. Running answers keep their model and price.",
  );
}
