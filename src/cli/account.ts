/** `inkwell account`: opens, lists and shows accounts, and changes their plans. */
import { randomUUID } from "node:crypto";
import { Command } from "commander";
import { balanceObject } from "../accounts/balance-object.ts";
import type { AccountState } from "../accounts/operator-actions.ts";
import { accountObject, keyObject } from "../accounts/operator-objects.ts";
import { accountExists, requirePlan } from "../accounts/refusals.ts";
import { creditsIn, grouped, type MicroCredits } from "../units.ts";
import { accountName } from "./arguments.ts";
import { balanceTable, remarkHeld } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { repairAdvice } from "./failure.ts";
import { type Column, count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";
import { keyTable } from "./key.ts";

export function accountCommand(cli: Cli): Command {
  const account = new Command("account").description("open, list and show accounts, and change their plans");

  account
    .command("create")
    .description("open an account; the first account also creates the ledger, if none exists")
    .argument("<name>", "lower-case letters, digits, dots, dashes, underscores", accountName)
    .requiredOption("--plan <plan>", "a plan of the configuration, as config check shows it")
    .addHelpText("after", examples("inkwell account create ada --plan starter"))
    .action((name: string, { plan }: { plan: string }) => create(cli, name, plan));

  account
    .command("list")
    .description("list all accounts with their plans and credits")
    .action(() => list(cli));

  account
    .command("show")
    .description("show one account: plan, balance, keys")
    .argument("<name>", "as account list shows it")
    .action((name: string) => show(cli, name));

  account
    .command("set")
    .description("change the plan; a larger grant counts at once, a smaller one from the next refresh")
    .argument("<name>", "as account list shows it")
    .requiredOption("--plan <plan>", "a plan of the configuration, as config check shows it")
    .addHelpText("after", examples("inkwell account set ada --plan pro"))
    .action((name: string, { plan }: { plan: string }) => setPlan(cli, name, plan));

  return account;
}

async function create(cli: Cli, name: string, plan: string): Promise<void> {
  const config = cli.config();
  // A wrong plan must not create a ledger.
  requirePlan(config.plans, plan);
  await cli.withActions(
    config,
    async (actions) => {
      const { account, isNew } = await actions.openAccount(name, plan);
      if (!isNew) throw accountExists(name, plan);
      cli.print(accountObject.of(account), "");
      cli.remark(`Account ${name} is open, on plan ${plan}. To issue a key: inkwell key create ${name}`);
    },
    { create: true },
  );
}

async function list(cli: Cli): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const states = await actions.accountStates();
    const invalid = states.filter(({ problem }) => problem !== null).length;
    const columns: Column<AccountState>[] = [
      { head: "ACCOUNT", cell: ({ account }) => account.id },
      { head: "PLAN", cell: ({ account }) => account.plan },
      { head: "BASE", right: true, cell: ({ balance }) => creditsText(balance?.base.micro) },
      { head: "OVERAGE", right: true, cell: ({ balance }) => creditsText(balance?.overage.micro) },
      { head: "ADDITIONAL", right: true, cell: ({ balance }) => creditsText(balance?.additionalMicro) },
      { head: "CREATED", cell: ({ account }) => shortTime(account.createdMs) },
    ];
    if (invalid > 0) columns.push({ head: "PROBLEM", cell: ({ problem }) => problem ?? "" });
    cli.print(states.map(stateObject), table(states, columns));
    if (invalid > 0) cli.remark(`${count(invalid, "account")} must be repaired. ${repairAdvice}`);
    if (states.length === 0)
      cli.remark("There are no accounts yet. To open one: inkwell account create NAME --plan PLAN");
  });
}

function stateObject({ account, balance, problem }: AccountState) {
  return { ...accountObject.of(account), balance: balance && balanceObject(balance), problem };
}

function creditsText(micro: MicroCredits | undefined): string {
  return micro === undefined ? "-" : grouped(creditsIn(micro));
}

async function show(cli: Cli, name: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const state = await actions.accountState(name);
    const { account, nowMs, balance, problem } = state;
    const keys = await actions.keys(name);
    cli.print(
      { ...stateObject(state), keys: keys.map(keyObject.of) },
      [
        `Account ${name}, plan ${account.plan}, opened ${shortTime(account.createdMs)}`,
        balance === null ? `The balance cannot be read: ${problem}.` : balanceTable(balance),
        keys.length === 0 ? `No keys. To issue one: inkwell key create ${name}` : keyTable(keys, nowMs),
      ].join("\n\n"),
    );
    if (balance === null) cli.remark(repairAdvice);
    else remarkHeld(cli, balance.heldMicro);
  });
}

async function setPlan(cli: Cli, name: string, plan: string): Promise<void> {
  const config = cli.config();
  requirePlan(config.plans, plan);
  await cli.withActions(config, async (actions) => {
    const account = await actions.changePlan(name, `plan-${randomUUID()}`, plan);
    cli.print(accountObject.of(account), "");
    cli.remark(
      `Account ${name} is on plan ${plan}. A larger grant counts at once, a smaller one from the next refresh.`,
    );
  });
}
