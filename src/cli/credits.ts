/** `inkwell credits`: top-ups and adjustments of additional credits. Each id takes effect once. */
import { Command } from "commander";
import { adjustmentObject, topupObject } from "../accounts/operator-objects.ts";
import { exactCredits } from "../units.ts";
import { creditsToAdd, creditsToAdjust, note } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { examples } from "./help.ts";

export function creditsCommand(cli: Cli): Command {
  const credits = new Command("credits").description("add or correct additional credits");

  credits
    .command("add")
    .description("add credits that were paid for; each payment of an account counts once")
    .argument("<account>", "as account list shows it")
    .argument("<credits>", "whole credits", creditsToAdd)
    .requiredOption("--payment <id>", "your id of the payment; a repetition changes nothing", note)
    .addHelpText("after", examples("inkwell credits add ada 50000 --payment inv-2041"))
    .action((account: string, amount: number, { payment }: { payment: string }) =>
      cli.withActions(cli.config(), async (actions) => {
        const change = await actions.addCredits(account, payment, amount);
        cli.print(topupObject.of({ account, id: payment, credits: amount, change }), "");
        cli.remark(
          change.replayed
            ? `Payment ${payment} was counted before. Nothing has changed.`
            : `${count(amount, "credit")} added to ${account}. It has ${exactCredits(change.additional)} additional credits now.`,
        );
      }),
    );

  credits
    .command("adjust")
    .description("correct the additional credits, up or down; each id of an account counts once")
    .argument("<account>", "as account list shows it")
    .argument("<credits>", "whole credits; a negative number takes away", creditsToAdjust)
    .requiredOption("--reason <text>", "the reason, for the journal", note)
    .requiredOption("--id <id>", "your id of this correction; a repetition changes nothing", note)
    .addHelpText(
      "after",
      examples('inkwell credits adjust ada -2000 --reason "inv-2041 was refunded" --id refund-17'),
    )
    .action((account: string, amount: number, { reason, id }: { reason: string; id: string }) =>
      cli.withActions(cli.config(), async (actions) => {
        const change = await actions.adjustCredits(account, id, amount, reason);
        cli.print(adjustmentObject.of({ account, id, credits: amount, change }), "");
        cli.remark(
          change.replayed
            ? `Adjustment ${id} was made before. Nothing has changed.`
            : `Account ${account} has ${exactCredits(change.additional)} additional credits now.`,
        );
      }),
    );

  return credits;
}
