/**
 * `inkwell account suspend`, `resume` and `close`. Closing is final, so it asks at a terminal, and
 * needs `--yes` elsewhere.
 */
import type { Command } from "commander";
import { accountActions } from "../actions/account-runs.ts";
import { changeState } from "../actions/accounts.ts";
import { flag, optional } from "../actions/field.ts";
import { inkwell } from "../invocation.ts";
import { exactCredits } from "../units.ts";
import { addAction, withFields } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { requireConfirmed } from "./confirm.ts";
import { examples } from "./help.ts";

export function stateCommands(cli: Cli, account: Command): void {
  addAction(cli, account, accountActions.changeState, {
    words: "account suspend <account>",
    about: "answer no new requests of the account; running requests finish, and windows go on",
    preset: { state: "suspended" },
    remark: ({ id }, done) => `${done} To end that: ${inkwell(`account resume ${id}`)}`,
  });
  addAction(cli, account, accountActions.changeState, {
    words: "account resume <account>",
    about: "end a suspension",
    preset: { state: "active" },
  });
  const closing = account
    .command("close")
    .description("close the account for good; base and overage credits lapse, additional credits stay");
  const read = withFields(
    closing,
    {
      account: changeState.input.account,
      operation_id: optional(changeState.input.operation_id),
      yes: optional(flag({ about: "do not ask" })),
    },
    { args: ["<account>"] },
  );
  closing.addHelpText("after", examples(inkwell("account close ada --yes"))).action(async () => {
    const { account: name, yes = false, operation_id = cli.newOperation("close") } = read();
    await close(cli, { account: String(name), operation_id }, yes === true);
  });
}

interface Closed {
  account: string;
  operation_id: unknown;
}

async function close(cli: Cli, closed: Closed, yes: boolean): Promise<void> {
  const { account } = closed;
  await cli.withActions(cli.config(), async (actions) => {
    const { balance } = await actions.accountWithBalance(account);
    const lapsing = balance === null ? 0 : balance.base.remainingMicro + balance.overage.remainingMicro;
    const effect = `Closing ${account} is final. ${exactCredits(lapsing)} base and overage credits lapse.`;
    if (!yes) await requireConfirmed(cli, { effect, question: "Close it?" });
    const { result, done } = await accountActions.changeState.run(actions, { ...closed, state: "closed" });
    cli.print(result, "");
    cli.remark(done ?? "");
  });
}
