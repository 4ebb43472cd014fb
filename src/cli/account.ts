/** `inkwell account`: opens, lists and shows accounts, and changes their plans and states. */
import { randomUUID } from "node:crypto";
import { Command, Option } from "commander";
import { balanceObject } from "../accounts/balance-object.ts";
import type { AccountWithBalance, OperatorActions, PlanPreviewOf } from "../accounts/operator-actions.ts";
import { accountObject, keyObject, previewObject } from "../accounts/operator-objects.ts";
import { accountExists, requirePlan } from "../accounts/refusals.ts";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { nearExhaustionPercent } from "../ledger/balance.ts";
import type { PlanOperation } from "../ledger/operations.ts";
import { type AccountRow, accountStates } from "../ledger/rows.ts";
import { defined } from "../objects.ts";
import type { Contact } from "../store/contacts.ts";
import { type AccountOrder, accountOrders } from "../store/store.ts";
import { creditsIn, type EpochMs, exactCredits, grouped, type MicroCredits } from "../units.ts";
import { type ContactOptions, contactLines, contactOf, contactText, withContact } from "./account-contact.ts";
import { importCommand } from "./account-import.ts";
import { stateCommands } from "./account-state.ts";
import { accountName, limit, moment } from "./arguments.ts";
import { balanceTable, remarkHeld } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { repairAdvice } from "./failure.ts";
import { type Column, count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";
import { journalCommand } from "./journal.ts";
import { keyTable } from "./key-text.ts";

interface ListOptions {
  search?: string;
  externalId?: string;
  plan?: string;
  state?: AccountRow["state"];
  nearExhaustion?: true;
  order?: AccountOrder;
  descending?: true;
  limit?: number;
}

interface SetOptions extends ContactOptions {
  plan?: string;
  at?: "refresh" | "now";
  newWindow?: boolean;
  dryRun?: boolean;
  ends?: End;
}

export function accountCommand(cli: Cli): Command {
  const account = new Command("account").description(
    "open, list and show accounts, and change their plans and states",
  );

  const creating = account
    .command("create")
    .description("open an account; the first account also creates the ledger, if none exists")
    .argument("<name>", "lower-case letters, digits, dots, dashes, underscores", accountName)
    .requiredOption("--plan <plan>", "a plan that plans list shows as offered");
  withContact(creating)
    .addHelpText(
      "after",
      examples(
        inkwell("account create ada --plan starter"),
        inkwell('account create ada --plan starter --owner "Ada Lovelace" --email ada@example.com'),
      ),
    )
    .action((name: string, { plan, ...contact }: { plan: string } & ContactOptions) =>
      create(cli, name, plan, contactOf(contact)),
    );

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
      "--near-exhaustion",
      `only accounts with less than one credit, or less than ${nearExhaustionPercent} % of the credits of both windows`,
    )
    .addOption(new Option("--order <order>", "order of the list").choices(accountOrders).default("id"))
    .option("--descending", "the greatest first")
    .option("--limit <rows>", "only the first rows", limit)
    .addHelpText(
      "after",
      examples(
        inkwell("account list --search ada"),
        inkwell("account list --near-exhaustion --order remaining"),
        inkwell("account list --plan starter --order created --descending --limit 20"),
      ),
    )
    .action((options: ListOptions) => list(cli, options));

  account
    .command("show")
    .description("show one account: plan, state, balance, keys")
    .argument("<name>", "as account list shows it")
    .action((name: string) => show(cli, name));

  const setting = account
    .command("set")
    .description("change the plan, the time at which the account closes, or the contact")
    .argument("<name>", "as account list shows it")
    .option("--plan <plan>", "a plan that plans list shows as offered")
    .addOption(
      new Option("--at <time>", "when the plan changes: at the next refresh of the base credits, or now")
        .choices(["refresh", "now"])
        .default("refresh"),
    )
    .option("--new-window", "change the plan now, and begin a window where the plan has another one")
    .option("--dry-run", "show what the change of the plan would do, and change nothing")
    .option("--ends <time>", 'close the account at this time: ISO 8601, or "never"', endTime);
  withContact(setting)
    .addHelpText(
      "after",
      examples(
        inkwell("account set ada --plan pro"),
        inkwell("account set ada --plan starter --at now --dry-run"),
        inkwell("account set ada --ends 2027-12-31"),
        inkwell('account set ada --external-id crm-17 --note ""'),
      ),
    )
    .action((name: string, options: SetOptions, command: Command) => set(cli, name, options, command));

  journalCommand(cli, account);
  stateCommands(cli, account);
  return account;
}

