/**
 * `inkwell account suspend`, `resume` and `close`. Closing is final, so it asks at a terminal, and
 * needs `--yes` elsewhere.
 */
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline/promises";
import type { Command } from "commander";
import { accountObject } from "../accounts/operator-objects.ts";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { exactCredits } from "../units.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

export function stateCommands(cli: Cli, account: Command): void {
  account
    .command("suspend")
    .description("answer no new requests of the account; running requests finish, and windows go on")
    .argument("<name>", "as account list shows it")
    .action((name: string) =>
      change(
        cli,
        name,
        "suspend",
        `Account ${name} is suspended. To end that: ${inkwell(`account resume ${name}`)}`,
      ),
    );

  account
    .command("resume")
    .description("end a suspension")
    .argument("<name>", "as account list shows it")
    .action((name: string) => change(cli, name, "resume", `Account ${name} is active.`));

  account
    .command("close")
    .description("close the account for good; base and overage credits lapse, additional credits stay")
    .argument("<name>", "as account list shows it")
    .option("--yes", "do not ask")
    .addHelpText("after", examples(inkwell("account close ada --yes")))
    .action((name: string, { yes = false }: { yes?: boolean }) => close(cli, name, yes));
}

async function change(cli: Cli, name: string, kind: "suspend" | "resume", remark: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const account = await actions.changeState(name, `${kind}-${randomUUID()}`, { kind });
    cli.print(accountObject.of(account), "");
    cli.remark(remark);
  });
}

async function close(cli: Cli, name: string, yes: boolean): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { balance } = await actions.accountWithBalance(name);
    const lapsing = balance === null ? 0 : balance.base.micro + balance.overage.micro;
    const effect = `Closing ${name} is final. ${exactCredits(lapsing)} base and overage credits lapse.`;
    if (!yes && !(await isConfirmed(cli, effect))) throw new OperatorError("Nothing has changed.");
    const account = await actions.changeState(name, `close-${randomUUID()}`, { kind: "close" });
    cli.print(accountObject.of(account), "");
    cli.remark(`Account ${name} is closed.`);
  });
}

/** Asks on stderr, so that stdout stays free for the result. Throws without a terminal. */
async function isConfirmed(cli: Cli, effect: string): Promise<boolean> {
  const { stdin, stderr } = cli.host;
  if (stdin.isTTY !== true) throw new OperatorError(`${effect} Confirm it with --yes.`);
  const reader = createInterface({ input: stdin, output: stderr });
  try {
    // The end of the input answers nothing.
    const ended = new Promise<string>((resolve) => reader.once("close", () => resolve("")));
    const answer = await Promise.race([reader.question(`${effect} Close it? [y/N] `), ended]);
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    reader.close();
  }
}
