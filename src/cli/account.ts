/** `inkwell account`: opens, lists and shows accounts, and changes their plans and states. */
import type { Command } from "commander";
import type { Static } from "typebox";
import type {
  AccountJson,
  KeyJson,
  listedAccountObject,
  PlanPreviewJson,
} from "../accounts/operator-objects.ts";
import {
  changePlan,
  changeState,
  contact,
  inviteAccount,
  mailChoices,
  mailNames,
  openAccount,
  previewPlan,
  setContact,
  setEnd,
} from "../actions/accounts.ts";
import { shown } from "../actions/columns.ts";
import { optional, optionally } from "../actions/field.ts";
import { listAccounts, listJournal, listKeys, showAccount } from "../actions/views.ts";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { exactCredits, grouped, localMomentOf, shortTime } from "../units.ts";
import { importCommand } from "./account-import-command.ts";
import { actionCommand, commandGroup, commandWith, type Given, listCommand } from "./action-command.ts";
import { type BalanceJson, balanceTable, fetchBalance, remarkHeld } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { repairAdvice } from "./failure.ts";
import { columnsOf, count } from "./format.ts";
import { capLines, keyTable } from "./key-text.ts";

type ListedAccountJson = Static<typeof listedAccountObject.schema>;

export function accountCommand(cli: Cli): Command {
  return commandGroup("account", "open, list and show accounts, and change their plans and states", [
    createCommand(cli),
    importCommand(cli),
    accountList(cli),
    commandWith(
      {
        words: "account show <account>",
        about: "show one account: plan, state, balance, keys",
        fields: showAccount.input,
      },
      ({ account }) => showOne(cli, String(account)),
    ),
    setCommand(cli),
    actionCommand(cli, inviteAccount, {
      about: "invite a person to an account; prints the link once, alone on stdout, or mails it",
      text: ({ link }) => link ?? "",
      remark: ({ email, expires_at, link }, done) =>
        link === null
          ? done
          : `The link is for ${email ?? "the person who has joined"}, works once, until ${shortTime(expires_at)}, and is shown only now. Anyone who has it is taken for this person. An earlier link has ended.`,
    }),
    journalCommand(cli),
    actionCommand(cli, changeState, {
      about: "answer no new requests of the account; running requests finish, and windows go on",
      preset: { state: "suspended" },
      remark: ({ id, state }, done) =>
        state === "suspended" ? `${done} To end that: ${inkwell(`account resume ${id}`)}` : done,
    }),
    actionCommand(cli, changeState, {
      about: "end a suspension",
      preset: { state: "active" },
    }),
    actionCommand(cli, changeState, {
      about: "close the account for good; base and overage credits lapse, additional credits stay",
      examples: ["account close ada --yes"],
      preset: { state: "closed" },
      confirm: async ({ account }) => {
        const { balances } = (await fetchBalance(cli, String(account))).balance ?? {};
        const lapsing = (balances?.base.credits ?? 0) + (balances?.overage.credits ?? 0);
        return {
          effect: `Closing ${account} is final. ${grouped(lapsing)} base and overage credits lapse.`,
          question: "Close it?",
        };
      },
    }),
  ]);
}

function createCommand(cli: Cli): Command {
  const { dry_run: _, ...fields } = openAccount.input;
  return commandWith(
    {
      words: openAccount.cli,
      about: "open an account; the first account also creates the ledger, if none exists",
      fields,
      examples: [
        "account create ada --plan starter",
        'account create ada --plan starter --owner "Ada Lovelace" --email ada@example.com',
      ],
    },
    async (given, command) => {
      if ("payment_id" in given && !("credits" in given))
        command.error("error: --payment needs --credits: the additional credits of the payment");
      const { result, isNew } = await cli.api.open<AccountJson>(openAccount, given);
      const { id, plan } = result;
      if (!isNew) {
        throw new OperatorError(
          `Account ${id} already exists, opened on plan ${plan}. "${inkwell("account set")}" changes its plan.`,
        );
      }
      cli.print(result, "");
      cli.remark(`${openAccount.done?.(result)} To issue a key: ${inkwell(`key create ${id}`)}`);
    },
  );
}