async function create(cli: Cli, name: string, plan: string, contact: Partial<Contact>): Promise<void> {
  const config = cli.config();
  // A wrong plan must not create a ledger.
  if (cli.host.services.isNew(config)) requirePlan(config.plans, plan);
  await cli.withActions(
    config,
    async (actions) => {
      const { account, isNew } = await actions.openAccount(name, plan, contact);
      if (!isNew) throw accountExists(name, plan);
      cli.print(accountObject.of(account), "");
      cli.remark(
        `Account ${name} is open, on plan ${plan}. To issue a key: ${inkwell(`key create ${name}`)}`,
      );
    },
    { create: true },
  );
}

async function list(cli: Cli, options: ListOptions): Promise<void> {
  const { limit: rowsMax, order, descending, nearExhaustion: isNearExhaustion, ...others } = options;
  const filters = defined({ ...others, isNearExhaustion });
  await cli.withActions(cli.config(), async (actions) => {
    const accounts = await actions.accountsWithBalance({ ...filters, order, descending }, rowsMax);
    const invalid = accounts.filter(({ problem }) => problem !== null).length;
    const columns: Column<AccountWithBalance>[] = [
      { head: "ACCOUNT", cell: ({ account }) => account.id },
      { head: "PLAN", cell: ({ account }) => account.plan },
      { head: "BASE", right: true, cell: ({ balance }) => creditsText(balance?.base.micro) },
      { head: "OVERAGE", right: true, cell: ({ balance }) => creditsText(balance?.overage.micro) },
      { head: "ADDITIONAL", right: true, cell: ({ balance }) => creditsText(balance?.additionalMicro) },
      { head: "CREATED", cell: ({ account }) => shortTime(account.createdMs) },
    ];
    // Most accounts are active and have no change ahead.
    if (accounts.some(({ account }) => account.state !== "active" || account.endsMs !== null))
      columns.push({ head: "STATE", cell: ({ account }) => stateText(account) });
    if (accounts.some(({ account }) => account.contact.owner !== null))
      columns.push({ head: "OWNER", cell: ({ account }) => account.contact.owner ?? "" });
    if (accounts.some(({ account }) => account.nextPlan !== null))
      columns.push({ head: "NEXT PLAN", cell: ({ account }) => account.nextPlan ?? "" });
    if (invalid > 0) columns.push({ head: "PROBLEM", cell: ({ problem }) => problem ?? "" });
    cli.print(accounts.map(accountDocument), table(accounts, columns));
    if (invalid > 0) cli.remark(`${count(invalid, "account")} must be repaired. ${repairAdvice}`);
    if (accounts.length === 0 && Object.keys(filters).length > 0) cli.remark("No account matches.");
    else if (accounts.length === 0)
      cli.remark(`There are no accounts yet. To open one: ${inkwell("account create NAME --plan PLAN")}`);
  });
}

function accountDocument({ account, balance, problem }: AccountWithBalance) {
  return { ...accountObject.of(account), balance: balance && balanceObject(balance), problem };
}

function creditsText(micro: MicroCredits | undefined): string {
  return micro === undefined ? "-" : grouped(creditsIn(micro));
}

async function show(cli: Cli, name: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const shown = await actions.accountWithBalance(name);
    const { account, nowMs, balance, problem } = shown;
    const keys = await actions.keys.list(name);
    cli.print(
      { ...accountDocument(shown), keys: keys.map(keyObject.of) },
      [
        [headOf(account), ...contactLines(account.contact)].join("\n"),
        balance === null ? `The balance cannot be read: ${problem}.` : balanceTable(balance),
        keys.length === 0 ? `No keys. To issue one: ${inkwell(`key create ${name}`)}` : keyTable(keys, nowMs),
      ].join("\n\n"),
    );
    if (balance === null) cli.remark(repairAdvice);
    else remarkHeld(cli, balance.heldMicro);
  });
}

function stateText({ state, endsMs }: AccountRow): string {
  return state === "closed" || endsMs === null ? state : `${state}, ends ${shortTime(endsMs)}`;
}

function headOf(account: AccountRow): string {
  const { id, plan, nextPlan, base, state, endsMs, createdMs } = account;
  const facts = [`Account ${id}`, `plan ${plan}`, `opened ${shortTime(createdMs)}`];
  if (nextPlan !== null) facts.push(`plan ${nextPlan} from ${shortTime(base?.untilMs ?? null)}`);
  if (state !== "active" || endsMs !== null) facts.push(stateText(account));
  return facts.join(", ");
}

