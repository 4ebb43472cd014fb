/** `inkwell events`: lists the receivers of events and their deliveries, sends again. */
import type { Command } from "commander";
import { sendEvents } from "../actions/events.ts";
import { listDeliveries, listEndpoints } from "../actions/views.ts";
import { actionCommand, commandGroup, listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf } from "./format.ts";

export function eventsCommand(cli: Cli): Command {
  const endpoints = "name state pending dead failing_accounts next_attempt_at? problem?";
  const deliveries = "at type account journal_number? state attempts status? answer? event_id";
  return commandGroup("events", "list receivers of events, and send again", [
    listCommand(cli, listEndpoints, {
      columns: columnsOf("eventEndpoint", endpoints),
      none: () => "The configuration has no section events.",
    }),
    listCommand(cli, listDeliveries, {
      about: "list what became of events at an endpoint, newest first",
      limit: 100,
      columns: columnsOf("eventDelivery", deliveries),
      none: () => "",
      more: "There are more. To see them, ask for more rows with --limit.",
    }),
    actionCommand(cli, sendEvents),
  ]);
}
