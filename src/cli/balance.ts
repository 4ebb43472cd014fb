/** `inkwell balance`: the balance of an account, as `GET /v1/balance` shows it to clients. */
import { Command } from "commander";
import { balanceObject } from "../accounts/balance-object.ts";
import type { BalanceView } from "../ledger/balance.ts";
import { exactCredits, grouped, type MicroCredits } from "../units.ts";
import type { Cli } from "./cli.ts";
import { table } from "./format.ts";

export function balanceCommand(cli: Cli): Command {
  return new Command("balance")
    .description("show what an account has left, as GET /v1/balance does")
    .argument("<account>", "as account list shows it")
    .action((account: string) =>
      cli.withActions(cli.config(), async (actions) => {
        const balance = await actions.balance(account);
        const text = `Account ${account}, plan ${balance.plan}\n\n${balanceTable(balance)}`;
        cli.print(balanceObject(balance), text);
        remarkHeld(cli, balance.heldMicro);
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

interface BucketRow {
  name: string;
  left: { credits: number; percent?: number };
  cap?: { credits: number };
  window?: { refreshesAt: string };
}

export function balanceTable(view: BalanceView): string {
  const { balances, caps, baseWindow, overageWindow } = balanceObject(view);
  const rows: BucketRow[] = [
    { name: "base", left: balances.base, cap: caps.base, window: baseWindow },
    { name: "overage", left: balances.overage, cap: caps.overage, window: overageWindow },
    { name: "additional", left: balances.additional },
    { name: "total", left: balances.total, cap: caps.total },
  ];
  return table(rows, [
    { head: "BUCKET", cell: ({ name }) => name },
    { head: "CREDITS", isNumber: true, cell: ({ left }) => grouped(left.credits) },
    { head: "OF", isNumber: true, cell: ({ cap }) => (cap === undefined ? "" : grouped(cap.credits)) },
    {
      head: "LEFT",
      isNumber: true,
      cell: ({ left: { percent } }) => (percent === undefined ? "" : `${percent.toFixed(2)} %`),
    },
    { head: "REFRESHES", cell: ({ window }) => window?.refreshesAt ?? "" },
  ]);
}
