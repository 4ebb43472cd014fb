/**
 * `inkwell credits`: top-ups, refunds and adjustments of additional credits. Each id takes effect
 * once.
 */
import { randomUUID } from "node:crypto";
import { Command } from "commander";
import type { CreditsChange, CreditsRefund, OperatorActions } from "../accounts/operator-actions.ts";
import { adjustmentObject, paymentObject, refundObject, topupObject } from "../accounts/operator-objects.ts";
import {
  type PaymentReport,
  type PaymentReportRow,
  paymentReportCsv,
  paymentReportObject,
} from "../accounts/payment-report.ts";
import { inkwell } from "../invocation.ts";
import type { ListedPayment } from "../store/store.ts";
import { exactCredits } from "../units.ts";
import { creditsToAdd, creditsToAdjust, dayOrMoment, id, limit, note } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { type Column, count, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";

const pageRows = 500;

interface AddOptions {
  payment?: string;
  promotional?: boolean;
  expires?: string;
  reason?: string;
  id?: string;
}

interface AdjustOptions {
  reason: string;
  id?: string;
  request?: string;
  grant?: number;
}

type Change<Ids> = (actions: OperatorActions, account: string, amount: number, ids: Ids) => Promise<void>;

export function creditsCommand(cli: Cli): Command {
  const credits = new Command("credits").description("add, refund or correct additional credits");
  const command = <Ids>(
    name: string,
    about: string,
    amount: { about: string; parse(value: string): number },
    change: Change<Ids>,
  ) =>
    credits
      .command(name)
      .description(about)
      .argument("<account>", "as account list shows it")
      .argument("<credits>", amount.about, amount.parse)
      .action((account: string, credits: number, ids: Ids) =>
        cli.withActions(cli.config(), (actions) => change(actions, account, credits, ids)),
      );

  const adding = command<AddOptions>(
    "add",
    "add credits that were paid for, or promotional credits; each payment counts once, for all accounts",
    { about: "whole credits", parse: creditsToAdd },
    async (actions, account, amount, options) => {
      if (options.promotional !== true)
        return await addPayment(actions, account, amount, options.payment ?? "");
      const { id = `promotion-${randomUUID()}`, reason = "promotion", expires } = options;
      const change = await actions.adjustCredits(account, { op: id, credits: amount, reason, expires });
      cli.print(adjustmentObject.of({ account, id, credits: amount, change }), "");
      const end = expires === undefined ? "" : ` until ${expires}`;
      cli.remark(
        change.replayed
          ? `Promotion ${id} was added before. Nothing has changed.`
          : `${count(amount, "promotional credit")} added to ${account}${end}. ${leftText(change)}`,
      );
    },
  )
    .option("--payment <id>", "your id of the payment; a repetition changes nothing", id)
    .option("--promotional", "credits that nobody has paid for: they are spent first, and cannot be refunded")
    .option("--expires <time>", "of promotional credits: when they end; a day ends at its end", dayOrMoment)
    .option("--reason <text>", "of promotional credits: the reason, for the journal", note)
    .option("--id <id>", "of promotional credits: your id; a repetition changes nothing", id)
    .addHelpText(
      "after",
      examples(
        inkwell("credits add ada 50000 --payment inv-2041"),
        inkwell("credits add ada 500 --promotional --expires 2027-01-31"),
      ),
    )
    .hook("preAction", (_, command) => {
      const { payment, promotional = false, expires, reason, id } = command.opts<AddOptions>();
      if ((payment !== undefined) === promotional)
        adding.error("error: give either --payment ID or --promotional");
      if (!promotional && [expires, reason, id].some((option) => option !== undefined))
        adding.error("error: --expires, --reason and --id belong to --promotional");
    });

  const addPayment = async (
    actions: OperatorActions,
    account: string,
    amount: number,
    payment: string,
  ): Promise<void> => {
    const change = await actions.addCredits(account, payment, amount);
    cli.print(topupObject.of({ account, id: payment, credits: amount, change }), "");
    cli.remark(
      change.replayed
        ? `Payment ${payment} was counted before. Nothing has changed.`
        : `${count(amount, "credit")} added to ${account}. ${leftText(change)}`,
    );
  };

  command<{ payment: string; id: string }>(
    "refund",
    "take back credits of a payment that was returned, as far as they are not spent",
    { about: "whole credits, at most those of the payment", parse: creditsToAdd },
    async (actions, account, amount, { payment, id }) => {
      const change = await actions.refundCredits(account, { refund: id, payment, credits: amount });
      cli.print(refundObject.of({ account, id, payment, credits: amount, change }), "");
      cli.remark(refundRemark(account, id, change));
    },
  )
    .requiredOption("--payment <id>", "the id of the payment", id)
    .requiredOption("--id <id>", "your id of this refund; a repetition changes nothing", id)
    .addHelpText("after", examples(inkwell("credits refund ada 50000 --payment inv-2041 --id refund-17")));

  const adjusting = command<AdjustOptions>(
    "adjust",
    "give or take away promotional credits; each id counts once, for all accounts",
    { about: "whole credits; a negative number takes away", parse: creditsToAdjust },
    async (actions, account, amount, { reason, id = `adjust-${randomUUID()}`, request, grant }) => {
      const change = await actions.adjustCredits(account, {
        op: id,
        credits: amount,
        reason,
        request,
        grant,
      });
      cli.print(adjustmentObject.of({ account, id, credits: amount, change }), "");
      cli.remark(
        change.replayed
          ? `Adjustment ${id} was made before. Nothing has changed.`
          : `Account ${account} has ${exactCredits(change.additional)} additional credits now.`,
      );
    },
  )
    .requiredOption("--reason <text>", "the reason, for the journal", note)
    .option("--id <id>", "your id of this correction; a repetition changes nothing", id)
    .option("--request <id>", "the request that the credits make up for, at most what was paid for it", id)
    .option("--grant <number>", "take from this grant, by its number in the journal", limit)
    .addHelpText(
      "after",
      examples(
        inkwell('credits adjust ada 12 --request 019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e --reason "cut off"'),
        inkwell('credits adjust ada -2000 --reason "counted twice" --id fix-17'),
      ),
    )
    .hook("preAction", (_, command) => {
      const { request, grant } = command.opts<AdjustOptions>();
      const isGiven = Number(command.args[1]) > 0;
      if (request !== undefined && !isGiven) adjusting.error("error: --request belongs to a positive number");
      if (grant !== undefined && isGiven) adjusting.error("error: --grant belongs to a negative number");
    });

  credits
    .command("payments")
    .description("list the payments of an account and what was spent and refunded of each, the newest first")
    .argument("<account>", "as account list shows it")
    .option("--limit <rows>", "only the first rows", limit, 100)
    .addHelpText("after", examples(inkwell("credits payments ada")))
    .action((account: string, { limit }: { limit: number }) =>
      cli.withActions(cli.config(), async (actions) => {
        const rows = await paymentsOf(actions, account, limit);
        cli.print(rows.map(paymentObject.of), rows.length === 0 ? "" : table(rows, paymentColumns));
        if (rows.length === 0) cli.remark(`${account} has no payment.`);
      }),
    );

  const report = credits
    .command("report")
    .description("show for a month what was added, spent and refunded of each payment, and what is left")
    .requiredOption("--month <month>", "such as 2027-01, in the time zone of the configuration")
    .option("--csv", "as CSV, with every field")
    .addHelpText(
      "after",
      examples(
        inkwell("credits report --month 2027-01"),
        inkwell("credits report --month 2027-01 --csv > january.csv"),
      ),
    )
    .action(({ month, csv }: { month: string; csv?: boolean }) => {
      if (csv === true && cli.json) report.error("error: it is --csv or --json, not both");
      return cli.withActions(cli.config(), async (actions) =>
        printReport(cli, await actions.paymentReport(month), csv === true),
      );
    });

  return credits;
}

function printReport(cli: Cli, report: PaymentReport, csv: boolean): void {
  const { rows, total, month, timezone, isOver } = report;
  if (csv) cli.host.stdout.write(paymentReportCsv(report));
  else cli.print(paymentReportObject(report), rows.length === 0 ? "" : table(rows, reportColumns));
  if (rows.length === 0) cli.remark(`No payment had credits left in ${month}.`);
  else
    cli.remark(
      `Total: ${exactCredits(total.leftBefore)} left before, ${exactCredits(total.added)} added, ${exactCredits(total.spent)} spent, ${exactCredits(total.refunded)} refunded, ${exactCredits(total.left)} left.`,
    );
  cli.remark(`Month in ${timezone}.${isOver ? "" : " It has not ended, so these figures will change."}`);
}

const reportColumns: readonly Column<PaymentReportRow>[] = [
  { head: "PAYMENT", cell: ({ id }) => id },
  { head: "ACCOUNT", cell: ({ account }) => account },
  { head: "LEFT BEFORE", right: true, cell: ({ leftBefore }) => exactCredits(leftBefore) },
  { head: "ADDED", right: true, cell: ({ added }) => exactCredits(added) },
  { head: "SPENT", right: true, cell: ({ spent }) => exactCredits(spent) },
  { head: "REFUNDED", right: true, cell: ({ refunded }) => exactCredits(refunded) },
  { head: "LEFT", right: true, cell: ({ left }) => exactCredits(left) },
];

async function paymentsOf(
  actions: OperatorActions,
  account: string,
  limit: number,
): Promise<ListedPayment[]> {
  const rows: ListedPayment[] = [];
  for (;;) {
    const wanted = Math.min(pageRows, limit - rows.length);
    const page = await actions.payments(account, { afterSeq: rows.at(-1)?.seq, limit: wanted });
    rows.push(...page);
    if (page.length < wanted || rows.length === limit) return rows;
  }
}

const paymentColumns: readonly Column<ListedPayment>[] = [
  { head: "TIME", cell: ({ atMs }) => shortTime(atMs) },
  { head: "CREDITS", right: true, cell: ({ amount }) => exactCredits(amount) },
  { head: "SPENT", right: true, cell: ({ spent }) => exactCredits(spent) },
  { head: "REFUNDED", right: true, cell: ({ refunded }) => exactCredits(refunded) },
  { head: "PAYMENT", cell: ({ id }) => id },
];

function leftText({ additional }: CreditsChange): string {
  return `It has ${exactCredits(additional)} additional credits now.`;
}

function refundRemark(
  account: string,
  id: string,
  { amount, rest, additional, replayed }: CreditsRefund,
): string {
  const left = `It has ${exactCredits(additional)} additional credits now.`;
  if (replayed)
    return `Refund ${id} was made before, of ${exactCredits(amount)} credits. Nothing has changed.`;
  if (rest === 0) return `${exactCredits(amount)} credits refunded from ${account}. ${left}`;
  return `${exactCredits(amount)} credits refunded from ${account}. The other ${exactCredits(rest)} are held by running requests, and can be refunded when these have ended. ${left}`;
}