function accountList(cli: Cli): Command {
  return listCommand<ListedAccountJson>(cli, listAccounts, {
    about: "list accounts with their plans and credits",
    limit: Number.POSITIVE_INFINITY,
    columns: (rows) => {
      // Most accounts are active and have no change ahead.
      const hasStates = rows.some(({ state, ends_at }) => state !== "active" || ends_at !== null);
      return [
        ...columnsOf("account", "id plan balance.balances.base.credits balance.balances.overage.credits"),
        ...columnsOf("account", "balance.balances.additional.credits created_at"),
        ...(hasStates ? columnsOf("account", "state", { state: stateText }) : []),
        ...columnsOf("account", "owner? next_plan? invitation?"),
        ...(rows.some(({ problem }) => problem !== null)
          ? [{ head: "PROBLEM", cell: ({ problem }: ListedAccountJson) => problem ?? "" }]
          : []),
      ];
    },
    none: (_, isFiltered) =>
      isFiltered
        ? "No account matches."
        : `There are no accounts yet. To open one: ${inkwell("account create NAME --plan PLAN")}`,
    remarks: (rows) => {
      const invalid = rows.filter(({ problem }) => problem !== null).length;
      return invalid === 0 ? [] : [`${count(invalid, "account")} must be repaired. ${repairAdvice}`];
    },
  });
}

/** Four requests: the account, its balance, its keys, and the time. */
async function showOne(cli: Cli, account: string): Promise<void> {
  const { api } = cli;
  const found = await api.get<AccountJson>(showAccount, { account });
  const { balance, spending_caps, held_micro, problem } = await fetchBalance(cli, account);
  const keys = await api.all<KeyJson>(listKeys, { account });
  const { nowMs } = await api.clock();
  cli.print(
    { ...found, balance, spending_caps, problem, keys },
    [
      [headOf(found, balance), ...contactLines(found)].join("\n"),
      balance === null ? problem : balanceTable(balance),
      ...capLines(spending_caps),
      keys.length === 0
        ? `No keys. To issue one: ${inkwell(`key create ${account}`)}`
        : keyTable(keys, nowMs, cli),
    ].join("\n\n"),
  );
  if (balance === null) cli.remark(repairAdvice);
  else remarkHeld(cli, held_micro);
}

function contactLines(account: AccountJson): string[] {
  return [
    ...(["owner", "email", "external_id", "note"] as const).filter((name) => account[name] !== null),
    ...mailNames.filter((name) => account[name] === "off"),
  ].map((name) => `${shown.account[name][0].toLowerCase()}: ${account[name]}`);
}

function stateText({ state, ends_at }: AccountJson): string {
  return state === "closed" || ends_at === null ? state : `${state}, ends ${shortTime(ends_at)}`;
}

function headOf(account: AccountJson, balance: BalanceJson | null): string {
  const { id, plan, next_plan, state, ends_at, created_at } = account;
  const facts = [`Account ${id}`, `plan ${plan}`, `opened ${shortTime(created_at)}`];
  if (next_plan !== null)
    facts.push(`plan ${next_plan} from ${shortTime(balance?.baseWindow.refreshesAt ?? null)}`);
  if (state !== "active" || ends_at !== null) facts.push(stateText(account));
  return facts.join(", ");
}

/** One command for three actions and a preview. */
function setCommand(cli: Cli): Command {
  const { account, plan, at } = changePlan.input;
  const fields = {
    account,
    plan: optional(plan),
    at: { ...at, values: ["refresh", "now"] },
    new_window: optionally.flag({
      about: "change the plan now, and begin a window where the plan has another one",
    }),
    dry_run: optionally.flag({ about: "show what the change of the plan would do, and change nothing" }),
    ends_at: optional(setEnd.input.ends_at),
    operation_id: optional(setEnd.input.operation_id),
    ...contact,
    ...mailChoices,
  };
  return commandWith(
    {
      words: changePlan.cli,
      about: "change the plan, the time at which the account closes, or the contact",
      fields,
      examples: [
        "account set ada --plan pro",
        "account set ada --plan starter --at now --dry-run",
        "account set ada --ends 2027-12-31",
        'account set ada --external-id crm-17 --note ""',
      ],
    },
    (given, command) => set(cli, command, given),
  );
}

