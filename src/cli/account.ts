/** `inkwell account`: who may use the service, and on which plan. */

import { randomUUID } from "node:crypto";
import { Command } from "commander";
import type { OpenStore } from "../app/database.ts";
import { invariant, OperatorError } from "../errors.ts";
import { accountObject, keyObject } from "../http/admin/objects.ts";
import type { AccountRow } from "../ledger/rows.ts";
import type { Store } from "../store/store.ts";
import { grouped } from "../units.ts";
import { accountName } from "./arguments.ts";
import { type BalanceFound, balanceFound, balanceTable, sayHeld } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";
import { keyTable } from "./key.ts";
import { groundFault, mendIt, noAccount, requirePlan } from "./refusals.ts";

const pageSize = 100;

export function accountCommand(cli: Cli): Command {
  const account = new Command("account").description("who may use the service, and on which plan");

  account
    .command("create")
    .description("open an account; with the first one the ledger is made where there is none")
    .argument("<name>", "lower-case letters, digits, dots, dashes, underscores", accountName)
    .requiredOption("--plan <plan>", "a plan of the configuration, which config check shows")
    .addHelpText("after", examples("inkwell account create ada --plan starter"))
    .action((name: string, options: { plan: string }) => create(cli, name, options.plan));

  account
    .command("list")
    .description("every account with its plan and credits")
    .action(() => list(cli));

  account
    .command("show")
    .description("one account: plan, balance, keys")
    .argument("<name>", "as account list shows it")
    .action((name: string) => show(cli, name));

  account
    .command("set")
    .description("put an account on another plan; more counts at once, less from the next refresh")
    .argument("<name>", "as account list shows it")
    .requiredOption("--plan <plan>", "a plan of the configuration, which config check shows")
    .addHelpText("after", examples("inkwell account set ada --plan pro"))
    .action((name: string, options: { plan: string }) => setPlan(cli, name, options.plan));

  return account;
}

async function create(cli: Cli, name: string, plan: string): Promise<void> {
  const config = cli.config();
  requirePlan(config, plan);
  const open = async ({ store, ledger }: OpenStore) => {
    const outcome = await ledger.apply({ kind: "open", account: name, plan });
    if (outcome.kind === "exists") {
      throw new OperatorError(
        `There is an account ${name} already, on plan ${outcome.plan}. "inkwell account set" changes its plan.`,
      );
    }
    if (outcome.kind !== "opened") throw groundFault(name, outcome);
    cli.print(await document(store, name), "");
    cli.say(`Account ${name} is open, on plan ${plan}. A key for it: inkwell key create ${name}`);
  };
  await cli.withStore(config, open, { make: true });
}

async function list(cli: Cli): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store }) => {
    const found: ({ row: AccountRow } & BalanceFound)[] = [];
    let after: string | undefined;
    for (;;) {
      const page = await store.accounts({ ...(after === undefined ? {} : { after }), limit: pageSize });
      for (const row of page) {
        const snapshot = await store.snapshot(row.id);
        invariant(snapshot !== null, "accounts are never deleted");
        found.push({ row, ...balanceFound(snapshot, config.plans) });
      }
      after = page.at(-1)?.id;
      if (page.length < pageSize) break;
    }
    const right = { align: "right" } as const;
    const wrong = found.filter(({ problem }) => problem !== null).length;
    cli.print(
      found.map(({ row, balance, problem }) => ({ ...accountObject(row), balance, problem })),
      table(
        [
          { head: "ACCOUNT" },
          { head: "PLAN" },
          { head: "BASE", ...right },
          { head: "OVERAGE", ...right },
          { head: "ADDITIONAL", ...right },
          { head: "CREATED" },
          ...(wrong === 0 ? [] : [{ head: "PROBLEM" }]),
        ],
        found.map(({ row, balance, problem }) => [
          row.id,
          row.plan,
          creditsText(balance?.balances.base),
          creditsText(balance?.balances.overage),
          creditsText(balance?.balances.additional),
          shortTime(row.createdMs),
          problem ?? "",
        ]),
      ),
    );
    if (wrong > 0) cli.say(`${count(wrong, "account")} must be mended. ${mendIt}`);
    if (found.length === 0)
      cli.say("There are no accounts yet. Open one: inkwell account create NAME --plan PLAN");
  });
}

function creditsText(bucket: { credits: number } | undefined): string {
  return bucket === undefined ? "-" : grouped(bucket.credits);
}

async function show(cli: Cli, name: string): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store }) => {
    const snapshot = await store.snapshot(name);
    if (snapshot === null) throw noAccount(name);
    const found = balanceFound(snapshot, config.plans);
    const { balance, problem } = found;
    const keys = await store.keys(name);
    cli.print(
      { ...accountObject(snapshot.account), balance, problem, keys: keys.map(keyObject) },
      [
        `Account ${name}, plan ${snapshot.account.plan}, opened ${shortTime(snapshot.account.createdMs)}`,
        "",
        balance === null ? `Its balance cannot be read: ${problem}.` : balanceTable(balance),
        "",
        keys.length === 0 ? `No keys. Make one: inkwell key create ${name}` : keyTable(keys, snapshot.nowMs),
      ].join("\n"),
    );
    if (found.balance === null) cli.say(mendIt);
    else sayHeld(cli, found.heldMicro);
  });
}

async function setPlan(cli: Cli, name: string, plan: string): Promise<void> {
  const config = cli.config();
  requirePlan(config, plan);
  await cli.withStore(config, async ({ store, ledger }) => {
    const outcome = await ledger.apply({ kind: "plan", account: name, op: `plan-${randomUUID()}`, plan });
    // The operation is new: it cannot have been done before, with another plan.
    invariant(outcome.kind !== "conflict", "a new operation finds nothing that was done before");
    if (outcome.kind !== "changed") throw groundFault(name, outcome);
    cli.print(await document(store, name), "");
    cli.say(
      `Account ${name} is on plan ${plan}: what it grants more counts at once, what it grants less from the next refresh.`,
    );
  });
}

async function document(store: Store, name: string) {
  const snapshot = await store.snapshot(name);
  if (snapshot === null) throw noAccount(name);
  return accountObject(snapshot.account);
}
