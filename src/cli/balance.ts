/** `inkwell balance`: the balance of an account, as its own clients are shown it. */
import { Command } from "commander";
import { type AccountSnapshot, balanceOf } from "../credits/balance.ts";
import type { Plans } from "../credits/plan.ts";
import { OperatorError, Refusal } from "../errors.ts";
import type { Store } from "../store/store.ts";
import { balanceObject } from "../wire/response.ts";
import type { Cli } from "./cli.ts";
import { grouped, table } from "./format.ts";
import { mendIt, noAccount } from "./refusals.ts";

export type Balance = ReturnType<typeof balanceObject>;

/** Of an account that contradicts itself, or whose plan is gone, what is wrong with it. */
export type BalanceFound = { balance: Balance; problem: null } | { balance: null; problem: string };

export function balanceCommand(cli: Cli): Command {
  return new Command("balance")
    .description("what an account has left, as GET /v1/balance shows it")
    .argument("<account>", "as account list shows it")
    .action(async (account: string) => {
      const config = cli.config();
      await cli.withStore(config, async ({ store }) => {
        const balance = await balanceIn(store, account, config.plans);
        cli.print(balance, `Account ${account}, plan ${balance.plan}\n\n${balanceTable(balance)}`);
      });
    });
}

export async function balanceIn(store: Store, account: string, plans: Plans): Promise<Balance> {
  const snapshot = await store.snapshot(account);
  if (snapshot === null) throw noAccount(account);
  const { balance, problem } = balanceFound(snapshot, plans);
  if (balance === null)
    throw new OperatorError(`The balance of ${account} cannot be read: ${problem}. ${mendIt}`);
  return balance;
}

export function balanceFound(snapshot: AccountSnapshot, plans: Plans): BalanceFound {
  try {
    return { balance: balanceObject(balanceOf(snapshot, plans)), problem: null };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    // The refusal itself is worded for callers, who are to ask the operator.
    const { id } = snapshot.account;
    return { balance: null, problem: (error.detail ?? error.message).replace(`account ${id}: `, "") };
  }
}

export function balanceTable({ balances, caps, baseWindow, overageWindow }: Balance): string {
  const right = { align: "right" } as const;
  const share = (percent: number) => `${percent.toFixed(2)} %`;
  return table(
    [
      { head: "BUCKET" },
      { head: "CREDITS", ...right },
      { head: "OF", ...right },
      { head: "LEFT", ...right },
      { head: "REFRESHES" },
    ],
    [
      [
        "base",
        grouped(balances.base.credits),
        grouped(caps.base.credits),
        share(balances.base.percent),
        baseWindow.refreshesAt,
      ],
      [
        "overage",
        grouped(balances.overage.credits),
        grouped(caps.overage.credits),
        share(balances.overage.percent),
        overageWindow.refreshesAt,
      ],
      ["additional", grouped(balances.additional.credits)],
      ["total", grouped(balances.total.credits), grouped(caps.total.credits), share(balances.total.percent)],
    ],
  );
}
