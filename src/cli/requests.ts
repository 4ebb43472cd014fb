/**
 * `inkwell requests`: lists the running requests of all nodes, and stops one.
 *
 * Both work through the database. A request is listed with the tokens of its last checkpoint, and
 * as soon as it holds credits. The node that answers it carries out the stop, and the command
 * waits for that.
 */
import { Command } from "commander";
import { holdObject, usageObject } from "../accounts/operator-objects.ts";
import type { StoppedRequest } from "../accounts/request-stops.ts";
import { inkwell } from "../invocation.ts";
import { amountOf } from "../ledger/grants.ts";
import type { HoldRow } from "../ledger/rows.ts";
import { pageRowsMax } from "../store/store.ts";
import { exactCredits, grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, count, table } from "./format.ts";
import { examples } from "./help.ts";

export function requestsCommand(cli: Cli): Command {
  const requests = new Command("requests").description("list the running requests of all nodes, or stop one");

  requests
    .command("list")
    .description("list running requests with the tokens of their last checkpoint and their held credits")
    .argument("[account]", "as account list shows it (default: all)")
    .addHelpText("after", examples(inkwell("requests list"), inkwell("requests list ada")))
    .action((account?: string) => list(cli, account));

  requests
    .command("stop")
    .description("stop a running request on any node; its caller pays for the tokens so far")
    .argument("<id>", "as requests list shows it, or the x-request-id of the answer")
    .addHelpText("after", examples(inkwell("requests stop 019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e")))
    .action((id: string) => stop(cli, id));

  return requests;
}

const columns = columnsOf(
  "runningRequest",
  "created_at account key model prompt_tokens completion_tokens held_micro request_id",
);

async function list(cli: Cli, account: string | undefined): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const rows: HoldRow[] = [];
    for (let page: HoldRow[] | null = null; page === null || page.length === pageRowsMax; ) {
      page = await actions.holds({ account, after: rows.at(-1), limit: pageRowsMax });
      rows.push(...page);
    }
    rows.sort((one, other) => one.createdMs - other.createdMs);
    const holds = rows.map(holdObject.of);
    cli.print(holds, rows.length === 0 ? "" : table(holds, columns));
    if (rows.length === 0) return cli.remark("No request is running.");
    const credits = exactCredits(rows.reduce((sum, row) => sum + amountOf(row.takings), 0));
    cli.remark(
      `${count(rows.length, "request")}, ${credits} credits held. Tokens are those of the last checkpoint.`,
    );
    const nowMs = actions.elapsedMs();
    const overdue = rows.filter(({ expiresMs }) => expiresMs <= nowMs).length;
    if (overdue > 0) cli.remark(`Requests whose process has died: ${overdue}. ${afterExpiry}`);
  });
}

const afterExpiry = "A running service charges the last checkpoint and returns the rest of the hold.";

async function stop(cli: Cli, id: string): Promise<void> {
  const config = cli.config();
  await cli.withActions(config, async (actions) => {
    const stopped = await actions.stopRequest(id);
    const { outcome, receipt } = stopped;
    cli.print(
      {
        request_id: id,
        stopped: outcome === "stopped",
        receipt: receipt && usageObject.of(receipt),
      },
      "",
    );
    cli.remark(endedText(stopped));
  });
}

function endedText({ requestId, outcome, receipt }: StoppedRequest): string {
  const end =
    outcome === "stopped" ? "is stopped" : `ended by itself (${receipt?.ending}) before it was stopped`;
  if (receipt === null) return `Request ${requestId} ${end}. Nothing was charged.`;
  const { promptTokens, completionTokens, costMicro, shortfallMicro } = receipt;
  const tokens = `${grouped(promptTokens)} + ${count(completionTokens, "token")}`;
  return `Request ${requestId} ${end}. It is charged ${exactCredits(costMicro - shortfallMicro)} credits for ${tokens}.`;
}
