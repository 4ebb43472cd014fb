/** `inkwell credits`: additional credits, bought or corrected by hand. Safe to repeat: each id counts once. */
import { Command } from "commander";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import type { Store } from "../store/store.ts";
import { exactCredits, microOf } from "../units.ts";
import { creditsToAdd, creditsToAdjust, note } from "./arguments.ts";
import { balanceIn } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { examples } from "./help.ts";
import { groundFault } from "./refusals.ts";

export function creditsCommand(cli: Cli): Command {
  const credits = new Command("credits").description("additional credits, bought or corrected by hand");

  credits
    .command("add")
    .description("add credits that were paid for; each payment of an account counts once, ever")
    .argument("<account>", "as account list shows it")
    .argument("<credits>", "whole credits", creditsToAdd)
    .requiredOption("--payment <id>", "your id of the payment; sent again, it changes nothing", note)
    .addHelpText("after", examples("inkwell credits add ada 50000 --payment inv-2041"))
    .action((account: string, amount: number, options: { payment: string }) =>
      add(cli, account, amount, options.payment),
    );

  credits
    .command("adjust")
    .description("correct the additional credits, up or down; each id of an account counts once, ever")
    .argument("<account>", "as account list shows it")
    .argument("<credits>", "whole credits; below zero takes away", creditsToAdjust)
    .requiredOption("--reason <text>", "why; it stands in the journal", note)
    .requiredOption("--id <id>", "your id of this correction; sent again, it changes nothing", note)
    .addHelpText(
      "after",
      examples('inkwell credits adjust ada -2000 --reason "inv-2041 was refunded" --id refund-17'),
    )
    .action((account: string, amount: number, options: { reason: string; id: string }) =>
      adjust(cli, account, amount, options),
    );

  return credits;
}

async function add(cli: Cli, account: string, credits: number, payment: string): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store, ledger }) => {
    const outcome = await ledger.apply({ kind: "topup", account, payment, amount: microOf(credits) });
    switch (outcome.kind) {
      case "added":
        await report(cli, config, store, account, { payment_id: payment, credits, again: outcome.replayed });
        cli.say(
          outcome.replayed
            ? `Payment ${payment} was counted before; nothing has changed.`
            : `${count(credits, "credit")} added to ${account}; its additional credits are now ${exactCredits(outcome.additional)}.`,
        );
        return;
      case "conflict":
        throw new OperatorError(
          `Payment ${payment} was counted before, with ${exactCredits(outcome.amount)} credits instead of ` +
            `${exactCredits(microOf(credits))}. Nothing has changed; another payment needs another id.`,
        );
      case "too_much":
        throw tooMuch(account);
      default:
        throw groundFault(account, outcome);
    }
  });
}

async function adjust(
  cli: Cli,
  account: string,
  credits: number,
  { reason, id }: { reason: string; id: string },
): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store, ledger }) => {
    const outcome = await ledger.apply({ kind: "adjust", account, op: id, amount: microOf(credits), reason });
    switch (outcome.kind) {
      case "adjusted":
        await report(cli, config, store, account, { operation_id: id, credits, again: outcome.replayed });
        cli.say(
          outcome.replayed
            ? `Adjustment ${id} was made before; nothing has changed.`
            : `The additional credits of ${account} are now ${exactCredits(outcome.additional)}.`,
        );
        return;
      case "conflict":
        throw new OperatorError(
          `Adjustment ${id} was made before, by ${exactCredits(outcome.amount)} credits for the reason ` +
            `${JSON.stringify(outcome.reason)}, instead of ${exactCredits(microOf(credits))} for ` +
            `${JSON.stringify(reason)}. Nothing has changed; another adjustment needs another id.`,
        );
      case "too_little":
        throw new OperatorError(
          `Account ${account} has ${exactCredits(outcome.additional)} additional credits; no more than that can be ` +
            "taken away. Nothing has changed.",
        );
      case "too_much":
        throw tooMuch(account);
      default:
        throw groundFault(account, outcome);
    }
  });
}

/** As the operator API answers. `again`: the id was known, so nothing was moved this time. */
type Change = { credits: number; again: boolean } & ({ payment_id: string } | { operation_id: string });

async function report(
  cli: Cli,
  { plans }: Config,
  store: Store,
  account: string,
  change: Change,
): Promise<void> {
  if (!cli.json) return;
  const { balance } = await balanceIn(store, account, plans);
  cli.print({ account, ...change, balance }, "");
}

function tooMuch(account: string): OperatorError {
  return new OperatorError(`Account ${account} cannot hold that many credits. Nothing has changed.`);
}