async function set(cli: Cli, command: Command, given: Given): Promise<void> {
  const {
    account,
    plan,
    at,
    new_window: newWindow,
    dry_run: dryRun,
    ends_at,
    operation_id,
    ...texts
  } = given;
  const hasContact = Object.keys(texts).length > 0;
  const changes = [plan !== undefined, ends_at !== undefined, hasContact];
  if (changes.filter(Boolean).length !== 1)
    command.error("error: give --plan, --ends or the contact, one of them at a time");
  if (plan === undefined && [dryRun, newWindow, at].some((each) => each !== undefined))
    command.error("error: --at, --new-window and --dry-run belong to --plan");
  if (newWindow === true && at === "refresh")
    command.error("error: --new-window begins a window now, so --at refresh cannot be given with it");
  const toPlan = { account, plan, at: newWindow === true ? "new_window" : at };
  if (dryRun === true) {
    const preview = await cli.api.get<PlanPreviewJson>(previewPlan, toPlan);
    cli.print(preview, previewText(preview));
    return cli.remark("Nothing has changed. Without --dry-run, the plan is changed.");
  }
  if (typeof ends_at === "string") await refusePastEnd(cli, String(account), ends_at);
  const once = hasContact ? {} : { operation_id: operation_id ?? cli.newOperation("set") };
  const [action, json] =
    plan !== undefined
      ? [changePlan, { ...toPlan, ...once }]
      : hasContact
        ? [setContact, { account, ...texts }]
        : [setEnd, { account, ends_at, ...once }];
  const result = await cli.api.get<AccountJson>(action, json);
  cli.print(result, "");
  cli.remark(action.done?.(result) ?? "");
}

/** Throws if the end has passed: it would close the account for good, without a confirmation. */
async function refusePastEnd(cli: Cli, account: string, end: string): Promise<void> {
  const { nowMs, timezone } = await cli.api.clock();
  const endsMs = localMomentOf(end, timezone, 1);
  if (endsMs === null || endsMs > nowMs) return;
  throw new OperatorError(
    `The end ${shortTime(endsMs)} has passed. Nothing has changed. Name a later time. To close the account now: ${inkwell(`account close ${account}`)}`,
  );
}

/** A change within a window is a gift or a cut. */
function earlyTexts({ early_micro: early }: PlanPreviewJson): string[] {
  if (early === 0) return [];
  const what = early > 0 ? "come" : "go";
  return [`${exactCredits(Math.abs(early))} credits ${what} before the present windows would have ended.`];
}

/** Shows both balances. */
function previewText(preview: PlanPreviewJson): string {
  const { account, effective_at, before, after, new_caps } = preview;
  return [
    `Account ${account}, plan ${before.plan} until ${shortTime(effective_at)}`,
    balanceTable(before.balance),
    ...capLines(before.spending_caps),
    `Then plan ${after.plan}`,
    balanceTable(after.balance),
    ...capLines(after.spending_caps),
    ...earlyTexts(preview),
    ...(new_caps.length === 0 ? [] : [`These caps begin then, with nothing spent: ${new_caps.join(", ")}.`]),
  ].join("\n\n");
}

function journalCommand(cli: Cli): Command {
  const { account, kind } = listJournal.input;
  return listCommand(cli, listJournal, {
    about: "list the changes of an account's credits, the newest first",
    fields: {
      account,
      kind,
      order: optionally.choice(["newest", "oldest"], {
        rule: "",
        option: "--oldest",
        about: "the oldest first",
      }),
    },
    asked: (given) => ({ order: "newest", ...given }),
    limit: 100,
    columns: columnsOf("journalEntry", "seq at bucket amount_micro sentence"),
    none: () => "No entry of the journal matches.",
    more: "There are more entries. Raise --limit to see them.",
  });
}
