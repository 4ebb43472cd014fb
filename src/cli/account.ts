/** `inkwell account`: opens, lists and shows accounts, and changes their plans and states. */
import { Command, Option } from "commander";
import { balanceObject } from "../accounts/balance-object.ts";
import type { AccountWithBalance, OperatorActions } from "../accounts/operator-actions.ts";
import {
  type AccountJson,
  accountObject,
  keyObject,
  type PlanPreviewJson,
} from "../accounts/operator-objects.ts";
import { accountExists, requirePlan } from "../accounts/refusals.ts";
import { accountActions } from "../actions/account-runs.ts";
import { changePlan, contact, mailChoices, mailNames, openAccount, setEnd } from "../actions/accounts.ts";
import { shown } from "../actions/columns.ts";
import { choice, flag, optional } from "../actions/field.ts";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { lowBalancePercent } from "../ledger/balance.ts";
import { type AccountRow, accountStates } from "../ledger/rows.ts";
import { defined } from "../objects.ts";
import { type AccountOrder, accountOrders } from "../store/store.ts";
import { type EpochMs, exactCredits, grouped, localMomentOf, shortTime } from "../units.ts";
import { importCommand } from "./account-import.ts";
import { stateCommands } from "./account-state.ts";
import { addAction, withFields } from "./action-command.ts";
import { contactText, limit } from "./arguments.ts";
import { balanceTable, remarkHeld } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { repairAdvice } from "./failure.ts";
import { type Column, columnsOf, count, table } from "./format.ts";
import { examples } from "./help.ts";
import { journalCommand } from "./journal.ts";
import { keyTable } from "./key-text.ts";

interface ListOptions {
  search?: string;
  externalId?: string;
  plan?: string;
  state?: AccountRow["state"];
  lowBalance?: true;
  order?: AccountOrder;
  descending?: true;
  limit?: number;
}

export function accountCommand(cli: Cli): Command {
  const account = new Command("account").description(
    "open, list and show accounts, and change their plans and states",
  );

  createCommand(cli, account);
  importCommand(cli, account);

  account
    .command("list")
    .description("list accounts with their plans and credits")
    .option(
      "--search <text>",
      "only accounts whose id, e-mail or external id begins with this text, or whose owner contains it",
      contactText,
    )
    .option("--external-id <id>", "only the account with this external id", contactText)
    .option("--plan <plan>", "only accounts on this plan")
    .addOption(new Option("--state <state>", "only accounts in this state").choices(accountStates))
    .option(
      "--low-balance",
      `only accounts with less than one credit, or less than ${lowBalancePercent} % of the credits of both windows`,
    )
    .addOption(new Option("--order <order>", "order of the list").choices(accountOrders).default("id"))
    .option("--descending", "the greatest first")
    .option("--limit <rows>", "only the first rows", limit)
    .addHelpText(
      "after",
      examples(
        inkwell("account list --search ada"),
        inkwell("account list --low-balance --order remaining"),
        inkwell("account list --plan starter --order created --descending --limit 20"),
      ),
    )
    .action((options: ListOptions) => list(cli, options));

  account
    .command("show")
    .description("show one account: plan, state, balance, keys")
    .argument("<account>", "as account list shows it")
    .action((name: string) => show(cli, name));

  setCommand(cli, account);
  inviteCommand(cli, account);
  journalCommand(cli, account);
  stateCommands(cli, account);
  return account;
}

function createCommand(cli: Cli, account: Command): void {
  const command = account
    .command("create")
    .description("open an account; the first account also creates the ledger, if none exists");
  const { dry_run: _, ...fields } = openAccount.input;
  const read = withFields(command, fields, { args: ["<id>"] });
  command
    .addHelpText(
      "after",
      examples(
        inkwell("account create ada --plan starter"),
        inkwell('account create ada --plan starter --owner "Ada Lovelace" --email ada@example.com'),
      ),
    )
    .action(async () => {
      const json = read();
      const [id, plan] = [String(json.id), String(json.plan)];
      const config = cli.config();
      // Wrong values must not create a ledger.
      accountActions.openAccount.check(json, config.timezone);
      if (cli.host.services.isNew(config)) requirePlan(config.plans, plan);
      await cli.withActions(
        config,
        async (actions) => {
          const { result, isNew, done } = await accountActions.openAccount.run(actions, json);
          if (!isNew) throw accountExists(id, plan);
          cli.print(result, "");
          cli.remark(`${done} To issue a key: ${inkwell(`key create ${id}`)}`);
        },
        { create: true },
      );
    });
}

