/** `inkwell events`: lists the receivers of events and their deliveries, sends again. */
import { Command } from "commander";
import { eventActions } from "../actions/event-runs.ts";
import { listDeliveries } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { addAction, withFields } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";

const endpointColumns = columnsOf(
  "eventEndpoint",
  "name state pending dead failing_accounts next_attempt_at? problem?",
);
const deliveryColumns = columnsOf(
  "eventDelivery",
  "at type account journal_number? state attempts status? answer? event_id",
);

export function eventsCommand(cli: Cli): Command {
  const events = new Command("events").description("list receivers of events, and send again");

  events
    .command("endpoints")
    .description("list the receivers of events, with what waits for each of them")
    .action(() =>
      cli.withActions(cli.config(), async (actions) => {
        const { result } = await eventActions.listEndpoints.run(actions, { limit: 500 });
        cli.print(result.data, result.data.length === 0 ? "" : table(result.data, endpointColumns));
        if (result.data.length === 0) cli.remark("The configuration has no section events.");
      }),
    );

  const deliveries = new Command("deliveries").description(
    "list what became of events at an endpoint, newest first",
  );
  const { endpoint, account, state, limit } = listDeliveries.input;
  const read = withFields(deliveries, { endpoint, account, state, limit }, { args: ["<endpoint>"] });
  deliveries
    .addHelpText(
      "after",
      examples(inkwell("events deliveries billing"), inkwell("events deliveries billing --state dead")),
    )
    .action(async () => {
      const input = read();
      await cli.withActions(cli.config(), async (actions) => {
        const { result } = await eventActions.listDeliveries.run(actions, input);
        cli.print(result.data, result.data.length === 0 ? "" : table(result.data, deliveryColumns));
        if (result.next !== null) cli.remark("There are more. To see them, ask for more rows with --limit.");
      });
    });
  events.addCommand(deliveries);

  addAction(cli, events, eventActions.sendEvents);
  return events;
}
