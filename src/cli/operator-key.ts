/** `inkwell operator` makes, lists and ends operator keys; `inkwell log` lists all changes. */
import { Command } from "commander";
import type { ChangeJson } from "../accounts/log-objects.ts";
import { operatorKeyObject } from "../accounts/log-objects.ts";
import { operatorKeyState, valuesText } from "../actions/columns.ts";
import { operatorActions } from "../actions/operator-runs.ts";
import { inkwell } from "../invocation.ts";
import { actionCommand, addAction } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

export function operatorKeyCommand(cli: Cli): Command {
  const group = new Command("operator").description(
    "make, list and end keys of programs that use the operator API",
  );
  addAction(cli, group, operatorActions.makeOperatorKey, {
    about: "make an operator key; prints it once, alone on stdout",
    text: (made) => made.key ?? "",
    remark: ({ id, name }) =>
      `The operator key of ${name} is shown only now. Keep it safe. To end it: ${inkwell(`operator end ${id}`)}`,
  });
  group
    .command("list")
    .description("list operator keys, without their secrets")
    .option("--all", "include ended and expired keys")
    .action(({ all = false }: { all?: boolean }) =>
      cli.withActions(cli.config(), async (actions) => {
        const nowMs = actions.ledgerMs();
        const rows = (await actions.operatorKeys.list()).map(operatorKeyObject.of);
        const shown = rows.filter((key) => all || operatorKeyState(key, nowMs) === "active");
        const columns = columnsOf(
          "operatorKey",
          "id name role made_by last_four ended_at expires_at last_used_at",
          { ended_at: (key: (typeof rows)[number]) => operatorKeyState(key, nowMs) },
        );
        cli.print(shown, shown.length === 0 ? "" : table(shown, columns));
        if (shown.length === 0) cli.remark("There is no operator key.");
      }),
    );
  addAction(cli, group, operatorActions.endOperatorKey, {
    about: "end an operator key, at once and for good",
  });
  return group;
}

const columns = columnsOf("change", "at kind by account? subject? amount_micro? after?", {
  after: (change: ChangeJson) => valuesText(change) || "-",
});

export function logCommand(cli: Cli): Command {
  return actionCommand(cli, operatorActions.listChanges, {
    about: "list all changes with who made them, the newest first",
    text: ({ data }) => (data.length === 0 ? "" : table(data, columns)),
    remark: ({ data, next }) => {
      if (data.length === 0) return "No change matches.";
      return next === null ? "" : `There are more: --after "${next}"`;
    },
  });
}
