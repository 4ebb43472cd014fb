/** `inkwell reload`: makes the running service read its configuration again. */
import type { Command } from "commander";
import { reloadConfiguration } from "../actions/service.ts";
import type { ReloadJson } from "../http/admin/service-actions.ts";
import { actionCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";

export function reloadCommand(cli: Cli): Command {
  return actionCommand<typeof reloadConfiguration.input, ReloadJson>(cli, reloadConfiguration, {
    about: "make the running service read its configuration again; shows what has changed",
    needsService: true,
    text: (answer) =>
      changesIn(answer)
        .map(([label, names]) => `${label}: ${names.join(", ")}`)
        .join("\n"),
    remark: (answer) =>
      [
        ...answer.warnings,
        changesIn(answer).length === 0
          ? "The configuration is reloaded. Nothing has changed."
          : "The configuration is reloaded. Running answers keep their model and price.",
      ].join("\n"),
  });
}

function changesIn({ models, prices, plans, settings, needs_restart }: ReloadJson) {
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
  return lines.filter(([, names]) => names.length > 0);
}