async function list(cli: Cli, options: ListOptions): Promise<void> {
  const { limit: rowsMax, order, descending, lowBalance: hasLowBalance, ...others } = options;
  const filters = defined({ ...others, hasLowBalance });
  await cli.withActions(cli.config(), async (actions) => {
    const accounts = await actions.accountsWithBalance({ ...filters, order, descending }, rowsMax);
    const invalid = accounts.filter(({ problem }) => problem !== null).length;
    const documents = accounts.map(accountDocument);
    // Most accounts are active and have no change ahead.
    const hasStates = documents.some(({ state, ends_at }) => state !== "active" || ends_at !== null);
    const columns: Column<AccountDocument>[] = [
      ...columnsOf("account", "id plan balance.balances.base.credits balance.balances.overage.credits"),
      ...columnsOf("account", "balance.balances.additional.credits created_at"),
      ...(hasStates ? columnsOf("account", "state", { state: stateText }) : []),
      ...columnsOf("account", "owner? next_plan?"),
    ];
    if (invalid > 0) columns.push({ head: "PROBLEM", cell: ({ problem }) => problem ?? "" });
    cli.print(documents, table(documents, columns));
    if (invalid > 0) cli.remark(`${count(invalid, "account")} must be repaired. ${repairAdvice}`);
    if (accounts.length === 0 && Object.keys(filters).length > 0) cli.remark("No account matches.");
    else if (accounts.length === 0)
      cli.remark(`There are no accounts yet. To open one: ${inkwell("account create NAME --plan PLAN")}`);
  });
}

type AccountDocument = ReturnType<typeof accountDocument>;

function accountDocument({ account, balance, problem }: AccountWithBalance) {
  return { ...accountObject.of(account), balance: balance && balanceObject(balance), problem };
}

async function show(cli: Cli, name: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const found = await actions.accountWithBalance(name);
    const { account, nowMs, balance, problem } = found;
    const document = accountDocument(found);
    const keys = (await actions.keys.list(name)).map(keyObject.of);
    cli.print(
      { ...document, keys },
      [
        [headOf(account, document), ...contactLines(document)].join("\n"),
        balance === null ? `The balance cannot be read: ${problem}.` : balanceTable(balance),
        keys.length === 0 ? `No keys. To issue one: ${inkwell(`key create ${name}`)}` : keyTable(keys, nowMs),
      ].join("\n\n"),
    );
    if (balance === null) cli.remark(repairAdvice);
    else remarkHeld(cli, balance.heldMicro);
  });
}

function contactLines(document: AccountDocument): string[] {
  const lineOf = (name: keyof typeof shown.account & keyof AccountDocument) =>
    `${shown.account[name][0].toLowerCase()}: ${document[name]}`;
  return [
    ...(["owner", "email", "external_id", "note"] as const).filter((name) => document[name] !== null),
    ...mailNames.filter((name) => document[name] === "off"),
  ].map(lineOf);
}

function stateText({ state, ends_at }: AccountDocument): string {
  return state === "closed" || ends_at === null ? state : `${state}, ends ${shortTime(ends_at)}`;
}

function headOf({ base }: AccountRow, document: AccountDocument): string {
  const { id, plan, next_plan, state, ends_at, created_at } = document;
  const facts = [`Account ${id}`, `plan ${plan}`, `opened ${shortTime(created_at)}`];
  if (next_plan !== null) facts.push(`plan ${next_plan} from ${shortTime(base?.untilMs ?? null)}`);
  if (state !== "active" || ends_at !== null) facts.push(stateText(document));
  return facts.join(", ");
}

/** One command for three actions and a preview. */
function setCommand(cli: Cli, group: Command): void {
  const command = group
    .command("set")
    .description("change the plan, the time at which the account closes, or the contact");
  const { account, plan } = changePlan.input;
  const read = withFields(
    command,
    {
      ...{ account, plan: optional(plan) },
      at: optional(
        choice(["refresh", "now"], {
          rule: '"refresh" or "now"',
          option: "--at <time>",
          about: "when the plan changes: at the next refresh of the base credits (the default), or now",
        }),
      ),
      new_window: optional(
        flag({ about: "change the plan now, and begin a window where the plan has another one" }),
      ),
      dry_run: optional(flag({ about: "show what the change of the plan would do, and change nothing" })),
      ends_at: optional(setEnd.input.ends_at),
      operation_id: optional(setEnd.input.operation_id),
      ...contact,
      ...mailChoices,
    },
    { args: ["<account>"] },
  );
  command
    .addHelpText(
      "after",
      examples(
        inkwell("account set ada --plan pro"),
        inkwell("account set ada --plan starter --at now --dry-run"),
        inkwell("account set ada --ends 2027-12-31"),
        inkwell('account set ada --external-id crm-17 --note ""'),
      ),
    )
    .action(() => set(cli, command, read()));
}

