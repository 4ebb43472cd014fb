/** `inkwell balance`: the balance of an account, as `GET /v1/balance` shows it to clients. */
import { Command } from "commander";
import { balanceObject } from "../http/openai-format/response.ts";
import { exactCredits, grouped, type MicroCredits } from "../units.ts";
import type { Cli } from "./cli.ts";
import { right, table } from "./format.ts";

export function balanceCommand(cli: Cli): Command {
  return new Command("balance")
    .description("show what an account has left, as GET /v1/balance does")
    .argument("<account>", "as account list shows it")
    .action((account: string) =>
      cli.withActions(cli.config(), async (actions) => {
        const view = await actions.balance(account);
        const balance = balanceObject(view);
        cli.print(balance, `Account ${account}, plan ${balance.plan}\n\n${balanceTable(balance)}`);
        remarkHeld(cli, view.heldMicro);
      }),
    );
}

/** Explains why some of the credits shown cannot be spent now. */
export function remarkHeld(cli: Cli, heldMicro: MicroCredits): void {
  if (heldMicro === 0) return;
  cli.remark(
    `Running requests hold ${exactCredits(heldMicro)} of these credits. ` +
      "When a request ends, it is charged for what it used, and the rest is returned.",
  );
}

export function balanceTable(balance: ReturnType<typeof balanceObject>): string {
  const { balances, caps, baseWindow, overageWindow } = balance;
  const share = (percent: number) => `${percent.toFixed(2)} %`;
  const row = (name: "base" | "overage" | "total", ...more: string[]) => [
    name,
    grouped(balances[name].credits),
    grouped(caps[name].credits),
    share(balances[name].percent),
    ...more,
  ];
  return table(
    ["BUCKET", right("CREDITS"), right("OF"), right("LEFT"), "REFRESHES"],
    [
      row("base", baseWindow.refreshesAt),
      row("overage", overageWindow.refreshesAt),
      ["additional", grouped(balances.additional.credits)],
      row("total"),
    ],
  );
}
