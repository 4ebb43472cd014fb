/** `inkwell reload`: a running service reads its configuration again, or shows the changes. */
import type { Command } from "commander";
import type { SettingChangeJson } from "../accounts/setting-changes.ts";
import { optionally } from "../actions/field.ts";
import { previewReload, reloadConfiguration } from "../actions/service.ts";
import type { ReloadJson, ReloadPreviewJson } from "../http/admin/service-actions.ts";
import { inkwell } from "../invocation.ts";
import { commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

export function reloadCommand(cli: Cli): Command {
  return commandWith(
    {
      words: reloadConfiguration.cli,
      about: "make the running service read its configuration again; shows what has changed",
      fields: { dry_run: optionally.flag({ about: "show what would change, and change nothing" }) },
      examples: reloadConfiguration.examples,
    },
    async ({ dry_run }) => {
      await cli.api.requireService();
      await (dry_run === true ? preview(cli) : reload(cli));
    },
  );
}

async function reload(cli: Cli): Promise<void> {
  const answer = await cli.api.get<ReloadJson>(reloadConfiguration);
  const changes = changesIn(answer);
  cli.print(answer, changes.map(([label, names]) => `${label}: ${names.join(", ")}`).join("\n"));
  for (const warning of answer.warnings) cli.remark(warning);
  cli.remark(
    changes.length === 0
      ? "The configuration is reloaded. Nothing has changed."
      : "The configuration is reloaded. Running answers keep their model and price.",
  );
}

async function preview(cli: Cli): Promise<void> {
  const answer = await cli.api.get<ReloadPreviewJson>(previewReload);
  const { changes, needs_restart: needsRestart, warnings } = answer;
  cli.print(answer, changesText(changes, cli));
  for (const warning of warnings) cli.remark(warning);
  if (needsRestart.length > 0) cli.remark(`Only a restart changes ${needsRestart.join(", ")}.`);
  cli.remark(
    changes.length === 0
      ? "A reload would change nothing."
      : `Nothing has changed yet. To change it: ${inkwell("reload")}`,
  );
}

/** Returns the settings that differ as a table. */
export function changesText(changes: readonly SettingChangeJson[], cli: Cli): string {
  return changes.length === 0 ? "" : table(changes, columnsOf("settingChange", "setting before after"), cli);
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