async function set(
  cli: Cli,
  name: string,
  { plan, at: time = "refresh", newWindow = false, dryRun = false, ends, ...texts }: SetOptions,
  command: Command,
): Promise<void> {
  const contact = contactOf(texts);
  const isTimeGiven = command.getOptionValueSource("at") === "cli";
  const at: PlanOperation["at"] = newWindow ? "new_window" : time;
  const changes = [plan !== undefined, ends !== undefined, Object.keys(contact).length > 0];
  if (changes.filter(Boolean).length !== 1) {
    command.error("error: give --plan, --ends or the contact, one of them at a time");
  }
  if (plan === undefined && (dryRun || newWindow || isTimeGiven)) {
    command.error("error: --at, --new-window and --dry-run belong to --plan");
  }
  if (newWindow && isTimeGiven && time === "refresh") {
    command.error("error: --new-window begins a window now, so --at refresh cannot be given with it");
  }
  await cli.withActions(cli.config(), async (actions) => {
    if (Object.keys(contact).length > 0) {
      cli.print(accountObject.of(await actions.setContact(name, contact)), "");
      cli.remark(`The contact of account ${name} is changed.`);
    } else if (ends !== undefined) {
      await refusePastEnd(actions, name, ends);
      const account = await actions.changeState(name, `end-${randomUUID()}`, { kind: "end", ...ends });
      cli.print(accountObject.of(account), "");
      cli.remark(endRemark(account));
    } else if (plan !== undefined && dryRun) {
      const preview = await actions.previewPlan(name, plan, at);
      cli.print(previewObject.of(preview), previewTable(preview));
      cli.remark("Nothing has changed. Without --dry-run, the plan is changed.");
    } else if (plan !== undefined) {
      const before = await actions.accountWithBalance(name);
      const account = await actions.changePlan(name, `plan-${randomUUID()}`, plan, at);
      cli.print(accountObject.of(account), "");
      cli.remark(planRemark(before, account));
    }
  });
}

function planRemark({ account: before, problem }: AccountWithBalance, after: AccountRow): string {
  const { id, plan, nextPlan, base } = after;
  if (nextPlan !== null) {
    return `Account ${id} stays on plan ${plan} until ${shortTime(base?.untilMs ?? null)}, and is on plan ${nextPlan} from then on.`;
  }
  if (before.plan !== plan || problem !== null) {
    return `Account ${id} is on plan ${plan}. Its credits count from now on.`;
  }
  return before.nextPlan === null
    ? `Account ${id} is on plan ${plan} already.`
    : `Account ${id} stays on plan ${plan}. The change to plan ${before.nextPlan} is cancelled.`;
}

/** Throws if the end has passed: it would close the account for good, without a confirmation. */
async function refusePastEnd(actions: OperatorActions, name: string, { endsMs }: End): Promise<void> {
  const { nowMs } = await actions.accountWithBalance(name);
  if (endsMs === null || endsMs > nowMs) return;
  throw new OperatorError(
    `The end ${shortTime(endsMs)} has passed. Nothing has changed. Name a later time. To close the account now: ${inkwell(`account close ${name}`)}`,
  );
}

function endRemark({ id, state, endsMs }: AccountRow): string {
  if (state === "closed") return `The time has passed: account ${id} is closed.`;
  return endsMs === null ? `Account ${id} has no end.` : `Account ${id} closes at ${shortTime(endsMs)}.`;
}

/** An object, because Commander does not keep null. */
interface End {
  endsMs: EpochMs | null;
}

function endTime(value: string): End {
  return { endsMs: value === "never" ? null : moment(value) };
}

/** A change within a window is a gift or a cut. */
function earlyText({ earlyMicro }: PlanPreviewOf): string {
  if (earlyMicro === 0) return "";
  const what = earlyMicro > 0 ? "come" : "go";
  return `\n\n${exactCredits(Math.abs(earlyMicro))} credits ${what} before the present windows would have ended.`;
}

/** Shows both balances side by side. */
function previewTable(preview: PlanPreviewOf): string {
  const { account, effectiveMs, before, after } = preview;
  const rows = (["base", "overage"] as const).map((name) => ({ name, was: before[name], is: after[name] }));
  const text = table(rows, [
    { head: "BUCKET", cell: ({ name }) => name },
    { head: "CREDITS", right: true, cell: ({ was }) => creditsText(was.micro) },
    { head: "OF", right: true, cell: ({ was }) => creditsText(was.capMicro) },
    { head: "REFRESHES", cell: ({ was }) => shortTime(was.endsMs) },
    { head: "THEN", right: true, cell: ({ is }) => creditsText(is.micro) },
    { head: "OF", right: true, cell: ({ is }) => creditsText(is.capMicro) },
    { head: "REFRESHES", cell: ({ is }) => shortTime(is.endsMs) },
  ]);
  const from = `Account ${account}: plan ${before.plan} until ${shortTime(effectiveMs)}, then plan ${after.plan}`;
  return `${from}\n\n${text}${earlyText(preview)}`;
}
