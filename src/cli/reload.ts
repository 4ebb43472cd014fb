/**
 * `inkwell reload`: makes the running service read its configuration again, over its operator
 * listener, and shows what has changed.
 */
import { Command } from "commander";
import { serviceUrl } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { operatorUrl, post, tokenOf } from "./operator-client.ts";

export function reloadCommand(cli: Cli): Command {
  return new Command("reload")
    .description("make the running service read its configuration again; shows what has changed")
    .option("--url <url>", "URL of the operator listener (default: from the configuration)", serviceUrl)
    .addHelpText("after", examples("inkwell reload", "inkwell reload --url http://127.0.0.1:8081"))
    .action(({ url }: { url?: string }) => reload(cli, url));
}

async function reload(cli: Cli, url: string | undefined): Promise<void> {
  const config = cli.config();
  const { reloadObject } = await import("../http/admin/service.ts");
  const listener = url ?? operatorUrl(config);
  const answer = await post(`${listener}/admin/reload`, tokenOf(config), reloadObject.schema);
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
