/** `inkwell operator` makes, lists and ends operator keys; `inkwell log` lists all changes. */
import type { Command } from "commander";
import type { OperatorKeyJson } from "../accounts/log-objects.ts";
import { operatorKeyState } from "../actions/columns.ts";
import { optionally } from "../actions/field.ts";
import { endOperatorKey, makeOperatorKey } from "../actions/operator-keys.ts";
import type { Page } from "../actions/pages.ts";
import type { ToldChangeJson } from "../actions/told.ts";
import { listChanges, listOperatorKeys } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { actionCommand, commandGroup, listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

export function operatorKeyCommand(cli: Cli): Command {
  const columns = columnsOf(
    "operatorKey",
    "id name role made_by last_four ended_at expires_at last_used_at",
    {
      ended_at: (key: OperatorKeyJson) => operatorKeyState(key, nowMs),
    },
  );
  let nowMs = 0;
  return commandGroup("operator", "make, list and end keys of programs that use the operator API", [
    actionCommand(cli, makeOperatorKey, {
      about: "make an operator key; prints it once, alone on stdout",
      text: (made) => made.key ?? "",
      remark: ({ id, name }) =>
        `The operator key of ${name} is shown only now. Keep it safe. To end it: ${inkwell(`operator end ${id}`)}`,
    }),
    listCommand<OperatorKeyJson>(cli, listOperatorKeys, {
      about: "list operator keys, without their secrets",
      fields: { all: optionally.flag({ about: "include ended and expired keys" }) },
      asked: () => ({}),
      columns,
      shown: async (keys, { all = false }) => {
        nowMs = (await cli.api.clock()).nowMs;
        return keys.filter((key) => all === true || operatorKeyState(key, nowMs) === "active");
      },
      none: () => "There is no operator key.",
    }),
    actionCommand(cli, endOperatorKey, { about: "end an operator key, at once and for good" }),
  ]);
}

const columns = columnsOf("change", "at sentence");

export function logCommand(cli: Cli): Command {
  return actionCommand<typeof listChanges.input, Page<ToldChangeJson>>(cli, listChanges, {
    about: "list all changes with who made them, the newest first",
    text: ({ data }) => (data.length === 0 ? "" : table(data, columns, cli)),
    remark: ({ data, next }) => {
      if (data.length === 0) return "No change matches.";
      return next === null ? "" : `There are more: --after "${next}"`;
    },
  });
}
