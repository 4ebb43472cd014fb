/** `inkwell balance`: the balance of an account, as its own clients are shown it. */
import { Command } from "commander";
import { OperatorError, Refusal } from "../errors.ts";
import { balanceObject } from "../http/openai-format/response.ts";
import { type AccountSnapshot, balanceOf } from "../ledger/balance.ts";
import type { Plans } from "../ledger/plan.ts";
import type { Store } from "../store/store.ts";
import { exactCredits, grouped, type MicroCredits } from "../units.ts";
import type { Cli } from "./cli.ts";
import { table } from "./format.ts";
import { mendIt, noAccount } from "./refusals.ts";

export type Balance = ReturnType<typeof balanceObject>;

/** A balance, or the problem of an account that contradicts itself or has lost its plan. */
export type BalanceFound =
  | { balance: Balance; heldMicro: MicroCredits; problem: null }
  | { balance: null; problem: string };

export function balanceCommand(cli: Cli): Command {
  return new Command("balance")
    .description("what an account has left, as GET /v1/balance shows it")
    .argument("<account>", "as account list shows it")
    .action(async (account: string) => {
      const config = cli.config();
      await cli.withStore(config, async ({ store }) => {
        const { balance, heldMicro } = await balanceIn(store, account, config.plans);
        cli.print(balance, `Account ${account}, plan ${balance.plan}\n\n${balanceTable(balance)}`);
        sayHeld(cli, heldMicro);
      });
    });
}

export async function balanceIn(
  store: Store,
  account: string,
  plans: Plans,
): Promise<Extract<BalanceFound, { problem: null }>> {
  const snapshot = await store.snapshot(account);
  if (snapshot === null) throw noAccount(account);
  const found = balanceFound(snapshot, plans);
  if (found.balance === null)
    throw new OperatorError(`The balance of ${account} cannot be read: ${found.problem}. ${mendIt}`);
  return found;
}

/** Explains the credits that are shown as left but cannot be spent by another request now. */
export function sayHeld(cli: Cli, heldMicro: MicroCredits): void {
  if (heldMicro === 0) return;
  cli.say(
    `Running requests hold ${exactCredits(heldMicro)} of these credits. ` +
      "Each request takes the credits it used when it ends and returns the others.",
  );
}

export function balanceFound(snapshot: AccountSnapshot, plans: Plans): BalanceFound {
  try {
    const view = balanceOf(snapshot, plans);
    return { balance: balanceObject(view), heldMicro: view.heldMicro, problem: null };
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
