/** `inkwell requests`: lists the running requests of all nodes, and stops one. */
import type { Command } from "commander";
import type { HoldJson } from "../accounts/operator-objects.ts";
import { optional } from "../actions/field.ts";
import { accountId } from "../actions/fields.ts";
import { stopRequest } from "../actions/service.ts";
import { listHolds } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { exactCredits } from "../units.ts";
import { actionCommand, commandGroup, listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, count } from "./format.ts";

export function requestsCommand(cli: Cli): Command {
  const names = "created_at account key model prompt_tokens completion_tokens held_micro request_id";
  return commandGroup("requests", "list the running requests of all nodes, or stop one", [
    listCommand<HoldJson>(cli, listHolds, {
      about: "list running requests with the tokens of their last checkpoint and their held credits",
      fields: { account: optional({ ...accountId, about: "as account list shows it (default: all)" }) },
      columns: columnsOf("runningRequest", names),
      shown: (rows) => rows.sort((one, other) => Date.parse(one.created_at) - Date.parse(other.created_at)),
      none: () => "No request is running.",
      remarks: async (rows) => {
        if (rows.length === 0) return [];
        const { nowMs } = await cli.api.clock();
        const overdue = rows.filter(({ expires_at }) => Date.parse(expires_at) <= nowMs).length;
        const credits = exactCredits(rows.reduce((sum, row) => sum + row.held_micro, 0));
        return [
          `${count(rows.length, "request")}, ${credits} credits held. Tokens are those of the last checkpoint.`,
          ...(overdue === 0 ? [] : [`Requests whose process has died: ${overdue}. ${afterExpiry}`]),
        ];
      },
    }),
    actionCommand(cli, stopRequest, {
      about: "stop a running request on any node; its caller pays for the tokens so far",
      remark: ({ request_id }, done) =>
        `${done} To see what it cost: ${inkwell(`usage --request-id ${request_id}`)}`,
    }),
  ]);
}

const afterExpiry = "A running service charges the last checkpoint and returns the rest of the hold.";