async function set(cli: Cli, command: Command, json: Record<string, unknown>): Promise<void> {
  const {
    account,
    plan,
    at,
    new_window: newWindow = false,
    dry_run: dryRun = false,
    ends_at,
    operation_id,
    ...texts
  } = json;
  const name = String(account);
  const hasContact = Object.keys(texts).length > 0;
  const changes = [plan !== undefined, ends_at !== undefined, hasContact];
  if (changes.filter(Boolean).length !== 1) {
    command.error("error: give --plan, --ends or the contact, one of them at a time");
  }
  if (plan === undefined && (dryRun || newWindow || at !== undefined)) {
    command.error("error: --at, --new-window and --dry-run belong to --plan");
  }
  if (newWindow && at === "refresh") {
    command.error("error: --new-window begins a window now, so --at refresh cannot be given with it");
  }
  const toPlan = { account, plan, at: newWindow ? "new_window" : at };
  const once = { operation_id: operation_id ?? cli.newOperation("set") };
  const { changePlan, previewPlan, setContact, setEnd } = accountActions;
  await cli.withActions(cli.config(), async (actions) => {
    if (plan !== undefined && dryRun) {
      const { result } = await previewPlan.run(actions, toPlan);
      cli.print(result, previewTable(result));
      cli.remark("Nothing has changed. Without --dry-run, the plan is changed.");
    } else if (plan !== undefined) {
      const before = await actions.accountWithBalance(name);
      const { result, done } = await changePlan.run(actions, { ...toPlan, ...once });
      cli.print(result, "");
      cli.remark(planRemark(before, result) ?? done ?? "");
    } else {
      const endsMs = typeof ends_at === "string" ? localMomentOf(ends_at, cli.config().timezone, 1) : null;
      if (endsMs !== null) await refusePastEnd(actions, name, endsMs);
      const { result, done } = await (hasContact
        ? setContact.run(actions, { account, ...texts })
        : setEnd.run(actions, { account, ends_at, ...once }));
      cli.print(result, "");
      cli.remark(done ?? "");
    }
  });
}

/** Says what changed besides the plan, if there is more to say than the action does. */
function planRemark(
  { account: before, balance }: AccountWithBalance,
  { id, plan, next_plan }: AccountJson,
): string | null {
  if (balance === null) return null;
  if (next_plan !== null) {
    return `Account ${id} stays on plan ${plan} until ${shortTime(balance.base.endsMs)}, and is on plan ${next_plan} from then on.`;
  }
  if (before.plan !== plan) return `Account ${id} is on plan ${plan}. Its credits count from now on.`;
  return before.nextPlan === null
    ? `Account ${id} is on plan ${plan} already.`
    : `Account ${id} stays on plan ${plan}. The change to plan ${before.nextPlan} is cancelled.`;
}

/** Throws if the end has passed: it would close the account for good, without a confirmation. */
async function refusePastEnd(actions: OperatorActions, name: string, endsMs: EpochMs): Promise<void> {
  const { nowMs } = await actions.accountWithBalance(name);
  if (endsMs > nowMs) return;
  throw new OperatorError(
    `The end ${shortTime(endsMs)} has passed. Nothing has changed. Name a later time. To close the account now: ${inkwell(`account close ${name}`)}`,
  );
}

/** A change within a window is a gift or a cut. */
function earlyText({ early_micro: early }: PlanPreviewJson): string {
  if (early === 0) return "";
  const what = early > 0 ? "come" : "go";
  return `\n\n${exactCredits(Math.abs(early))} credits ${what} before the present windows would have ended.`;
}

/** Shows both balances side by side. */
function previewTable(preview: PlanPreviewJson): string {
  const { account, effective_at, before, after } = preview;
  const viewOf = ({ balance }: PlanPreviewJson["after"], name: "base" | "overage") => ({
    credits: grouped(balance.balances[name].credits),
    of: grouped(balance.caps[name].credits),
    refreshes: shortTime(balance[`${name}Window`].refreshesAt),
  });
  const rows = (["base", "overage"] as const).map((name) => ({
    ...{ name, was: viewOf(before, name), is: viewOf(after, name) },
  }));
  const text = table(rows, [
    { head: "BUCKET", cell: ({ name }) => name },
    { head: "CREDITS", isNumber: true, cell: ({ was }) => was.credits },
    { head: "OF", isNumber: true, cell: ({ was }) => was.of },
    { head: "REFRESHES", cell: ({ was }) => was.refreshes },
    { head: "THEN", isNumber: true, cell: ({ is }) => is.credits },
    { head: "OF", isNumber: true, cell: ({ is }) => is.of },
    { head: "REFRESHES", cell: ({ is }) => is.refreshes },
  ]);
  const from = `Account ${account}: plan ${before.plan} until ${shortTime(effective_at)}, then plan ${after.plan}`;
  return `${from}\n\n${text}${earlyText(preview)}`;
}

function inviteCommand(cli: Cli, account: Command): void {
  addAction(cli, account, accountActions.inviteAccount, {
    about: "invite a person to an account; prints the link once, alone on stdout, or mails it",
    text: ({ link }) => link ?? "",
    remark: ({ email, expires_at, link }, done) =>
      link === null
        ? done
        : `The link is for ${email}, works once, until ${shortTime(expires_at)}, and is shown only now. Anyone who has it is taken for this person. An earlier link has ended.`,
  });
}
