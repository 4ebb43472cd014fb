/**
 * `inkwell reload`: makes the running service read its configuration again, over its operator
 * listener, and shows what has changed.
 */
import type { Command } from "commander";
import type { Static } from "typebox";
import type { reloadObject } from "../http/admin/service-actions.ts";
import type { Cli } from "./cli.ts";
import { listenerCommand, post } from "./operator-client.ts";

export function reloadCommand(cli: Cli): Command {
  const about = "make the running service read its configuration again; shows what has changed";
  return listenerCommand(cli, "reload", about, async ({ url, token }) => {
    const { reloadObject } = await import("../http/admin/service-actions.ts");
    show(cli, await post(`${url}/admin/reload`, token(), reloadObject.schema));
  });
}

function show(cli: Cli, answer: Static<typeof reloadObject.schema>): void {
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
